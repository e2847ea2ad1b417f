// Package metastore is the single arbiter of a fleet: who owns which partition, kept in Postgres.
//
// Its promise: every change of ownership is one short transaction, a guarded write, that happens only when the row is
// what the caller believes it is, and that leaves an audit row behind in the same transaction.
//
// A guarded write has three outcomes, and the caller must treat them as three:
//
//  1. done: a nil error. The returned row is the row as the write left it. Repeating a write that is done is done again,
//     but for CreateTopic and DeleteTopic, whose repeat is refused as Kafka's is.
//  2. refused: a *Refused. Nothing was written; it carries a stable code and the row as it stands.
//  3. unknown: an *Unknown. The write may or may not have happened. It is settled only by repeating it or by winning
//     AbortMove, both of which take the row lock; never by a plain read (R6). Nothing is ever compensated on unknown.
//
// Guarded writes run in a context that outlives the caller's, so that a cancelled caller does not turn a commit in
// flight into a guess (R1). Reads always go to a primary.
//
// Postgres dying before a write: unknown, repeated later. During the commit: unknown; the repeat finds either the old
// row or the outcome in moves. After it: the row stands. Start reading at guarded.go, then one file per write.
package metastore
