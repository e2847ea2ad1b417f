package workflows

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"portage/internal/window"
	"portage/planner"
	"portage/workflows/protocol"
)

// rebalancing stands for the fleet of a Rebalance: plans made of moves, and children that end as a test says.
type rebalancing struct {
	heldBack *planner.Objection // no plan is made
	heard    []planner.Objection
	t        *testing.T
	env      *testsuite.TestWorkflowEnvironment
	plans    [][]protocol.PlannedAction // made one after the other; the last for ever
	pause    protocol.Pause
	wave     int
	// ends says how the move of a partition ends; nil: it is moved. lasts is how long each takes.
	ends     func(in protocol.MoveInput) error
	swapEnds func(in protocol.SwapInput) error
	lasts    time.Duration
	// planLasts is how long each plan takes to be made.
	planLasts time.Duration

	made      []protocol.PlanArgs
	moved     []protocol.MoveInput
	started   []protocol.MoveInput
	swaps     []protocol.SwapInput
	swapIDs   []string
	adjusted  []protocol.Adjust
	most      int // moves at once
	running   int
	recorded  []protocol.ActionEnd
	records   []protocol.RecordArgs
	watches   []protocol.PauseWatchArgs
	approved  []protocol.ApprovalArgs
	limited   []protocol.LimitPlanArgs
	limitedAt []time.Time

	lags      [][]protocol.PartitionLags // as they are told one after the other; the last for ever
	lagsAsked []protocol.LagArgs
}

func newRebalancing(t *testing.T, plans ...[]protocol.PlannedAction) *rebalancing {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	r := &rebalancing{t: t, env: suite.NewTestWorkflowEnvironment(), plans: append(plans, nil), wave: 50, lasts: time.Minute}
	register := func(name string, f any) { r.env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name}) }
	register(protocol.ActivityPlan, r.plan)
	register(protocol.ActivityActions, func(_ context.Context, a protocol.ActionsArgs) ([]protocol.PlannedAction, error) {
		var n int
		fmt.Sscanf(a.Plan, "plan%d", &n)
		all := r.plans[n]
		return all[min(a.From, len(all)):min(a.From+a.Most, len(all))], nil
	})
	register(protocol.ActivityRecordActions, func(_ context.Context, a protocol.RecordArgs) error {
		r.recorded = append(r.recorded, a.Ends...)
		r.records = append(r.records, a)
		return nil
	})
	register(protocol.ActivityLimitPlan, func(_ context.Context, a protocol.LimitPlanArgs) error {
		r.limitedAs(a)
		return nil
	})
	register(protocol.ActivityApprovePlan, func(_ context.Context, a protocol.ApprovalArgs) error {
		r.approved = append(r.approved, a)
		return nil
	})
	register(protocol.ActivityWindow, func(_ context.Context, a protocol.WindowArgs) (protocol.WindowState, error) {
		w, err := window.New(a.Window.Cron, time.Duration(a.Window.For), a.Window.Zone)
		if err != nil {
			return protocol.WindowState{}, temporal.NewNonRetryableApplicationError(err.Error(), protocol.ErrInvalidInput, nil)
		}
		return protocol.WindowState(w.At(a.Now)), nil
	})
	register(protocol.ActivityGroupLags, func(_ context.Context, a protocol.LagArgs) ([]protocol.PartitionLags, error) {
		r.lagsAsked = append(r.lagsAsked, a)
		if len(r.lags) == 0 {
			return nil, errors.New("the owner does not answer")
		}
		return r.lags[min(len(r.lagsAsked), len(r.lags))-1], nil
	})
	register(protocol.ActivityWatchPause, func(context.Context, protocol.PauseWatchArgs) (protocol.Pause, error) {
		return protocol.Pause{}, nil
	})
	r.env.RegisterWorkflowWithOptions(Rebalance, workflow.RegisterOptions{Name: protocol.WorkflowRebalance})
	r.env.RegisterWorkflowWithOptions(r.child, workflow.RegisterOptions{Name: protocol.WorkflowMove})
	r.env.RegisterWorkflowWithOptions(r.swapChild, workflow.RegisterOptions{Name: protocol.WorkflowSwap})
	r.env.RegisterWorkflowWithOptions(r.decommission, workflow.RegisterOptions{Name: "decommission of b1"})
	r.env.OnUpsertTypedSearchAttributes(mock.Anything).Return(nil).Maybe()
	return r
}

// decommission stands for a Decommission, and keeps what it hears of its rebalance.
func (r *rebalancing) decommission(ctx workflow.Context) error {
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var o planner.Objection
			workflow.GetSignalChannel(ctx, protocol.SignalBlocked).Receive(ctx, &o)
			r.heard = append(r.heard, o)
		}
	})
	child := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: "shed"})
	return workflow.ExecuteChildWorkflow(child, protocol.WorkflowRebalance, protocol.RebalanceInput{Drain: true, DrainBroker: "b1"}).Get(ctx, nil)
}

// limitedAs keeps what the metastore is told, never as of before what it was told already.
func (r *rebalancing) limitedAs(a protocol.LimitPlanArgs) {
	if n := len(r.limitedAt); n > 0 && a.At.Before(r.limitedAt[n-1]) {
		r.t.Errorf("a limit of %v is told after one of %v", a.At, r.limitedAt[n-1])
	}
	r.limitedAt = append(r.limitedAt, a.At)
	a.At = time.Time{}
	r.limited = append(r.limited, a)
}

// plan stands for Plan.
func (r *rebalancing) plan(_ context.Context, a protocol.PlanArgs) (protocol.PlanSummary, error) {
	r.made = append(r.made, a)
	n := min(len(r.made), len(r.plans)) - 1
	s := protocol.PlanSummary{ID: fmt.Sprint("plan", n), Hash: fmt.Sprintf("%08dhash", n), Actions: len(r.plans[n]), Bytes: int64(len(r.plans[n])) << 20, Wave: r.wave,
		ETA: protocol.Duration(time.Hour), Paused: r.pause, Limits: protocol.PlanLimits{MaxInFlight: 8, TransfersPerBroker: 2}, Held: r.heldBack}
	return s, nil
}

