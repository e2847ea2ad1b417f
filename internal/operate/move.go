package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"portage/activities"
	"portage/planner"
	"portage/workflows/protocol"
)

// StartMove starts the workflow under the partition's id.
func (f *Fleet) StartMove(ctx context.Context, in protocol.MoveInput, repeat Repeat) (Started, error) {
	name, id := fmt.Sprintf("%s/%d", in.Topic, *in.Partition), protocol.PartitionWorkflowID(in.Topic, *in.Partition)
	return f.start(ctx, order{id: id, workflow: protocol.WorkflowMove, summary: fmt.Sprintf("move %s to %s", name, in.To), in: in, repeat: repeat, busy: alreadyMoving(name+" is", id)})
}

// StartSwap starts the swap of two partitions.
func (f *Fleet) StartSwap(ctx context.Context, in protocol.SwapInput, repeat Repeat) (Started, error) {
	what, id := fmt.Sprintf("%s and %s", in.A, in.B), protocol.SwapWorkflowID(in.A, in.B)
	return f.start(ctx, order{id: id, workflow: protocol.WorkflowSwap, summary: "swap " + what, in: in, repeat: repeat, busy: alreadyMoving(what+" are", id)})
}

func alreadyMoving(what, id string) string {
	return fmt.Sprintf("%s already moving under workflow %q; wait for it or cancel it", what, id)
}

// Claimed waits until a move or a swap holds what it moves, or says why it does not. A context that ends first ends only the
// waiting.
func (f *Fleet) Claimed(ctx context.Context, s Started) (protocol.Status, error) {
	run := f.Temporal.GetWorkflow(ctx, s.WorkflowID, s.RunID)
	for {
		status, err := f.moveStatus(ctx, s.WorkflowID, s.RunID)
		if err == nil && status.Phase != protocol.PhaseClaim {
			if status.Phase == protocol.PhaseRollback || status.Phase == protocol.PhaseRolledBack || status.Phase == protocol.PhaseCancelled {
				return status, MoveOutcome(run.Get(ctx, nil))
			}
			return status, nil
		}
		running, describeErr := f.running(ctx, s.WorkflowID, s.RunID)
		if describeErr != nil {
			return status, describeErr
		}
		if !running {
			return status, MoveOutcome(run.Get(ctx, nil))
		}
		if ctx.Err() != nil {
			return status, ctx.Err()
		}
		if err != nil {
			if NoWorker(err) {
				err = Queued(err, "it", s)
			}
			return status, err
		}
		if err := pause(ctx, pollEvery); err != nil {
			return status, err
		}
	}
}

// MoveOutcome turns the end of a move or a swap into the error people see.
func MoveOutcome(err error) error {
	return ended(err, "the move was cancelled; everything is restored", "the move was terminated; its claim is released by the next move of the partition")
}

// MoveFacts says what stands against a move, without moving anything.
func (f *Fleet) MoveFacts(ctx context.Context, topic string, partition int32, to string) (planner.MoveFacts, []planner.Objection, error) {
	facts, err := (&activities.Moves{Store: f.Store, Agents: f.Agents}).Facts(ctx, topic, partition, to)
	if err != nil {
		return facts, nil, ofStore(err)
	}
	return facts, planner.CheckMove(facts), nil
}

// SwapFacts says what stands against a swap, without moving anything.
func (f *Fleet) SwapFacts(ctx context.Context, in protocol.SwapInput) ([2]planner.MoveFacts, []planner.Objection, error) {
	facts, err := (&activities.Moves{Store: f.Store, Agents: f.Agents}).SwapFacts(ctx, in.Sides())
	if err != nil {
		return facts, nil, ofStore(err)
	}
	return facts, planner.CheckSwap(facts[0], facts[1]), nil
}

// MoveRef names a move or a swap that was started: by its partition, of a swap either one, or by its workflow.
type MoveRef struct {
	Topic     string
	Partition int32
	Workflow  string
}

func (r MoveRef) String() string {
	if r.Workflow != "" {
		return "workflow " + r.Workflow
	}
	return fmt.Sprintf("%s/%d", r.Topic, r.Partition)
}

// WorkflowOf is the workflow that was named or, of a partition that no Move under its own id runs for, the one that holds its
// claim, or the Swap that has it. Whatever can not be found out is left to the caller's own call.
func (f *Fleet) WorkflowOf(ctx context.Context, r MoveRef) string {
	if r.Workflow != "" {
		return r.Workflow
	}
	own := protocol.PartitionWorkflowID(r.Topic, r.Partition)
	described, err := f.Temporal.DescribeWorkflow(ctx, own, "")
	if err == nil && described.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return own
	}
	if f.Store != nil {
		if row, err := f.Store.FindAssignment(ctx, r.Topic, r.Partition); err == nil && row != nil && row.Moving() != "" {
			if move, err := f.Store.FindMove(ctx, row.Moving()); err == nil && move != nil {
				return move.WorkflowID
			}
		}
	}
	swaps, err := f.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", protocol.WorkflowSwap)})
	if err != nil {
		return own
	}
	for _, swap := range swaps.GetExecutions() {
		if id := swap.GetExecution().GetWorkflowId(); protocol.IsSwapOf(id, r.Topic, r.Partition) {
			return id
		}
	}
	return own
}

