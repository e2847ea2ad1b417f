package workflows

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// balancing stands for the fleet of an Autobalance: news that come one after the other, and rebalances that end as a test says.
type balancing struct {
	env    *testsuite.TestWorkflowEnvironment
	news   []protocol.FleetNews // after the last the workflow is looked at and cancelled
	known  []protocol.WatchFleetArgs
	passes []protocol.RebalanceInput
	ends   []error    // of the passes; nil: one move
	silent [][]string // brokers that did not answer a pass
	marked []protocol.FleetChange
	steps  []string
	status protocol.AutobalanceStatus
}

func newBalancing(t *testing.T, news ...protocol.FleetNews) *balancing {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	b := &balancing{env: suite.NewTestWorkflowEnvironment(), news: news}
	b.env.RegisterActivityWithOptions(func(ctx context.Context, known protocol.WatchFleetArgs) (protocol.FleetNews, error) {
		b.known = append(b.known, known)
		if n := len(b.known); n <= len(b.news) {
			return b.news[n-1], nil
		}
		b.env.CancelWorkflow()
		<-ctx.Done()
		return protocol.FleetNews{}, ctx.Err()
	}, activity.RegisterOptions{Name: protocol.ActivityWatchFleet})
	b.env.RegisterActivityWithOptions(func(_ context.Context, seen []protocol.FleetChange) error {
		b.steps = append(b.steps, "mark")
		b.marked = append(b.marked, seen...)
		return nil
	}, activity.RegisterOptions{Name: protocol.ActivityMarkBalanced})
	b.env.RegisterWorkflowWithOptions(func(_ workflow.Context, in protocol.RebalanceInput) (protocol.RebalanceResult, error) {
		b.steps = append(b.steps, "pass")
		b.passes = append(b.passes, in)
		if n := len(b.passes); n <= len(b.ends) && b.ends[n-1] != nil {
			return protocol.RebalanceResult{}, b.ends[n-1]
		}
		var silent []string
		if n := len(b.passes); n <= len(b.silent) {
			silent = b.silent[n-1]
		}
		return protocol.RebalanceResult{Ended: "nothing is left to do", Silent: silent, Counts: protocol.RebalanceCounts{Moved: 1, Bytes: 1 << 20}}, nil
	}, workflow.RegisterOptions{Name: protocol.WorkflowRebalance})
	return b
}

