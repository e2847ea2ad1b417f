package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// heldPace is the pace of a copy that is held, in bytes a second: nothing that matters passes, and what was copied stays.
const heldPace protocol.ByteSize = 1

// takeAdjustments takes what the rebalance that started this move changes of it: its pace, and whether it is held. A held
// move copies nothing and does not begin its cutover (R22); one that is cutting over goes on, since a freeze is not to last.
func (m *move) takeAdjustments(ctx workflow.Context) {
	signals := workflow.GetSignalChannel(ctx, protocol.SignalAdjust)
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var a protocol.Adjust
			if more := signals.Receive(ctx, &a); !more || ctx.Err() != nil {
				return
			}
			m.adjust(ctx, a)
		}
	})
}

func (m *move) adjust(ctx workflow.Context, a protocol.Adjust) {
	if a.Limit != nil {
		m.in.Limit = *a.Limit
	}
	if a.Held != nil {
		m.held = nil
		if a.Held.Paused {
			m.held = a.Held
		}
	}
	if m.status.Committed || m.status.Phase != protocol.PhaseCopy {
		return // what follows begins with a look at it
	}
	if m.held != nil {
		m.blockedNow(ctx, protocol.CodePaused, heldBecause(*m.held))
	} else if m.status.Blocked == protocol.CodePaused {
		m.blockedNow(ctx, "", "")
	}
	// The destination does not answer: it is not copying then, and learns the pace once it does, for the step is repeated.
	if err := setPace(ctx, m.claim, m.pace()).Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Warn("the copy was not told its new pace", "error", err)
	}
}

// pace is what the copy may take now.
func (m *move) pace() protocol.ByteSize {
	if m.held != nil {
		return heldPace
	}
	return m.in.Limit
}

// whileHeld waits until the move is not held any more.
func (m *move) whileHeld(ctx workflow.Context) error {
	if m.held == nil {
		return nil
	}
	m.blockedNow(ctx, protocol.CodePaused, heldBecause(*m.held))
	if err := workflow.Await(ctx, func() bool { return m.held == nil }); err != nil {
		return err
	}
	m.blockedNow(ctx, "", "")
	return nil
}

func heldBecause(p protocol.Pause) string {
	text := "its rebalance is paused"
	if p.By != "" {
		text += " by " + p.By
	}
	if p.Reason != "" {
		text += fmt.Sprintf(": %s", p.Reason)
	}
	return text
}
