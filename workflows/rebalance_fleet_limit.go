package workflows

import (
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// The limit of moves in flight counts all that the fleet has. What a rebalance has started waits for a place where its move is
// claimed, and says so; the rebalance shows it once none of its moves has one.

// limitPlan tells the metastore how many moves the fleet may have in flight for another of the plan to begin, and whether the
// plan is held or over, when that is not what it was told last. A move that waits for a place learns of it there.
func (r *rebalance) limitPlan(ctx workflow.Context) {
	if r.plan == nil || r.limiting || !r.limitsFleet {
		return
	}
	r.limiting = true // whatever changes meanwhile is looked at again
	workflow.Go(r.watching, func(ctx workflow.Context) {
		defer func() { r.limiting = false }()
		for r.plan != nil {
			now := protocol.LimitPlanArgs{Plan: r.plan.ID, MaxInFlight: min(r.limits.MaxInFlight, protocol.MostInFlight), Over: r.late()}
			if p := r.pause(); p != nil {
				now.Held = p.Blocks()
			}
			if now == r.limited {
				return
			}
			told := now
			told.At = workflow.Now(ctx)
			if r.run(ctx, protocol.ActivityLimitPlan, "how many moves may be in flight in the fleet", told, nil) != nil {
				return // the rebalance ends
			}
			r.limited = now
		}
	})
}

// hearWaiting follows which of its moves wait for a place in the fleet.
func (r *rebalance) hearWaiting(ctx workflow.Context) {
	signals := workflow.GetSignalChannel(ctx, protocol.SignalWaits)
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var w protocol.Waiting
			if more := signals.Receive(ctx, &w); !more || ctx.Err() != nil {
				return
			}
			for _, f := range r.flights {
				if f.id == w.Workflow {
					f.waits = w.Waits
				}
			}
			r.lookAtWaiting(ctx)
			r.changed = true
		}
	})
}

// begun reports whether any of its moves has begun, as far as is known.
func (r *rebalance) begun() bool {
	return slices.ContainsFunc(r.flights, func(f *flight) bool { return !f.waits })
}

// lookAtWaiting says so while none of the moves that were started has begun, because others are in flight.
func (r *rebalance) lookAtWaiting(ctx workflow.Context) {
	if r.watching.Err() != nil {
		return // it ends, and what waits with it
	}
	waits := len(r.flights) > 0 && !r.begun() && r.limits.MaxInFlight > 0
	reason := fmt.Sprintf("others have so many moves in flight in the fleet that none of its own begins; its limit is %d", r.limits.MaxInFlight)
	switch {
	case waits && (r.blocked == "" || r.blocked == protocol.CodeFleetBusy && r.blockedReason != reason):
		r.block(ctx, protocol.CodeFleetBusy, reason)
	case !waits && r.blocked == protocol.CodeFleetBusy:
		r.block(ctx, "", "")
	}
}

// tellOfLimits says so while the limits let nothing begin and nothing has begun: it waits for a person then. In a pause that
// is what is shown.
func (r *rebalance) tellOfLimits(ctx workflow.Context) {
	none := !r.begun() && (r.limits.MaxInFlight < 1 || len(r.flights) == 0 && r.limits.TransfersPerBroker < 1)
	switch {
	case none && (r.blocked == protocol.CodeLimitsStartNone || r.blocked == "" && workflow.GetVersion(ctx, "say-that-the-limits-start-none", workflow.DefaultVersion, 1) >= 1):
		r.block(ctx, protocol.CodeLimitsStartNone, fmt.Sprintf("maxInFlight is %d and transfersPerBroker %d", r.limits.MaxInFlight, r.limits.TransfersPerBroker))
	case !none && r.blocked == protocol.CodeLimitsStartNone:
		r.block(ctx, "", "")
	}
	r.lookAtWaiting(ctx)
}