// child stands for Move.
func (r *rebalancing) child(ctx workflow.Context, in protocol.MoveInput) (protocol.MoveResult, error) {
	r.started = append(r.started, in)
	r.running++
	r.most = max(r.most, r.running)
	defer func() { r.running-- }()
	r.takeAdjustments(ctx)
	if err := workflow.Sleep(ctx, r.lasts); err != nil {
		return protocol.MoveResult{}, err
	}
	if r.ends != nil {
		if err := r.ends(in); err != nil {
			return protocol.MoveResult{}, err
		}
	}
	r.moved = append(r.moved, in)
	return protocol.MoveResult{Bytes: 1 << 20, FrozenMS: 20}, nil
}

// takeAdjustments keeps what a child is told.
func (r *rebalancing) takeAdjustments(ctx workflow.Context) {
	adjust := workflow.GetSignalChannel(ctx, protocol.SignalAdjust)
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var a protocol.Adjust
			if !adjust.Receive(ctx, &a) || ctx.Err() != nil {
				return
			}
			r.adjusted = append(r.adjusted, a)
		}
	})
}

// watched lets the fleet's pause change at a time.
func (r *rebalancing) watched(after time.Duration, p protocol.Pause) {
	r.watchedFrom(protocol.Pause{}, after, p)
	r.env.OnActivity(protocol.ActivityWatchPause, mock.Anything, mock.Anything).After(1000*time.Hour).Return(protocol.Pause{}, nil)
}

// watchedFrom lets the pause be another at a time, for who knows it as it is.
func (r *rebalancing) watchedFrom(known protocol.Pause, after time.Duration, p protocol.Pause) {
	r.env.OnActivity(protocol.ActivityWatchPause, mock.Anything, mock.MatchedBy(func(a protocol.PauseWatchArgs) bool { return a.Pause == known })).After(after).Return(
		func(_ context.Context, a protocol.PauseWatchArgs) (protocol.Pause, error) {
			r.watches = append(r.watches, a)
			return p, nil
		})
}

func (r *rebalancing) run(in protocol.RebalanceInput) (*protocol.RebalanceResult, error) {
	r.t.Helper()
	r.watched(1000*time.Hour, protocol.Pause{}) // unless a test has said otherwise before
	if r.planLasts > 0 {
		r.env.OnActivity(protocol.ActivityPlan, mock.Anything, mock.Anything).After(r.planLasts).Return(r.plan)
	}
	r.env.SetTestTimeout(20 * time.Second)
	r.env.ExecuteWorkflow(protocol.WorkflowRebalance, in)
	if !r.env.IsWorkflowCompleted() {
		r.t.Fatal("the workflow does not end")
	}
	if err := r.env.GetWorkflowError(); err != nil {
		return nil, err
	}
	var result protocol.RebalanceResult
	if err := r.env.GetWorkflowResult(&result); err != nil {
		r.t.Fatal(err)
	}
	return &result, nil
}

func (r *rebalancing) mustRun(in protocol.RebalanceInput) *protocol.RebalanceResult {
	r.t.Helper()
	result, err := r.run(in)
	if err != nil {
		r.t.Fatal(err)
	}
	return result
}

func (r *rebalancing) status() (s protocol.RebalanceStatus) {
	r.t.Helper()
	value, err := r.env.QueryWorkflow(protocol.QueryStatus)
	if err == nil {
		err = value.Get(&s)
	}
	if err != nil {
		r.t.Error(err)
	}
	return s
}

// update sends an update at a time and returns how it was answered.
func (r *rebalancing) update(after time.Duration, name string, arg any) *error {
	answer := new(error)
	r.env.RegisterDelayedCallback(func() {
		r.env.UpdateWorkflow(name, "", &testsuite.TestUpdateCallback{OnAccept: func() {}, OnReject: func(err error) { *answer = err },
			OnComplete: func(_ any, err error) { *answer = errors.Join(*answer, err) }}, arg)
	}, after)
	return answer
}

// moves are n actions, each between brokers of its own unless from and to are given.
func moves(n int, ends ...string) (all []protocol.PlannedAction) {
	for i := range n {
		from, to := fmt.Sprint("a", i), fmt.Sprint("b", i)
		if len(ends) == 2 {
			from, to = ends[0], ends[1]
		}
		all = append(all, protocol.PlannedAction{Seq: i, Kind: planner.ActionMove, Goal: "DISK", Reason: "too full", Legs: []planner.Leg{{Topic: "orders", TopicID: "t", Partition: int32(i), From: from, To: to, Version: 7, Bytes: 1 << 20}}})
	}
	return all
}

func TestRebalanceMovesUntilNothingIsLeft(t *testing.T) {
	r := newRebalancing(t, moves(20), moves(3))
	result := r.mustRun(protocol.RebalanceInput{By: "ops"})
	if result.Counts.Moved != 23 || result.Plans != 3 || len(r.recorded) != 23 || result.Ended != "nothing is left to do" {
		t.Errorf("the report is %+v, %d ends are recorded", result, len(r.recorded))
	}
	if r.most != 8 {
		t.Errorf("%d moves ran at once", r.most)
	}
	first := r.started[slices.IndexFunc(r.started, func(in protocol.MoveInput) bool { return *in.Partition == 0 })] // of one wave, in any order
	if first.Expect == nil || first.Expect.From != "a0" || first.Expect.Version != 0 || first.Plan != "plan0" || first.By != "ops" {
		t.Errorf("a move was started as %+v", first)
	}
}

func TestRebalanceOfABalancedFleetMovesNothing(t *testing.T) {
	r := newRebalancing(t)
	if result := r.mustRun(protocol.RebalanceInput{}); result.Counts != (protocol.RebalanceCounts{}) || result.Ended != "there was nothing to do" {
		t.Errorf("the report is %+v", result)
	}
}

