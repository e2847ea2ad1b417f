package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"portage/internal/ledger"
	"portage/metastore"
	"portage/planner"
	"portage/workflows/protocol"
)

// swapInput lets the topic's two partitions change places: 0 from b1, 1 from b2.
func (w *world) swapInput() protocol.SwapInput {
	zero, one := int32(0), int32(1)
	return protocol.SwapInput{A: protocol.SwapPartition{Topic: w.topic, Partition: &zero}, B: protocol.SwapPartition{Topic: w.topic, Partition: &one}, By: "test"}
}

func (w *world) startSwap(change ...func(*protocol.SwapInput)) client.WorkflowRun {
	w.t.Helper()
	in := w.swapInput()
	for _, c := range change {
		c(&in)
	}
	run, err := w.StartSwap(w.ctx, in)
	w.must(err)
	return run
}

// mustSwap waits for the end of a swap that must be done.
func (w *world) mustSwap(run client.WorkflowRun) protocol.SwapResult {
	w.t.Helper()
	result, err := endOf[protocol.SwapResult](w, run)
	if err != nil {
		w.t.Fatalf("the swap ended with: %v", err)
	}
	return result
}

// loadBoth is a load that writes to both partitions.
func (w *world) loadBoth() *load {
	w.t.Helper()
	l := w.startLoad()
	_, err := l.ledger.StartWriter(ledger.WriterOptions{ID: "second", Bootstrap: w.Bootstrap(), Rate: loadPerSecond, Client: []kgo.Opt{toSecondPartition()}})
	w.must(err)
	l.acknowledge(loadPerSecond / 10)
	return l
}

func toSecondPartition() kgo.Opt {
	return kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int { return func(*kgo.Record, int) int { return 1 } }))
}

// watchBoth looks at both rows, in one read each time, until the returned function is called: they flip together or not at all.
func (w *world) watchBoth() (stop func()) {
	done := make(chan struct{})
	var half error
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
			snapshot, err := w.Store.ReadSnapshot(w.ctx)
			if err != nil {
				continue // Postgres may be the one that was killed
			}
			var owners []string
			for _, row := range snapshot.Assignments {
				if row.TopicID == w.id {
					owners = append(owners, row.Owner)
				}
			}
			if !slices.Equal(owners, []string{"b1", "b2"}) && !slices.Equal(owners, []string{"b2", "b1"}) {
				half = fmt.Errorf("half of the swap was done: the owners were %q", owners)
			}
		}
	})
	return func() {
		close(done)
		group.Wait()
		if half != nil {
			w.t.Error(half)
		}
	}
}

// swapped holds what must be true once both partitions have changed places, and says how it ended.
func (w *world) swapped(load *load, result protocol.SwapResult) string {
	w.t.Helper()
	w.bothAt("b2", "b1")
	load.acknowledge(loadPerSecond / 2)
	load.finish()
	sides := w.swapSides(result.SwapID)
	for _, m := range sides {
		if m.Ended() != metastore.OutcomeCommitted {
			w.t.Errorf("a side of the swap that is done ended as %+v", m)
		}
	}
	if result.How != protocol.SwapFull || len(sides) != 2 {
		w.t.Errorf("the swap is %+v with the sides %+v", result, sides)
	}
	return fmt.Sprintf("both flipped in %d, %s", result.Attempts, load.verdict)
}

func (w *world) swapSides(id string) []metastore.Move {
	w.t.Helper()
	sides, err := w.Store.SwapSides(w.ctx, id)
	w.must(err)
	return sides
}

// bothAt waits until both partitions are where they are said to be and nothing is left of any move.
func (w *world) bothAt(first, second string) {
	w.t.Helper()
	w.await("both partitions are in their place and nothing is left of any move", func() string {
		if missing := w.unsettledAt(0, first); missing != "" {
			return missing
		}
		return w.unsettledAt(1, second)
	})
}

