package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"portage/internal/faults/faultctl"
	"portage/workflows/protocol"
)

// The participants of a move, as the fleet of these tests names them.
const (
	source      = "source"
	destination = "destination"
	worker      = "worker"
	postgres    = "postgres"
	temporalDev = "temporal"
)

var victims = []string{source, destination, worker, postgres, temporalDev}

var processOf = map[string]string{source: "b1", destination: "b2", worker: "worker1"}

// step is a crash point of the protocol and who reaches it.
type step struct {
	point, by string
	nth       int   // at which time it is reached; 0 is the first
	fill      int64 // MiB that the partition holds, for points inside a long copy
}

func (s step) name() string {
	if s.nth > 1 {
		return fmt.Sprintf("%s#%d", s.point, s.nth)
	}
	return s.point
}

// arm has the step's process stop there.
func (w *world) arm(s step) *faultctl.Halt {
	return w.faults.ArmNth(processOf[s.by], s.point, max(1, s.nth))
}

// steps are the crash points of a move that is done, in the order of the protocol.
var steps = []step{
	{point: "ClaimMove.before", by: worker},
	{point: "ClaimMove.after", by: worker},
	{point: "ensure.before", by: destination},
	{point: "ensure.after", by: destination},
	{point: "pass.before", by: destination},
	{point: "segment.half", by: destination, fill: 1},
	{point: "pass.after", by: destination},
	{point: "pass.before", by: destination, nth: 2},
	{point: "pass.after", by: destination, nth: 2},
	{point: "cutover.before", by: worker},
	{point: "freeze.before", by: source},
	{point: "freeze.after", by: source},
	{point: "cutover.frozen", by: worker},
	{point: "drain.before", by: destination},
	{point: "install.before", by: destination},
	{point: "offsets.after", by: destination},
	{point: "drain.after", by: destination},
	{point: "cutover.after", by: worker},
	{point: "commit.before", by: worker},
	{point: "CommitOwner.before", by: worker},
	{point: "CommitOwner.after", by: worker},
	{point: "commit.after", by: worker},
	{point: "open.before", by: destination},
	{point: "OpenOwner.before", by: destination},
	{point: "OpenOwner.after", by: destination},
	{point: "open.after", by: destination},
	{point: "leave.before", by: source},
	{point: "leave.after", by: source},
	{point: "finish.opened", by: worker},
	{point: "finish.after", by: worker},
}

// tellingKills are the cells that run by default, with what each would catch.
var tellingKills = []string{
	"ensure.after/destination",       // a session without a copy
	"segment.half/source",            // the source's log is another process's
	"segment.half/destination",       // bytes that nobody made durable
	"freeze.after/source",            // the freeze dies with its process
	"freeze.after/postgres",          // closed for writes until Postgres answers
	"cutover.frozen/worker",          // nobody renews the lease
	"install.before/destination",     // the tail is drained and nothing is installed
	"drain.after/destination",        // an installed copy is found at boot, before its commit
	"drain.after/source",             // the copy outlives the freeze it was made under
	"CommitOwner.before/source",      // a commit named by a dead process's freeze
	"CommitOwner.before/destination", // the flip while the new owner is down
	"CommitOwner.before/postgres",    // no outcome at all
	"CommitOwner.after/worker",       // committed, and nobody knows
	"CommitOwner.after/temporal",     // committed, and the result can not be recorded
	"OpenOwner.before/postgres",      // the new owner can not open
	"OpenOwner.after/destination",    // opened in the row, dead before its first record
	"open.after/source",              // the old owner dies while it redirects
	"leave.before/source",            // a former copy that is not in trash yet
}

// onDefaults are the cells that run with the product's own freeze lease; the others shorten it to come to its end.
var onDefaults = []string{"freeze.after/source", "freeze.after/worker", "cutover.frozen/worker", "drain.after/destination", "drain.after/worker",
	"CommitOwner.before/postgres", "CommitOwner.after/worker", "OpenOwner.after/destination"}

// inOneAttempt are cells in which the freeze need not end: whoever comes back finds what was done and the move goes on.
var inOneAttempt = []string{"freeze.after/source", "drain.after/source", "drain.after/destination", "CommitOwner.after/worker", "OpenOwner.after/destination"}

var shortLease = []string{"--freeze-lease", "2s"}