func TestRebalanceHoldsTheLimitOfABrokerInEitherDirection(t *testing.T) {
	for _, takes := range []bool{true, false} {
		plan := moves(6) // the other broker of each is another
		for i := range plan {
			if takes {
				plan[i].Legs[0].To = "b"
			} else {
				plan[i].Legs[0].From = "b"
			}
		}
		r := newRebalancing(t, plan)
		if result := r.mustRun(protocol.RebalanceInput{}); r.most != 2 || result.Counts.Moved != 6 {
			t.Errorf("a broker that takes: %v; %d moves at once, the report is %+v", takes, r.most, result)
		}
	}
}

func TestRebalanceHoldsTheLimitOfEachBroker(t *testing.T) {
	r := newRebalancing(t, append(moves(6, "b1", "b2"), protocol.PlannedAction{Seq: 6, Kind: planner.ActionMove, Legs: []planner.Leg{{Topic: "other", From: "b3", To: "b4"}}}))
	r.mustRun(protocol.RebalanceInput{})
	other := slices.ContainsFunc(r.started[:3], func(in protocol.MoveInput) bool { return in.Topic == "other" }) // of one wave, in any order
	if r.most != 3 || !other {
		t.Errorf("%d moves at once, the first were %+v", r.most, r.started[:3])
	}
}

func TestRebalanceDryRunMovesNothing(t *testing.T) {
	r := newRebalancing(t, moves(5))
	if result := r.mustRun(protocol.RebalanceInput{DryRun: true}); result.Plan != "plan0" || result.Hash == "" || result.Actions != 5 || len(r.started) != 0 {
		t.Errorf("the report is %+v, %d moves", result, len(r.started))
	}
}

func TestRebalanceWaitsForTheApprovalOfWhatIsShown(t *testing.T) {
	r := newRebalancing(t, moves(3), moves(3))
	wrong := r.update(time.Hour, protocol.UpdateApprove, protocol.Decide{Hash: "11111111", By: "ops"})
	r.env.RegisterDelayedCallback(func() {
		if s := r.status(); s.Phase != protocol.PhaseApproval || s.Blocked != protocol.CodeNeedsApproval || len(r.started) != 0 {
			t.Errorf("it waits as %+v", s)
		}
	}, 2*time.Hour)
	right := r.update(3*time.Hour, protocol.UpdateApprove, protocol.Decide{Hash: "00000000", By: "ops"})
	result := r.mustRun(protocol.RebalanceInput{Approve: true})
	if *wrong == nil || !strings.Contains((*wrong).Error(), "approve that") || *right != nil {
		t.Errorf("the approvals were answered %v and %v", *wrong, *right)
	}
	if result.Counts.Moved != 3 || result.Plans != 1 || r.started[0].Expect.Version != 7 || len(r.approved) != 1 || r.approved[0].By != "ops" {
		t.Errorf("the report is %+v, started %+v, approved %+v", result, r.started[0], r.approved)
	}
}

func TestRebalanceHoldsWhatIsNotAsApproved(t *testing.T) {
	r := newRebalancing(t, moves(3), moves(3))
	r.ends = func(in protocol.MoveInput) error {
		if *in.Partition == 1 {
			return temporal.NewNonRetryableApplicationError("its row is at version 9 now, not at 7", protocol.ErrRefused, nil, "row_drifted")
		}
		return nil
	}
	result := r.mustRun(protocol.RebalanceInput{Hash: "00000000"})
	if result.Counts.Moved != 2 || result.Counts.Held != 1 || len(result.Troubles) != 1 || result.Troubles[0].Code != "row_drifted" || !strings.Contains(result.Troubles[0].Reason, "version 9") {
		t.Errorf("the report is %+v", result)
	}
}

func TestRebalanceGoesOnBesideAFailedMoveAndDoesNotTryItAgain(t *testing.T) {
	r := newRebalancing(t, moves(4), moves(2))
	r.ends = func(in protocol.MoveInput) error {
		if *in.Partition == 1 {
			return temporal.NewNonRetryableApplicationError("the disk is full", protocol.ErrRefused, nil, "no_room")
		}
		return nil
	}
	result := r.mustRun(protocol.RebalanceInput{})
	if result.Counts.Moved != 4 || result.Counts.Failed != 1 || result.Troubles[0].Reason != "the disk is full" || result.Troubles[0].Code != "no_room" {
		t.Errorf("the report is %+v", result)
	}
	tries := 0
	for _, in := range r.started {
		if *in.Partition == 1 {
			tries++
		}
	}
	if tries != 1 {
		t.Errorf("it was tried %d times", tries)
	}
}

func TestRebalancePlansAnewWhatIsAlreadyMoving(t *testing.T) {
	for _, met := range []error{
		temporal.NewNonRetryableApplicationError("it is moving under another workflow", protocol.ErrRefused, nil, "already_moving"),
		&temporal.ChildWorkflowExecutionAlreadyStartedError{}, // of the partition's workflow id
	} {
		r := newRebalancing(t, moves(1), moves(1))
		times := 0
		r.ends = func(protocol.MoveInput) error {
			if times++; times == 1 {
				return met
			}
			return nil
		}
		if result := r.mustRun(protocol.RebalanceInput{}); result.Counts.Moved != 1 || result.Counts.Failed != 0 || result.Plans != 3 {
			t.Errorf("%v: the report is %+v", met, result)
		}
	}
}

// What is moved by another for long is left to it, and is no failure.
func TestRebalanceLeavesWhatIsAlreadyMovingForLong(t *testing.T) {
	r := newRebalancing(t, moves(1), moves(1), moves(1), moves(1))
	r.ends = func(protocol.MoveInput) error { return &temporal.ChildWorkflowExecutionAlreadyStartedError{} }
	result := r.mustRun(protocol.RebalanceInput{})
	if len(r.started) != mostAgain || result.Counts != (protocol.RebalanceCounts{Skipped: 1}) || len(result.Troubles) != 1 || result.Troubles[0].Code != "already_moving" {
		t.Errorf("%d were started, the report is %+v", len(r.started), result)
	}
}

