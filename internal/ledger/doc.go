// Package ledger proves that nothing was lost: a journal of every acknowledged record, kept outside the brokers' data and
// compared record by record with a full read.
//
// What it promises:
//
//  1. Writers are real Kafka clients at default settings (franz-go, kcat): acks all, idempotent, keyed. The next record of
//     a key is sent without waiting for the one before, so the order of a key is the brokers' doing.
//  2. A record is *acknowledged* once the client said so: franz-go with an offset, kcat by ending cleanly after its flush
//     (it names no offsets, so its records must be found once, in order, anywhere in their key's partition).
//  3. Every acknowledged record must be found exactly once, unchanged, at its offset, in the order of its key. A record that
//     was in flight when its writer was closed, or whose produce failed, is neither lost nor required.
//  4. Every error that a client reported is a fault of its own, even where no record is missing.
//
// What the caller owes: writers are closed before Check; the topic loses no record to retention meanwhile; the folder of
// the journals is not inside a broker's.
//
// Start with compare.go (what is a fault), then writer.go and check.go.
package ledger