// outage is how long a killed participant stays away. Nothing waits for it to pass.
const outage = time.Second

// Whoever is killed (-9) at whichever step, the move comes to its end by itself and no record is lost, doubled or out of
// order; no client sees an error.
func TestCrashPoints(t *testing.T) {
	t.Parallel()
	cells := matrix.table("who was killed at which step, and how the move ended:", victims, tellingKills...)
	for _, s := range steps {
		for _, victim := range victims {
			cells.run(t, s.name(), victim, func(t *testing.T) string { return killed(t, s, victim) })
		}
	}
}

func killed(t *testing.T, at step, victim string) string {
	cell := at.name() + "/" + victim
	s := setup{brokers: 2, workers: 1, agentArgs: shortLease}
	if slices.Contains(onDefaults, cell) {
		s.agentArgs = nil
	}
	w := newWorld(t, s)
	load := w.startLoad()
	if at.fill > 0 {
		load.fill(at.fill)
	}
	stopped := w.arm(at)
	run := w.start("b2")
	w.must(stopped.Reached(w.ctx))
	w.killAt(stopped, at.by, victim)
	result := w.mustEnd(run)
	if result.Attempts != 1 && slices.Contains(inOneAttempt, cell) {
		t.Errorf("the move took %d attempts, and nothing of it had to be done again", result.Attempts)
	}
	return w.movedTo("b2", load, result)
}

// killAt kills one participant while another stands at a point, lets that one go on, and starts the victim again.
func (w *world) killAt(stopped *faultctl.Halt, by, victim string) {
	w.t.Helper()
	w.kill(victim)
	if victim != by {
		w.must(stopped.Continue())
	}
	time.Sleep(outage)
	w.restart(victim)
}

// mustEnd waits for the end of a move that must be done.
func (w *world) mustEnd(run client.WorkflowRun) protocol.MoveResult {
	w.t.Helper()
	result, err := w.end(run)
	if err != nil {
		w.t.Fatalf("the move ended with: %v", err)
	}
	return result
}

// movedTo holds what must be true after the one committed move, and says how it ended.
func (w *world) movedTo(owner string, load *load, result protocol.MoveResult) string {
	w.t.Helper()
	w.settled(owner)
	load.acknowledge(loadPerSecond / 4)
	load.finish()
	w.committedOnce()
	return fmt.Sprintf("done in %d, %s", result.Attempts, load.verdict)
}

// kill is kill -9 of one participant; it returns when the participant is gone.
func (w *world) kill(victim string) {
	w.t.Helper()
	switch victim {
	case postgres:
		w.must(w.Postgres.Kill())
	case temporalDev:
		w.must(w.Temporal.Kill())
	case worker:
		w.must(w.KillWorker(0))
	default:
		w.must(w.KillAgent(processOf[victim]))
	}
}

func (w *world) restart(victim string) {
	w.t.Helper()
	switch victim {
	case postgres:
		w.must(w.Postgres.Restart(w.ctx))
	case temporalDev:
		w.must(w.Temporal.Restart(w.ctx))
	case worker:
		w.must(w.StartWorker(0))
	default:
		w.must(w.StartAgent(processOf[victim]))
	}
}

// rollbacks are the crash points of a move that is cancelled while it is frozen.
var rollbacks = []step{
	{point: "abort.before", by: worker},
	{point: "AbortMove.before", by: worker},
	{point: "AbortMove.after", by: worker},
	{point: "abort.after", by: worker},
	{point: "abandon.before", by: destination},
	{point: "abandon.after", by: destination},
}

// Whoever dies while a cancelled move is rolled back, it is rolled back all the same.
func TestKilledWhileRollingBack(t *testing.T) {
	t.Parallel()
	cells := matrix.table("who was killed while a cancelled move was rolled back, and how the cancel ended:", victims,
		"abort.before/worker", "AbortMove.after/worker", "AbortMove.after/source", "abandon.before/destination")
	for _, s := range rollbacks {
		for _, victim := range victims {
			cells.run(t, s.point, victim, func(t *testing.T) string {
				w := newWorld(t, setup{brokers: 2, workers: 1})
				load := w.startLoad()
				w.purge("b2", 0)
				picture := w.remember()
				frozen := w.faults.Arm("worker1", "cutover.frozen")
				rolling := w.arm(s)
				run := w.start("b2")
				w.must(frozen.Reached(w.ctx))
				w.cancel(run)
				w.must(frozen.Continue())
				w.must(rolling.Reached(w.ctx))
				w.killAt(rolling, s.by, victim)
				if _, err := w.end(run); !temporal.IsCanceledError(err) {
					t.Fatalf("the cancelled move ended with %v", err)
				}
				w.settled("b1")
				if victim == destination || victim == postgres {
					w.purge("b2", 0) // a destination that did not hear of the abort keeps its copy as a former one, and can prove it useless
				}
				picture.restored()
				load.acknowledge(loadPerSecond / 4)
				return "restored; next " + w.movedTo("b2", load, w.mustMove("b2"))
			})
		}
	}
}

