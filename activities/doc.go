// Package activities is what workflows do to the world: guarded writes in the metastore and orders to agents. Every
// activity is idempotent and heartbeats; each may be run again after any death, and its doc comment says what happens
// then.
//
// Waiting for a participant that is away is not a failure: the activity keeps trying, tells the workflow what blocks it
// (signal progress), and ends only when it is cancelled. errors.go is the one place that says which refusal is final.
package activities
