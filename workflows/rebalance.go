package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

const (
	// childrenARun bounds one run's history: with about 15 events a child it stays far below every limit. It is looked at between
	// waves.
	childrenARun = 250
	// mostChildrenARun is what the last wave of a run may bring it to: a workflow goes on as new before it has 300 children.
	mostChildrenARun = 299
	// replanPause is waited before the fleet is looked at again after a wave in which nothing moved, or while recoveries hold
	// everything.
	replanPause = 5 * time.Second
	// mostAgain is how often an action is planned again that was in another's way, before it counts as failed, or is left to the other.
	mostAgain = 3
)

// Rebalance balances a fleet.
//
//	plan      look at the fleet, plan, keep the plan; nothing is changed
//	approve   only when asked for: wait until a person names the plan's hash
//	wave      child Move and Swap workflows under the limits; one that fails stops no other
//	again     look and plan again, until nothing is left to do; an approved plan is carried out as it is instead
//	report
//
// Whoever dies, the step is repeated when they are back: a plan is kept under an id before its first move, and a move
// that was started is found by its workflow id. A cancel cancels the moves that have not committed and waits for them.
// Children are cancelled on request when this workflow is closed by force: a move that nobody watches any more must not go
// on by itself, and a request, unlike a termination, lets it restore what it has begun.
func Rebalance(ctx workflow.Context, raw converter.RawValue) (*protocol.RebalanceResult, error) {
	in, err := protocol.ParseRebalanceInput(raw.Payload().GetData())
	if err != nil {
		return nil, temporal.NewNonRetryableApplicationError(err.Error(), protocol.ErrInvalidInput, nil)
	}
	r := newRebalance(ctx, in)
	r.swaps = workflow.GetVersion(ctx, "carry-out-swaps", workflow.DefaultVersion, 1) >= 1
	r.limitsFleet = workflow.GetVersion(ctx, "limit-what-is-in-flight-in-the-fleet", workflow.DefaultVersion, 1) >= 1
	if err := r.expose(ctx); err != nil {
		return nil, err
	}
	watching, stop := workflow.WithCancel(ctx)
	defer stop()
	r.watching = watching
	if in.Carried != nil {
		r.watchPause()
		r.limitPlan(ctx)
	}
	if err := r.keepToWindow(ctx); err != nil {
		return nil, r.failed(ctx, err)
	}
	for {
		more, err := r.round(ctx)
		switch {
		case err != nil:
			return nil, r.failed(ctx, err)
		case !more:
			return r.report(ctx), nil
		case r.children >= childrenARun, r.long(ctx):
			return nil, r.continueAsNew(ctx)
		}
	}
}

// round plans, unless a plan is being carried out, and carries out one wave of it. more is false once nothing is left.
func (r *rebalance) round(ctx workflow.Context) (more bool, err error) {
	if r.plan == nil && !r.fixed() {
		if err := r.awaitWindow(ctx); err != nil {
			return false, err
		}
		if r.outside != nil { // and its deadline has passed
			r.ended = "its deadline has passed before its window opened; what was not started is left as it is"
			return false, nil
		}
	}
	if r.plan == nil {
		if more, err = r.makePlan(ctx); err != nil || !more || r.plan == nil {
			return more, err
		}
	}
	before := r.counts
	if err := r.carryOut(ctx); err != nil {
		return false, err
	}
	more, err = r.soak(ctx)
	if err == nil {
		err = r.recordLeftOver(ctx)
	}
	if err != nil || !more {
		return false, err
	}
	switch {
	case r.late():
		r.ended = "its deadline has passed; what was not started is left as it is"
		return false, nil
	case r.fixed() && r.next >= r.plan.Actions:
		r.ended = "the plan was carried out"
		return false, nil
	case r.fixed():
		return true, nil
	case r.stale:
		return true, r.leavePlan(ctx)
	case r.startedInWave == 0:
		r.ended = "what is left to do can not be done now; the report says why"
		return false, nil
	}
	if r.counts == before { // everything was in another's way
		if err := workflow.Sleep(ctx, replanPause); err != nil {
			return false, err
		}
	}
	return true, r.leavePlan(ctx)
}

