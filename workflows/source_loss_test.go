package workflows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"portage/workflows/protocol"
)

// lostWorld is a world in which the source is gone during the first copy.
type lostWorld struct {
	*world
	watched   []protocol.WatchArgs
	promoted  []protocol.PromoteArgs
	watch     func(call int, ctx context.Context, known *protocol.Promotion) (protocol.SourceLoss, error)
	result    protocol.PromoteResult
	updates   int
	meanwhile func() // what happens while the workflow waits for a decision
}

var eligible = protocol.Promotion{Eligible: true, StagedEnd: 100, HighWatermark: 100, SnapshotAt: time.Unix(1000, 0).UTC(), Heartbeat: 42, Warning: protocol.PromotionWarning}

func sourceGone() error {
	return temporal.NewApplicationErrorWithOptions("b1 has said nothing for 2m0s", protocol.ErrSourceLost, temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{int64(42)}})
}

func newLostWorld(t *testing.T) *lostWorld {
	w := &lostWorld{world: newWorld(t), result: protocol.PromoteResult{Epoch: 7, End: 100, Promotion: eligible}}
	w.before[protocol.ActivityCopy] = func(call int) error {
		if call == 1 {
			return sourceGone()
		}
		return nil
	}
	// The first watch tells what is known, the next one waits for the end of the move.
	w.watch = func(call int, ctx context.Context, _ *protocol.Promotion) (protocol.SourceLoss, error) {
		if call == 1 {
			return protocol.SourceLoss{Promotion: eligible}, nil
		}
		if w.meanwhile != nil {
			w.meanwhile()
		}
		select {
		case <-ctx.Done():
		case <-w.t.Context().Done():
		}
		return protocol.SourceLoss{}, temporal.NewCanceledError()
	}
	w.env.RegisterActivityWithOptions(func(ctx context.Context, a protocol.WatchArgs) (protocol.SourceLoss, error) {
		_ = w.enter(protocol.ActivityWatchSource, func() { w.watched = append(w.watched, a) })
		return w.watch(len(w.watched), ctx, a.Known)
	}, activity.RegisterOptions{Name: protocol.ActivityWatchSource})
	w.env.RegisterActivityWithOptions(func(_ context.Context, a protocol.PromoteArgs) (protocol.PromoteResult, error) {
		err := w.enter(protocol.ActivityPromote, func() { w.promoted = append(w.promoted, a) })
		return w.result, err
	}, activity.RegisterOptions{Name: protocol.ActivityPromote})
	return w
}

func (w *lostWorld) input(policy string) protocol.MoveInput {
	partition := int32(3)
	return protocol.MoveInput{Topic: "orders", Partition: &partition, To: "b2", OnSourceLoss: policy}
}

// update sends a decision and keeps what was said to it.
func (w *lostWorld) update(name string) (rejected *error) {
	rejected = new(error)
	w.updates++
	w.env.UpdateWorkflow(name, fmt.Sprint(name, w.updates), &updates{rejected: rejected}, protocol.Decision{By: "me", Reason: "it burnt down"})
	return rejected
}

type updates struct{ rejected *error }

func (u *updates) Accept()             {}
func (u *updates) Reject(err error)    { *u.rejected = err }
func (u *updates) Complete(any, error) {}

func TestR2AMoveWhoseSourceIsGoneAsksAndPromotesWhenTold(t *testing.T) {
	w := newLostWorld(t)
	var asked protocol.Status
	var early *error
	w.before[protocol.ActivityEnsure] = func(int) error { early = w.update(protocol.DecisionPromote); return nil }
	w.meanwhile = func() {
		asked = w.status()
		w.update(protocol.DecisionPromote)
	}
	result, err := w.runWith(w.input(""))
	if err != nil {
		t.Fatal(err)
	}
	if asked.Blocked != protocol.CodePromotionNeedsDecision || !asked.Deciding || asked.Promotion == nil || !strings.Contains(asked.BlockedReason, "may still be acknowledging") {
		t.Errorf("while it waits the status is %+v", asked)
	}
	if early == nil || *early == nil {
		t.Error("a promotion was taken while the source was there")
	}
	if len(w.promoted) != 1 || w.promoted[0].By != "me" || w.promoted[0].Heartbeat != 42 {
		t.Errorf("promoted were %+v", w.promoted)
	}
	if !result.Promoted || result.Promotion == nil || result.End != 100 || result.Epoch != 7 || w.done[protocol.ActivityCommit] != 0 || len(w.aborts) != 0 {
		t.Errorf("the result is %+v; called were %v", result, w.calls)
	}
}

