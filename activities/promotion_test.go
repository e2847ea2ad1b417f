package activities_test

import (
	"testing"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
	"portage/metastore"
	"portage/workflows/protocol"
)

// newPromotion copies orders/0 from b1 to b2 and returns the source's heartbeat counter.
func newPromotion(t *testing.T) (w *worker, b1, b2 *agenttest.Agent, args protocol.PromoteArgs) {
	t.Helper()
	f := agenttest.New(t)
	b1, b2 = f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one", "two")
	w = newWorker(t, f, "orders", "b2")
	w.claimed()
	must[protocol.CopyResult](w, protocol.ActivityEnsure, w.step())
	must[protocol.CopyResult](w, protocol.ActivityCopy, w.step())
	return w, b1, b2, protocol.PromoteArgs{StepArgs: w.step(), Heartbeat: w.heartbeat(), By: "me", Reason: "b1 burnt down"}
}

func (w *worker) heartbeat() int64 {
	w.t.Helper()
	source, err := w.f.Store.FindBroker(w.t.Context(), w.claim.From)
	if err != nil {
		w.t.Fatal(err)
	}
	return source.Heartbeat
}

// outcome is how the claim ended.
func (w *worker) outcome() string {
	w.t.Helper()
	move, err := w.f.Store.FindMove(w.t.Context(), w.claim.MoveID)
	if err != nil {
		w.t.Fatal(err)
	}
	return move.Ended()
}

// A person decided, the destination died before it installed anything, and the source is back: the promotion does not wait for
// the destination any more.
func TestAPromotionEndsWhenItsSourceIsBack(t *testing.T) {
	for _, how := range []string{"its counter has moved", "it answers"} {
		t.Run(how, func(t *testing.T) {
			w, b1, b2, args := newPromotion(t)
			b2.Stop()
			if how == "its counter has moved" {
				b1.Stop()
				args.Heartbeat = w.heartbeat() - 1
			}
			if _, err := do[protocol.PromoteResult](w, protocol.ActivityPromote, args); kindOf(err) != protocol.ErrMoveLost {
				t.Errorf("it ended with %v", err)
			}
			if outcome := w.outcome(); outcome != metastore.OutcomeAborted {
				t.Errorf("the claim is %q: what an earlier attempt asked for could still be done", outcome)
			}
		})
	}
}

func TestAPromotionThatIsGivenUpSaysWhetherItWasDone(t *testing.T) {
	w, b1, b2, args := newPromotion(t)
	b1.Stop()
	args.Heartbeat = w.heartbeat()
	done := must[protocol.PromoteResult](w, protocol.ActivityPromote, args)
	b2.Stop()
	args.Settle = true
	if settled := must[protocol.PromoteResult](w, protocol.ActivityPromote, args); settled.Epoch != w.claim.Epoch+1 || settled.End != done.End || done.End != 2 {
		t.Errorf("settled is %+v after %+v", settled, done)
	}

	w, b1, b2, args = newPromotion(t)
	b1.Stop()
	b2.Stop()
	args.Heartbeat, args.Settle = w.heartbeat(), true
	if _, err := do[protocol.PromoteResult](w, protocol.ActivityPromote, args); kindOf(err) != protocol.ErrMoveLost || w.outcome() != metastore.OutcomeAborted {
		t.Errorf("it ended with %v, the claim is %q", err, w.outcome())
	}
}
