package e2e

import (
	"testing"

	"go.temporal.io/sdk/temporal"

	"portage/internal/fleet"
	"portage/internal/netcut"
	"portage/workflows/protocol"
)

// lostReplies are the guarded writes and control calls of a move that is done, and who makes each. Whoever makes it twice
// has its first reply lost.
var lostReplies = []struct {
	call, by string
	back     bool  // of a move back, which adopts what it left
	fill     int64 // MiB, for calls that only a copy with bytes makes
}{
	{call: "Status", by: worker},
	{call: "Partition", by: worker},
	{call: "ClaimMove", by: worker},
	{call: "Ensure", by: worker},
	{call: "StartCopy", by: worker},
	{call: "Session", by: worker},
	{call: "Listing", by: destination},
	{call: "SegmentDigest", by: destination, back: true},
	{call: "SegmentBytes", by: destination, fill: 1},
	{call: "Freeze", by: worker},
	{call: "Drain", by: worker},
	{call: "CommitOwner", by: worker},
	{call: "OpenOwner", by: destination},
	{call: "Look", by: worker},
	{call: "CommitOffsets", by: coordinator},
	{call: "FetchOffsets", by: coordinator},
}

// coordinator is whichever broker a client asks for a group's offsets: it relays to the owners.
const coordinator = "coordinator"

const lostColumn = "reply lost"