// recordLeftOver records what a person has skipped of the plan's queue since its last wave ended.
func (r *rebalance) recordLeftOver(ctx workflow.Context) error {
	if len(r.ends) == 0 || workflow.GetVersion(ctx, "record-what-is-skipped-between-waves", workflow.DefaultVersion, 1) < 1 {
		return nil
	}
	for len(r.ends) > 0 { // more may be skipped meanwhile
		if err := r.flush(ctx, 0); err != nil {
			return err
		}
	}
	return nil
}

// leavePlan lets go of a plan before the next is made. Its queue goes with it: what a person skips from then on is an action
// of the next plan, or of none.
func (r *rebalance) leavePlan(ctx workflow.Context) error {
	if workflow.GetVersion(ctx, "leave-no-queue-of-an-earlier-plan", workflow.DefaultVersion, 1) >= 1 {
		r.queue = nil // first: the activity below takes time
	}
	err := r.recordLeftOver(ctx)
	r.plan = nil
	return err
}

// makePlan looks at the fleet and plans. The plan stays nil while something holds it.
func (r *rebalance) makePlan(ctx workflow.Context) (more bool, err error) {
	r.enter(ctx, protocol.PhasePlanning)
	r.plans++
	r.stale = false
	args := protocol.PlanArgs{ID: fmt.Sprintf("%s.%d", r.id, r.plans), Rebalance: r.id, Hash: r.in.Hash, Undo: r.in.Undo, Drain: r.in.Drain, Of: r.in.DrainBroker, Limits: r.in.Limits, CountOnly: r.in.CountOnly, Swaps: r.swaps, Limited: r.limitsFleet,
		Settings: r.in.Settings, By: r.in.By, Reason: r.in.Reason}
	var plan protocol.PlanSummary
	if err := r.run(ctx, protocol.ActivityPlan, "look at the fleet and plan", args, &plan); err != nil {
		return false, err
	}
	if r.in.CountOnly && r.in.Hash == "" && r.in.Undo == "" && !plan.CountOnly {
		return false, temporal.NewNonRetryableApplicationError("the worker that planned is of a version that can not plan by count alone; upgrade every worker and start it again", protocol.ErrInvalidInput, nil)
	}
	r.last, r.limits, r.next, r.done = plan, plan.Limits.With(r.in.Limits), 0, map[int]bool{}
	if r.plans == 1 {
		r.fleet = plan.Paused
		r.watchPause()
	}
	r.estimate(ctx)
	switch {
	case r.in.DryRun:
		r.ended = "only planned, as asked; nothing was changed"
		return false, nil
	case plan.Held != nil:
		r.block(ctx, plan.Held.Code, plan.Held.Reason)
		if err := workflow.Sleep(ctx, 6*replanPause); err != nil || !r.endsAtDeadline(ctx) || !r.late() {
			return true, err
		}
		r.ended = "its deadline has passed; nothing could be planned: " + plan.Held.Reason
		return false, nil
	case plan.Actions == 0:
		r.ended = "nothing is left to do"
		if r.plans == 1 {
			r.ended = "there was nothing to do"
		}
		return false, nil
	}
	r.plan = &plan
	r.limitPlan(ctx) // also what a person has changed, or paused, while it was planned
	if r.in.Approve {
		return r.awaitApproval(ctx)
	}
	if r.in.Hash != "" {
		return true, r.recordApproval(ctx, protocol.Decide{Hash: plan.Hash, By: r.in.By, Reason: r.in.Reason})
	}
	return true, nil
}

// awaitApproval waits until a person names the hash of the plan that is shown; more is false once the deadline has passed.
func (r *rebalance) awaitApproval(ctx workflow.Context) (more bool, err error) {
	r.enter(ctx, protocol.PhaseApproval)
	r.block(ctx, protocol.CodeNeedsApproval, fmt.Sprintf("%d actions, %s to copy; approve hash %s", r.plan.Actions, protocol.ByteSize(r.plan.Bytes), short(r.plan.Hash)))
	approved := func() bool { return r.approved != nil }
	if r.endsAtDeadline(ctx) {
		err = r.untilDeadline(ctx, approved)
	} else {
		err = workflow.Await(ctx, approved)
	}
	switch {
	case err != nil:
		return false, err
	case r.approved == nil:
		r.ended = "its deadline has passed before its plan was approved; nothing was started"
		return false, nil
	}
	return true, r.recordApproval(ctx, *r.approved)
}