// Limits of 0 start nothing: whoever looks is told so, until they are raised.
func TestRebalanceSaysThatItsLimitsStartNothing(t *testing.T) {
	zero, two := 0, 2
	for name, none := range map[string]protocol.Limits{"maxInFlight": {MaxInFlight: &zero}, "transfersPerBroker": {TransfersPerBroker: &zero}} {
		r := newRebalancing(t, moves(20))
		r.lasts = 10 * time.Minute
		blocked := func(after time.Duration, code string, inFlight int) {
			r.env.RegisterDelayedCallback(func() {
				if s := r.status(); s.Blocked != code || len(s.InFlight) != inFlight || (code != "") != (s.Unblock != "") {
					t.Errorf("%s: after %s it is %+v", name, after, s)
				}
			}, after)
		}
		r.update(time.Minute, protocol.UpdateLimits, none)
		blocked(2*time.Minute, "", 8) // they end first
		blocked(time.Hour, protocol.CodeLimitsStartNone, 0)
		r.update(61*time.Minute, protocol.UpdatePause, protocol.Decide{By: "ops", Reason: "peak"})
		blocked(62*time.Minute, protocol.CodePaused, 0)
		r.update(63*time.Minute, protocol.UpdateResume, protocol.Decide{By: "ops", Reason: "over"})
		blocked(64*time.Minute, protocol.CodeLimitsStartNone, 0)
		r.update(65*time.Minute, protocol.UpdateLimits, protocol.Limits{MaxInFlight: &two, TransfersPerBroker: &two})
		blocked(66*time.Minute, "", 2)
		if result := r.mustRun(protocol.RebalanceInput{}); result.Counts.Moved != 20 {
			t.Errorf("%s: the report is %+v", name, result)
		}
	}
}

func TestRebalancePausesAndResumes(t *testing.T) {
	r := newRebalancing(t, moves(20))
	r.lasts = 10 * time.Minute
	silent := r.update(time.Minute, protocol.UpdatePause, protocol.Decide{By: "ops", Reason: " "})
	paused := r.update(2*time.Minute, protocol.UpdatePause, protocol.Decide{By: "ops", Reason: "peak"})
	r.env.RegisterDelayedCallback(func() {
		s := r.status()
		if s.Blocked != protocol.CodePaused || s.Paused == nil || s.Paused.Reason != "peak" || len(r.started) != 8 || r.running != 0 {
			t.Errorf("paused it is %+v, %d started, %d running", s, len(r.started), r.running)
		}
		if len(r.adjusted) != 8 || r.adjusted[0].Held == nil || !r.adjusted[0].Held.Paused {
			t.Errorf("the moves were told %+v", r.adjusted)
		}
	}, time.Hour)
	resumed := r.update(2*time.Hour, protocol.UpdateResume, protocol.Decide{By: "ops", Reason: "over"})
	if result := r.mustRun(protocol.RebalanceInput{}); result.Counts.Moved != 20 {
		t.Errorf("the report is %+v", result)
	}
	if *silent == nil || *paused != nil || *resumed != nil {
		t.Errorf("the updates were answered %v, %v, %v", *silent, *paused, *resumed)
	}
}

func TestRebalanceHoldsStillWhileTheFleetIsPaused(t *testing.T) {
	r := newRebalancing(t, moves(2))
	r.pause = protocol.Pause{Paused: true, By: "ops", Reason: "backup"}
	r.watchedFrom(r.pause, time.Hour, protocol.Pause{})
	r.env.RegisterDelayedCallback(func() {
		if s := r.status(); len(r.started) != 0 || s.Blocked != protocol.CodePaused {
			t.Errorf("%d moves were started in a paused fleet: %+v", len(r.started), s)
		}
	}, 30*time.Minute)
	if result := r.mustRun(protocol.RebalanceInput{}); result.Counts.Moved != 2 {
		t.Errorf("the report is %+v", result)
	}
}

func TestRebalanceStopsWhenTheFleetIsPausedMeanwhile(t *testing.T) {
	r := newRebalancing(t, moves(20))
	r.watched(30*time.Second, protocol.Pause{Paused: true, Reason: "backup"})
	r.env.RegisterDelayedCallback(func() {
		if len(r.started) != 8 || len(r.adjusted) != 8 {
			t.Errorf("%d moves were started, %d held", len(r.started), len(r.adjusted))
		}
		r.env.CancelWorkflow()
	}, time.Hour)
	if _, err := r.run(protocol.RebalanceInput{}); !temporal.IsCanceledError(err) {
		t.Errorf("it ended with %v", err)
	}
}

func TestRebalanceChangesItsLimitsWhileItRuns(t *testing.T) {
	r := newRebalancing(t, moves(20))
	one, rate := 1, protocol.ByteSize(8<<20)
	changed := r.update(30*time.Second, protocol.UpdateLimits, protocol.Limits{MaxInFlight: &one, BrokerRate: &rate})
	refused := r.update(31*time.Second, protocol.UpdateLimits, protocol.Limits{})
	r.env.RegisterDelayedCallback(func() {
		if r.running != 1 {
			t.Errorf("%d moves run at once", r.running)
		}
	}, 90*time.Second)
	r.mustRun(protocol.RebalanceInput{})
	if *changed != nil || *refused == nil || len(r.adjusted) != 8 || *r.adjusted[0].Limit != 4<<20 {
		t.Errorf("the updates were answered %v and %v, the moves told %+v", *changed, *refused, r.adjusted)
	}
	if last := r.started[len(r.started)-1]; last.Limit != 4<<20 {
		t.Errorf("a later move has the pace %d", last.Limit)
	}
}

