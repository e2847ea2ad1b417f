package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// keepToWindow follows the rebalance's window, when it has one, until the rebalance ends. Outside it the moves in flight are
// held, as in a pause, and none begins.
//
// When the window opens and closes is computed in an activity: workers whose zone data differ would replay to another time.
func (r *rebalance) keepToWindow(ctx workflow.Context) error {
	if r.in.Window == nil || r.in.DryRun {
		return nil
	}
	if err := r.lookAtWindow(ctx); err != nil {
		return err
	}
	workflow.Go(r.watching, func(ctx workflow.Context) {
		for ctx.Err() == nil {
			if err := workflow.Sleep(ctx, max(r.window.Until.Sub(workflow.Now(ctx)), time.Second)); err != nil {
				return // cancelled: the rebalance ends
			}
			if err := r.lookAtWindow(ctx); err != nil {
				return
			}
			if r.plan != nil {
				r.estimate(ctx)
			}
			r.changed = true
			r.show(ctx)
		}
	})
	return nil
}

// lookAtWindow asks whether the window is open now, and holds the moves in flight or lets them go on when that has changed.
func (r *rebalance) lookAtWindow(ctx workflow.Context) error {
	var now protocol.WindowState
	args := protocol.WindowArgs{Window: *r.in.Window, Now: workflow.Now(ctx)}
	if err := r.run(ctx, protocol.ActivityWindow, fmt.Sprintf("when its window opens and closes: %s", r.in.Window), args, &now); err != nil {
		return err
	}
	was := r.window
	r.window, r.outside = &now, nil
	if !now.Open {
		r.outside = &protocol.Pause{Paused: true, Code: protocol.CodeOutsideWindow,
			Reason: fmt.Sprintf("the rebalance is outside its window (%s), which opens at %s", r.in.Window, now.Until.Format(time.RFC3339))}
	}
	if !now.Open && (was == nil || was.Open) {
		r.closedAt = workflow.Now(ctx)
	}
	if was == nil || was.Open == now.Open {
		return nil // there is nothing in flight yet, or nothing has changed
	}
	if now.Open {
		if !r.plannedAt.IsZero() { // nothing moved meanwhile
			still := workflow.Now(ctx).Sub(r.stillSince())
			r.plannedAt, r.unheldETA = r.plannedAt.Add(still), r.unheldETA.Add(still)
		}
		// What was planned hours ago is not begun any more: what is in flight ends, then it is planned anew. A canary has its
		// moves to the end.
		r.stale = r.plan != nil && !r.fixed() && !r.canaryPending()
	}
	r.hold(ctx)
	return nil
}

// stillSince is since when a plan stands still outside its window.
func (r *rebalance) stillSince() time.Time {
	if r.plannedAt.After(r.closedAt) {
		return r.plannedAt
	}
	return r.closedAt
}

// awaitWindow waits until the window is open, or the deadline has passed.
func (r *rebalance) awaitWindow(ctx workflow.Context) error {
	if r.outside == nil {
		return nil
	}
	r.enter(ctx, protocol.PhaseWindow)
	r.block(ctx, r.outside.Blocks(), heldBecause(*r.outside))
	if d := r.in.Deadline; d != nil && r.window.Until.After(*d) {
		r.lateBecause = fmt.Sprintf("its window opens at %s and its deadline is %s", r.window.Until.Format(time.RFC3339), d.UTC().Format(time.RFC3339))
		r.show(ctx)
	}
	return r.untilDeadline(ctx, func() bool { return r.outside == nil })
}
