package workflows

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

const (
	// pageOfActions is how many actions are read at once: some 30 KiB of history.
	pageOfActions = 100
	// flushAt is how many ends are recorded with one activity.
	flushAt = 20
)

// flight is one child move.
type flight struct {
	action protocol.PlannedAction
	cancel workflow.CancelFunc
	future workflow.ChildWorkflowFuture
	skip   *protocol.Decide // a person wants it left out
}

func (f *flight) from() string { return f.action.Legs[0].From }
func (f *flight) to() string   { return f.action.Legs[0].To }

// startWhatMay starts what the limits allow, in the plan's order; an action whose brokers are busy lets the next one pass.
func (r *rebalance) startWhatMay(ctx workflow.Context, most int) {
	if r.pause() != nil || r.late() || ctx.Err() != nil {
		return
	}
	giving, taking := map[string]int{}, map[string]int{}
	for _, f := range r.flights {
		giving[f.from()]++
		taking[f.to()]++
	}
	for i := 0; i < len(r.queue) && r.startedInWave < most && len(r.flights) < min(r.limits.MaxInFlight, protocol.MostInFlight); {
		leg := r.queue[i].Legs[0]
		if giving[leg.From] >= r.limits.TransfersPerBroker || taking[leg.To] >= r.limits.TransfersPerBroker {
			i++
			continue
		}
		giving[leg.From]++
		taking[leg.To]++
		action := r.queue[i]
		r.queue = slices.Delete(r.queue, i, i+1)
		r.startMove(ctx, action)
	}
}

// startMove starts one child under the partition's workflow id, so that Temporal refuses a second move of it.
func (r *rebalance) startMove(ctx workflow.Context, a protocol.PlannedAction) {
	leg := a.Legs[0]
	expect := &protocol.Expect{TopicID: leg.TopicID, From: leg.From}
	if r.fixed() {
		expect.Version = leg.Version // what runs is what was approved
	}
	in := protocol.MoveInput{Topic: leg.Topic, Partition: &leg.Partition, To: leg.To, By: r.in.By, Reason: fmt.Sprintf("%s: %s", a.Goal, a.Reason), Limit: r.limits.EachMove(),
		Expect: expect, Plan: r.plan.ID, PlanSeq: a.Seq}
	child, cancel := workflow.WithCancel(ctx)
	child = workflow.WithChildOptions(child, workflow.ChildWorkflowOptions{WorkflowID: protocol.PartitionWorkflowID(leg.Topic, leg.Partition),
		ParentClosePolicy: enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL, WaitForCancellation: true, WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary: fmt.Sprintf("move %s/%d to %s", leg.Topic, leg.Partition, leg.To)})
	f := &flight{action: a, cancel: cancel, future: workflow.ExecuteChildWorkflow(child, protocol.WorkflowMove, in)}
	r.flights = append(r.flights, f)
	r.done[a.Seq] = true
	r.startedInWave++
	r.children++
	waiting, _ := workflow.NewDisconnectedContext(ctx)
	workflow.Go(waiting, func(ctx workflow.Context) {
		var result protocol.MoveResult
		err := f.future.Get(ctx, &result)
		r.flights = slices.DeleteFunc(r.flights, func(x *flight) bool { return x == f })
		r.landed(f, result, err)
		r.estimate(ctx)
		r.changed = true
	})
}

// landed says how a move ended, and what that means for the rebalance.
func (r *rebalance) landed(f *flight, result protocol.MoveResult, err error) {
	a := f.action
	var started *temporal.ChildWorkflowExecutionAlreadyStartedError
	code, reason := refusalOf(err)
	switch {
	case err == nil:
		r.counts.Bytes += result.Bytes
		r.movedBytes += result.Bytes
		r.longestWait = max(r.longestWait, time.Duration(result.FrozenMS*float64(time.Millisecond)))
		r.end(a, protocol.ActionMoved, "", "")
	case errors.As(err, &started):
		r.again(a, "already_moving", "another move of the partition is in progress")
	case temporal.IsCanceledError(err) && f.skip != nil:
		r.end(a, protocol.ActionSkipped, "", fmt.Sprintf("skipped by %s: %s", f.skip.By, f.skip.Reason))
	case temporal.IsCanceledError(err):
		r.end(a, protocol.ActionCancelled, "", "cancelled before its commit; it stays where it was")
	case code == "already_moving", code == "row_drifted", code == "already_owner":
		r.again(a, code, reason)
	default:
		r.tried[attemptOf(a)] = reason
		r.end(a, protocol.ActionFailed, code, reason)
	}
}

// again leaves an action that met another state than was planned to the next plan; what was approved is held instead, with
// the difference.
func (r *rebalance) again(a protocol.PlannedAction, code, reason string) {
	if r.fixed() {
		r.end(a, protocol.ActionHeld, code, reason)
		return
	}
	r.repeats[attemptOf(a)]++
	if r.repeats[attemptOf(a)] >= mostAgain {
		r.tried[attemptOf(a)] = reason
		r.end(a, protocol.ActionFailed, code, reason)
	}
}

// end counts an action's end and notes what moved nothing.
func (r *rebalance) end(a protocol.PlannedAction, state, code, reason string) {
	leg := a.Legs[0]
	switch state {
	case protocol.ActionMoved:
		r.counts.Moved++
	case protocol.ActionFailed:
		r.counts.Failed++
	case protocol.ActionHeld:
		r.counts.Held++
	case protocol.ActionSkipped:
		r.counts.Skipped++
	case protocol.ActionCancelled:
		r.counts.Cancelled++
	}
	if state != protocol.ActionMoved {
		r.troubles = append(r.troubles, protocol.Trouble{Partition: partitionName(a), From: leg.From, To: leg.To, State: state, Code: code, Reason: reason})
		r.troubles = r.troubles[max(0, len(r.troubles)-keptTroubles):]
	}
	r.ends = append(r.ends, protocol.ActionEnd{Seq: a.Seq, Topic: leg.Topic, TopicID: leg.TopicID, Partition: leg.Partition, From: leg.From, To: leg.To, State: state, Code: code, Reason: reason})
}

// flush records ends once there are more than a number of them.
func (r *rebalance) flush(ctx workflow.Context, beyond int) error {
	if len(r.ends) <= beyond || r.plan == nil {
		return nil
	}
	args := protocol.RecordArgs{Plan: r.plan.ID, Ends: r.ends, Cool: !r.in.Drain && r.in.Undo == "", Settings: r.in.Settings}
	r.ends = nil
	return r.run(ctx, protocol.ActivityRecordActions, fmt.Sprintf("record how %d actions ended", len(args.Ends)), args, nil)
}

func partitionName(a protocol.PlannedAction) string {
	return fmt.Sprintf("%s/%d", a.Legs[0].Topic, a.Legs[0].Partition)
}

func attemptOf(a protocol.PlannedAction) string { return partitionName(a) + ">" + a.Legs[0].To }

// refusalOf is the code and the sentence of a move's end.
func refusalOf(err error) (code, reason string) {
	var failure *temporal.ApplicationError
	if !errors.As(err, &failure) {
		if err != nil {
			reason = err.Error()
		}
		return "", reason
	}
	if failure.HasDetails() {
		_ = failure.Details(&code) // of another kind: there is no code
	}
	return code, failure.Message()
}