// What claims of the plan's moves look at follows the limits and the pause, and is written only when it has changed.
func TestRebalanceTellsWhatTheFleetMayHaveInFlight(t *testing.T) {
	r := newRebalancing(t, moves(20))
	r.lasts = time.Hour
	one, rate := 1, protocol.ByteSize(8<<20)
	r.update(10*time.Second, protocol.UpdateLimits, protocol.Limits{BrokerRate: &rate})
	r.update(20*time.Second, protocol.UpdateLimits, protocol.Limits{MaxInFlight: &one})
	r.update(30*time.Second, protocol.UpdatePause, protocol.Decide{Reason: "peak"})
	r.update(40*time.Second, protocol.UpdateResume, protocol.Decide{Reason: "over"})
	r.env.RegisterDelayedCallback(r.env.CancelWorkflow, time.Minute)
	if _, err := r.run(protocol.RebalanceInput{}); !temporal.IsCanceledError(err) {
		t.Fatal(err)
	}
	want := []protocol.LimitPlanArgs{{Plan: "plan0", MaxInFlight: 8}, {Plan: "plan0", MaxInFlight: 1}, {Plan: "plan0", MaxInFlight: 1, Held: protocol.CodePaused}, {Plan: "plan0", MaxInFlight: 1}}
	if !slices.Equal(r.limited, want) {
		t.Errorf("the metastore was told %+v, want %+v", r.limited, want)
	}
}

// A rebalance of which nothing begins, because others have as much in flight as it allows, says so.
func TestRebalanceSaysThatItsMovesWaitForAPlace(t *testing.T) {
	r := newRebalancing(t, moves(2))
	r.lasts = time.Hour
	for n, step := range []struct {
		partition int32
		waits     bool
		blocked   string
		waiting   int
	}{
		{0, true, "", 1},
		{1, true, protocol.CodeFleetBusy, 2},
		{0, false, "", 1},
		{0, true, protocol.CodeFleetBusy, 2},
		{1, false, "", 1},
	} {
		at := time.Duration(n+1) * time.Minute
		r.env.RegisterDelayedCallback(func() {
			r.env.SignalWorkflow(protocol.SignalWaits, protocol.Waiting{Workflow: protocol.PartitionWorkflowID("orders", step.partition), Waits: step.waits})
		}, at)
		r.env.RegisterDelayedCallback(func() {
			s := r.status()
			waiting := 0
			for _, line := range s.InFlight {
				if strings.Contains(line, "waiting for a place") {
					waiting++
				}
			}
			if s.Blocked != step.blocked || waiting != step.waiting || len(s.InFlight) != 2 {
				t.Errorf("step %d: it is blocked by %q, in flight are %q", n, s.Blocked, s.InFlight)
			}
		}, at+time.Second)
	}
	if result := r.mustRun(protocol.RebalanceInput{}); result.Counts.Moved != 2 {
		t.Errorf("the report is %+v", result)
	}
}

// With a limit of 0 none of those that wait begins, and a move that is started beside them has begun, as far as is known.
func TestRebalanceSaysWhatItsWaitingMovesWaitFor(t *testing.T) {
	r := newRebalancing(t, moves(3))
	r.lasts = time.Hour
	none, one, two := 0, 1, 2
	blocked := func(at time.Duration, code, words string) {
		r.env.RegisterDelayedCallback(func() {
			if s := r.status(); s.Blocked != code || !strings.Contains(s.BlockedReason, words) {
				t.Errorf("after %s it is blocked by %q: %s", at, s.Blocked, s.BlockedReason)
			}
		}, at)
	}
	r.env.RegisterDelayedCallback(func() {
		r.env.SignalWorkflow(protocol.SignalWaits, protocol.Waiting{Workflow: protocol.PartitionWorkflowID("orders", 0), Waits: true})
	}, time.Minute)
	blocked(2*time.Minute, protocol.CodeFleetBusy, "its limit is 1")
	r.update(3*time.Minute, protocol.UpdateLimits, protocol.Limits{MaxInFlight: &none})
	blocked(4*time.Minute, protocol.CodeLimitsStartNone, "maxInFlight is 0")
	r.update(5*time.Minute, protocol.UpdateLimits, protocol.Limits{MaxInFlight: &one})
	blocked(6*time.Minute, protocol.CodeFleetBusy, "its limit is 1")
	r.update(7*time.Minute, protocol.UpdateLimits, protocol.Limits{MaxInFlight: &two})
	blocked(8*time.Minute, "", "")
	r.env.RegisterDelayedCallback(r.env.CancelWorkflow, 10*time.Minute)
	if _, err := r.run(protocol.RebalanceInput{Limits: protocol.Limits{MaxInFlight: &one}}); !temporal.IsCanceledError(err) {
		t.Fatal(err)
	}
	if s := r.status(); s.Blocked != "" || len(r.started) != 2 {
		t.Errorf("cancelled it is %+v, %d were started", s, len(r.started))
	}
}

// A pause that ends while it is being told is not what stays.
func TestRebalanceTellsTheNewestOfWhatChangesMeanwhile(t *testing.T) {
	r := newRebalancing(t, moves(20))
	r.lasts = time.Hour
	r.env.OnActivity(protocol.ActivityLimitPlan, mock.Anything, mock.Anything).After(5 * time.Minute).Return(func(_ context.Context, a protocol.LimitPlanArgs) error {
		r.limitedAs(a)
		return nil
	})
	one := 1
	r.update(5*time.Second, protocol.UpdateLimits, protocol.Limits{MaxInFlight: &one})
	r.update(10*time.Second, protocol.UpdatePause, protocol.Decide{Reason: "peak"})
	r.update(20*time.Second, protocol.UpdateResume, protocol.Decide{Reason: "over"})
	r.env.RegisterDelayedCallback(r.env.CancelWorkflow, 30*time.Minute)
	if _, err := r.run(protocol.RebalanceInput{}); !temporal.IsCanceledError(err) {
		t.Fatal(err)
	}
	want := []protocol.LimitPlanArgs{{Plan: "plan0", MaxInFlight: 8}, {Plan: "plan0", MaxInFlight: 1}}
	if !slices.Equal(r.limited, want) {
		t.Errorf("the metastore was told %+v, want %+v", r.limited, want)
	}
}

func TestRebalanceSkipsAPartition(t *testing.T) {
	r := newRebalancing(t, moves(10, "b1", "b2"))
	inFlight, queued := int32(0), int32(5)
	r.update(30*time.Second, protocol.UpdateSkip, protocol.Decide{Topic: "orders", Partition: &inFlight, By: "ops", Reason: "hot"})
	r.update(31*time.Second, protocol.UpdateSkip, protocol.Decide{Topic: "orders", Partition: &queued, By: "ops", Reason: "hot"})
	if result := r.mustRun(protocol.RebalanceInput{}); result.Counts.Moved != 8 || result.Counts.Skipped != 2 || result.Counts.Cancelled != 0 {
		t.Errorf("the report is %+v", result)
	}
}