// A call took effect and its reply was lost: the repeat finds what was done.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	cells := matrix.table("whose reply was lost, and how the move ended:", []string{lostColumn}, everyCell...)
	for _, c := range lostReplies {
		cells.run(t, c.call+" by the "+c.by, lostColumn, func(t *testing.T) string {
			w := newWorld(t, setup{brokers: 2, workers: 1})
			load := w.startLoad()
			to, by := "b2", processOf[c.by]
			if c.back {
				w.mustMove("b2")
				w.settled("b2")
				load.acknowledge(loadPerSecond / 4)
				to, by = "b1", "b1" // the destination of the move back
			}
			if c.fill > 0 {
				load.fill(c.fill)
			}
			lost := w.faults.LoseReply(by, c.call)
			run := w.start(to)
			if c.call == "FetchOffsets" { // commits come by themselves
				w.must(load.consumer.CheckCommitted(w.ctx))
			}
			w.must(lost.Lost(w.ctx))
			result := w.mustEnd(run)
			if result.Attempts != 1 {
				t.Errorf("the move took %d attempts", result.Attempts)
			}
			w.settled(to)
			load.acknowledge(1)
			load.finish()
			return "done in 1, " + load.verdict
		})
	}
	for _, c := range []struct{ call, by string }{{"RegisterBroker", source}, {"RegisterBroker", destination}, {"HoldController", worker}} {
		cells.run(t, c.call+" by the "+c.by+", started again", lostColumn, func(t *testing.T) string {
			w := newWorld(t, setup{brokers: 2, workers: 1})
			load := w.startLoad()
			draining := w.faults.Arm("b2", "drain.before")
			run := w.start("b2")
			w.must(draining.Reached(w.ctx))
			lost := w.faults.LoseReply(processOf[c.by], c.call)
			w.kill(c.by)
			if c.by != destination {
				w.must(draining.Continue())
			}
			w.restart(c.by)
			w.must(lost.Lost(w.ctx))
			return w.movedTo("b2", load, w.mustEnd(run))
		})
	}
	cells.run(t, "BuryMove by the worker, of a cancel before the claim", lostColumn, func(t *testing.T) string {
		w := newWorld(t, setup{brokers: 2, workers: 1, alone: true})
		load := w.startLoad()
		w.await("the worker is up", func() string {
			if w.faults.Passed("worker1", "HoldController.after") == 0 {
				return "it has not taken the controller epoch"
			}
			return ""
		})
		w.cut([][2]string{{"worker1", fleet.LinkPostgres}}, netcut.Reset)
		run := w.start("b2")
		w.blocked(run, protocol.CodeMetastoreUnreachable)
		w.cancel(run)
		// From here on nobody makes the claim: its id is to be ended, for all that is known on its way.
		w.phase(run, protocol.PhaseRollback)
		lost := w.faults.LoseReply("worker1", "BuryMove")
		w.faults.Mend()
		w.must(lost.Lost(w.ctx))
		if _, err := w.end(run); !temporal.IsCanceledError(err) {
			t.Fatalf("the cancelled move ended with %v", err)
		}
		w.settled("b1")
		return "buried; next " + w.movedTo("b2", load, w.mustMove("b2"))
	})
	cells.run(t, "Promote by the worker, of a source that is gone", lostColumn, func(t *testing.T) string {
		w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: fenceArgs})
		a := w.openAccount()
		a.write(50)
		a.commit(20)
		run, stopped := w.copied(protocol.LossAuto)
		w.must(w.KillAgent("b1"))
		lost := w.faults.LoseReply("worker1", "Promote")
		w.must(stopped.Continue())
		w.must(lost.Lost(w.ctx))
		if result := w.mustEnd(run); !result.Promoted {
			t.Errorf("the move ended as %+v", result)
		}
		a.holds(20)
		w.must(w.StartAgent("b1"))
		w.settled("b2")
		w.committedOnce()
		return "promoted, whole"
	})
	cells.run(t, "AbortMove by the worker, of a cancel", lostColumn, func(t *testing.T) string { return cancelLoses(t, "worker1", "AbortMove") })
	cells.run(t, "Look by the worker, of a cancel", lostColumn, func(t *testing.T) string { return cancelLoses(t, "worker1", "Look") })
	cells.run(t, "Abandon by the worker, of a cancel", lostColumn, func(t *testing.T) string { return cancelLoses(t, "worker1", "Abandon") })
	cells.run(t, "AbortMove by the source, of a lease", lostColumn, func(t *testing.T) string {
		w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease})
		load := w.startLoad()
		stopped := w.faults.Arm("worker1", "cutover.frozen")
		lost := w.faults.LoseReply("b1", "AbortMove")
		run := w.start("b2")
		w.must(stopped.Reached(w.ctx))
		w.must(lost.Lost(w.ctx))
		load.acknowledge(loadPerSecond / 4) // the source took the move back and serves on
		w.must(stopped.Continue())
		return w.movedTo("b2", load, w.mustEnd(run))
	})
	cells.run(t, "Partition by the source, of a sweep", lostColumn, func(t *testing.T) string {
		w := newWorld(t, setup{brokers: 2, workers: 1})
		load := w.startLoad()
		w.purge("b1", 0)
		w.mustMove("b2")
		w.settled("b2")
		lost := w.faults.LoseReply("b1", "Partition")
		answer, err := w.Agents.PurgeTrash(w.ctx, w.Agent("b1").ControlURL)
		w.must(err)
		w.must(lost.Lost(w.ctx))
		if answer.Deleted != 0 || len(answer.Kept) != 1 {
			t.Errorf("without the owner's answer the sweep deleted %d and kept %v", answer.Deleted, answer.Kept)
		}
		w.purge("b1", 0)
		load.finish()
		return "kept, then swept, " + load.verdict
	})
}

// cancelLoses cancels a frozen move whose rollback loses one reply.
func cancelLoses(t *testing.T, process, call string) string {
	w := newWorld(t, setup{brokers: 2, workers: 1})
	load := w.startLoad()
	picture := w.remember()
	stopped := w.faults.Arm("worker1", "cutover.frozen")
	run := w.start("b2")
	w.must(stopped.Reached(w.ctx))
	lost := w.faults.LoseReply(process, call)
	w.cancel(run)
	w.must(stopped.Continue())
	w.must(lost.Lost(w.ctx))
	if _, err := w.end(run); !temporal.IsCanceledError(err) {
		t.Fatalf("the cancelled move ended with %v", err)
	}
	picture.restored()
	load.acknowledge(1)
	return "restored; next " + w.movedTo("b2", load, w.mustMove("b2"))
}