// swapSteps are the crash points of a swap from its claim on; source is b1, which is the destination of the other side.
var swapSteps = []step{
	{point: "ClaimSwap.before", by: worker},
	{point: "ClaimSwap.after", by: worker},
	{point: "ensure.after", by: source},
	{point: "swap.before", by: worker},
	{point: "freeze.before", by: source},
	{point: "freeze.after", by: source},
	{point: "freeze.after", by: destination},
	{point: "swap.frozen", by: worker},
	{point: "drain.before", by: destination},
	{point: "install.before", by: source},
	{point: "offsets.after", by: destination},
	{point: "drain.after", by: destination},
	{point: "swap.drained", by: worker},
	{point: "swapcommit.before", by: worker},
	{point: "CommitSwap.before", by: worker},
	{point: "CommitSwap.after", by: worker},
	{point: "swapcommit.after", by: worker},
	{point: "open.before", by: destination},
	{point: "OpenOwner.before", by: source},
	{point: "OpenOwner.after", by: destination},
	{point: "open.after", by: source},
	{point: "leave.before", by: source},
	{point: "leave.after", by: destination},
	{point: "finish.opened", by: worker},
	{point: "finish.after", by: worker},
}

var swapVictims = []string{source, destination, worker, postgres}

// Whoever is killed (-9) at whichever step of a swap, both partitions change places or neither does, at any moment; the swap
// comes to its end by itself, and no record of either is lost, doubled or out of order.
func TestSwapCrashPoints(t *testing.T) {
	t.Parallel()
	cells := matrix.table("who was killed at which step of a swap, and how it ended:", swapVictims,
		"freeze.after(source)/destination",   // one side is frozen, the other's source is gone
		"swap.frozen(worker)/worker",         // nobody renews two leases
		"drain.after(destination)/source",    // one side is installed, the other's destination is gone
		"CommitSwap.before(worker)/source",   // a freeze that died with its process
		"CommitSwap.before(worker)/postgres", // no outcome of either
		"CommitSwap.after(worker)/worker",    // both flipped, and nobody knows
		"OpenOwner.after(destination)/destination",
		"leave.before(source)/source")
	for _, s := range swapSteps {
		for _, victim := range swapVictims {
			cells.run(t, fmt.Sprintf("%s(%s)", s.point, s.by), victim, func(t *testing.T) string {
				w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease})
				load := w.loadBoth()
				stopped := w.arm(s)
				watched := w.watchBoth()
				run := w.startSwap()
				w.must(stopped.Reached(w.ctx))
				w.killAt(stopped, s.by, victim)
				result := w.mustSwap(run)
				watched()
				return w.swapped(load, result)
			})
		}
	}
}

// swapRollbacks are the crash points of a swap that is cancelled while both sides are frozen.
var swapRollbacks = []step{
	{point: "swapabort.before", by: worker},
	{point: "AbortMove.before", by: worker},
	{point: "AbortMove.after", by: worker},
	{point: "swapabort.after", by: worker},
	{point: "abandon.before", by: source},
	{point: "abandon.after", by: destination},
}

// Whoever dies while a cancelled swap is rolled back, both partitions stay and serve.
func TestKilledWhileASwapIsRolledBack(t *testing.T) {
	t.Parallel()
	cells := matrix.table("who was killed while a cancelled swap was rolled back:", swapVictims, "swapabort.before/worker", "AbortMove.after/source")
	for _, s := range swapRollbacks {
		for _, victim := range swapVictims {
			cells.run(t, s.point, victim, func(t *testing.T) string {
				w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease})
				load := w.loadBoth()
				frozen := w.faults.Arm("worker1", "swap.frozen")
				rolling := w.arm(s)
				run := w.startSwap()
				w.must(frozen.Reached(w.ctx))
				w.cancel(run)
				w.must(frozen.Continue())
				w.must(rolling.Reached(w.ctx))
				w.killAt(rolling, s.by, victim)
				if _, err := endOf[protocol.SwapResult](w, run); !temporal.IsCanceledError(err) {
					t.Fatalf("the cancelled swap ended with %v", err)
				}
				w.bothAt("b1", "b2")
				load.acknowledge(loadPerSecond / 4)
				return "restored; next " + w.swapped(load, w.mustSwap(w.startSwap()))
			})
		}
	}
}