func (r *rebalance) recordApproval(ctx workflow.Context, d protocol.Decide) error {
	return start(ctx, protocol.ActivityApprovePlan, "record who approved the plan", protocol.ApprovalArgs{Plan: r.plan.ID, Decide: d}).Get(ctx, nil)
}

// fixed reports whether the plan is carried out as it is: it was approved, or is a way back.
func (r *rebalance) fixed() bool { return r.in.Approve || r.in.Hash != "" || r.in.Undo != "" }

// carryOut starts one wave of the plan's actions under the limits and waits for all of them.
func (r *rebalance) carryOut(ctx workflow.Context) error {
	r.enter(ctx, protocol.PhaseMoving)
	r.startedInWave, r.movedBefore, r.queue, r.watched, r.lags = 0, r.counts.Moved, nil, nil, nil
	most := r.plan.Wave
	if r.canaryPending() {
		most = r.in.Canary.Moves
	}
	most = r.within(ctx, most)
	for {
		if err := r.fill(ctx, most); err != nil {
			return errors.Join(r.landAll(ctx), err)
		}
		if err := r.watchLags(ctx, most); err != nil {
			return errors.Join(r.landAll(ctx), err)
		}
		r.startWhatMay(ctx, most)
		if len(r.flights) == 0 && (r.startedInWave >= most || !r.mayBegin() || r.late() || r.stale) {
			break
		}
		r.tellOfLimits(ctx)
		r.show(ctx)
		if err := r.awaitChange(ctx); err != nil {
			return errors.Join(r.landAll(ctx), err)
		}
		if err := r.flush(ctx, flushAt); err != nil {
			return errors.Join(r.landAll(ctx), err)
		}
	}
	if len(r.queue) > 0 {
		r.next = r.queue[0].Seq // what was not started of it comes with the next wave
	}
	return r.flush(ctx, 0)
}

// within is how many actions of a wave this run may still start; the rest comes with the next wave.
func (r *rebalance) within(ctx workflow.Context, wave int) int {
	left := mostChildrenARun - r.children
	if wave <= left || workflow.GetVersion(ctx, "bound-the-children-of-a-run", workflow.DefaultVersion, 1) < 1 {
		return wave
	}
	return left
}

// awaitChange waits until a move has ended, or a person or the deadline changes what may be started.
func (r *rebalance) awaitChange(ctx workflow.Context) error {
	r.changed = false
	changed := func() bool { return r.changed }
	if r.late() {
		r.limitPlan(ctx)
		return workflow.Await(ctx, changed)
	}
	err := r.untilDeadline(ctx, changed)
	if r.late() {
		r.limitPlan(ctx)
		r.estimate(ctx) // now it is known
		r.show(ctx)
	}
	return err
}

// landAll waits for every move in flight when the rebalance itself is cancelled: their contexts are, so those that have not
// committed restore everything.
func (r *rebalance) landAll(ctx workflow.Context) error {
	waiting, _ := workflow.NewDisconnectedContext(ctx)
	for _, f := range r.flights {
		f.cancel()
	}
	r.block(waiting, "", "")
	if err := workflow.Await(waiting, func() bool { return len(r.flights) == 0 }); err != nil {
		return err
	}
	return r.flush(waiting, 0)
}

// fill reads the plan's next actions into the queue.
func (r *rebalance) fill(ctx workflow.Context, most int) error {
	for len(r.queue) < pageOfActions/2 && r.next < r.plan.Actions && r.startedInWave < most {
		var page []protocol.PlannedAction
		args := protocol.ActionsArgs{Plan: r.plan.ID, From: r.next, Most: pageOfActions}
		if err := r.run(ctx, protocol.ActivityActions, fmt.Sprintf("read the plan from action %d on", r.next), args, &page); err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
		r.next += len(page)
		for _, a := range page {
			if r.notNow(ctx, a) {
				r.done[a.Seq] = true
				continue
			}
			r.queue = append(r.queue, a)
		}
	}
	return nil
}

