// Package wire is the Kafka protocol server of a native broker: it frames, decodes, orders and encodes, and decides
// nothing a partition could decide. What stands behind it is the Broker interface (broker.go).
//
// What it promises:
//
//  1. The requests of one connection are handled strictly in the order they came, one at a time, and answered in that
//     order. A reader goroutine runs ahead of the processor into a bounded queue, so that every request carries the moment
//     it had been read whole (R27 i), however long the request before it is parked.
//  2. Broker.Produce is called for every partition of a request before the first answer is awaited.
//  3. A client that has gone away wakes its long poll; what it had already sent is still handled, acks=0 produces above all.
//  4. A malformed request, an unknown key or a panic ends only the connection it came from.
//  5. Every offset of -1 in an OffsetFetch answer came from the Broker; the server never makes one up (R13).
//
// What the caller owes: Broker's methods return (or honour their context) and every Routing is ordered as
// broker.go says. The record bytes handed to Produce may be kept, for the server never reuses a request's memory; but
// they keep the whole request alive, so what is kept for long is better copied.
//
// Start reading at apis.go (what is served at which versions), then conn.go (the life of a connection).
package wire
