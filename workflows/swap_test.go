package workflows

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// swapWorld is a world whose activities are a swap's: orders/3 on b1, payments/1 on b2.
type swapWorld struct {
	*world
	claims   []protocol.SwapClaimArgs
	cutovers []protocol.SwapCutoverArgs
	commit   protocol.SwapCommitArgs
	aborts   []protocol.SwapAbortArgs
	paces    []protocol.PaceArgs
	copied   map[string]int           // copies by topic
	wait     map[string]time.Duration // how long a copy takes, by topic
	copies   func(topic string, call int) (protocol.CopyResult, error)
	moved    func(in protocol.MoveInput) (*protocol.MoveResult, error) // a child Move
}

func newSwapWorld(t *testing.T) *swapWorld {
	w := &swapWorld{world: newWorld(t), copied: map[string]int{}, wait: map[string]time.Duration{}}
	register := func(name string, f any) { w.env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name}) }
	register(protocol.ActivitySwapClaim, func(_ context.Context, a protocol.SwapClaimArgs) (claim protocol.SwapClaim, err error) {
		err = w.enter(protocol.ActivitySwapClaim, func() { w.claims = append(w.claims, a) })
		for i, side := range a.Input.Sides() {
			claim.Sides[i] = protocol.Claim{MoveID: protocol.SwapSideID(a.SwapID, i), TopicID: uuid.New(), Topic: side.Topic, Partition: *side.Partition, From: []string{"b1", "b2"}[i], To: []string{"b2", "b1"}[i], Epoch: int32(i + 1), Version: 5}
		}
		return claim, err
	})
	register(protocol.ActivitySwapCutover, func(_ context.Context, a protocol.SwapCutoverArgs) (e protocol.SwapEvidence, err error) {
		e.Sides = [2]protocol.Evidence{evidence, evidence}
		return e, w.enter(protocol.ActivitySwapCutover, func() { w.cutovers = append(w.cutovers, a) })
	})
	register(protocol.ActivitySwapCommit, func(_ context.Context, a protocol.SwapCommitArgs) (protocol.SwapCommitted, error) {
		return protocol.SwapCommitted{Epochs: [2]int32{2, 3}}, w.enter(protocol.ActivitySwapCommit, func() { w.commit = a })
	})
	register(protocol.ActivitySwapAbort, func(_ context.Context, a protocol.SwapAbortArgs) (protocol.AbortResult, error) {
		return protocol.AbortResult{}, w.enter(protocol.ActivitySwapAbort, func() { w.aborts = append(w.aborts, a) })
	})
	register(protocol.ActivitySwapOwners, func(context.Context, protocol.SwapInput) (protocol.SwapOwners, error) {
		return protocol.SwapOwners{Brokers: [2]string{"b1", "b2"}}, w.enter(protocol.ActivitySwapOwners, nil)
	})
	register(protocol.ActivityPace, func(_ context.Context, a protocol.PaceArgs) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.paces = append(w.paces, a)
		return nil
	})
	for _, topic := range []string{"orders", "payments"} {
		of := mock.MatchedBy(func(a protocol.StepArgs) bool { return a.Claim.Topic == topic })
		w.env.OnActivity(protocol.ActivityCopy, mock.Anything, of).AfterFn(func() time.Duration { return w.wait[topic] }).Return(func(_ context.Context, a protocol.StepArgs) (protocol.CopyResult, error) {
			if !a.PartOfSwap {
				t.Error("the copy of a side does not know that it is one")
			}
			w.mu.Lock()
			w.copied[topic]++
			call, copies := w.copied[topic], w.copies
			w.mu.Unlock()
			if copies != nil {
				return copies(topic, call)
			}
			return protocol.CopyResult{BytesTotal: 1000, BytesCopied: 900, Converged: true, ExpectedFreeze: time.Second}, nil
		}).Maybe()
	}
	w.env.OnWorkflow(protocol.WorkflowMove, mock.Anything, mock.Anything).Return(func(_ workflow.Context, raw converter.RawValue) (*protocol.MoveResult, error) {
		in, err := protocol.ParseMoveInput(raw.Payload().GetData())
		if err != nil {
			return nil, err
		}
		return w.moved(in)
	}).Maybe()
	return w
}

