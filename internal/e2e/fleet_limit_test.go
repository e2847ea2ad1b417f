package e2e

import (
	"fmt"
	"testing"

	"go.temporal.io/sdk/client"

	"portage/metastore"
	"portage/workflows/protocol"
)

// A person's move is in flight, and a rebalance may begin another only below one: its first move waits, and says for what. Held, it takes no
// place and begins nothing; with a higher limit everything is moved while the person's move is still under way.
func TestMovesOfARebalanceWaitForAPlaceInTheFleet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 3, workers: 1, alone: true})
	l := w.startLoad()
	l.fill(4)
	topic := w.topic + "-leaving"
	w.must(w.CreateTopic(w.ctx, topic, 3, "b3", "b3", "b3"))
	if output, code := w.command("move", "start", w.topic+"/0", "--to", "b2", "--limit", "64KiB")(); code != 0 {
		t.Fatalf("the person's move is answered with %d: %s", code, output)
	}
	w.await("the person's move has begun", func() string {
		if n := len(w.inProgress()); n != 1 {
			return fmt.Sprintf("%d are in flight", n)
		}
		return ""
	})
	w.must(w.Store.SetDraining(w.ctx, "b3", true, "test", ""))
	run, err := w.Client.ExecuteWorkflow(w.ctx, client.StartWorkflowOptions{ID: protocol.RebalanceWorkflowID(w.TaskQueue()), TaskQueue: w.TaskQueue()}, protocol.WorkflowRebalance,
		protocol.RebalanceInput{Drain: true, Limits: protocol.Limits{MaxInFlight: ptr(1)}})
	w.must(err)
	first := protocol.PartitionWorkflowID(topic, 0)
	waitsFor := func(code string) func() string {
		return func() string {
			var s protocol.Status
			value, err := w.Client.QueryWorkflow(w.ctx, first, "", protocol.QueryStatus)
			if err == nil {
				err = value.Get(&s)
			}
			if err != nil || s.Blocked != code {
				return fmt.Sprintf("it waits for %q: %s (%v)", s.Blocked, s.BlockedReason, err)
			}
			return ""
		}
	}
	w.await("the first move of the rebalance says that it waits for a place", waitsFor(metastore.CodeFleetBusy))
	w.await("so does the rebalance", func() string {
		if s, err := w.rebalanceStatus(); err != nil || s.Blocked != protocol.CodeFleetBusy {
			return fmt.Sprintf("it waits for %q: %s (%v)", s.Blocked, s.BlockedReason, err)
		}
		return ""
	})
	if moves := w.inProgress(); len(moves) != 1 || moves[0].Topic != w.topic {
		t.Errorf("in flight are %+v", moves)
	}

	// Whatever a person changes, the worker dies where that is written, or where it has let a move begin.
	steer := func(point string, args ...string) {
		t.Helper()
		halt := w.faults.Arm("worker1", point)
		answered := w.command(append(append([]string{"rebalance"}, args...), "--reason", "test")...)
		w.must(halt.Reached(w.ctx))
		w.must(w.KillWorker(0))
		w.must(w.StartWorker(0))
		if output, code := answered(); code != 0 {
			t.Fatalf("%v is answered with %d: %s", args, code, output)
		}
	}
	steer("LimitPlan.before", "pause")
	w.await("it says that it is held", waitsFor(protocol.CodePaused))
	steer("LimitPlan.after", "tune", "--max-in-flight", "2")
	steer("ClaimMove.after", "resume")
	var result protocol.RebalanceResult
	w.must(run.Get(w.ctx, &result))
	if result.Counts.Moved != 3 || result.Counts.Failed != 0 || w.ownedOf(topic)["b3"] != 0 {
		t.Errorf("the rebalance ended as %+v, b3 owns %d", result, w.ownedOf(topic)["b3"])
	}
	if moves := w.inProgress(); len(moves) != 1 || moves[0].Topic != w.topic {
		t.Errorf("in flight are %+v", moves)
	}
	if output, code := w.command("move", "cancel", w.topic+"/0", "--wait", "--reason", "test")(); code != 0 {
		t.Errorf("the cancel of the person's move is answered with %d: %s", code, output)
	}
	l.finish()
	w.nobodyIsStranded(w.topic)
	w.nobodyIsStranded(topic)
}