// The worker stands still after both freezes until a lease ends: its source takes the whole swap back, both serve, and the swap
// starts over; also when that source dies right after.
func TestALeaseThatEndsTakesBothSidesBack(t *testing.T) {
	t.Parallel()
	cells := matrix.table("who was killed while a source took a swap back whose lease had ended:", []string{"nobody", source, destination, postgres}, "AbortMove.after/nobody", "AbortMove.after/source")
	for _, victim := range []string{"nobody", source, destination, postgres} {
		cells.run(t, "AbortMove.after", victim, func(t *testing.T) string {
			w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease})
			load := w.loadBoth()
			frozen := w.faults.Arm("worker1", "swap.frozen")
			first, second := w.faults.Arm("b1", "AbortMove.before"), w.faults.Arm("b2", "AbortMove.before")
			run := w.startSwap()
			w.must(frozen.Reached(w.ctx))
			w.must(first.Reached(w.ctx))
			w.must(second.Reached(w.ctx))
			taking := w.faults.Arm("b1", "AbortMove.after")
			w.must(first.Continue())
			w.must(taking.Reached(w.ctx)) // both leases have ended, and b1 was first
			if victim == "nobody" {
				w.must(taking.Continue())
			} else {
				w.killAt(taking, source, victim)
			}
			if victim != destination {
				w.must(second.Continue())
			}
			w.await("the whole swap is taken back", func() string {
				for _, m := range w.moves() {
					if m.Swap == nil {
						continue
					}
					for _, side := range w.swapSides(*m.Swap) {
						if side.Ended() != metastore.OutcomeAborted {
							return fmt.Sprintf("%s/%d is still claimed by it", side.Topic, side.Partition)
						}
					}
				}
				return ""
			})
			load.acknowledge(loadPerSecond / 2) // both serve on, whatever becomes of the swap
			w.must(frozen.Continue())
			return w.swapped(load, w.mustSwap(run))
		})
	}
}

// A swap's history stays small, and the swap back takes over what was left behind.
func TestASwapAndItsUndo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1})
	load := w.loadBoth()
	load.fill(8)
	run := w.startSwap()
	result := w.mustSwap(run)
	w.bothAt("b2", "b1")
	if n := len(w.history(run).Events); n > 100 {
		t.Errorf("the swap took %d events", n)
	} else {
		t.Logf("%d events; writes held for %.0f and %.0f ms", n, result.Sides[0].FrozenMS, result.Sides[1].FrozenMS)
	}
	back := w.mustSwap(w.startSwap())
	w.bothAt("b1", "b2")
	for _, side := range back.Sides {
		if !side.Adopted {
			t.Errorf("%s/%d was copied anew on its way back", side.Topic, side.Partition)
		}
	}
	load.acknowledge(loadPerSecond / 2)
	load.finish()
}

// An approved plan's swap is carried out as one, and undone as one: both partitions are where they were, with what was left behind taken over.
func TestARebalanceSwapsAndItsUndoSwapsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1})
	load := w.loadBoth()
	load.fill(4)
	action := planner.Action{Kind: planner.ActionSwap, Goal: "DISK", Reason: "test"}
	for n, to := range []string{"b2", "b1"} {
		row, err := w.Store.FindAssignment(w.ctx, w.topic, int32(n))
		w.must(err)
		action.Legs = append(action.Legs, planner.Leg{Topic: w.topic, TopicID: w.id.String(), Partition: int32(n), From: row.Owner, To: to, Version: row.Version})
	}
	plan := planner.Plan{Actions: []planner.Action{action}}
	plan.Hash = planner.HashOf(w.topic, plan.Actions)
	body, err := json.Marshal(plan)
	w.must(err)
	w.must(w.Store.SavePlan(w.ctx, metastore.Plan{ID: w.topic, Hash: plan.Hash, Actions: 1, Body: body}))

	// In a window that is always open, and with a canary that looks at its consumers.
	done := w.rebalance("--approve", plan.Hash, "--window", "* * * * *", "--window-for", "1h", "--canary", "1", "--soak", "0s", "--canary-lag", "1000000")
	if done.Counts.Moved != 2 {
		t.Fatalf("the rebalance ended as %+v", done)
	}
	w.bothAt("b2", "b1")
	w.replays(w.Client.GetWorkflow(w.ctx, protocol.RebalanceWorkflowID(w.TaskQueue()), done.ID), "rebalance-swap")
	if undone := w.rebalance("--undo", done.ID); undone.Counts.Moved != 2 || undone.Actions != 1 || undone.Counts.Bytes >= 4<<20 {
		t.Errorf("undone was %+v", undone)
	}
	w.bothAt("b1", "b2")
	load.acknowledge(loadPerSecond / 4)
	load.finish()
}

