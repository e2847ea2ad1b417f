package workflows

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/activity"

	"portage/workflows/protocol"
)

// A rebalance holds a move while it copies: the copy is paced to nothing, no cutover begins, and what was copied is not
// copied again. Let go, it takes its pace back.
func TestMoveThatIsHeldCopiesNothingAndDoesNotCutOver(t *testing.T) {
	w := newWorld(t)
	var paces []protocol.ByteSize
	w.env.RegisterActivityWithOptions(func(_ context.Context, a protocol.PaceArgs) error {
		paces = append(paces, a.Limit)
		return nil
	}, activity.RegisterOptions{Name: protocol.ActivityPace})
	limit := protocol.ByteSize(7 << 20)
	w.env.OnActivity(protocol.ActivityCopy, mock.Anything, mock.Anything).After(time.Hour).Return(protocol.CopyResult{BytesTotal: 1000, BytesCopied: 900, Converged: true, ExpectedFreeze: time.Second}, nil)
	signal := func(after time.Duration, a protocol.Adjust) {
		w.env.RegisterDelayedCallback(func() { w.env.SignalWorkflow(protocol.SignalAdjust, a) }, after)
	}
	signal(time.Minute, protocol.Adjust{Held: &protocol.Pause{Paused: true, By: "ops", Reason: "peak"}})
	w.env.RegisterDelayedCallback(func() {
		w.env.SignalWorkflow(protocol.SignalProgress, protocol.Progress{BytesDone: 5, BytesTotal: 1000})
	}, 2*time.Minute)
	w.env.RegisterDelayedCallback(func() {
		if s := w.status(); s.Blocked != protocol.CodePaused || s.BlockedReason != "its rebalance is paused by ops: peak" {
			t.Errorf("held it is %+v", s)
		}
	}, 3*time.Minute)
	w.env.RegisterDelayedCallback(func() {
		if w.done[protocol.ActivityCutover] != 0 {
			t.Error("a held move was cut over")
		}
	}, 90*time.Minute)
	signal(2*time.Hour, protocol.Adjust{Held: &protocol.Pause{}, Limit: &limit})
	if _, err := w.run(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(paces, []protocol.ByteSize{heldPace, limit}) {
		t.Errorf("the copy was paced %d", paces)
	}
	if s := w.status(); s.Blocked != "" || s.Phase != protocol.PhaseDone {
		t.Errorf("in the end it is %+v", s)
	}
}

// Held before it copies, a move waits; a cancel still ends it.
func TestMoveThatIsHeldBeforeItsCopyWaits(t *testing.T) {
	w := newWorld(t)
	w.env.RegisterDelayedCallback(func() {
		w.env.SignalWorkflow(protocol.SignalAdjust, protocol.Adjust{Held: &protocol.Pause{Paused: true}})
	}, 0)
	w.env.RegisterDelayedCallback(func() {
		if w.done[protocol.ActivityCopy] != 0 {
			t.Error("a held move copies")
		}
		w.env.CancelWorkflow()
	}, time.Hour)
	if _, err := w.run(); err == nil || w.done[protocol.ActivityAbort] != 1 {
		t.Errorf("it ended with %v after %q", err, w.calls)
	}
}
