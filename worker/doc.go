// Package worker wires workflows and activities to a Temporal task queue. Any number of identical workers may run; they
// keep nothing of their own.
package worker