func swapInput() protocol.SwapInput {
	three, one := int32(3), int32(1)
	return protocol.SwapInput{A: protocol.SwapPartition{Topic: "orders", Partition: &three}, B: protocol.SwapPartition{Topic: "payments", Partition: &one}, By: "me", Reason: "balance"}
}

func (w *swapWorld) swap(in protocol.SwapInput) (*protocol.SwapResult, error) {
	w.t.Helper()
	w.env.SetTestTimeout(20 * time.Second)
	w.env.ExecuteWorkflow(protocol.WorkflowSwap, in)
	if !w.env.IsWorkflowCompleted() {
		w.t.Fatal("the workflow does not end")
	}
	if err := w.env.GetWorkflowError(); err != nil {
		return nil, err
	}
	var result protocol.SwapResult
	if err := w.env.GetWorkflowResult(&result); err != nil {
		w.t.Fatal(err)
	}
	return &result, nil
}

// count is how often an activity was begun; one that was cancelled may begin when the workflow has ended already.
func (w *swapWorld) count(activity string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done[activity]
}

func TestASwapFlipsBothSides(t *testing.T) {
	w := newSwapWorld(t)
	result, err := w.swap(swapInput())
	if err != nil {
		t.Fatal(err)
	}
	w.expect(protocol.ActivitySwapClaim, protocol.ActivityEnsure, protocol.ActivityEnsure, protocol.ActivitySwapCutover, protocol.ActivitySwapCommit, protocol.ActivityFinish, protocol.ActivityFinish)
	if w.copied["orders"] != 1 || w.copied["payments"] != 1 {
		t.Errorf("copied were %v", w.copied)
	}
	if !slices.Equal(w.shown, []string{"claim", "ensure", "copy", "cutover", "confirm", "done"}) {
		t.Errorf("shown were %q", w.shown)
	}
	id := w.claims[0].SwapID
	for i, side := range w.commit.Sides {
		if w.commit.SwapID != id || side.Evidence != evidence || side.Claim.MoveID != protocol.SwapSideID(id, i) {
			t.Errorf("side %d is committed with %+v", i, side)
		}
	}
	a, b := result.Sides[0], result.Sides[1]
	if result.How != protocol.SwapFull || result.SwapID != id || a.Topic != "orders" || a.From != "b1" || a.To != "b2" || a.Epoch != 2 || b.Topic != "payments" || b.To != "b1" || b.Epoch != 3 || a.Bytes != 911 || a.FrozenMS != 12 {
		t.Errorf("the result is %+v", result)
	}
	status := w.status()
	if len(status.Sides) != 2 || status.Sides[0].IsOn != "b2" || status.Sides[1].IsOn != "b1" || status.BytesDone != 2000 || !status.Committed || status.By != "me" {
		t.Errorf("the status is %+v", status)
	}
}

// R32: nothing is frozen before both copies have converged, also when forced.
func TestR32FreezesStartWhenBothCopiesHaveConverged(t *testing.T) {
	w := newSwapWorld(t)
	w.copies = func(topic string, call int) (protocol.CopyResult, error) {
		converged := topic == "orders" || call == 3
		return protocol.CopyResult{BytesTotal: 1000, Converged: converged, ExpectedFreeze: time.Second}, nil
	}
	in := swapInput()
	in.Force = true
	if _, err := w.swap(in); err != nil {
		t.Fatal(err)
	}
	if w.copied["payments"] != 3 || len(w.cutovers) != 1 {
		t.Errorf("copied were %v, frozen was %d times", w.copied, len(w.cutovers))
	}
	if !slices.Contains(w.shown, "blocked:"+protocol.CodeFreezeTooLong) {
		t.Errorf("nobody was told what the swap waits for: %q", w.shown)
	}
	if rounds := w.cutovers[0].Sides[0].Round; rounds < 3 {
		t.Errorf("the cutover's round is %d, after two rounds of copying", rounds)
	}
}

