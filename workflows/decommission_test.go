package workflows

import (
	"context"
	"errors"
	"log/slog"
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

	"portage/planner"
	"portage/workflows/protocol"
)

// leaving stands for the fleet of a decommission: the broker owns some partitions, each Rebalance moves some of them.
type leaving struct {
	env      *testsuite.TestWorkflowEnvironment
	owned    int
	stuck    int // of them can not move now
	perRound int
	lasts    time.Duration
	refused  []planner.Objection
	removal  []*planner.Objection // what the next removals are refused with
	calls    []string
	draining bool
	blocks   []planner.Objection // what the moves say of themselves, one after the other
}

func newLeaving(t *testing.T, owned int) *leaving {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	l := &leaving{env: suite.NewTestWorkflowEnvironment(), owned: owned, perRound: owned, lasts: time.Minute}
	register := func(name string, f any) { l.env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name}) }
	register(protocol.ActivityCheckDecommission, func(_ context.Context, a protocol.DrainArgs) (protocol.DrainCheck, error) {
		if a.Broker != "b4" || a.MinBrokers != 3 {
			t.Errorf("checked is %+v", a)
		}
		c := protocol.DrainCheck{Refused: l.refused, Draining: l.draining, Owned: l.owned, Moves: l.owned - l.stuck, Bytes: int64(l.owned) << 20}
		if l.stuck > 0 {
			c.Waits = []planner.Blocked{{Topic: "orders", Owner: "b4", Objection: planner.Objection{Code: planner.CodeBrokerDead, Reason: "b4 does not answer"}}}
		}
		return c, nil
	})
	register(protocol.ActivityBeginDrain, func(context.Context, protocol.DrainArgs) error {
		l.calls, l.draining = append(l.calls, "drain"), true
		return nil
	})
	register(protocol.ActivityCancelDrain, func(context.Context, protocol.DrainArgs) (protocol.RemoveResult, error) {
		l.calls, l.draining = append(l.calls, "undrain"), false
		return protocol.RemoveResult{}, nil
	})
	register(protocol.ActivityRemoveBroker, func(context.Context, protocol.DrainArgs) (protocol.RemoveResult, error) {
		l.calls = append(l.calls, "remove")
		if len(l.removal) == 0 {
			return protocol.RemoveResult{}, nil
		}
		r := l.removal[0]
		l.removal = l.removal[1:]
		return protocol.RemoveResult{Refused: r}, nil
	})
	l.env.RegisterWorkflowWithOptions(Decommission, workflow.RegisterOptions{Name: protocol.WorkflowDecommission})
	l.env.RegisterWorkflowWithOptions(func(ctx workflow.Context, in protocol.RebalanceInput) (*protocol.RebalanceResult, error) {
		if !in.Drain || in.DrainBroker != "b4" || !l.draining {
			t.Errorf("rebalanced with %+v while draining is %v", in, l.draining)
		}
		l.calls = append(l.calls, "shed")
		for _, o := range l.blocks {
			parent := workflow.GetInfo(ctx).ParentWorkflowExecution
			if err := workflow.SignalExternalWorkflow(ctx, parent.ID, "", protocol.SignalBlocked, o).Get(ctx, nil); err != nil {
				t.Error(err)
			}
			if err := workflow.Sleep(ctx, l.lasts); err != nil {
				return nil, err
			}
		}
		if err := workflow.Sleep(ctx, l.lasts); err != nil {
			return nil, err
		}
		n := min(l.perRound, l.owned-l.stuck)
		l.owned -= n
		return &protocol.RebalanceResult{Counts: protocol.RebalanceCounts{Moved: n}}, nil
	}, workflow.RegisterOptions{Name: protocol.WorkflowRebalance})
	l.env.OnUpsertTypedSearchAttributes(mock.Anything).Return(nil).Maybe()
	return l
}

func (l *leaving) run(t *testing.T, in protocol.DecommissionInput) (result protocol.DecommissionResult, err error) {
	t.Helper()
	in.Broker = "b4"
	l.env.SetTestTimeout(20 * time.Second)
	l.env.ExecuteWorkflow(protocol.WorkflowDecommission, in)
	if !l.env.IsWorkflowCompleted() {
		t.Fatal("the workflow does not end")
	}
	if err := l.env.GetWorkflowError(); err != nil {
		return result, err
	}
	return result, l.env.GetWorkflowResult(&result)
}