// notNow reports whether an action of the plan is left out.
func (r *rebalance) notNow(ctx workflow.Context, a protocol.PlannedAction) bool {
	if r.done[a.Seq] || len(a.Legs) == 0 || (len(a.Legs) > 1 && !r.swaps) {
		return true
	}
	for _, leg := range a.Legs {
		if why, skipped := r.skipped[nameOf(leg)]; skipped {
			r.leaveOut(ctx, a, why)
			return true
		}
	}
	_, tried := r.tried[attemptOf(a)]
	return tried
}

// soak waits after a canary's moves and looks at them.
func (r *rebalance) soak(ctx workflow.Context) (more bool, err error) {
	if !r.canaryPending() || r.startedInWave == 0 {
		return true, nil
	}
	if r.counts.Moved == r.movedBefore && r.counts.Failed == 0 && workflow.GetVersion(ctx, "learn-nothing-of-what-did-not-move", workflow.DefaultVersion, 1) >= 1 {
		return true, nil // the next actions are the canary
	}
	c := r.in.Canary
	r.enter(ctx, protocol.PhaseSoaking)
	if err := workflow.Sleep(ctx, time.Duration(c.Soak)); err != nil {
		return false, err
	}
	longest := time.Duration(c.LongestWait)
	if longest == 0 {
		longest = protocol.LongestWaitDefault
	}
	r.canaryOver = true
	switch {
	case r.counts.Failed > 0:
		r.ended = fmt.Sprintf("%s: %d of the first moves failed; the rest was not started", protocol.CodeCanaryFailed, r.counts.Failed)
	case r.longestWait > longest:
		r.ended = fmt.Sprintf("%s: writes waited for %s during one of the first moves, more than %s; the rest was not started", protocol.CodeCanaryFailed, r.longestWait, longest)
	default:
		behind, err := r.fellBehind(ctx)
		if err != nil || behind == "" {
			return err == nil, err
		}
		r.ended = fmt.Sprintf("%s: %s; the rest was not started", protocol.CodeCanaryFailed, behind)
	}
	return false, nil
}

// long reports that the history of this run has become long, as it does without children while something holds every plan.
func (r *rebalance) long(ctx workflow.Context) bool {
	return isLong(ctx) && workflow.GetVersion(ctx, "continue-a-long-rebalance-as-new", workflow.DefaultVersion, 1) >= 1
}

func (r *rebalance) canaryPending() bool { return r.in.Canary != nil && !r.canaryOver }

// late reports whether the deadline has passed.
func (r *rebalance) late() bool { return r.in.Deadline != nil && !r.now().Before(*r.in.Deadline) }

// untilDeadline waits for something, or until the deadline has passed.
func (r *rebalance) untilDeadline(ctx workflow.Context, done func() bool) error {
	if d := r.in.Deadline; d != nil {
		_, err := workflow.AwaitWithTimeout(ctx, d.Sub(workflow.Now(ctx)), done)
		return err
	}
	return workflow.Await(ctx, done)
}

// endsAtDeadline reports whether no wait outlasts the deadline; a rebalance that began before that was so goes on as it was.
func (r *rebalance) endsAtDeadline(ctx workflow.Context) bool {
	return r.in.Deadline != nil && workflow.GetVersion(ctx, "end-at-the-deadline", workflow.DefaultVersion, 1) >= 1
}

// continueAsNew goes on in a new run, with nothing in flight.
func (r *rebalance) continueAsNew(ctx workflow.Context) error {
	in := r.in
	in.Limits = protocol.Limits{MaxInFlight: &r.limits.MaxInFlight, TransfersPerBroker: &r.limits.TransfersPerBroker, MoveRate: &r.limits.MoveRate, BrokerRate: &r.limits.BrokerRate}
	in.Carried = &protocol.RebalanceCarried{ID: r.id, Began: r.began, Next: r.next, Counts: r.counts, Troubles: r.troubles, Tried: r.tried, Skipped: r.skipped,
		Paused: r.paused, Fleet: r.fleet, Plans: r.plans, Canary: r.canaryOver, LeftOut: r.leftOut}
	if r.plan != nil {
		in.Carried.Plan = r.plan
		for seq := r.next; seq < r.plan.Actions; seq++ {
			if r.done[seq] {
				in.Carried.Done = append(in.Carried.Done, seq)
			}
		}
	}
	return workflow.NewContinueAsNewError(ctx, protocol.WorkflowRebalance, in)
}