// A copy that was near its tail long before the other catches up once more.
func TestTheFirstCopyCatchesUpWhenTheOtherIsDone(t *testing.T) {
	w := newSwapWorld(t)
	w.wait["payments"] = time.Minute
	if _, err := w.swap(swapInput()); err != nil {
		t.Fatal(err)
	}
	if w.copied["orders"] != 2 || w.copied["payments"] != 1 {
		t.Errorf("copied were %v", w.copied)
	}
}

func TestASwapThatIsCancelledBeforeTheCommitRestoresBoth(t *testing.T) {
	for _, step := range []string{protocol.ActivityEnsure, protocol.ActivitySwapCutover} {
		t.Run(step, func(t *testing.T) {
			w := newSwapWorld(t)
			w.before[step] = func(int) error { w.env.CancelWorkflow(); return nil }
			_, err := w.swap(swapInput())
			if !temporal.IsCanceledError(err) || len(w.aborts) != 1 || w.aborts[0].Sides[0].KeepStaging || w.count(protocol.ActivitySwapCommit) != 0 {
				t.Errorf("ended with %v after %q, aborts %+v", err, w.calls, w.aborts)
			}
			if s := w.status(); s.Sides[0].ShouldBeOn != "b1" || s.Sides[1].ShouldBeOn != "b2" || s.Phase != protocol.PhaseCancelled {
				t.Errorf("the status is %+v", s)
			}
		})
	}
}

func TestACancelAfterTheCommitOfASwapComesTooLate(t *testing.T) {
	w := newSwapWorld(t)
	w.before[protocol.ActivitySwapCommit] = func(int) error { w.env.CancelWorkflow(); return nil }
	result, err := w.swap(swapInput())
	if err != nil || !strings.Contains(result.TooLate, "too late") || len(w.aborts) != 0 {
		t.Errorf("ended with %+v, %v", result, err)
	}
}

// A lost claim starts over under new ids, and what was copied is kept.
func TestASwapWhoseClaimWasLostStartsOver(t *testing.T) {
	for _, step := range []string{protocol.ActivitySwapCutover, protocol.ActivitySwapCommit} {
		t.Run(step, func(t *testing.T) {
			w := newSwapWorld(t)
			w.before[step] = func(call int) error {
				if call == 1 {
					return temporal.NewNonRetryableApplicationError("the lease ended", protocol.ErrMoveLost, nil)
				}
				return nil
			}
			result, err := w.swap(swapInput())
			if err != nil || result.Attempts != 2 || len(w.aborts) != 1 || !w.aborts[0].Sides[1].KeepStaging || w.claims[0].SwapID == w.claims[1].SwapID {
				t.Errorf("ended with %+v, %v after %q", result, err, w.calls)
			}
		})
	}
}

// A swap whose claim is lost again and again goes on in a new run before its history is too long.
func TestASwapWithALongHistoryGoesOnInANewRun(t *testing.T) {
	w := newSwapWorld(t)
	w.env.SetContinueAsNewSuggested(true)
	w.before[protocol.ActivitySwapCutover] = func(int) error {
		return temporal.NewNonRetryableApplicationError("the lease ended", protocol.ErrMoveLost, nil)
	}
	in := swapInput()
	in.Earlier = &protocol.EarlierRuns{Attempts: 7}
	_, err := w.swap(in)
	var anew *workflow.ContinueAsNewError
	if !errors.As(err, &anew) || w.claims[0].Attempt != 8 || len(w.aborts) != 1 || !w.aborts[0].Sides[0].KeepStaging {
		t.Errorf("ended with %v, aborts %+v", err, w.aborts)
	}
}

// One that is held meanwhile is held in its new run too.
func TestASwapThatIsHeldGoesOnHeldInANewRun(t *testing.T) {
	w := newSwapWorld(t)
	w.env.SetContinueAsNewSuggested(true)
	w.before[protocol.ActivitySwapCutover] = func(int) error {
		w.env.SignalWorkflow(protocol.SignalAdjust, protocol.Adjust{Held: &protocol.Pause{Paused: true, By: "ops", Reason: "peak"}})
		return temporal.NewNonRetryableApplicationError("the lease ended", protocol.ErrMoveLost, nil)
	}
	_, err := w.swap(swapInput())
	if next := nextSwap(t, err); next.Earlier == nil || next.Earlier.Attempts != 1 || next.Earlier.Held == nil || next.Earlier.Held.Reason != "peak" {
		t.Errorf("it goes on with %+v", next.Earlier)
	}
}

