package workflows

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/planner"
	"portage/workflows/protocol"
)

const (
	// pageOfActions is how many actions are read at once: some 30 KiB of history.
	pageOfActions = 100
	// flushAt is how many ends are recorded with one activity.
	flushAt = 20
)

// flight is one child: a move, or a swap.
type flight struct {
	id     string // of its workflow
	action protocol.PlannedAction
	ctx    workflow.Context // cancelled with the rebalance, and by cancel
	cancel workflow.CancelFunc
	future workflow.ChildWorkflowFuture
	skip   *protocol.Decide // a person wants it left out
	waits  bool             // for a place in the fleet
}

// startWhatMay starts what the limits allow, in the plan's order; an action whose brokers are busy lets the next one pass. A
// swap is two moves: each of its brokers gives one and takes one. Where no two moves may run at once, it runs alone.
func (r *rebalance) startWhatMay(ctx workflow.Context, most int) {
	if r.pause() != nil || r.late() || r.stale || ctx.Err() != nil {
		return
	}
	giving, taking, running := map[string]int{}, map[string]int{}, 0
	count := func(a protocol.PlannedAction) {
		for _, leg := range a.Legs {
			giving[leg.From]++
			taking[leg.To]++
			running++
		}
	}
	for _, f := range r.flights {
		count(f.action)
	}
	inFlight := min(r.limits.MaxInFlight, protocol.MostInFlight)
	may := func(a protocol.PlannedAction) bool {
		for _, leg := range a.Legs {
			if giving[leg.From] >= r.limits.TransfersPerBroker || taking[leg.To] >= r.limits.TransfersPerBroker {
				return false
			}
		}
		return running == 0 || running+len(a.Legs) <= inFlight
	}
	for i := 0; i < len(r.queue) && r.startedInWave < most && running < inFlight; {
		if !may(r.queue[i]) || (r.watched != nil && !r.watched[r.queue[i].Seq]) {
			i++
			continue
		}
		action := r.queue[i]
		count(action)
		r.queue = slices.Delete(r.queue, i, i+1)
		r.startAction(ctx, action)
	}
}

// startAction starts one child under the id that everyone uses for these partitions, so that Temporal refuses a second.
func (r *rebalance) startAction(ctx workflow.Context, a protocol.PlannedAction) {
	f := &flight{action: a}
	f.ctx, f.cancel = workflow.WithCancel(ctx)
	landed := r.startMove
	if len(a.Legs) > 1 {
		landed = r.startSwap
	}
	ended := landed(f.ctx, f)
	r.flights = append(r.flights, f)
	r.lookAtWaiting(ctx) // this one does not, as far as is known
	r.done[a.Seq] = true
	r.startedInWave++
	r.children++
	waiting, _ := workflow.NewDisconnectedContext(ctx)
	workflow.Go(waiting, func(ctx workflow.Context) {
		sides, err := ended(ctx)
		r.flights = slices.DeleteFunc(r.flights, func(x *flight) bool { return x == f })
		r.landed(ctx, f, sides, err)
		r.lookAtWaiting(ctx)
		r.estimate(ctx)
		r.changed = true
	})
}

// ending waits for a child and returns what it moved.
type ending func(workflow.Context) ([]protocol.MoveResult, error)

func (r *rebalance) startMove(ctx workflow.Context, f *flight) ending {
	leg := f.action.Legs[0]
	in := protocol.MoveInput{Topic: leg.Topic, Partition: &leg.Partition, To: leg.To, By: r.in.By, Reason: reasonFor(f.action), Limit: r.limits.EachMove(),
		Expect: r.expect(leg), Plan: r.plan.ID, PlanSeq: f.action.Seq}
	f.id = protocol.PartitionWorkflowID(leg.Topic, leg.Partition)
	child := childOf(ctx, f.id, fmt.Sprintf("move %s to %s", nameOf(leg), leg.To))
	f.future = workflow.ExecuteChildWorkflow(child, protocol.WorkflowMove, in)
	return func(ctx workflow.Context) ([]protocol.MoveResult, error) {
		var result protocol.MoveResult
		err := f.future.Get(ctx, &result)
		return []protocol.MoveResult{result}, err
	}
}

