package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"portage/metastore"
	"portage/workflows/protocol"
)

// pressedAt are the places at which somebody presses terminate or reset in Temporal's UI.
var pressedAt = []step{
	{point: "ClaimMove.before", by: worker},
	{point: "ClaimMove.after", by: worker},
	{point: "ensure.after", by: destination},
	{point: "segment.half", by: destination, fill: 1},
	{point: "cutover.before", by: worker},
	{point: "cutover.frozen", by: worker},
	{point: "drain.after", by: destination},
	{point: "cutover.after", by: worker},
	{point: "commit.before", by: worker},
	{point: "CommitOwner.after", by: worker},
	{point: "open.before", by: destination},
	{point: "finish.opened", by: worker},
}

// committedBy reports whether a move that stands at the point can still be taken back.
func committedBy(point string) bool {
	return point == "CommitOwner.after" || point == "open.before" || point == "finish.opened"
}

const pressedColumn = "terminate"

// Terminate is pressed: a freeze ends by its lease, the claim nobody holds any more is released, and the next move works.
// After the commit the partition is where the move brought it.
func TestTerminatedAtEveryPhase(t *testing.T) {
	t.Parallel()
	cells := matrix.table("where the workflow was terminated, and what became of the partition:", []string{pressedColumn},
		"ClaimMove.after/"+pressedColumn, "segment.half/"+pressedColumn, "drain.after/"+pressedColumn, "CommitOwner.after/"+pressedColumn)
	for _, at := range pressedAt {
		cells.run(t, at.name(), pressedColumn, func(t *testing.T) string {
			w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease})
			load := w.startLoad()
			if at.fill > 0 {
				load.fill(at.fill)
			}
			stopped := w.arm(at)
			run := w.start("b2")
			w.must(stopped.Reached(w.ctx))
			w.must(w.Client.TerminateWorkflow(w.ctx, run.GetID(), run.GetRunID(), "pressed in the UI"))
			w.must(stopped.Continue())
			load.acknowledge(loadPerSecond / 4) // whatever becomes of the move, the partition serves
			if committedBy(at.point) || (committing(at.point) && w.ended() == metastore.OutcomeCommitted) {
				w.settled("b2")
				w.mustMove("b1")
				w.settled("b1")
				load.finish()
				return "committed; next done, " + load.verdict
			}
			// What an activity still had in hand may end as it likes, the orphaned claim is released by the next move or by the
			// Supervisor, and in the end the partition is where the next move brings it.
			result := w.mustMove("b2")
			w.settled("b2")
			load.acknowledge(loadPerSecond / 4)
			load.finish()
			return fmt.Sprintf("released; next done in %d, %s", result.Attempts, load.verdict)
		})
	}
}

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
	w.movedTo("b2", load, w.mustMove("b2"))
}

// Reset is pressed after the move had come to a place: the run begins again at a workflow task that was completed. Before
// the commit it is done in the end; after the commit it says that it had been committed, or finds its end again.
func TestResetAtEveryPhase(t *testing.T) {
	t.Parallel()
	cells := matrix.table("where the workflow was reset, to which of its completed tasks, and how the new run ended:", []string{"to the first", "to the last"},
		"cutover.frozen/to the first", "CommitOwner.after/to the first", "open.before/to the last", "ensure.after/to the last")
	for _, at := range pressedAt {
		for _, to := range []string{"to the first", "to the last"} {
			cells.run(t, at.name(), to, func(t *testing.T) string {
				w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease})
				load := w.startLoad()
				if at.fill > 0 {
					load.fill(at.fill)
				}
				stopped := w.arm(at)
				run := w.start("b2")
				w.must(stopped.Reached(w.ctx))
				tasks := w.completedTasks(run)
				event := tasks[0]
				if to == "to the last" {
					event = tasks[len(tasks)-1]
				}
				again := w.reset(run, event)
				w.must(stopped.Continue())
				result, err := w.end(again)
				said := ""
				switch {
				case err == nil:
					said = fmt.Sprintf("done in %d", result.Attempts)
				case (committedBy(at.point) || committing(at.point)) && refusedAsCommitted(err):
					said = "says it was committed"
				default:
					t.Fatalf("the reset run ended with %v", err)
				}
				w.settled("b2")
				load.acknowledge(loadPerSecond / 4)
				load.finish()
				w.endedTruthfully()
				return said + ", " + load.verdict
			})
		}
	}
}

// refusedAsCommitted reports whether a run says that its earlier self had moved the partition already.
func refusedAsCommitted(err error) bool {
	var failure *temporal.ApplicationError
	return errors.As(err, &failure) && failure.Type() == protocol.ErrRefused
}

// endedTruthfully fails unless every move has its outcome and at least one is committed.
func (w *world) endedTruthfully() {
	w.t.Helper()
	committed := 0
	for _, m := range w.moves() {
		switch m.Ended() {
		case metastore.OutcomeCommitted:
			committed++
		case "":
			w.t.Errorf("move %s has no outcome", m.ID)
		}
	}
	if committed == 0 {
		w.t.Errorf("no move is committed: %+v", w.moves())
	}
}

// completedTasks lists the workflow tasks of a run that were completed, by event id.
func (w *world) completedTasks(run client.WorkflowRun) (events []int64) {
	w.t.Helper()
	for history := w.Client.GetWorkflowHistory(w.ctx, run.GetID(), run.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); history.HasNext(); {
		event, err := history.Next()
		w.must(err)
		if event.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			events = append(events, event.GetEventId())
		}
	}
	if len(events) == 0 {
		w.t.Fatal("the run has completed no workflow task")
	}
	return events
}

// reset is what the UI's reset does; it returns the new run.
func (w *world) reset(run client.WorkflowRun, event int64) client.WorkflowRun {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	answer, err := w.Client.ResetWorkflowExecution(ctx, &workflowservice.ResetWorkflowExecutionRequest{Namespace: "default",
		WorkflowExecution: &common.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()}, Reason: "pressed in the UI", WorkflowTaskFinishEventId: event,
		RequestId: fmt.Sprintf("%s-%d", run.GetRunID(), event)})
	w.must(err)
	return w.Client.GetWorkflow(w.ctx, run.GetID(), answer.GetRunId())
}

// committing reports whether the process that stands at a point is about to commit: once it goes on, the commit and the end of
// the freeze race, and either may win.
func committing(point string) bool { return point == "commit.before" || point == "CommitOwner.before" }

// ended waits for the outcome of the partition's only move.
func (w *world) ended() (outcome string) {
	w.t.Helper()
	w.await("the move in hand has ended", func() string {
		if outcome = w.moves()[0].Ended(); outcome == "" {
			return "it has no outcome yet"
		}
		return ""
	})
	return outcome
}