func (l *leaving) status(t *testing.T) (s protocol.DecommissionStatus) {
	t.Helper()
	value, err := l.env.QueryWorkflow(protocol.QueryStatus)
	if err == nil {
		err = value.Get(&s)
	}
	if err != nil {
		t.Error(err)
	}
	return s
}

func (l *leaving) expect(t *testing.T, calls ...string) {
	t.Helper()
	if !slices.Equal(l.calls, calls) {
		t.Errorf("called were %q, want %q", l.calls, calls)
	}
}

func TestDecommissionShedsEverythingAndThenRemoves(t *testing.T) {
	l := newLeaving(t, 10)
	l.perRound = 6
	result, err := l.run(t, protocol.DecommissionInput{Reason: "old"})
	if err != nil || !result.Safe || result.Verdict != protocol.VerdictSafe || result.Counts.Moved != 10 {
		t.Errorf("it ended with %+v, %v", result, err)
	}
	l.expect(t, "drain", "shed", "shed", "remove")
}

func TestDecommissionIsRefusedByAllGuardsAtOnceBeforeAnySideEffect(t *testing.T) {
	l := newLeaving(t, 10)
	l.refused = []planner.Objection{{Code: "too_few_brokers", Reason: "two would stay"}, {Code: "too_little_room", Reason: "no room"}}
	_, err := l.run(t, protocol.DecommissionInput{})
	if code, reason := refusalOf(err); code != "too_few_brokers" || !strings.Contains(reason, "two would stay") || !strings.Contains(reason, "no room (too_little_room)") {
		t.Errorf("it ended with %v", err)
	}
	l.expect(t)
}

func TestDecommissionDryRunChangesNothing(t *testing.T) {
	l := newLeaving(t, 10)
	if result, err := l.run(t, protocol.DecommissionInput{DryRun: true}); err != nil || result.Safe || result.Check.Moves != 10 {
		t.Errorf("it ended with %+v, %v", result, err)
	}
	l.expect(t)
}

func TestDecommissionWaitsVisiblyForWhatCanNotLeave(t *testing.T) {
	l := newLeaving(t, 10)
	l.stuck = 3
	l.env.RegisterDelayedCallback(func() {
		if s := l.status(t); s.Blocked != planner.CodeBrokerDead || len(s.Waits) != 1 || !strings.Contains(s.BlockedReason, "3 partitions") {
			t.Errorf("it waits as %+v", s)
		}
		l.stuck = 0
	}, 10*time.Minute)
	if result, err := l.run(t, protocol.DecommissionInput{}); err != nil || !result.Safe {
		t.Errorf("it ended with %+v, %v", result, err)
	}
	l.expect(t, "drain", "shed", "shed", "remove")
}

// A decommission whose partitions another moves looks less and less often: each look keeps a plan. It goes on at its usual pace
// once something moves.
func TestDecommissionLooksLessOftenWhileNothingMoves(t *testing.T) {
	l := newLeaving(t, 10)
	l.perRound = 0
	l.env.RegisterDelayedCallback(func() {
		if n := len(l.calls); n < 10 || n > 18 { // 26 were it to look each 10 s
			t.Errorf("after half an hour it has done %d things: %v", n, l.calls)
		}
		l.perRound = 5
	}, 30*time.Minute)
	if result, err := l.run(t, protocol.DecommissionInput{}); err != nil || !result.Safe || result.Counts.Moved != 10 {
		t.Errorf("it ended with %+v, %v", result, err)
	}
}