// A swap of which one copy never comes near its tail goes on in a new run before its history is too long, and keeps what it has copied.
func TestASwapWhoseCopiesDoNotConvergeGoesOnInANewRun(t *testing.T) {
	w := newSwapWorld(t)
	w.env.SetContinueAsNewSuggested(true)
	w.copies = func(topic string, call int) (protocol.CopyResult, error) {
		return protocol.CopyResult{BytesTotal: 1000, Converged: topic == "orders" || call > 5, ExpectedFreeze: time.Second}, nil
	}
	_, err := w.swap(swapInput())
	if next := nextSwap(t, err); next.Earlier == nil || next.Earlier.Attempts != 1 || !strings.Contains(next.Earlier.LastFailure, "goes on in a new run") {
		t.Errorf("it goes on with %+v", next.Earlier)
	}
	if w.copied["payments"] != 1 || len(w.cutovers) != 0 || len(w.aborts) != 1 || !w.aborts[0].Sides[0].KeepStaging {
		t.Errorf("copied were %v, frozen was %d times, aborts are %+v", w.copied, len(w.cutovers), w.aborts)
	}
}

// nextSwap is what a swap goes on with in a new run.
func nextSwap(t *testing.T, err error) (in protocol.SwapInput) {
	t.Helper()
	var anew *workflow.ContinueAsNewError
	if !errors.As(err, &anew) {
		t.Fatalf("it ended with %v", err)
	}
	if err := converter.GetDefaultDataConverter().FromPayloads(anew.Input, &in); err != nil {
		t.Fatal(err)
	}
	return in
}

func TestARefusedSwapClaimsNothing(t *testing.T) {
	w := newSwapWorld(t)
	w.before[protocol.ActivitySwapClaim] = func(int) error {
		return temporal.NewNonRetryableApplicationError("both on b1", protocol.ErrRefused, nil, "same_owner")
	}
	if _, err := w.swap(swapInput()); typeOf(err) != protocol.ErrRefused || len(w.aborts) != 0 {
		t.Errorf("ended with %v after %q", err, w.calls)
	}
}

// One side fails for good while the other copies: the copy is stopped before anything is taken back.
func TestAFailureOfOneSideStopsTheOther(t *testing.T) {
	w := newSwapWorld(t)
	w.copies = func(topic string, _ int) (protocol.CopyResult, error) {
		if topic == "orders" {
			return protocol.CopyResult{}, temporal.NewNonRetryableApplicationError("no", protocol.ErrRefused, nil, "unfenced")
		}
		return protocol.CopyResult{Converged: true}, nil
	}
	w.wait["payments"] = 24 * time.Hour
	if _, err := w.swap(swapInput()); typeOf(err) != protocol.ErrRefused || len(w.aborts) != 1 {
		t.Errorf("ended with %v after %q", err, w.calls)
	}
}

func TestAnAbandonedSwapKeepsWhatWasCopied(t *testing.T) {
	w := newSwapWorld(t)
	w.wait["payments"] = 24 * time.Hour
	w.env.RegisterDelayedCallback(func() {
		w.env.SignalWorkflow(protocol.DecisionAbandon, protocol.Decision{By: "me", Reason: "b2 is gone"})
	}, time.Hour)
	_, err := w.swap(swapInput())
	if typeOf(err) != protocol.ErrAbandoned || len(w.aborts) != 1 || !w.aborts[0].Sides[0].KeepStaging || !strings.Contains(err.Error(), "orders/3 stays on b1 and payments/1 on b2") {
		t.Errorf("ended with %v, aborts %+v", err, w.aborts)
	}
}