// What a person skips while the next plan is being made is an action of that plan, however often it is planned from then on.
func TestRebalanceSkipsAPartitionWhileItPlans(t *testing.T) {
	r := newRebalancing(t, moves(3), append(moves(1), planned(1, moves(3)[2:])...), planned(0, moves(3)[1:]))
	r.wave, r.planLasts = 1, time.Hour
	two := int32(2)
	skipped := r.update(90*time.Minute, protocol.UpdateSkip, protocol.Decide{Topic: "orders", Partition: &two, By: "ops", Reason: "hot"})
	result := r.mustRun(protocol.RebalanceInput{})
	if *skipped != nil || result.Counts.Skipped != 1 || len(result.Troubles) != 1 || result.Plans != 4 {
		t.Errorf("the skip was answered %v, the report is %+v", *skipped, result)
	}
	var of []string
	for _, record := range r.records {
		for _, e := range record.Ends {
			if e.State == protocol.ActionSkipped {
				of = append(of, fmt.Sprintf("%d of %s", e.Seq, record.Plan))
			}
		}
	}
	if !slices.Equal(of, []string{"1 of plan1", "1 of plan2"}) {
		t.Errorf("left out are action %q", of)
	}
}

// What a person skips during the soak is recorded under its plan, also when the canary ends the rebalance.
func TestRebalanceRecordsWhatIsSkippedWhileItsCanarySoaks(t *testing.T) {
	r := newRebalancing(t, moves(3))
	two := int32(2)
	r.update(2*time.Minute, protocol.UpdateSkip, protocol.Decide{Topic: "orders", Partition: &two, By: "ops", Reason: "hot"})
	strict := &protocol.Canary{Moves: 1, Soak: protocol.Duration(5 * time.Minute), LongestWait: protocol.Duration(10 * time.Millisecond)}
	result := r.mustRun(protocol.RebalanceInput{Canary: strict})
	last := r.records[len(r.records)-1]
	if result.Counts.Skipped != 1 || last.Plan != "plan0" || len(last.Ends) != 1 || last.Ends[0].State != protocol.ActionSkipped || last.Ends[0].Seq != 2 {
		t.Errorf("the report is %+v, recorded is %+v", result, last)
	}
}

// A move that somebody cancels while its rebalance goes on stays where it is: no later plan starts it again.
func TestRebalanceLeavesAMoveThatAnotherHandCancelled(t *testing.T) {
	var plans [][]protocol.PlannedAction
	for n := range 8 { // the first partition again and again, each time beside another one
		plans = append(plans, append(moves(1), planned(1, moves(n + 2)[n+1:])...))
	}
	for _, in := range []protocol.RebalanceInput{{}, {Hash: "00000000"}} {
		r := newRebalancing(t, plans...)
		r.env.RegisterDelayedCallback(func() {
			r.env.CancelWorkflowByID(protocol.PartitionWorkflowID("orders", 0), "")
		}, 30*time.Second)
		result := r.mustRun(in)
		tries := 0
		for _, m := range r.started {
			if *m.Partition == 0 {
				tries++
			}
		}
		moved := 8
		if in.Hash != "" {
			moved = 1 // its one plan
		}
		if tries != 1 || result.Counts.Skipped != 1 || result.Counts.Cancelled != 0 || result.Counts.Moved != moved {
			t.Errorf("it was started %d times, the report is %+v", tries, result)
		}
		if len(result.Troubles) != 1 || result.Troubles[0].State != protocol.ActionSkipped || result.Troubles[0].Reason != cancelledByHand {
			t.Errorf("the report tells %+v", result.Troubles)
		}
	}
}

// Only what was moved for the goals cools down: no plan is kept from what a way back or a drain has moved.
func TestRebalancePutsNoCooldownOnAWayBack(t *testing.T) {
	for _, tc := range []struct {
		in   protocol.RebalanceInput
		cool bool
	}{{protocol.RebalanceInput{}, true}, {protocol.RebalanceInput{Undo: "earlier"}, false}, {protocol.RebalanceInput{Drain: true}, false}} {
		r := newRebalancing(t, moves(1))
		r.mustRun(tc.in)
		if len(r.records) != 1 || r.records[0].Cool != tc.cool {
			t.Errorf("%+v: recorded are %+v", tc.in, r.records)
		}
	}
}

func TestRebalanceCancelledCancelsItsMovesAndWaitsForThem(t *testing.T) {
	r := newRebalancing(t, moves(20))
	r.env.RegisterDelayedCallback(r.env.CancelWorkflow, 90*time.Second)
	_, err := r.run(protocol.RebalanceInput{})
	if !temporal.IsCanceledError(err) {
		t.Fatalf("it ended with %v", err)
	}
	if r.running != 0 || len(r.moved) != 8 || len(r.started) != 16 {
		t.Errorf("%d run, %d were moved, %d started", r.running, len(r.moved), len(r.started))
	}
	cancelled := 0
	for _, e := range r.recorded {
		if e.State == protocol.ActionCancelled {
			cancelled++
		}
	}
	if s := r.status(); cancelled != 8 || s.Counts.Cancelled != 8 || s.Phase != protocol.PhaseCancelled {
		t.Errorf("%d are recorded as cancelled, the status is %+v", cancelled, s)
	}
}

func TestRebalanceSaysEarlyThatItsDeadlineCanNotBeMet(t *testing.T) {
	r := newRebalancing(t, moves(40))
	deadline := r.env.Now().Add(150 * time.Second)
	r.env.RegisterDelayedCallback(func() {
		if s := r.status(); s.Late == "" {
			t.Errorf("it says nothing of its deadline: %+v", s)
		}
	}, time.Second)
	result := r.mustRun(protocol.RebalanceInput{Deadline: &deadline})
	if result.Counts.Moved != 24 || !strings.Contains(result.Ended, "deadline") {
		t.Errorf("the report is %+v", result)
	}
}

