package workflows

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/planner"
	"portage/workflows/protocol"
)

// swapChild stands for Swap.
func (r *rebalancing) swapChild(ctx workflow.Context, in protocol.SwapInput) (protocol.SwapResult, error) {
	r.swaps = append(r.swaps, in)
	r.swapIDs = append(r.swapIDs, workflow.GetInfo(ctx).WorkflowExecution.ID)
	r.running++
	r.most = max(r.most, r.running)
	defer func() { r.running-- }()
	r.takeAdjustments(ctx)
	if err := workflow.Sleep(ctx, r.lasts); err != nil {
		return protocol.SwapResult{}, err
	}
	if r.swapEnds != nil {
		if err := r.swapEnds(in); err != nil {
			return protocol.SwapResult{}, err
		}
	}
	return protocol.SwapResult{How: protocol.SwapFull, Sides: [2]protocol.MoveResult{{Bytes: 1 << 20, FrozenMS: 20}, {Bytes: 1 << 20, FrozenMS: 30}}}, nil
}

// swapOf is a swap of partition n of orders on from with the same of payments on to.
func swapOf(seq int, n int32, from, to string) protocol.PlannedAction {
	return protocol.PlannedAction{Seq: seq, Kind: planner.ActionSwap, Goal: "DISK", Reason: "too full", Legs: []planner.Leg{
		{Topic: "orders", TopicID: "t", Partition: n, From: from, To: to, Version: 7}, {Topic: "payments", TopicID: "u", Partition: n, From: to, To: from, Version: 9}}}
}

func TestRebalanceCarriesOutTheSwapsOfItsPlan(t *testing.T) {
	r := newRebalancing(t, append([]protocol.PlannedAction{swapOf(0, 5, "b1", "b2")}, planned(1, moves(1))...))
	result := r.mustRun(protocol.RebalanceInput{By: "ops"})
	if !r.made[0].Swaps || result.Counts.Moved != 3 || result.Counts.Bytes != 3<<20 || len(r.started) != 1 || len(r.swaps) != 1 {
		t.Fatalf("the report is %+v, swaps %+v", result, r.swaps)
	}
	in := r.swaps[0]
	if in.A.String() != "orders/5" || in.B.String() != "payments/5" || in.Plan != "plan0" || in.PlanSeq != 0 || in.By != "ops" || in.Reason != "DISK: too full" || r.swapIDs[0] != "swap:orders:5:payments:5" {
		t.Errorf("the swap was started as %+v under %s", in, r.swapIDs[0])
	}
	if a, b := in.A.Expect, in.B.Expect; a == nil || *a != (protocol.Expect{TopicID: "t", From: "b1"}) || b == nil || *b != (protocol.Expect{TopicID: "u", From: "b2"}) {
		t.Errorf("it expects %+v and %+v", a, b)
	}
	end := r.recorded[slices.IndexFunc(r.recorded, func(e protocol.ActionEnd) bool { return e.Seq == 0 })]
	if end.State != protocol.ActionMoved || end.With == nil || end.With.Topic != "payments" || end.With.TopicID != "u" || end.With.Partition != 5 {
		t.Errorf("its end is recorded as %+v", end)
	}
}

// planned numbers actions on from a place in the plan.
func planned(from int, actions []protocol.PlannedAction) []protocol.PlannedAction {
	for i := range actions {
		actions[i].Seq = from + i
	}
	return actions
}

func TestRebalanceExpectsTheApprovedVersionsOfASwap(t *testing.T) {
	r := newRebalancing(t, []protocol.PlannedAction{swapOf(0, 5, "b1", "b2")})
	r.swapEnds = func(protocol.SwapInput) error {
		return temporal.NewNonRetryableApplicationError("its row is at version 10 now, not at 9", protocol.ErrRefused, nil, "row_drifted")
	}
	result := r.mustRun(protocol.RebalanceInput{Hash: "00000000"})
	if in := r.swaps[0]; in.A.Expect.Version != 7 || in.B.Expect.Version != 9 {
		t.Errorf("the swap was started as %+v, %+v", in.A.Expect, in.B.Expect)
	}
	if result.Counts.Held != 2 || len(result.Troubles) != 1 || result.Troubles[0].With != "payments/5" || !strings.Contains(result.Troubles[0].String(), "orders/5 b1 → b2 with payments/5 held: its row is at version 10") {
		t.Errorf("the report is %+v", result)
	}
}

