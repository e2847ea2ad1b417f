// Package offsets keeps the committed offsets of one partition, of every group, beside the partition's log (design §4).
//
// It promises:
//   - Commit stamps each entry with the partition's epoch and a counter that only grows, also across deletes,
//     compactions and restarts, so that "the higher stamp wins" can be decided elsewhere (R12, R24);
//   - the wait that Commit and Delete return ends with nil only after the entry is fsynced; one fsync serves all who wait;
//   - Replace puts a snapshot in the place of everything (R24), in one step: after a crash the table is the old one or the
//     new one;
//   - a failed write or fsync is never retried: the table turns failed and only Open, which reads the disk, starts over;
//   - Open cuts a torn tail and says so in Recovered.
//
// The caller owes: it acknowledges a commit only after its wait; it decides which commits are let in (slot epoch,
// generation, the freeze). Get and All show an entry from the moment it is stamped, durable or not.
//
// The journal is one file of frames (length, CRC, payload). The first frame is a snapshot when the file was written by a
// compaction, a Replace or WriteSnapshotFile; each further one is a commit or a delete.
//
// Start reading at table.go; the journal's form is in codec.go, its writer in journal.go.
package offsets