// run carries the workflow out until there are no more news, and reads its status.
func (b *balancing) run(t *testing.T, in protocol.AutobalanceInput) {
	t.Helper()
	b.env.ExecuteWorkflow(Autobalance, in)
	if err := b.env.GetWorkflowError(); !temporal.IsCanceledError(err) && !strings.Contains(fmt.Sprint(err), "canceled") {
		t.Fatalf("it ended with %v", err)
	}
	value, err := b.env.QueryWorkflow(protocol.QueryStatus)
	if err == nil {
		err = value.Get(&b.status)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func news(mode string, changes ...string) protocol.FleetNews {
	n := protocol.FleetNews{Mode: mode, Every: protocol.Duration(10 * time.Minute)}
	for _, c := range changes {
		n.Changes = append(n.Changes, protocol.FleetChange{Broker: c, State: c + "'s state", What: c + " registered"})
	}
	return n
}

func TestABrokerThatRegistersIsMarkedOnceAPassHasSeenIt(t *testing.T) {
	b := newBalancing(t, news("count"), news("count", "b3", "b4"))
	b.run(t, protocol.AutobalanceInput{})
	if strings.Join(b.steps, " ") != "pass mark" || len(b.marked) != 2 || b.marked[0].State != "b3's state" {
		t.Errorf("it did %v and marked %+v", b.steps, b.marked)
	}
	if in := b.passes[0]; !in.CountOnly || in.By != "autobalance" || in.Reason != "b3 registered, b4 registered" {
		t.Errorf("the pass is %+v", in)
	}
	s := b.status
	if s.Passes != 1 || s.Running != nil || s.Last == nil || s.Last.Counts.Moved != 1 || s.Due == nil || s.DueWhy != "10m0s have passed since the last" {
		t.Errorf("its status is %+v", s)
	}
	if second := b.known[1]; second.Due == nil || second.Mode != "count" {
		t.Errorf("after it was switched on it waited with %+v", second)
	}
}

func TestWhileOffReasonsAreToldAndNothingMoves(t *testing.T) {
	b := newBalancing(t, news("off"), news("off", "b3"))
	b.run(t, protocol.AutobalanceInput{})
	if strings.Join(b.steps, " ") != "mark" || len(b.status.Declined) != 1 || !strings.Contains(b.status.Declined[0], "b3 registered: nothing was begun, because autobalance is off") {
		t.Errorf("it did %v: %+v", b.steps, b.status)
	}
	if b.known[2].Due != nil {
		t.Errorf("a pass is due while it is off: %+v", b.known[2])
	}
}

// A pass that failed marks nothing: the broker stays a reason, and the next pass comes later each time.
func TestAPassThatFailedIsMadeAgainLater(t *testing.T) {
	b := newBalancing(t, news("goals"), news("goals", "b3"), news("goals", "b3"), news("goals", "b3"))
	b.ends = []error{errors.New("the disk is gone"), errors.New("again"), nil}
	b.run(t, protocol.AutobalanceInput{})
	if strings.Join(b.steps, " ") != "pass pass pass mark" || b.passes[0].CountOnly {
		t.Errorf("it did %v with %+v", b.steps, b.passes)
	}
	if first, second := b.known[2].NotBefore, b.known[3].NotBefore; first == nil || second == nil || second.Sub(*first) < time.Minute {
		t.Errorf("it waited until %v, then until %v", first, second)
	}
	if b.status.Failures != 0 || b.status.NotBefore != nil || b.status.Passes != 3 {
		t.Errorf("its status is %+v", b.status)
	}
}

// A broker that does not answer the pass it is the reason for was given nothing: it stays a reason, and the next pass comes later.
func TestABrokerThatDidNotAnswerItsPassStaysAReason(t *testing.T) {
	b := newBalancing(t, news("count"), news("count", "b3", "b4"), news("count", "b4"))
	b.silent = [][]string{{"b4"}}
	b.run(t, protocol.AutobalanceInput{})
	if strings.Join(b.steps, " ") != "pass mark pass mark" || len(b.marked) != 2 || b.marked[0].Broker != "b3" || b.marked[1].Broker != "b4" {
		t.Errorf("it did %v and marked %+v", b.steps, b.marked)
	}
	if b.known[2].NotBefore == nil || b.known[3].NotBefore != nil {
		t.Errorf("after a silent broker it waited until %v, after it had answered until %v", b.known[2].NotBefore, b.known[3].NotBefore)
	}
}

// Another rebalance has the fleet's one id: nothing is marked, the wait for it is shown, and the pass follows.
func TestAPassFollowsTheRebalanceThatRuns(t *testing.T) {
	held := news("count")
	held.Blocked, held.BlockedReason = protocol.CodeRebalanceRunning, "a rebalance of the fleet runs"
	b := newBalancing(t, news("count"), held, news("count"), news("count", "b3"))
	b.run(t, protocol.AutobalanceInput{})
	if strings.Join(b.steps, " ") != "pass mark" || b.known[2].Blocked != protocol.CodeRebalanceRunning || b.known[3].Blocked != "" || b.status.Blocked != "" {
		t.Errorf("it did %v, knowing %+v", b.steps, b.known)
	}
}

func TestAPassThatStartsBesideAnotherWaitsForIt(t *testing.T) {
	b := newBalancing(t, news("count"), news("count", "b3"))
	const queue = "fleet"
	b.env.SetStartWorkflowOptions(client.StartWorkflowOptions{TaskQueue: queue, ID: protocol.RebalanceWorkflowID(queue)}) // the id is taken: by the workflow itself
	b.run(t, protocol.AutobalanceInput{})
	if len(b.marked) > 0 || b.status.Blocked != protocol.CodeRebalanceRunning || b.status.Passes != 0 || b.status.Failures != 0 {
		t.Errorf("it marked %+v: %+v, last %+v", b.marked, b.status, b.status.Last)
	}
}

func TestTheAutobalanceContinuesAsNewAndCarriesWhatItKnows(t *testing.T) {
	b := newBalancing(t)
	for range looksARun {
		b.news = append(b.news, news("count"))
	}
	b.env.ExecuteWorkflow(Autobalance, protocol.AutobalanceInput{})
	var next *workflow.ContinueAsNewError
	if !errors.As(b.env.GetWorkflowError(), &next) {
		t.Fatalf("it ended with %v", b.env.GetWorkflowError())
	}
	var in protocol.AutobalanceInput
	if err := converter.GetDefaultDataConverter().FromPayloads(next.Input, &in); err != nil {
		t.Fatal(err)
	}
	if in.Status.Mode != "count" || in.Status.Due == nil {
		t.Errorf("it goes on with %+v", in)
	}
}
