package workflows

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/activity"

	"portage/workflows/protocol"
)

// hold is what a rebalance says to its move after a time.
func (w *world) hold(after time.Duration, paused bool) {
	w.env.RegisterDelayedCallback(func() {
		w.env.SignalWorkflow(protocol.SignalAdjust, protocol.Adjust{Held: &protocol.Pause{Paused: paused}})
	}, after)
}

// keepPaces keeps the paces that the destination is told.
func (w *world) keepPaces(paces *[]protocol.ByteSize) {
	w.env.RegisterActivityWithOptions(func(_ context.Context, a protocol.PaceArgs) error {
		*paces = append(*paces, a.Limit)
		return nil
	}, activity.RegisterOptions{Name: protocol.ActivityPace})
}

// A rebalance holds a move while it copies: the copy is paced to nothing, no cutover begins, and what was copied is not
// copied again. Let go, it takes its pace back.
func TestMoveThatIsHeldCopiesNothingAndDoesNotCutOver(t *testing.T) {
	w := newWorld(t)
	var paces []protocol.ByteSize
	w.keepPaces(&paces)
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

// A move that is held when its copy has come near its tail copies once more when it is let go: what was written meanwhile is
// not drained in the freeze.
func TestMoveThatWasHeldCopiesOnceMoreBeforeItsCutover(t *testing.T) {
	w := newWorld(t)
	w.env.RegisterActivityWithOptions(func(context.Context, protocol.PaceArgs) error { return nil }, activity.RegisterOptions{Name: protocol.ActivityPace})
	copies := 0
	w.env.OnActivity(protocol.ActivityCopy, mock.Anything, mock.Anything).After(time.Hour).Return(func(_ context.Context, a protocol.StepArgs) (protocol.CopyResult, error) {
		copies++
		return protocol.CopyResult{BytesTotal: 1000, Converged: true, ExpectedFreeze: time.Second}, nil
	})
	w.hold(30*time.Minute, true)
	w.hold(20*time.Hour, false)
	if _, err := w.run(); err != nil {
		t.Fatal(err)
	}
	if copies != 2 || w.done[protocol.ActivityCutover] != 1 {
		t.Errorf("it was copied %d times and cut over %d times", copies, w.done[protocol.ActivityCutover])
	}
}

// A destination that does not answer when its move is held is told once it does, however long that takes: its copy does not go on at
// the old pace.
func TestADestinationThatIsAwayIsToldThatItsMoveIsHeld(t *testing.T) {
	w := newWorld(t)
	var paces []protocol.ByteSize
	backAt := w.env.Now().Add(90 * time.Minute)
	w.env.RegisterActivityWithOptions(func(_ context.Context, a protocol.PaceArgs) error {
		if w.env.Now().Before(backAt) {
			return errors.New("b2 does not answer")
		}
		paces = append(paces, a.Limit)
		return nil
	}, activity.RegisterOptions{Name: protocol.ActivityPace})
	w.env.OnActivity(protocol.ActivityCopy, mock.Anything, mock.Anything).After(3*time.Hour).Return(protocol.CopyResult{BytesTotal: 1000, Converged: true, ExpectedFreeze: time.Second}, nil)
	w.hold(time.Hour, true)
	w.env.RegisterDelayedCallback(func() {
		if !slices.Equal(paces, []protocol.ByteSize{heldPace}) {
			t.Errorf("a quarter of an hour after it is back it was told %v", paces)
		}
	}, 105*time.Minute)
	w.hold(2*time.Hour, false)
	if _, err := w.run(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(paces, []protocol.ByteSize{heldPace, 0}) {
		t.Errorf("it was told %v", paces)
	}
}

// A destination keeps the last pace it was told. One that does not answer when its move goes on, or is given another pace, is told once it
// does, however long that takes: its copy does not stand still for ever.
func TestADestinationThatIsAwayIsToldThePaceThatIsInForceOnceItIsBack(t *testing.T) {
	fast := protocol.ByteSize(7 << 20)
	for name, tc := range map[string]struct {
		change func(w *world)
		want   []protocol.ByteSize
	}{
		"let go": {func(w *world) { w.env.SignalWorkflow(protocol.SignalAdjust, protocol.Adjust{Held: &protocol.Pause{}}) }, []protocol.ByteSize{heldPace, 0}},
		"another pace from its rebalance": {func(w *world) {
			w.env.SignalWorkflow(protocol.SignalAdjust, protocol.Adjust{Held: &protocol.Pause{}, Limit: &fast})
		}, []protocol.ByteSize{heldPace, fast}},
		"another pace from a person, and let go": {func(w *world) {
			w.env.UpdateWorkflow(protocol.UpdateTune, "tune", &updates{rejected: new(error)}, protocol.Tune{Limit: &fast})
			w.hold(10*time.Minute, false)
		}, []protocol.ByteSize{heldPace, fast}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var paces []protocol.ByteSize
			began := w.env.Now()
			w.env.RegisterActivityWithOptions(func(_ context.Context, a protocol.PaceArgs) error {
				if at := w.env.Now().Sub(began); at > 2*time.Hour && at < 3*time.Hour+20*time.Minute {
					return errors.New("b2 does not answer")
				}
				paces = append(paces, a.Limit)
				return nil
			}, activity.RegisterOptions{Name: protocol.ActivityPace})
			w.env.OnActivity(protocol.ActivityCopy, mock.Anything, mock.Anything).After(4*time.Hour).Return(protocol.CopyResult{BytesTotal: 1000, Converged: true, ExpectedFreeze: time.Second}, nil)
			w.hold(time.Hour, true)
			w.env.RegisterDelayedCallback(func() { tc.change(w) }, 3*time.Hour)
			w.env.RegisterDelayedCallback(func() {
				if !slices.Equal(paces, tc.want) {
					t.Errorf("a quarter of an hour after it is back it was told %v, want %v", paces, tc.want)
				}
			}, 3*time.Hour+35*time.Minute)
			if _, err := w.run(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(paces, tc.want) {
				t.Errorf("it was told %v", paces)
			}
		})
	}
}

// A hold and a person's pace that come at once: whichever is told, the copy stands still.
func TestAPaceThatIsSetAsAMoveIsHeldDoesNotLetItGoOn(t *testing.T) {
	w := newWorld(t)
	var paces []protocol.ByteSize
	w.keepPaces(&paces)
	w.env.OnActivity(protocol.ActivityCopy, mock.Anything, mock.Anything).After(time.Hour).Return(protocol.CopyResult{BytesTotal: 1000, Converged: true, ExpectedFreeze: time.Second}, nil)
	fast := protocol.ByteSize(7 << 20)
	w.env.RegisterDelayedCallback(func() {
		w.env.SignalWorkflow(protocol.SignalAdjust, protocol.Adjust{Held: &protocol.Pause{Paused: true}})
		w.env.UpdateWorkflow(protocol.UpdateTune, "tune", &updates{rejected: new(error)}, protocol.Tune{Limit: &fast})
	}, time.Minute)
	w.env.RegisterDelayedCallback(func() {
		if len(paces) == 0 || slices.ContainsFunc(paces, func(p protocol.ByteSize) bool { return p != heldPace }) {
			t.Errorf("it was told %v", paces)
		}
	}, 30*time.Minute)
	w.hold(40*time.Minute, false)
	if _, err := w.run(); err != nil {
		t.Fatal(err)
	}
	if last := paces[len(paces)-1]; last != fast {
		t.Errorf("let go, it was told %v", paces)
	}
}

// A move is let go while its destination, which was to learn that it is held, is still away: that is taken at once.
func TestAHoldEndsWhileItsDestinationIsAway(t *testing.T) {
	w := newWorld(t)
	var paces []protocol.ByteSize
	w.env.RegisterActivityWithOptions(func(_ context.Context, a protocol.PaceArgs) error {
		paces = append(paces, a.Limit)
		return errors.New("b2 does not answer")
	}, activity.RegisterOptions{Name: protocol.ActivityPace})
	w.env.OnActivity(protocol.ActivityCopy, mock.Anything, mock.Anything).After(90*time.Minute).Return(protocol.CopyResult{BytesTotal: 1000, Converged: true, ExpectedFreeze: time.Second}, nil)
	w.hold(time.Hour, true)
	w.hold(65*time.Minute, false)
	w.env.RegisterDelayedCallback(func() {
		if s := w.status(); s.Blocked != "" {
			t.Errorf("a minute after it was let go it is %+v", s)
		}
	}, 66*time.Minute)
	if _, err := w.run(); err != nil {
		t.Fatal(err)
	}
	if n := len(paces); n < 2 || paces[0] != heldPace || paces[n-1] != 0 {
		t.Errorf("it was to be told %v", paces)
	}
}

// A swap takes what its rebalance changes of it for both copies: a new pace, a hold, which no cutover begins under, and its end.
func TestSwapThatIsHeldCopiesNothingAndDoesNotCutOver(t *testing.T) {
	w := newSwapWorld(t)
	w.wait["orders"], w.wait["payments"] = time.Hour, time.Hour
	limit := protocol.ByteSize(7 << 20)
	signal := func(after time.Duration, a protocol.Adjust) {
		w.env.RegisterDelayedCallback(func() { w.env.SignalWorkflow(protocol.SignalAdjust, a) }, after)
	}
	signal(time.Minute, protocol.Adjust{Held: &protocol.Pause{Paused: true, By: "ops", Reason: "peak"}})
	w.env.RegisterDelayedCallback(func() {
		if s := w.status(); s.Blocked != protocol.CodePaused || s.BlockedReason != "its rebalance is paused by ops: peak" {
			t.Errorf("held it is %+v", s)
		}
	}, 3*time.Minute)
	w.env.RegisterDelayedCallback(func() {
		if w.count(protocol.ActivitySwapCutover) != 0 || w.copied["orders"] != 1 {
			t.Errorf("held it was cut over, or copied %v", w.copied)
		}
	}, 90*time.Minute)
	signal(2*time.Hour, protocol.Adjust{Held: &protocol.Pause{}})
	signal(150*time.Minute, protocol.Adjust{Limit: &limit})
	if _, err := w.swap(swapInput()); err != nil {
		t.Fatal(err)
	}
	var paces []string
	for _, p := range w.paces {
		paces = append(paces, p.Claim.Topic+" "+p.Limit.String())
	}
	slices.Sort(paces)
	var want []string // held, let go without a limit of its own, given one
	for _, topic := range []string{"orders", "payments"} {
		for _, pace := range []protocol.ByteSize{0, heldPace, limit} {
			want = append(want, topic+" "+pace.String())
		}
	}
	if !slices.Equal(slices.Compact(paces), want) {
		t.Errorf("the copies were paced %q, not %q", paces, want)
	}
	if w.copied["orders"] < 2 || w.copied["payments"] < 2 || w.claims[0].Input.Limit != 0 || w.cutovers[0].Sides[0].Input.Limit != limit {
		t.Errorf("after the hold the copies are %v, the cutover is %+v", w.copied, w.cutovers[0].Sides[0].Input)
	}
	if s := w.status(); s.Blocked != "" || s.Phase != protocol.PhaseDone {
		t.Errorf("in the end it is %+v", s)
	}
}

// Held before it copies, a swap waits, and says so after it went on in a new run too; a cancel still ends it.
func TestSwapThatIsHeldBeforeItsCopyWaits(t *testing.T) {
	w := newSwapWorld(t)
	w.env.RegisterDelayedCallback(func() {
		if w.copied["orders"] != 0 || w.status().Blocked != protocol.CodePaused {
			t.Errorf("held it is %+v, copied were %v", w.status(), w.copied)
		}
		w.env.CancelWorkflow()
	}, time.Hour)
	in := swapInput()
	in.Earlier = &protocol.EarlierRuns{Attempts: 1, Held: &protocol.Pause{Paused: true, Reason: "peak"}}
	if _, err := w.swap(in); err == nil || len(w.aborts) != 1 {
		t.Errorf("it ended with %v after %q", err, w.calls)
	}
}
