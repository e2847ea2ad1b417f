package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
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

// steps are the crash points from the freeze to the opening, in the order of the protocol, with who reaches each.
var steps = []struct{ point, by string }{
	{"cutover.before", worker},
	{"freeze.before", source},
	{"freeze.after", source},
	{"cutover.frozen", worker},
	{"drain.before", destination},
	{"install.before", destination},
	{"drain.after", destination},
	{"cutover.after", worker},
	{"commit.before", worker},
	{"CommitOwner.before", worker},
	{"CommitOwner.after", worker},
	{"commit.after", worker},
	{"open.before", destination},
	{"OpenOwner.before", destination},
	{"OpenOwner.after", destination},
	{"open.after", destination},
}

// telling are the cells that run by default, with what each would catch.
var telling = []string{
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
	for _, step := range steps {
		matrix.steps = append(matrix.steps, step.point)
		t.Run(step.point, func(t *testing.T) {
			t.Parallel()
			for _, victim := range victims {
				cell := step.point + "/" + victim
				if !all && !askedForCells() && !slices.Contains(telling, cell) {
					continue
				}
				t.Run(victim, func(t *testing.T) {
					t.Parallel()
					runCell(t, step.point, step.by, victim, slices.Contains(onDefaults, cell))
				})
			}
		})
	}
}

func runCell(t *testing.T, point, by, victim string, defaults bool) {
	matrix.set(point, victim, "FAILED")
	s := setup{brokers: 2, workers: 1, ownPostgres: victim == postgres, ownTemporal: victim == temporalDev}
	if !defaults {
		s.agentArgs = shortLease
	}
	w := newWorld(t, s)
	load := w.startLoad()
	stopped := w.faults.Arm(processOf[by], point)
	run := w.start("b2")
	w.must(stopped.Reached(w.ctx))
	w.kill(victim)
	if victim != by {
		w.must(stopped.Continue())
	}
	time.Sleep(outage)
	w.restart(victim)
	result, err := w.end(run)
	if err != nil {
		t.Fatalf("the move ended with: %v", err)
	}
	if result.Attempts != 1 && slices.Contains(inOneAttempt, point+"/"+victim) {
		t.Errorf("the move took %d attempts, and nothing of it had to be done again", result.Attempts)
	}
	w.settled("b2")
	load.acknowledge(loadPerSecond / 4)
	load.finish()
	w.committedOnce()
	if !t.Failed() {
		matrix.set(point, victim, fmt.Sprintf("done, %s", attempts(result.Attempts)))
	}
}

func attempts(n int) string {
	if n == 1 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", n)
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

// A guarded write took effect and its reply was lost: the repeat finds what was done.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ write, by string }{{"ClaimMove", worker}, {"CommitOwner", worker}, {"OpenOwner", destination}} {
		t.Run(c.write, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{brokers: 2, workers: 1})
			load := w.startLoad()
			lost := w.faults.LoseReply(processOf[c.by], c.write)
			run := w.start("b2")
			w.must(lost.Lost(w.ctx))
			result, err := w.end(run)
			if err != nil || result.Attempts != 1 {
				t.Fatalf("the move ended as %+v, %v", result, err)
			}
			w.settled("b2")
			load.acknowledge(1)
			load.finish()
			w.committedOnce()
		})
	}
	t.Run("AbortMove of a cancel", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, setup{brokers: 2, workers: 1})
		load := w.startLoad()
		stopped := w.faults.Arm("worker1", "cutover.frozen")
		lost := w.faults.LoseReply("worker1", "AbortMove")
		run := w.start("b2")
		w.must(stopped.Reached(w.ctx))
		w.cancel(run)
		w.must(stopped.Continue())
		w.must(lost.Lost(w.ctx))
		if _, err := w.end(run); !temporal.IsCanceledError(err) {
			t.Fatalf("the cancelled move ended with %v", err)
		}
		w.settled("b1")
		load.acknowledge(1)
		w.mustMove("b2")
		load.finish()
		w.committedOnce()
	})
	t.Run("AbortMove of a lease", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease})
		load := w.startLoad()
		stopped := w.faults.Arm("worker1", "cutover.frozen")
		lost := w.faults.LoseReply("b1", "AbortMove")
		run := w.start("b2")
		w.must(stopped.Reached(w.ctx))
		w.must(lost.Lost(w.ctx))
		load.acknowledge(loadPerSecond / 4) // the source took the move back and serves on
		w.must(stopped.Continue())
		if _, err := w.end(run); err != nil {
			t.Fatalf("the move ended with %v", err)
		}
		w.settled("b2")
		load.finish()
		w.committedOnce()
	})
}

func (w *world) cancel(run client.WorkflowRun) {
	w.t.Helper()
	w.must(w.Client.CancelWorkflow(w.ctx, run.GetID(), run.GetRunID()))
}