// What blocks one side is shown until that side goes on, whatever the other side tells.
func TestProgressIsKeptBySide(t *testing.T) {
	w := newSwapWorld(t)
	w.wait["payments"] = time.Hour
	var during protocol.Status
	w.env.RegisterDelayedCallback(func() {
		id := w.claims[0].SwapID
		w.env.SignalWorkflow(protocol.SignalProgress, protocol.Progress{MoveID: protocol.SwapSideID(id, 1), BytesDone: 10, BytesTotal: 100, Blocked: "source_unreachable", BlockedReason: "b2 is gone"})
		w.env.SignalWorkflow(protocol.SignalProgress, protocol.Progress{MoveID: protocol.SwapSideID(id, 0), BytesDone: 30, BytesTotal: 300})
	}, time.Minute)
	w.env.RegisterDelayedCallback(func() { during = w.status() }, 2*time.Minute)
	if _, err := w.swap(swapInput()); err != nil {
		t.Fatal(err)
	}
	if during.Blocked != "source_unreachable" || !strings.Contains(during.Unblock, "the agent of b2") || during.Sides[1].BytesDone != 10 || during.Sides[0].BytesDone != 30 || during.BytesDone != 40 || during.BytesTotal != 400 {
		t.Errorf("the status was %+v", during)
	}
}

func tooLittleRoom() error {
	return temporal.NewNonRetryableApplicationError("orders/3 needs 10 MiB on b2", protocol.ErrRefused, nil, protocol.CodeTooLittleRoom)
}

// Too little room for both at once: refused, or two moves when the input says so, whichever side has room first.
func TestASwapWithTooLittleRoom(t *testing.T) {
	for _, step := range []string{protocol.ActivitySwapClaim, protocol.ActivityEnsure} {
		t.Run("refused at "+step, func(t *testing.T) {
			w := newSwapWorld(t)
			w.before[step] = func(int) error { return tooLittleRoom() }
			if _, err := w.swap(swapInput()); typeOf(err) != protocol.ErrRefused || w.count(protocol.ActivitySwapOwners) != 0 {
				t.Errorf("ended with %v after %q", err, w.calls)
			}
		})
		t.Run("two moves after "+step, func(t *testing.T) {
			w := newSwapWorld(t)
			w.before[step] = func(int) error { return tooLittleRoom() }
			var moved []string
			w.moved = func(in protocol.MoveInput) (*protocol.MoveResult, error) {
				moved = append(moved, in.Topic+" to "+in.To)
				if len(moved) == 1 {
					return nil, tooLittleRoom()
				}
				return &protocol.MoveResult{Topic: in.Topic, Partition: *in.Partition, To: in.To}, nil
			}
			in := swapInput()
			in.TwoMoves = true
			result, err := w.swap(in)
			if err != nil || result.How != protocol.SwapTwoMoves || result.Sides[0].To != "b2" || result.Sides[1].To != "b1" {
				t.Fatalf("ended with %+v, %v", result, err)
			}
			if !slices.Equal(moved, []string{"orders to b2", "payments to b1", "orders to b2"}) {
				t.Errorf("moved were %q", moved)
			}
		})
	}
}

func TestTwoMovesOfWhichOneDoesNotFollow(t *testing.T) {
	w := newSwapWorld(t)
	w.before[protocol.ActivitySwapClaim] = func(int) error { return tooLittleRoom() }
	w.moved = func(in protocol.MoveInput) (*protocol.MoveResult, error) {
		if in.Topic == "payments" {
			return nil, errors.New("no")
		}
		return &protocol.MoveResult{Topic: in.Topic, Partition: *in.Partition, To: in.To}, nil
	}
	in := swapInput()
	in.TwoMoves = true
	if _, err := w.swap(in); err == nil || !strings.Contains(err.Error(), "orders/3 is on b2, payments/1 stays on b2") {
		t.Errorf("ended with %v", err)
	}
}

func TestSwapWorkflowIDIsTheSameEitherWay(t *testing.T) {
	in := swapInput()
	one, other := protocol.SwapWorkflowID(in.A, in.B), protocol.SwapWorkflowID(in.B, in.A)
	if one != other || one != "swap:orders:3:payments:1" {
		t.Errorf("the ids are %q and %q", one, other)
	}
}