func TestR2AMoveThatMayPromotesByItselfOnceTheCopyIsEligible(t *testing.T) {
	w := newLostWorld(t)
	w.watch = func(call int, _ context.Context, known *protocol.Promotion) (protocol.SourceLoss, error) {
		if call == 1 {
			return protocol.SourceLoss{Promotion: protocol.Promotion{Missing: "the destination b2 does not answer"}}, nil
		}
		if known == nil || known.Missing == "" {
			t.Errorf("the second watch knows %+v", known)
		}
		return protocol.SourceLoss{Promotion: eligible}, nil
	}
	result, err := w.runWith(w.input(protocol.LossAuto))
	if err != nil {
		t.Fatal(err)
	}
	if !result.Promoted || len(w.promoted) != 1 || !strings.Contains(w.promoted[0].By, "auto") {
		t.Errorf("the result is %+v, promoted were %+v", result, w.promoted)
	}
	if last := w.watched[len(w.watched)-1].Round; last >= w.promoted[0].Round {
		t.Errorf("the promotion of round %d is older than the watch of round %d", w.promoted[0].Round, last)
	}
}

func TestAMoveGoesOnWhenItsSourceIsBack(t *testing.T) {
	for _, policy := range []string{protocol.LossAsk, protocol.LossNever, protocol.LossAuto} {
		t.Run(policy, func(t *testing.T) {
			w := newLostWorld(t)
			w.watch = func(call int, _ context.Context, _ *protocol.Promotion) (protocol.SourceLoss, error) {
				if call == 1 {
					return protocol.SourceLoss{Promotion: protocol.Promotion{Missing: "it lacks something"}}, nil
				}
				return protocol.SourceLoss{Back: true}, nil
			}
			result, err := w.runWith(w.input(policy))
			if err != nil {
				t.Fatal(err)
			}
			if result.Promoted || result.Attempts != 1 || len(w.promoted) != 0 || len(w.copies) != 2 || w.copies[1].Round <= w.watched[1].Round {
				t.Errorf("the result is %+v; copies %+v, watched %+v", result, w.copies, w.watched)
			}
			if !strings.Contains(strings.Join(w.shown, " "), "blocked:"+protocol.CodeSourceLost) {
				t.Errorf("shown were %q", w.shown)
			}
		})
	}
}

func TestAMoveWhoseSourceIsGoneIsAbandonedAndItsCopyKept(t *testing.T) {
	w := newLostWorld(t)
	w.meanwhile = func() { w.env.SignalWorkflow(protocol.DecisionAbandon, protocol.Decision{By: "me", Reason: "no use"}) }
	_, err := w.runWith(w.input(""))
	var failure *temporal.ApplicationError
	if !errors.As(err, &failure) || failure.Type() != protocol.ErrAbandoned || !strings.Contains(failure.Message(), "no use") {
		t.Errorf("it ended with %v", err)
	}
	if len(w.aborts) != 1 || !w.aborts[0].KeepStaging || len(w.promoted) != 0 {
		t.Errorf("aborted were %+v, promoted %+v", w.aborts, w.promoted)
	}
}

func TestNobodyPromotesWhatIsNeverToBePromoted(t *testing.T) {
	w := newLostWorld(t)
	var rejected *error
	w.meanwhile = func() {
		rejected = w.update(protocol.DecisionPromote)
		w.env.CancelWorkflow()
	}
	if _, err := w.runWith(w.input(protocol.LossNever)); !temporal.IsCanceledError(err) {
		t.Errorf("it ended with %v", err)
	}
	if rejected == nil || *rejected == nil || !strings.Contains((*rejected).Error(), "never") || len(w.promoted) != 0 {
		t.Errorf("rejected was %v, promoted %+v", rejected, w.promoted)
	}
	if len(w.aborts) != 1 || !w.aborts[0].KeepStaging {
		t.Errorf("the cancel deletes what may be the last copy: %+v", w.aborts)
	}
}

func TestARefusedPromotionWaitsOn(t *testing.T) {
	w := newLostWorld(t)
	w.result = protocol.PromoteResult{Refused: "the copy ends at 100, b1 had 120", Promotion: eligible}
	w.watch = func(call int, ctx context.Context, known *protocol.Promotion) (protocol.SourceLoss, error) {
		switch call {
		case 1:
			return protocol.SourceLoss{Promotion: eligible}, nil
		case 2:
			if known == nil || !strings.Contains(known.Missing, "120") {
				t.Errorf("after the refusal it knows %+v", known)
			}
			return protocol.SourceLoss{Back: true}, nil
		}
		return protocol.SourceLoss{}, errors.New("asked too often")
	}
	result, err := w.runWith(w.input(protocol.LossAuto))
	if err != nil || result.Promoted || len(w.promoted) != 1 {
		t.Errorf("the result is %+v (%v), promoted were %d", result, err, len(w.promoted))
	}
}