// What waits for a place in the fleet when the deadline passes never begins, and is no failure.
func TestRebalanceWhoseDeadlinePassesLetsNothingBeginThatWaits(t *testing.T) {
	r := newRebalancing(t, moves(2))
	r.lasts = 2 * time.Hour
	r.ends = func(in protocol.MoveInput) error {
		if len(r.limited) != 2 || !r.limited[1].Over {
			t.Errorf("an hour after the deadline the metastore was told %+v", r.limited)
		}
		if *in.Partition == 1 {
			return temporal.NewNonRetryableApplicationError("the deadline has passed", protocol.ErrRefused, nil, protocol.CodeDeadline)
		}
		return nil
	}
	deadline := r.env.Now().Add(time.Hour)
	result := r.mustRun(protocol.RebalanceInput{Deadline: &deadline})
	if result.Counts != (protocol.RebalanceCounts{Moved: 1, Bytes: 1 << 20}) || len(result.Troubles) > 0 || !strings.Contains(result.Ended, "deadline") {
		t.Errorf("the report is %+v", result)
	}
	states := map[int32]string{} // both end at the same moment
	for _, e := range r.recorded {
		states[e.Partition] = e.State
	}
	if want := map[int32]string{0: protocol.ActionMoved, 1: protocol.ActionSkipped}; !maps.Equal(states, want) {
		t.Errorf("recorded are %+v", r.recorded)
	}
}

// The limits that a rebalance is started with, or given later, count in its estimate.
func TestRebalanceEstimatesWithItsOwnLimits(t *testing.T) {
	r := newRebalancing(t, moves(40)) // 40 MiB, an hour by the limits of the settings
	slow, fast := protocol.ByteSize(1<<10), protocol.ByteSize(0)
	deadline := r.env.Now().Add(80 * time.Minute)
	r.env.RegisterDelayedCallback(func() {
		if s := r.status(); s.Late == "" || s.ETA.Sub(deadline) < 5*time.Minute {
			t.Errorf("at 8 KiB a second in all it is %+v", s)
		}
	}, time.Second)
	r.update(2*time.Second, protocol.UpdateLimits, protocol.Limits{MoveRate: &fast})
	r.mustRun(protocol.RebalanceInput{Deadline: &deadline, Limits: protocol.Limits{MoveRate: &slow}})
	if got := r.made[0].Limits.MoveRate; got == nil || *got != slow {
		t.Errorf("planned was with %+v", r.made[0].Limits)
	}
}

// A deadline that passes while a move takes longer than was thought is said to be missed.
func TestRebalanceWhoseDeadlineHasPassedSaysSoWhileItsMovesEnd(t *testing.T) {
	r := newRebalancing(t, moves(1))
	r.lasts = 3 * time.Hour
	deadline := r.env.Now().Add(2 * time.Hour)
	r.env.RegisterDelayedCallback(func() {
		if s := r.status(); s.Late == "" || len(s.InFlight) != 1 {
			t.Errorf("after its deadline it is %+v", s)
		}
	}, 150*time.Minute)
	r.mustRun(protocol.RebalanceInput{Deadline: &deadline})
}

// The decommission whose moves these are hears what they wait for, and that they do not any more.
func TestRebalanceTellsItsDecommissionWhatItWaitsFor(t *testing.T) {
	r := newRebalancing(t, moves(3))
	r.pause = protocol.Pause{Paused: true, By: "ops", Reason: "backup"}
	r.lasts = time.Millisecond // the test's clock is the real one while a child has activities
	r.env.ExecuteWorkflow("decommission of b1")
	if err := r.env.GetWorkflowError(); err != nil || len(r.moved) != 3 || r.made[0].Of != "b1" {
		t.Errorf("it ended with %v after %d moves, planned with %+v", err, len(r.moved), r.made[0])
	}
	if h := r.heard; len(h) != 2 || h[0].Code != protocol.CodePaused || !strings.Contains(h[0].Reason, "backup") || h[1].Code != "" {
		t.Errorf("it heard %+v", h)
	}
}

// Whatever it waits for before its moves, it does not outlast its deadline, and nothing is started then.
func TestRebalanceWaitsForNothingBeyondItsDeadline(t *testing.T) {
	for _, tc := range []struct {
		name, ended string
		in          protocol.RebalanceInput
		heldBack    *planner.Objection
	}{
		{"an approval", "before its plan was approved", protocol.RebalanceInput{Approve: true}, nil},
		{"a recovery", "two partitions wait", protocol.RebalanceInput{}, &planner.Objection{Code: planner.CodeRecoveryPending, Reason: "two partitions wait for their owner"}},
		{"an owner that does not say how far consumers are behind", "its deadline has passed", protocol.RebalanceInput{Canary: lagCanary(1, 0)}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRebalancing(t, moves(10))
			r.heldBack = tc.heldBack
			deadline := r.env.Now().Add(20 * time.Second) // the test's Temporal asks ten times at the most
			tc.in.Deadline = &deadline
			result := r.mustRun(tc.in)
			if late := r.env.Now().Sub(deadline); len(r.started) != 0 || !strings.Contains(result.Ended, tc.ended) || late < 0 || late > time.Minute {
				t.Errorf("%d moves were started, it ended %s after its deadline: %+v", len(r.started), late, result)
			}
		})
	}
}

