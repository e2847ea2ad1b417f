package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// heldPace is the pace of a copy that is held, in bytes a second: nothing that matters passes, and what was copied stays.
const heldPace protocol.ByteSize = 1

// takeAdjustments takes what the rebalance that started this move or swap changes of it: its pace, and whether it is held. What
// is held copies nothing and does not begin its cutover (R22); what is cutting over goes on, since a freeze is not to last.
func takeAdjustments(ctx workflow.Context, adjust func(workflow.Context, protocol.Adjust)) {
	signals := workflow.GetSignalChannel(ctx, protocol.SignalAdjust)
	workflow.Go(ctx, func(ctx workflow.Context) {
		stop := func() {}
		for {
			var a protocol.Adjust
			if more := signals.Receive(ctx, &a); !more || ctx.Err() != nil {
				return
			}
			if workflow.GetVersion(ctx, "take-an-adjustment-at-once", workflow.DefaultVersion, 1) < 1 {
				adjust(ctx, a)
				continue
			}
			stop() // a pace that is still being told is not the pace any more
			var telling workflow.Context
			telling, stop = workflow.WithCancel(ctx)
			workflow.Go(telling, func(ctx workflow.Context) { adjust(ctx, a) })
		}
	})
}

// adjusted takes whether it is held, and lets the copies that are under way be told their pace.
//
// A destination that does not answer is not copying. It learns another pace from the next order, but that it is held it is told until
// it has answered: its copy would go on at the old pace once it is back. One that was told knows it also after a restart.
func (s *stage) adjusted(ctx workflow.Context, a protocol.Adjust, tell func(within time.Duration) error) {
	if a.Held != nil {
		s.held = nil
		if a.Held.Paused {
			s.held = a.Held
		}
	}
	if s.status.Committed || s.status.Phase != protocol.PhaseCopy {
		return // what follows begins with a look at it
	}
	if s.held != nil {
		s.blockedNow(ctx, s.held.Blocks(), heldBecause(*s.held))
	} else if holds(s.status.Blocked) {
		s.blockedNow(ctx, "", "")
	}
	if s.telling.Lock(ctx) != nil {
		return // the next change tells it
	}
	defer s.telling.Unlock()
	for {
		within := tunedWithin
		if s.held != nil {
			within = heldWithin
		}
		err := tell(within)
		if err == nil || ctx.Err() != nil {
			return
		}
		workflow.GetLogger(ctx).Warn("a copy was not told its new pace", "error", err)
		if s.held == nil || s.status.Phase != protocol.PhaseCopy || workflow.GetVersion(ctx, "tell-a-hold-until-it-is-known", workflow.DefaultVersion, 1) < 1 {
			return
		}
	}
}

// pace is what a copy of this limit may take now.
func (s *stage) pace(limit protocol.ByteSize) protocol.ByteSize {
	if s.held != nil {
		return heldPace
	}
	return limit
}

// whileHeld waits until it is not held any more.
func (s *stage) whileHeld(ctx workflow.Context) error {
	if s.held == nil {
		return nil
	}
	s.blockedNow(ctx, s.held.Blocks(), heldBecause(*s.held))
	if err := workflow.Await(ctx, func() bool { return s.held == nil }); err != nil {
		return err
	}
	s.blockedNow(ctx, "", "")
	return nil
}

// holds reports whether a code is that of a hold.
func holds(code string) bool {
	return code == protocol.CodePaused || code == protocol.CodeOutsideWindow
}

func heldBecause(p protocol.Pause) string {
	if p.Code != "" {
		return p.Reason
	}
	text := "its rebalance is paused"
	if p.By != "" {
		text += " by " + p.By
	}
	if p.Reason != "" {
		text += fmt.Sprintf(": %s", p.Reason)
	}
	return text
}
