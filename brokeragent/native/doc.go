// Package native is the broker an agent carries with it: partition logs behind the Kafka wire protocol, driven by the
// rows of the metastore.
//
// What it promises:
//
//  1. A partition takes writes, reads and commits only between this process's own acknowledged OpenOwner and the moment
//     it freezes or sees another owner (R4). Nobody opens or thaws on a read.
//  2. A produce is answered with success only after its batch is on disk, and with an error only when it was not
//     appended. While frozen, produce and commits are parked before anything is appended.
//  3. The freeze takes the same lock as append and commit: nothing slips between the check and the write.
//  4. Data is never deleted on a guess: a partition that left is renamed into trash, an owner without its data stays
//     closed and says so (R5).
//
// What dies when: this process dies: everything acknowledged is on disk; the next process asks OpenOwner again, which
// raises the version and so kills a CommitOwner prepared against the dead freeze. Postgres dies: open partitions serve
// on, nothing opens, freezes or thaws. A peer dies: only what it owned.
//
// Start with partition.go (the states), then produce.go, freeze.go and reconcile.go.
package native