// MoveView is what a person sees of a move: the workflow's status, with the live bytes of the running activity.
type MoveView struct {
	WorkflowID string          `json:"workflowId"`
	RunID      string          `json:"runId"`
	Running    bool            `json:"running"`
	Status     protocol.Status `json:"status"`
	Retrying   string          `json:"retrying,omitempty"` // the last failure of an activity that is being retried
}

// Look reads a move once; run may be empty.
func (f *Fleet) Look(ctx context.Context, id, run string) (MoveView, error) {
	described, err := f.Temporal.DescribeWorkflow(ctx, id, run)
	if err != nil {
		return MoveView{}, noMove(err, MoveRef{Workflow: id})
	}
	view := MoveView{WorkflowID: id, RunID: described.WorkflowExecution.RunID, Running: described.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING}
	if view.Status, err = f.moveStatus(ctx, id, view.RunID); err != nil {
		return view, noMove(err, MoveRef{Workflow: id})
	}
	for _, a := range described.RawResponse.GetPendingActivities() {
		var p protocol.Progress
		if converter.GetDefaultDataConverter().FromPayloads(a.GetHeartbeatDetails(), &p) == nil && p.BytesTotal > 0 {
			view.Status.Took(p)
		}
		if a.GetAttempt() > 1 && a.GetLastFailure() != nil {
			view.Retrying = a.GetLastFailure().GetMessage()
		}
	}
	return view, nil
}

// MoveStatus is Look for a move that is named as people name it.
func (f *Fleet) MoveStatus(ctx context.Context, r MoveRef) (MoveView, error) {
	view, err := f.Look(ctx, f.WorkflowOf(ctx, r), "")
	if e := (*Error)(nil); errors.As(err, &e) && e.Code == CodeNoMove {
		err = noMove(e.cause, r)
	}
	return view, err
}

func (f *Fleet) moveStatus(ctx context.Context, id, run string) (protocol.Status, error) {
	return query[protocol.Status](ctx, f, id, run)
}

// update sends an update and waits until the workflow has taken it or said why not. Nothing is sent while no worker answers: it would be
// taken at some time when nobody waits for it any more.
func (f *Fleet) update(ctx context.Context, id, name string, arg, answer any) error {
	s, err := f.current(ctx, id)
	if err != nil {
		return err
	}
	if err := f.heard(ctx, s); NoWorker(err) {
		return because(err, Unreachable, CodeNoWorker, "no worker answers, so nothing was changed; start one with `portage worker` and ask again")
	} else if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, updateBound)
	defer cancel()
	handle, err := f.Temporal.UpdateWorkflow(asking, client.UpdateWorkflowOptions{WorkflowID: id, UpdateName: name, Args: []any{arg}, WaitForStage: client.WorkflowUpdateStageCompleted})
	if err == nil {
		err = handle.Get(asking, answer)
	}
	if said, ok := refusal(err); ok {
		return because(err, Refused, CodeNotNow, "%s", said)
	}
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		if err = f.unheard(ctx, err); NoWorker(err) {
			return because(err, Unreachable, CodeNoWorker, "no worker has taken it within %s, and one that is back may yet; look at the status before you ask again", updateBound)
		}
	}
	return err
}

// TuneMove changes the pace of a running move, or lets it freeze for longer.
func (f *Fleet) TuneMove(ctx context.Context, r MoveRef, change protocol.Tune) error {
	return noMove(f.update(ctx, f.WorkflowOf(ctx, r), protocol.UpdateTune, change, nil), r)
}

// CancelMove asks a move to cancel; MoveCancelled waits for the answer.
func (f *Fleet) CancelMove(ctx context.Context, r MoveRef, by, reason string) (workflow string, err error) {
	workflow = f.WorkflowOf(ctx, r)
	return workflow, noMove(f.cancel(ctx, workflow, by, reason), r)
}

// MoveCancelled waits for the end of a move that was asked to cancel: nil when everything is restored.
func (f *Fleet) MoveCancelled(ctx context.Context, r MoveRef, workflow string) error {
	s := Started{WorkflowID: workflow}
	err := f.whileHeard(ctx, s, func(ctx context.Context) error {
		return MoveOutcome(f.Temporal.GetWorkflow(ctx, workflow, "").Get(ctx, nil))
	})
	if err == nil {
		return errorf(Refused, CodeTooLate, "too late: %s is committed and was moved; move it back to undo", r)
	}
	if wasCancelled(err) {
		return nil
	}
	return cancelQueued(err)
}

func noMove(err error, r MoveRef) error {
	return absent(err, CodeNoMove, "there is no move of %s in progress, or none that Temporal still knows", r)
}

// Objected puts all that stands against something into one error, nil for nothing.
func Objected(against []planner.Objection) error {
	if len(against) == 0 {
		return nil
	}
	sentences := make([]string, len(against))
	for i, o := range against {
		sentences[i] = o.Reason
	}
	return &Error{Kind: Refused, Code: against[0].Code, Message: strings.Join(sentences, "; "), Refusals: against}
}
