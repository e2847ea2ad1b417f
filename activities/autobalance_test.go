package activities_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/mocks"
	"go.temporal.io/sdk/testsuite"

	"portage/activities"
	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
	"portage/metastore"
	"portage/workflows/protocol"
)

// watcher looks at a real metastore, and at a Temporal in which the workflows of `runs` run.
type watcher struct {
	t    *testing.T
	f    *agenttest.Fleet
	runs map[string]bool
	env  *testsuite.TestActivityEnvironment
}

func newWatcher(t *testing.T, f *agenttest.Fleet) *watcher {
	w := &watcher{t: t, f: f, runs: map[string]bool{}}
	temporal := mocks.NewClient(t)
	temporal.On("DescribeWorkflow", mock.Anything, mock.Anything, mock.Anything).Maybe().Run(func(args mock.Arguments) {
		described, err := (*client.WorkflowExecutionDescription)(nil), error(serviceerror.NewNotFound("none"))
		if w.runs[args.String(1)] {
			described, err = &client.WorkflowExecutionDescription{WorkflowExecutionMetadata: client.WorkflowExecutionMetadata{Status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING}}, nil
		}
		temporal.ExpectedCalls[0].ReturnArguments = mock.Arguments{described, err}
	}).Return((*client.WorkflowExecutionDescription)(nil), error(nil))
	var suite testsuite.WorkflowTestSuite
	w.env = suite.NewTestActivityEnvironment()
	w.env.RegisterActivity(&activities.Autobalance{Store: f.Store, Temporal: temporal, ControllerID: agenttest.ControllerID, Logger: slog.New(slog.DiscardHandler),
		Look: time.Millisecond, Settle: time.Millisecond})
	return w
}

func (w *watcher) watch(known protocol.WatchFleetArgs) (news protocol.FleetNews) {
	w.t.Helper()
	value, err := w.env.ExecuteActivity(protocol.ActivityWatchFleet, known)
	if err == nil {
		err = value.Get(&news)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return news
}

func (w *watcher) set(key, value string) {
	w.t.Helper()
	if _, err := w.f.Store.SetSetting(w.t.Context(), key, value, "ops", "test"); err != nil {
		w.t.Fatal(err)
	}
}

func TestAReasonForAPassIsHeldWhileAnythingSpeaksAgainstIt(t *testing.T) {
	f := agenttest.New(t)
	f.Start("b1", native.Limits{})
	f.Start("b2", native.Limits{})
	if _, err := f.Store.HoldController(t.Context(), agenttest.ControllerID); err != nil {
		t.Fatal(err)
	}
	w := newWatcher(t, f)
	off := protocol.WatchFleetArgs{Mode: "off", Every: protocol.Duration(10 * time.Minute)}
	if n := w.watch(protocol.WatchFleetArgs{}); n.Mode != "off" || n.Every != off.Every || len(n.Changes) > 0 {
		t.Errorf("the settings are news first: %+v", n)
	}
	if n := w.watch(off); len(n.Changes) != 2 || n.Changes[0].What != "b1 registered" {
		t.Errorf("while off, reasons are told: %+v", n)
	}
	w.set(metastore.SettingAutobalance, "count")
	if n := w.watch(off); n.Mode != "count" || len(n.Changes) > 0 {
		t.Errorf("a switch comes before anything else: %+v", n)
	}
	on := off
	on.Mode = "count"
	shedding := protocol.ShedWorkflowID("b2")
	if err := f.Store.SetDraining(t.Context(), "b2", true, "ops", ""); err != nil {
		t.Fatal(err)
	}
	for _, hold := range []struct {
		code            string
		begins, retires func()
	}{
		{protocol.CodePaused, func() { w.set(metastore.SettingPaused, "true") }, func() { w.set(metastore.SettingPaused, "false") }},
		{metastore.CodeStaleController, func() { f.Exec("UPDATE controller SET holder = 'another'") }, func() { f.Exec("UPDATE controller SET holder = $1", agenttest.ControllerID) }},
		{protocol.CodeRebalanceRunning, func() { w.runs[protocol.RebalanceWorkflowID("default-test-taskqueue")] = true }, func() { clear(w.runs) }},
		{protocol.CodeRebalanceRunning, func() { w.runs[shedding] = true }, func() { clear(w.runs) }},
	} {
		hold.begins()
		if n := w.watch(on); n.Blocked != hold.code || n.BlockedReason == "" {
			t.Errorf("%s: %+v", hold.code, n)
		}
		hold.retires()
		held := on
		held.Blocked = hold.code
		if n := w.watch(held); n.Blocked != "" || len(n.Changes) != 2 {
			t.Errorf("after %s: %+v", hold.code, n)
		}
	}
	seen := w.watch(on).Changes
	if _, err := w.env.ExecuteActivity(protocol.ActivityMarkBalanced, seen); err != nil {
		t.Fatal(err)
	}
	due := on
	past := time.Now().Add(-time.Second)
	due.Due = &past
	if n := w.watch(due); !n.Due || len(n.Changes) > 0 {
		t.Errorf("once seen, only time is a reason: %+v", n)
	}
	// What there was reason for is gone: so is what kept it.
	held := on
	held.Blocked = protocol.CodePaused
	if n := w.watch(held); n.Blocked != "" || n.Due || len(n.Changes) > 0 {
		t.Errorf("without a reason nothing is held: %+v", n)
	}
}