func (r *rebalance) startSwap(ctx workflow.Context, f *flight) ending {
	side := func(leg planner.Leg) protocol.SwapPartition {
		return protocol.SwapPartition{Topic: leg.Topic, Partition: &leg.Partition, Expect: r.expect(leg)}
	}
	in := protocol.SwapInput{A: side(f.action.Legs[0]), B: side(f.action.Legs[1]), By: r.in.By, Reason: reasonFor(f.action), Limit: r.limits.EachMove(),
		Plan: r.plan.ID, PlanSeq: f.action.Seq}
	f.id = protocol.SwapWorkflowID(in.A, in.B)
	child := childOf(ctx, f.id, fmt.Sprintf("swap %s and %s", in.A, in.B))
	f.future = workflow.ExecuteChildWorkflow(child, protocol.WorkflowSwap, in)
	return func(ctx workflow.Context) ([]protocol.MoveResult, error) {
		var result protocol.SwapResult
		err := f.future.Get(ctx, &result)
		return result.Sides[:], err
	}
}

// expect is what a partition's row must be for its action to begin.
func (r *rebalance) expect(leg planner.Leg) *protocol.Expect {
	e := &protocol.Expect{TopicID: leg.TopicID, From: leg.From}
	if r.fixed() {
		e.Version = leg.Version // what runs is what was approved
	}
	return e
}

func childOf(ctx workflow.Context, id, summary string) workflow.Context {
	return workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: id, ParentClosePolicy: enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL, WaitForCancellation: true,
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, StaticSummary: summary})
}

// landed says how a child ended, and what that means for the rebalance.
func (r *rebalance) landed(ctx workflow.Context, f *flight, sides []protocol.MoveResult, err error) {
	a := f.action
	var started *temporal.ChildWorkflowExecutionAlreadyStartedError
	code, reason := refusalOf(err)
	switch {
	case err == nil:
		for _, side := range sides {
			r.counts.Bytes += side.Bytes
			r.movedBytes += side.Bytes
			r.longestWait = max(r.longestWait, time.Duration(side.FrozenMS*float64(time.Millisecond)))
		}
		r.end(a, protocol.ActionMoved, "", "")
	case errors.As(err, &started):
		r.again(ctx, a, "already_moving", fmt.Sprintf("workflow %s moves the partition, or waits to", f.id))
	case temporal.IsCanceledError(err) && f.skip != nil:
		r.leaveOut(ctx, a, fmt.Sprintf("skipped by %s: %s", f.skip.By, f.skip.Reason))
	case temporal.IsCanceledError(err) && f.ctx.Err() == nil && workflow.GetVersion(ctx, "skip-what-another-hand-cancelled", workflow.DefaultVersion, 1) >= 1:
		// Somebody cancelled this very move, not the rebalance: planned again it would be started again, against their will.
		for _, leg := range a.Legs {
			r.skipped[nameOf(leg)] = cancelledByHand
		}
		r.leaveOut(ctx, a, cancelledByHand)
	case temporal.IsCanceledError(err):
		r.end(a, protocol.ActionCancelled, "", "cancelled before its commit; it stays where it was")
	case code == "already_moving", code == "row_drifted", code == "already_owner", code == "same_owner":
		r.again(ctx, a, code, reason)
	case code == protocol.CodeDeadline:
		r.record(a, protocol.ActionSkipped, code, reason) // not started, as what is left in the queue
	default:
		r.tried[attemptOf(a)] = reason
		r.end(a, protocol.ActionFailed, code, reason)
	}
}

// cancelledByHand is why a partition is left out whose move was cancelled while its rebalance goes on.
const cancelledByHand = "its move was cancelled, so this rebalance leaves it where it is"

// leaveOut ends an action of which a partition is skipped. The plans that follow have the partition again, each records that it
// was left out, and the report tells it once.
func (r *rebalance) leaveOut(ctx workflow.Context, a protocol.PlannedAction, why string) {
	told := true
	for _, leg := range a.Legs {
		if _, skipped := r.skipped[nameOf(leg)]; skipped {
			told = told && r.leftOut[nameOf(leg)]
			r.leftOut[nameOf(leg)] = true
		}
	}
	if told && workflow.GetVersion(ctx, "tell-once-what-is-skipped", workflow.DefaultVersion, 1) >= 1 {
		r.record(a, protocol.ActionSkipped, "", why)
		return
	}
	r.end(a, protocol.ActionSkipped, "", why)
}