func TestRebalanceLooksAtItsCanaryBeforeTheRest(t *testing.T) {
	good := newRebalancing(t, moves(10), moves(7))
	good.env.RegisterDelayedCallback(func() {
		if s := good.status(); len(good.started) != 2 || s.Phase != protocol.PhaseSoaking {
			t.Errorf("%d moves were started, the status is %+v", len(good.started), s)
		}
	}, 3*time.Minute)
	canary := &protocol.Canary{Moves: 2, Soak: protocol.Duration(5 * time.Minute)}
	if result := good.mustRun(protocol.RebalanceInput{Canary: canary}); result.Counts.Moved != 9 {
		t.Errorf("the report is %+v", result)
	}
	bad := newRebalancing(t, moves(10))
	bad.ends = func(protocol.MoveInput) error {
		return temporal.NewNonRetryableApplicationError("no", protocol.ErrRefused, nil)
	}
	if result := bad.mustRun(protocol.RebalanceInput{Canary: canary}); len(bad.started) != 2 || !strings.Contains(result.Ended, protocol.CodeCanaryFailed) {
		t.Errorf("%d moves were started, the report is %+v", len(bad.started), result)
	}
	slow := newRebalancing(t, moves(10))
	strict := &protocol.Canary{Moves: 1, LongestWait: protocol.Duration(10 * time.Millisecond)}
	if result := slow.mustRun(protocol.RebalanceInput{Canary: strict}); len(slow.started) != 1 || !strings.Contains(result.Ended, protocol.CodeCanaryFailed) {
		t.Errorf("%d moves were started, the report is %+v", len(slow.started), result)
	}
}

// Nothing is learnt of an action that did not move: the next one is the canary. What a person skips meanwhile is counted once.
func TestRebalanceTakesTheNextActionsAsItsCanaryWhenNothingMoved(t *testing.T) {
	r := newRebalancing(t, moves(5))
	r.ends = func(in protocol.MoveInput) error {
		if *in.Partition == 0 {
			return temporal.NewNonRetryableApplicationError("its row is another", protocol.ErrRefused, nil, "row_drifted")
		}
		return nil
	}
	four := int32(4)
	skipped := r.update(time.Second, protocol.UpdateSkip, protocol.Decide{Topic: "orders", Partition: &four, By: "ops", Reason: "hot"})
	strict := &protocol.Canary{Moves: 1, LongestWait: protocol.Duration(10 * time.Millisecond)}
	result := r.mustRun(protocol.RebalanceInput{Hash: "00000000", Canary: strict})
	if len(r.started) != 2 || !strings.Contains(result.Ended, protocol.CodeCanaryFailed) || result.Counts.Held != 1 || result.Counts.Moved != 1 {
		t.Errorf("started were %d: %+v", len(r.started), result)
	}
	if *skipped != nil || result.Counts.Skipped != 1 {
		t.Errorf("skipped were %d (%v)", result.Counts.Skipped, *skipped)
	}
}

// An approved plan of more moves than one run starts goes on in a new run, each action once, however large its waves are.
func TestRebalanceContinuesAsNewWithEachActionOnce(t *testing.T) {
	for _, tc := range []struct {
		wave   int
		canary *protocol.Canary
	}{{wave: 50}, {wave: 100}, {wave: 99}, {wave: 50, canary: &protocol.Canary{Moves: 400}}} {
		t.Run(fmt.Sprintf("in waves of %d after %+v", tc.wave, tc.canary), func(t *testing.T) { continuesAsNew(t, tc.wave, tc.canary) })
	}
}

// nextInput is what a rebalance goes on with in a new run.
func nextInput(t *testing.T, more *workflow.ContinueAsNewError) (in protocol.RebalanceInput) {
	t.Helper()
	if err := converter.GetDefaultDataConverter().FromPayloads(more.Input, &in); err != nil {
		t.Fatal(err)
	}
	return in
}

func continuesAsNew(t *testing.T, wave int, canary *protocol.Canary) {
	plan := moves(600, "b1", "b2")
	for i := range plan {
		if i%3 == 0 {
			plan[i].Legs[0].From, plan[i].Legs[0].To = fmt.Sprint("a", i), fmt.Sprint("c", i)
		}
	}
	in := protocol.RebalanceInput{Hash: "00000000", Canary: canary}
	var all []string
	for run := 0; ; run++ {
		r := newRebalancing(t, plan)
		r.wave = wave
		result, err := r.run(in)
		if len(r.started) > mostChildrenARun {
			t.Fatalf("a run started %d moves", len(r.started))
		}
		if again := []protocol.LimitPlanArgs{{Plan: "plan0", MaxInFlight: 8}}; !slices.Equal(r.limited, again) {
			t.Errorf("run %d has told the metastore %+v; what was told before it may not have arrived", run, r.limited)
		}
		for _, m := range r.started {
			all = append(all, fmt.Sprint(*m.Partition))
		}
		var more *workflow.ContinueAsNewError
		if !errors.As(err, &more) {
			if err != nil || result.Counts.Moved != 600 || run == 0 {
				t.Fatalf("run %d ended with %+v, %v", run, result, err)
			}
			break
		}
		in = nextInput(t, more)
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != 600 {
		t.Errorf("%d different partitions were moved", len(slices.Compact(all)))
	}
	if len(all) != 600 {
		t.Errorf("%d moves were started for 600 actions", len(all))
	}
}

func TestRebalanceRefusesABadInput(t *testing.T) {
	for _, in := range []any{map[string]any{"dryRunn": true}, map[string]any{"hash": "1234"}, map[string]any{"undo": "x", "hash": "12345678"}, map[string]any{"maxInFlight": -1},
		map[string]any{"canary": map[string]any{"moves": 0}}, map[string]any{"window": map[string]any{"cron": "0 1 * * *"}},
		map[string]any{"canary": map[string]any{"moves": 1, "lag": -1}}, map[string]any{"canary": map[string]any{"moves": 21, "lag": 1}},
		map[string]any{"window": map[string]any{"cron": "0 1 * *", "for": "4h"}}, map[string]any{"window": map[string]any{"cron": "0 1 * * *", "for": "4h", "zone": "Mars/Olympus"}}} {
		r := newRebalancing(t)
		r.watched(time.Hour, protocol.Pause{})
		r.env.ExecuteWorkflow(protocol.WorkflowRebalance, in)
		var bad *temporal.ApplicationError
		if err := r.env.GetWorkflowError(); !errors.As(err, &bad) || bad.Type() != protocol.ErrInvalidInput {
			t.Errorf("%v ended with %v", in, err)
		}
		if len(r.made) != 0 {
			t.Errorf("%v planned", in)
		}
	}
}