// A swap from the command line: looked at first, watched, tuned, found by either partition, given up, done, too late to cancel.
func TestASwapFromTheCommandLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1})
	load := w.loadBoth()
	load.fill(4)
	a, b := w.topic+"/0", w.topic+"/1"
	expect := func(what string, code int, says string, args ...string) {
		t.Helper()
		if out, got := w.command(args...)(); got != code || !strings.Contains(out, says) {
			t.Errorf("%s: exit code %d, want %d, with %q:\n%s", what, got, code, says, out)
		}
	}
	expect("the dry run", 0, "nothing was changed", "swap", a, b, "--dry-run", "--dsn", w.DSN(), "--token-file", w.TokenFile())
	expect("one partition twice", 1, "are both", "swap", a, a, "--reason", "balance")
	expect("the start", 0, "change places", "swap", a, b, "--reason", "balance", "--limit", "128KiB") // half a minute of copying
	expect("a second", 1, "already moving", "swap", b, a, "--reason", "balance")
	expect("the status, by its second partition", 0, b+"  b2 → b1", "move", "status", b)
	expect("where the second should be", 0, "a swap with "+a, "explain", b, "--dsn", w.DSN(), "--token-file", w.TokenFile())
	expect("the pace", 0, "goes on", "move", "tune", b, "--limit", "64KiB")
	expect("abandoning it", 0, a+" stays on b1, "+b+" stays on b2", "move", "abandon", b, "--reason", "no use", "--dsn", w.DSN(), "--single-node-metastore")
	w.bothAt("b1", "b2")
	expect("the swap, watched", 0, "changed places together", "swap", a, b, "--wait", "--reason", "balance")
	w.bothAt("b2", "b1")
	expect("a late cancel", 1, "", "move", "cancel", "--workflow", protocol.SwapWorkflowID(w.swapInput().A, w.swapInput().B))
	if out, code := w.run("cluster", "moves", "--all", "--dsn", w.DSN()); code != 0 || !strings.Contains(out, a) || !strings.Contains(out, b) {
		t.Errorf("the list of moves: exit code %d:\n%s", code, out)
	}
	load.acknowledge(loadPerSecond / 4)
	load.finish()
}

// A write of a swap took effect and its reply was lost: the repeat finds what was done, for both sides.
func TestSwapLostReplies(t *testing.T) {
	t.Parallel()
	cells := matrix.table("whose reply was lost in a swap, and how it ended:", []string{lostColumn}, everyCell...)
	for _, call := range []string{"ClaimSwap", "Freeze", "Drain", "CommitSwap"} {
		cells.run(t, call, lostColumn, func(t *testing.T) string {
			w := newWorld(t, setup{brokers: 2, workers: 1})
			load := w.loadBoth()
			watched := w.watchBoth()
			lost := w.faults.LoseReply("worker1", call)
			run := w.startSwap()
			w.must(lost.Lost(w.ctx))
			result := w.mustSwap(run)
			watched()
			if result.Attempts != 1 {
				t.Errorf("the swap took %d attempts", result.Attempts)
			}
			return w.swapped(load, result)
		})
	}
}

// One broker's disk holds either partition, and not both: the swap is refused and nothing is left of it, or, when the input
// says so, done as two moves. The first makes room for the second: its former copy is swept, for the new owner proves it needless.
func TestASwapWithTooLittleRoomForBoth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: []string{"--disk-floor", "8MiB"}, alone: true})
	w.smallDisk("b3", "64m")
	_, err := w.AddAgent(w.ctx, 3)
	w.must(err)
	load := w.loadBoth()
	load.fill(26)
	fill, err := load.ledger.StartWriter(ledger.WriterOptions{ID: "fillsecond", Bootstrap: w.Bootstrap(), ValueBytes: 64 << 10, Count: 30 * 16,
		Client: []kgo.Opt{toSecondPartition(), kgo.ProducerBatchCompression(kgo.NoCompression())}})
	w.must(err)
	w.must(fill.Wait(w.ctx))
	w.mustMove("b3")
	w.settled("b3")
	second := func(in *protocol.SwapInput) { in.A, in.B = in.B, in.A } // the one that lacks room is asked for first
	_, err = endOf[protocol.SwapResult](w, w.startSwap(second))
	if err == nil || !strings.Contains(err.Error(), "room for") {
		t.Fatalf("the swap ended with %v", err)
	}
	w.bothAt("b3", "b2")
	result := w.mustSwap(w.startSwap(second, func(in *protocol.SwapInput) { in.TwoMoves = true }))
	if result.How != protocol.SwapTwoMoves {
		t.Errorf("the swap is %+v", result)
	}
	w.bothAt("b2", "b3")
	load.acknowledge(loadPerSecond / 2)
	load.finish()
}