// A decommission that has waited for long goes on in a new run, which knows that the broker drains: a guard that would refuse it now does not
// end it, and a cancel takes the mark back.
func TestDecommissionThatWaitsForLongStaysTheSame(t *testing.T) {
	l := newLeaving(t, 10)
	l.stuck, l.perRound = 3, 7
	_, err := l.run(t, protocol.DecommissionInput{Reason: "old"})
	var again *workflow.ContinueAsNewError
	if !errors.As(err, &again) {
		t.Fatalf("it ended with %v", err)
	}
	var next protocol.DecommissionInput
	if err := converter.GetDefaultDataConverter().FromPayloads(again.Input, &next); err != nil {
		t.Fatal(err)
	}
	if c := next.Carried; c == nil || c.Counts.Moved != 7 || c.Rounds != shedRounds || next.Reason != "old" {
		t.Fatalf("it goes on with %+v", next)
	}
	for name, tc := range map[string]struct {
		cancel bool
		calls  []string
	}{"nothing stands against it any more": {false, []string{"shed", "remove"}}, "cancelled at once": {true, []string{"undrain"}}} {
		t.Run(name, func(t *testing.T) {
			l := newLeaving(t, 3)
			l.draining = true
			l.refused = []planner.Objection{{Code: "too_little_room", Reason: "the others have filled up"}}
			if tc.cancel {
				l.env.RegisterDelayedCallback(l.env.CancelWorkflow, 0)
			}
			result, err := l.run(t, next)
			if tc.cancel != temporal.IsCanceledError(err) || (!tc.cancel && (result.Counts.Moved != 10 || !result.Safe)) {
				t.Errorf("it ended with %+v, %v", result, err)
			}
			l.expect(t, tc.calls...)
		})
	}
}

// What the moves wait for as a whole, as while the fleet is paused, the decommission shows as its own.
func TestDecommissionShowsWhatItsMovesWaitFor(t *testing.T) {
	l := newLeaving(t, 10)
	l.lasts = time.Hour
	l.blocks = []planner.Objection{{Code: protocol.CodePaused, Reason: "paused by ops: backup"}, {}}
	for after, want := range map[time.Duration]string{30 * time.Minute: protocol.CodePaused, 90 * time.Minute: ""} {
		l.env.RegisterDelayedCallback(func() {
			if s := l.status(t); s.Blocked != want || s.Phase != protocol.PhaseShedding || (want != "" && s.Unblock == "") {
				t.Errorf("after %s it is %+v", after, s)
			}
		}, after)
	}
	if result, err := l.run(t, protocol.DecommissionInput{}); err != nil || !result.Safe {
		t.Errorf("it ended with %+v, %v", result, err)
	}
}

func TestDecommissionWaitsWhileItsRemovalIsRefused(t *testing.T) {
	l := newLeaving(t, 0)
	l.removal = []*planner.Objection{{Code: "too_few_brokers", Reason: "another one is draining too"}, {Code: "quarantined_copies", Reason: "export them"}}
	if result, err := l.run(t, protocol.DecommissionInput{}); err != nil || !result.Safe {
		t.Errorf("it ended with %+v, %v", result, err)
	}
	l.expect(t, "drain", "remove", "remove", "remove")
}

func TestDecommissionCancelledStopsItsMovesAndClearsTheMark(t *testing.T) {
	l := newLeaving(t, 10)
	l.lasts = time.Hour
	l.env.RegisterDelayedCallback(l.env.CancelWorkflow, time.Minute)
	if _, err := l.run(t, protocol.DecommissionInput{}); !temporal.IsCanceledError(err) {
		t.Errorf("it ended with %v", err)
	}
	l.expect(t, "drain", "shed", "undrain")
	if l.draining || l.owned != 10 {
		t.Errorf("draining is %v, %d partitions are left", l.draining, l.owned)
	}
}

func TestDecommissionCancelledBeforeTheDrainChangesNothing(t *testing.T) {
	l := newLeaving(t, 10)
	l.env.RegisterDelayedCallback(l.env.CancelWorkflow, 0)
	if _, err := l.run(t, protocol.DecommissionInput{}); err == nil {
		t.Error("it ended well")
	}
	if l.draining {
		t.Errorf("the broker drains after %q", l.calls)
	}
}

func TestDecommissionRefusesABadInput(t *testing.T) {
	for _, in := range []any{map[string]any{}, map[string]any{"broker": "b4", "minBroker": 2}, map[string]any{"broker": "b4", "minBrokers": 0}} {
		l := newLeaving(t, 1)
		l.env.ExecuteWorkflow(protocol.WorkflowDecommission, in)
		var bad *temporal.ApplicationError
		if err := l.env.GetWorkflowError(); !errors.As(err, &bad) || bad.Type() != protocol.ErrInvalidInput {
			t.Errorf("%v ended with %v", in, err)
		}
	}
}
