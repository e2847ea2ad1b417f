// Package seglog is the segmented log of one partition in one directory, and the staged copy of such a log at the
// destination of a move.
//
// # What it promises
//
//   - Batches are stored verbatim, contiguous in offset, in segments named by their first offset. Append alone chooses
//     offsets and stamps the leader epoch.
//   - Nothing is shown before it is durable: Read, Segments, DigestAt, the time look-ups and DurableEnd speak of fsynced
//     bytes only (R25). End and CheckProducer speak of written ones, because the next append builds on those.
//   - A failed fsync is never retried. The log turns failed, every later call returns that error, and only Open, which
//     reads the disk again, starts over.
//   - A segment followed by another was durable before its follower was created. Damage there is therefore never a torn
//     write: Open names file and position and cuts nothing. In the last segment Open cuts what is not a whole, sound
//     batch, unless that would go below an offset known to have been durable (a producer snapshot stands at it).
//   - A log is created only by Create and by Staging.Install, never by Open (R5). Both appear by one rename.
//   - Epoch starts are durable before BeginEpoch returns, also when no batch follows.
//   - The log start moves durably before the bytes below it go; pins hold the bytes, not the start.
//   - Memory is about 56 bytes for each 64 KiB of log, plus about 150 bytes for each idempotent producer.
//
// # What the caller owes
//
//   - Batches given to Append passed recordbatch.ValidateForProduce and CheckProducer, and nobody appends for the same
//     partition between that check and the append.
//   - An append is acknowledged, and a Duplicate is, only after WaitDurable of its end.
//   - One process opens a directory at a time (the data root is locked by its owner).
//   - For ProducerSnapshot during copying: WaitDurable(SnapshotEnd) before the segments are listed, so that the copy
//     reaches at least as far as the snapshot.
//
// # Files
//
//	%020d.log        batches; the name is the base offset
//	%020d.index      of a sealed segment: size, next offset, digest, largest timestamp, sparse entries, CRC
//	%020d.producers  producer state before that offset; proof that the log was durable up to it
//	epochs.json      epoch starts
//	meta.json        identity and log start; its presence makes the directory a log
//	staging.json     identity of a staged copy; a directory with it and without meta.json is not a log
//
// Files of other names in the directory are left alone and travel with Install's rename.
//
// # Lock order
//
// appendMu, then structMu, then mu. No disk I/O happens under mu.
//
// Start reading at log.go (the state), then append.go, syncer.go, open.go; the copy begins at staging.go.
package seglog
