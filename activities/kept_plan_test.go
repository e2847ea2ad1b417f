package activities_test

import (
	"errors"
	"log/slog"
	"testing"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"portage/activities"
	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
	"portage/metastore"
	"portage/workflows/protocol"
)

// planning makes plans of a fleet of real agents.
func planning(f *agenttest.Fleet) *testsuite.TestActivityEnvironment {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(&activities.Plans{Store: f.Store, Agents: f.Peers, Logger: slog.New(slog.DiscardHandler)})
	return env
}

func TestAPlanThatIsNotKeptIsRefused(t *testing.T) {
	f := agenttest.New(t)
	f.Start("b1", native.Limits{})
	env := planning(f)
	for _, c := range []struct {
		code string
		args protocol.PlanArgs
	}{
		{metastore.CodeUnknownPlan, protocol.PlanArgs{ID: "p.1", Hash: "0123456789ab"}},
		{metastore.CodeUnknownPlan, protocol.PlanArgs{ID: "p.2", Undo: "none"}},
		{metastore.CodeInvalidSetting, protocol.PlanArgs{ID: "p.3", Settings: []byte(`{"window":0}`)}},
	} {
		_, err := env.ExecuteActivity(protocol.ActivityPlan, c.args)
		var refused *temporal.ApplicationError
		var code string
		if !errors.As(err, &refused) || refused.Type() != protocol.ErrRefused || refused.Details(&code) != nil || code != c.code || refused.Message() == "" {
			t.Errorf("%+v is answered with %v, code %q", c.args, err, code)
		}
	}
}

// By count alone, what needs no samples of any load is planned at once.
func TestAPlanByCountEvensOutTheNumberOfPartitions(t *testing.T) {
	f, b1, _, _ := agenttest.Pair(t)
	f.CreateTopic("wide", 6, b1)
	value, err := planning(f).ExecuteActivity(protocol.ActivityPlan, protocol.PlanArgs{ID: "count.1", CountOnly: true, By: "test"})
	var plan protocol.PlanSummary
	if err == nil {
		err = value.Get(&plan)
	}
	if err != nil {
		t.Fatal(err)
	}
	if plan.Moves != 3 { // of 7, all on b1
		t.Errorf("%d partitions move: %v", plan.Moves, plan.Text)
	}
}

// A rebalance goes on with the brokers that its own earlier waves moved something from or to; another plan leaves them alone.
func TestARebalanceGoesOnWithTheBrokersOfItsOwnWaves(t *testing.T) {
	f, b1, _, orders := agenttest.Pair(t)
	f.CreateTopic("wide", 6, b1)
	env := planning(f)
	moves := func(rebalance, id string) int {
		t.Helper()
		value, err := env.ExecuteActivity(protocol.ActivityPlan, protocol.PlanArgs{ID: id, Rebalance: rebalance, CountOnly: true, By: "test"})
		var plan protocol.PlanSummary
		if err == nil {
			err = value.Get(&plan)
		}
		if err != nil {
			t.Fatal(err)
		}
		return plan.Moves
	}
	if n := moves("mine", "mine.1"); n != 3 {
		t.Fatalf("%d partitions move before anything cools down", n)
	}
	record := protocol.RecordArgs{Plan: "mine.1", Rebalance: "mine", Cool: true, Ends: []protocol.ActionEnd{{Topic: orders.Name, TopicID: orders.ID.String(), From: "b1", To: "b2", State: protocol.ActionMoved}}}
	if _, err := env.ExecuteActivity(protocol.ActivityRecordActions, record); err != nil {
		t.Fatal(err)
	}
	if own, other := moves("mine", "mine.2"), moves("another", "another.1"); own != 3 || other != 0 {
		t.Errorf("the rebalance itself moves %d more, another one %d", own, other)
	}
}
