package e2e

import (
	"testing"

	"portage/workflows/protocol"
)

// Terminate is pressed in the UI while the partition is frozen: the freeze ends by its lease, and the next move works.
func TestTerminateWhileFrozen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease})
	load := w.startLoad()
	halt := w.faults.Arm("worker1", "cutover.frozen")
	run := w.start("b2")
	w.must(halt.Reached(w.ctx))
	w.must(w.Client.TerminateWorkflow(w.ctx, run.GetID(), run.GetRunID(), "pressed in the UI"))
	load.acknowledge(loadPerSecond / 4) // the lease ended and the source serves on
	w.must(halt.Continue())
	w.settled("b1")
	w.mustMove("b2")
	w.settled("b2")
	load.finish()
	w.committedOnce()
}

// Terminate is pressed while the copy runs: nobody else ends the claim, so the next move releases it.
func TestTerminatedMoveIsReleasedByTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1})
	load := w.startLoad()
	load.fill(8)
	run := w.start("b2", func(in *protocol.MoveInput) { in.Limit = 1 << 20 })
	w.phase(run, protocol.PhaseCopy)
	w.must(w.Client.TerminateWorkflow(w.ctx, run.GetID(), run.GetRunID(), "pressed in the UI"))
	if id := w.row().Moving(); id == "" {
		t.Fatal("the claim went with the workflow: this test shows nothing")
	}
	w.mustMove("b2")
	w.settled("b2")
	load.acknowledge(1)
	load.finish()
	w.committedOnce()
}