// A move is held while it copies, and goes on during a promotion that is refused: the copy that is waited with again is told so.
func TestACopyThatIsWaitedWithAfterARefusedPromotionIsToldItsPace(t *testing.T) {
	w := newLostWorld(t)
	w.result = protocol.PromoteResult{Refused: "the copy ends at 100, b1 had 120", Promotion: eligible}
	paces := make(chan protocol.ByteSize, 10)
	w.env.RegisterActivityWithOptions(func(_ context.Context, a protocol.PaceArgs) error {
		paces <- a.Limit
		return nil
	}, activity.RegisterOptions{Name: protocol.ActivityPace})
	var told []protocol.ByteSize
	await := func() {
		select {
		case pace := <-paces:
			told = append(told, pace)
		case <-t.Context().Done():
		}
	}
	w.before[protocol.ActivityPromote] = func(int) error {
		w.env.SignalWorkflow(protocol.SignalAdjust, protocol.Adjust{Held: &protocol.Pause{}})
		return nil
	}
	w.watch = func(call int, _ context.Context, _ *protocol.Promotion) (protocol.SourceLoss, error) {
		if call == 1 {
			w.env.SignalWorkflow(protocol.SignalAdjust, protocol.Adjust{Held: &protocol.Pause{Paused: true}})
			await()
			return protocol.SourceLoss{Promotion: eligible}, nil
		}
		await()
		return protocol.SourceLoss{Back: true}, nil
	}
	if _, err := w.runWith(w.input(protocol.LossAuto)); err != nil || len(w.promoted) != 1 || !slices.Equal(told, []protocol.ByteSize{heldPace, 0}) {
		t.Errorf("told was %v, promoted were %d (%v)", told, len(w.promoted), err)
	}
}

func TestASourceThatComesBackUnderAPromotionStartsTheMoveOver(t *testing.T) {
	w := newLostWorld(t)
	w.before[protocol.ActivityPromote] = func(int) error { return failure(protocol.ErrMoveLost, "b1 is alive") }
	result, err := w.runWith(w.input(protocol.LossAuto))
	if err != nil || result.Promoted || result.Attempts != 2 || len(w.aborts) != 1 || !w.aborts[0].KeepStaging {
		t.Errorf("the result is %+v (%v), aborted were %+v", result, err, w.aborts)
	}
}

// A copy that is whole and may not be promoted by itself: the policy asks once, not as often as the copy can be looked at.
func TestAnAutomaticPromotionThatIsRefusedIsLeftToAPerson(t *testing.T) {
	w := newLostWorld(t)
	w.result = protocol.PromoteResult{Refused: "b1 does not fence itself in time, so a person must decide", NeedsPerson: true, Promotion: eligible}
	var asked protocol.Status
	w.watch = func(call int, ctx context.Context, known *protocol.Promotion) (protocol.SourceLoss, error) {
		if len(w.promoted) > 3 {
			return protocol.SourceLoss{Back: true}, nil // enough is seen
		}
		if !eligible.Same(known) {
			return protocol.SourceLoss{Promotion: eligible}, nil
		}
		asked = w.status()
		w.result.Refused, w.result.NeedsPerson, w.result.Epoch = "", false, 7
		w.update(protocol.DecisionPromote)
		<-ctx.Done()
		return protocol.SourceLoss{}, temporal.NewCanceledError()
	}
	result, err := w.runWith(w.input(protocol.LossAuto))
	if err != nil || !result.Promoted {
		t.Fatalf("the result is %+v (%v)", result, err)
	}
	if len(w.promoted) != 2 || w.promoted[0].By != protocol.ByPolicy || w.promoted[1].By != "me" {
		t.Errorf("promoted were %+v", w.promoted)
	}
	if asked.Blocked != protocol.CodePromotionNeedsDecision || !asked.Deciding || !strings.Contains(asked.BlockedReason, "does not fence itself") {
		t.Errorf("while it waits the status is %+v", asked)
	}
}

// The destination dies under a promotion, and the move is given up. Whether the promotion was done is settled first.
func TestAPromotionThatWaitsIsGivenUp(t *testing.T) {
	for _, how := range []string{"abandoned", "cancelled", "abandoned too late"} {
		t.Run(how, func(t *testing.T) {
			w := newLostWorld(t)
			w.before[protocol.ActivityPromote] = func(call int) error {
				switch {
				case call == 2 && how != "abandoned too late":
					return failure(protocol.ErrMoveLost, "given up before it was promoted")
				case call > 1:
					return nil
				case how == "cancelled":
					w.env.CancelWorkflow()
				default:
					if rejected := w.update(protocol.DecisionAbandon); *rejected != nil {
						t.Errorf("rejected: %v", *rejected)
					}
				}
				return temporal.NewCanceledError()
			}
			result, err := w.runWith(w.input(protocol.LossAuto))
			if len(w.promoted) != 2 || w.promoted[0].Settle || !w.promoted[1].Settle || w.promoted[1].Round <= w.promoted[0].Round {
				t.Fatalf("promoted were %+v", w.promoted)
			}
			if how == "abandoned too late" {
				if err != nil || !result.Promoted || result.TooLate == "" || len(w.aborts) != 0 {
					t.Errorf("the result is %+v (%v), aborted were %+v", result, err, w.aborts)
				}
				return
			}
			if len(w.aborts) != 1 || !w.aborts[0].KeepStaging || temporal.IsCanceledError(err) != (how == "cancelled") {
				t.Errorf("it ended with %v, aborted were %+v", err, w.aborts)
			}
		})
	}
}