func (w *world) cancel(run client.WorkflowRun) {
	w.t.Helper()
	w.must(w.Client.CancelWorkflow(w.ctx, run.GetID(), run.GetRunID()))
}

// takingBack are the crash points of a source that takes a move back because its freeze's lease ended.
var takingBack = []step{
	{point: "AbortMove.before", by: source},
	{point: "AbortMove.after", by: source},
	{point: "OpenOwner.before", by: source},
	{point: "OpenOwner.after", by: source},
	{point: "open.after", by: source},
}

// The worker stands still after the freeze until the lease ends; whoever dies while the source takes the move back, the
// source serves again and the move starts over.
func TestKilledWhileTheLeaseEnds(t *testing.T) {
	t.Parallel()
	cells := matrix.table("who was killed while the source took a move back whose lease had ended:", victims, "AbortMove.after/source", "OpenOwner.before/source")
	for _, s := range takingBack {
		for _, victim := range victims {
			cells.run(t, s.point, victim, func(t *testing.T) string {
				w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease})
				load := w.startLoad()
				frozen := w.faults.Arm("worker1", "cutover.frozen")
				run := w.start("b2")
				w.must(frozen.Reached(w.ctx))
				taking := w.arm(s)
				w.must(taking.Reached(w.ctx))
				w.killAt(taking, s.by, victim)
				load.acknowledge(loadPerSecond / 4) // the source serves on, whatever becomes of the move
				if victim != worker {
					w.must(frozen.Continue())
				}
				return w.movedTo("b2", load, w.mustEnd(run))
			})
		}
	}
}

// Whoever dies while a former copy is swept, nothing but the former copy is gone.
func TestKilledWhileSweeping(t *testing.T) {
	t.Parallel()
	cells := matrix.table("who was killed while the former copy was swept:", victims, "sweep.before/source", "sweep.half/source", "sweep.before/destination")
	for _, point := range []string{"sweep.before", "sweep.half", "sweep.after"} {
		for _, victim := range victims {
			cells.run(t, point, victim, func(t *testing.T) string {
				w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease})
				load := w.startLoad()
				w.purge("b1", 0) // of what earlier tests left
				w.mustMove("b2")
				w.settled("b2")
				sweeping := w.faults.Arm("b1", point)
				asked := make(chan struct{})
				go func() {
					defer close(asked)
					_, _ = w.Agents.PurgeTrash(w.ctx, w.Agent("b1").ControlURL) // its answer is nothing the cell rests on
				}()
				w.must(sweeping.Reached(w.ctx))
				w.killAt(sweeping, source, victim)
				<-asked
				w.purge("b1", 0)
				result := w.mustMove("b1")
				if result.Adopted {
					t.Error("the swept copy was adopted")
				}
				w.settled("b1")
				if left, err := filepath.Glob(filepath.Join(w.Agent("b1").Data, "trash", ".going-*")); err != nil || len(left) > 0 {
					t.Errorf("left of what was swept: %v (%v)", left, err)
				}
				load.acknowledge(loadPerSecond / 4)
				load.finish()
				return "swept, " + load.verdict
			})
		}
	}
}

// purge asks a broker to sweep its trash until no more than keep copies are left.
func (w *world) purge(broker string, keep int) {
	w.t.Helper()
	w.await("the trash is swept", func() string {
		answer, err := w.Agents.PurgeTrash(w.ctx, w.Agent(broker).ControlURL)
		if err != nil {
			return err.Error()
		}
		if len(answer.Kept) > keep {
			return "kept: " + strings.Join(answer.Kept, "; ")
		}
		return ""
	})
}