// A swap of which either side is moving already is left to the next plan.
func TestRebalancePlansAnewASwapThatIsInAnothersWay(t *testing.T) {
	for _, code := range []string{"already_moving", "row_drifted", "same_owner"} {
		r := newRebalancing(t, []protocol.PlannedAction{swapOf(0, 5, "b1", "b2")}, []protocol.PlannedAction{swapOf(0, 5, "b1", "b2")})
		r.swapEnds = func(protocol.SwapInput) error {
			if len(r.swaps) == 1 {
				return temporal.NewNonRetryableApplicationError("not now", protocol.ErrRefused, nil, code)
			}
			return nil
		}
		if result := r.mustRun(protocol.RebalanceInput{}); result.Counts.Moved != 2 || result.Counts.Failed != 0 || result.Plans != 3 {
			t.Errorf("%s: the report is %+v", code, result)
		}
	}
}

func TestRebalanceCountsASwapAtBothBrokersInBothDirections(t *testing.T) {
	var plan []protocol.PlannedAction
	for n := range 4 {
		plan = append(plan, swapOf(n, int32(n), "b1", "b2"))
	}
	r := newRebalancing(t, append(plan, planned(4, moves(3, "b2", "b1"))...))
	r.mustRun(protocol.RebalanceInput{})
	if r.most != 2 {
		t.Errorf("%d copies of a broker in one direction at once, each of a swap or a move", r.most)
	}
	// Two copies at once are the limit of the fleet: one swap, or two moves.
	r = newRebalancing(t, []protocol.PlannedAction{swapOf(0, 0, "b1", "b2"), swapOf(1, 1, "b3", "b4"), swapOf(2, 2, "b5", "b6")})
	two := 2
	r.mustRun(protocol.RebalanceInput{Limits: protocol.Limits{MaxInFlight: &two}})
	if r.most != 1 || len(r.swaps) != 3 {
		t.Errorf("%d swaps at once of %d", r.most, len(r.swaps))
	}
	// A swap runs alone where only one move may run at once.
	r = newRebalancing(t, append([]protocol.PlannedAction{swapOf(0, 0, "b1", "b2")}, planned(1, moves(2))...))
	one := 1
	if result := r.mustRun(protocol.RebalanceInput{Limits: protocol.Limits{MaxInFlight: &one}}); r.most != 1 || result.Counts.Moved != 4 {
		t.Errorf("%d at once, the report is %+v", r.most, result)
	}
}

func TestRebalancePausesItsSwaps(t *testing.T) {
	r := newRebalancing(t, []protocol.PlannedAction{swapOf(0, 5, "b1", "b2")})
	r.lasts = 10 * time.Minute
	rate := protocol.ByteSize(8 << 20)
	r.update(time.Minute, protocol.UpdatePause, protocol.Decide{By: "ops", Reason: "peak"})
	r.update(2*time.Minute, protocol.UpdateLimits, protocol.Limits{MoveRate: &rate})
	r.update(3*time.Minute, protocol.UpdateResume, protocol.Decide{By: "ops", Reason: "over"})
	r.mustRun(protocol.RebalanceInput{})
	if len(r.adjusted) != 3 || !r.adjusted[0].Held.Paused || *r.adjusted[1].Limit != rate || r.adjusted[2].Held.Paused {
		t.Errorf("the swap was told %+v", r.adjusted)
	}
}

// Either partition of a swap can be left out: the swap is cancelled when it runs, and not started when it does not.
func TestRebalanceSkipsASwapByEitherPartition(t *testing.T) {
	for _, topic := range []string{"orders", "payments"} {
		r := newRebalancing(t, []protocol.PlannedAction{swapOf(0, 0, "b1", "b2"), swapOf(1, 1, "b1", "b2"), swapOf(2, 2, "b1", "b2"), swapOf(3, 3, "b1", "b2")})
		running, queued := int32(0), int32(3)
		r.update(30*time.Second, protocol.UpdateSkip, protocol.Decide{Topic: topic, Partition: &running, By: "ops", Reason: "hot"})
		r.update(31*time.Second, protocol.UpdateSkip, protocol.Decide{Topic: topic, Partition: &queued, By: "ops", Reason: "hot"})
		if result := r.mustRun(protocol.RebalanceInput{}); result.Counts.Moved != 4 || result.Counts.Skipped != 4 || len(r.swaps) != 3 {
			t.Errorf("the report is %+v after %d swaps", result, len(r.swaps))
		}
	}
}

func TestRebalanceCancelledWaitsForItsSwaps(t *testing.T) {
	r := newRebalancing(t, []protocol.PlannedAction{swapOf(0, 0, "b1", "b2")})
	r.env.RegisterDelayedCallback(r.env.CancelWorkflow, 30*time.Second)
	if _, err := r.run(protocol.RebalanceInput{}); !temporal.IsCanceledError(err) || r.running != 0 {
		t.Errorf("it ended with %v, %d run", err, r.running)
	}
	if len(r.recorded) != 1 || r.recorded[0].State != protocol.ActionCancelled || r.recorded[0].With == nil || r.status().Counts.Cancelled != 2 {
		t.Errorf("recorded are %+v", r.recorded)
	}
}