// again leaves an action that met another state than was planned to the next plan; what was approved is held instead, with
// the difference.
func (r *rebalance) again(ctx workflow.Context, a protocol.PlannedAction, code, reason string) {
	if r.fixed() {
		r.end(a, protocol.ActionHeld, code, reason)
		return
	}
	r.repeats[attemptOf(a)]++
	if r.repeats[attemptOf(a)] < mostAgain {
		return
	}
	r.tried[attemptOf(a)] = reason
	if code == "already_moving" && workflow.GetVersion(ctx, "leave-what-is-already-moving", workflow.DefaultVersion, 1) >= 1 { // nothing has failed: what moves it may wait for long
		r.end(a, protocol.ActionSkipped, code, reason)
		return
	}
	r.end(a, protocol.ActionFailed, code, reason)
}

// end counts an action's end and notes what moved nothing.
func (r *rebalance) end(a protocol.PlannedAction, state, code, reason string) {
	switch n := len(a.Legs); state {
	case protocol.ActionMoved:
		r.counts.Moved += n
	case protocol.ActionFailed:
		r.counts.Failed += n
	case protocol.ActionHeld:
		r.counts.Held += n
	case protocol.ActionSkipped:
		r.counts.Skipped += n
	case protocol.ActionCancelled:
		r.counts.Cancelled += n
	}
	if state != protocol.ActionMoved {
		leg := a.Legs[0]
		trouble := protocol.Trouble{Partition: nameOf(leg), From: leg.From, To: leg.To, State: state, Code: code, Reason: reason}
		if len(a.Legs) > 1 {
			trouble.With = nameOf(a.Legs[1])
		}
		r.troubles = append(r.troubles, trouble)
		r.troubles = r.troubles[max(0, len(r.troubles)-keptTroubles):]
	}
	r.record(a, state, code, reason)
}

// record keeps an action's end to be flushed.
func (r *rebalance) record(a protocol.PlannedAction, state, code, reason string) {
	leg := a.Legs[0]
	end := protocol.ActionEnd{Seq: a.Seq, Topic: leg.Topic, TopicID: leg.TopicID, Partition: leg.Partition, From: leg.From, To: leg.To, State: state, Code: code, Reason: reason}
	if len(a.Legs) > 1 {
		other := a.Legs[1]
		end.With = &protocol.EndedWith{Topic: other.Topic, TopicID: other.TopicID, Partition: other.Partition}
	}
	r.ends = append(r.ends, end)
}

// flush records ends once there are more than a number of them.
func (r *rebalance) flush(ctx workflow.Context, beyond int) error {
	if len(r.ends) <= beyond || r.plan == nil {
		return nil
	}
	args := protocol.RecordArgs{Plan: r.plan.ID, Rebalance: r.id, Ends: r.ends, Cool: !r.in.Drain && r.in.Undo == "", Settings: r.in.Settings}
	r.ends = nil
	return r.run(ctx, protocol.ActivityRecordActions, fmt.Sprintf("record how %d actions ended", len(args.Ends)), args, nil)
}

func nameOf(leg planner.Leg) string { return fmt.Sprintf("%s/%d", leg.Topic, leg.Partition) }

// concerns reports whether an action moves a partition.
func concerns(a protocol.PlannedAction, partition string) bool {
	return slices.ContainsFunc(a.Legs, func(leg planner.Leg) bool { return nameOf(leg) == partition })
}

// wayOf says what an action moves where.
func wayOf(a protocol.PlannedAction) string {
	var ways []string
	for _, leg := range a.Legs {
		ways = append(ways, fmt.Sprintf("%s %s → %s", nameOf(leg), leg.From, leg.To))
	}
	return strings.Join(ways, " with ")
}

// attemptOf names what an action tries: what has failed is not tried again to the same brokers.
func attemptOf(a protocol.PlannedAction) string {
	var tries []string
	for _, leg := range a.Legs {
		tries = append(tries, nameOf(leg)+">"+leg.To)
	}
	return strings.Join(tries, "+")
}

func reasonFor(a protocol.PlannedAction) string { return fmt.Sprintf("%s: %s", a.Goal, a.Reason) }

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
