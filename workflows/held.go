package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// heldPace is the pace of a copy that is held, in bytes a second: nothing that matters passes, and what was copied stays.
const heldPace protocol.ByteSize = 1

// takeAdjustments takes what the rebalance that started this move or swap changes of it: its pace, and whether it is held. What
// is held copies nothing and does not begin its cutover (R22); what is cutting over goes on, since a freeze is not to last.
//
// What it changes is in force at once; only the telling takes time, so that no other pace that is told meanwhile misses it.
func (s *stage) takeAdjustments(ctx workflow.Context, adjust func(workflow.Context, protocol.Adjust) (tell bool)) {
	signals := workflow.GetSignalChannel(ctx, protocol.SignalAdjust)
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var a protocol.Adjust
			if more := signals.Receive(ctx, &a); !more || ctx.Err() != nil {
				return
			}
			beside := workflow.GetVersion(ctx, "take-an-adjustment-at-once", workflow.DefaultVersion, 1) >= 1
			switch tell := adjust(ctx, a); {
			case tell && beside:
				workflow.Go(s.nextToTell(ctx), s.tell)
			case tell:
				s.tell(ctx)
			}
		}
	})
}

// nextToTell ends the telling of a pace that is not the pace any more, and begins the next one's.
func (s *stage) nextToTell(ctx workflow.Context) workflow.Context {
	if s.stopTelling != nil {
		s.stopTelling()
	}
	ctx, s.stopTelling = workflow.WithCancel(ctx)
	return ctx
}

// adjusted takes whether it is held, and reports whether copies are under way that are to be told their pace.
func (s *stage) adjusted(ctx workflow.Context, a protocol.Adjust) (tell bool) {
	if a.Held != nil {
		s.held = nil
		if a.Held.Paused {
			s.held = a.Held
		}
	}
	if s.status.Committed || s.status.Phase != protocol.PhaseCopy {
		return false // what follows begins with a look at it
	}
	if s.held != nil {
		s.blockedNow(ctx, s.held.Blocks(), heldBecause(*s.held))
	} else if holds(s.status.Blocked) {
		s.blockedNow(ctx, "", "")
	}
	return true
}

// tell tells the copies that are under way their pace until they have answered. A destination keeps what it was told, over its own death
// too, whatever later orders say: one that was away when it was to be held would go on at the old pace, and one that was away when
// it was let go would stand still for ever.
func (s *stage) tell(ctx workflow.Context) {
	if s.telling.Lock(ctx) != nil {
		return // the next change tells it
	}
	defer s.telling.Unlock()
	for {
		err := s.tellOnce(ctx, toldWithin)
		if err == nil || ctx.Err() != nil {
			return
		}
		workflow.GetLogger(ctx).Warn("a copy was not told its new pace", "error", err)
		if s.status.Phase != protocol.PhaseCopy || !untilKnown(ctx, s.held != nil) {
			return
		}
	}
}

// untilKnown reports whether a pace is told until it is known; a move that began before that was so goes on as it was.
func untilKnown(ctx workflow.Context, held bool) bool {
	if !held && workflow.GetVersion(ctx, "tell-every-pace-until-it-is-known", workflow.DefaultVersion, 1) < 1 {
		return false
	}
	return workflow.GetVersion(ctx, "tell-a-hold-until-it-is-known", workflow.DefaultVersion, 1) >= 1
}

// tellOnce tells the present pace, and keeps which one is known to have arrived.
func (s *stage) tellOnce(ctx workflow.Context, within time.Duration) error {
	pace := s.of.pace()
	s.told, s.toldPace = true, nil // the reply may be lost
	err := s.of.setPace(ctx, pace, within)
	if err == nil {
		s.toldPace = &pace
	}
	return err
}

// tellAgain tells the pace when a copy begins again that may have been told another meanwhile.
func (s *stage) tellAgain(ctx workflow.Context) {
	if !s.told || (s.toldPace != nil && *s.toldPace == s.of.pace()) || !untilKnown(ctx, false) {
		return
	}
	workflow.Go(s.nextToTell(ctx), s.tell)
}

// tunePace tells a person's new pace. A destination that does not answer within a minute is told once it does.
func (s *stage) tunePace(ctx workflow.Context) error {
	if !untilKnown(ctx, false) {
		return s.tellOnce(ctx, tunedWithin)
	}
	telling := s.nextToTell(ctx)
	if err := s.telling.Lock(telling); err != nil {
		return errors.New("another pace was set meanwhile")
	}
	err := s.tellOnce(telling, tunedWithin)
	s.telling.Unlock()
	if telling.Err() != nil && ctx.Err() == nil {
		return errors.New("another pace was set meanwhile")
	}
	if err != nil && telling.Err() == nil && s.status.Phase == protocol.PhaseCopy {
		workflow.Go(telling, s.tell)
	}
	return err
}

// paced is what a copy of this limit may take now.
func (s *stage) paced(limit protocol.ByteSize) protocol.ByteSize {
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
