//go:build portage_faults

package activities_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/mocks"
	"go.temporal.io/sdk/testsuite"

	"portage/activities"
	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
	"portage/internal/faults/faultstest"
	"portage/metastore"
	"portage/workflows/protocol"
)

// supervisor runs passes against a Temporal that says of each run what it is told to say.
type supervisor struct {
	t    *testing.T
	f    *agenttest.Fleet
	says map[string]any // run id → status or error
	env  *testsuite.TestActivityEnvironment
}

func newSupervisor(t *testing.T, f *agenttest.Fleet, controller string) *supervisor {
	t.Helper()
	s := &supervisor{t: t, f: f, says: map[string]any{}}
	temporal := mocks.NewClient(t)
	temporal.On("DescribeWorkflow", mock.Anything, mock.Anything, mock.Anything).Maybe().Run(func(args mock.Arguments) {
		call := temporal.ExpectedCalls[0]
		switch says := s.says[args.String(2)].(type) {
		case enums.WorkflowExecutionStatus:
			call.ReturnArguments = mock.Arguments{&client.WorkflowExecutionDescription{WorkflowExecutionMetadata: client.WorkflowExecutionMetadata{Status: says}}, nil}
		case error:
			call.ReturnArguments = mock.Arguments{(*client.WorkflowExecutionDescription)(nil), says}
		default:
			t.Errorf("asked about run %q", args.String(2))
		}
	}).Return((*client.WorkflowExecutionDescription)(nil), errors.New("not said"))
	var suite testsuite.WorkflowTestSuite
	s.env = suite.NewTestActivityEnvironment()
	s.env.RegisterActivity(&activities.Moves{Store: f.Store, Agents: f.Peers, Temporal: temporal, ControllerID: controller, Logger: slog.New(slog.DiscardHandler)})
	return s
}

func (s *supervisor) pass() (pass protocol.SupervisorPass) {
	s.t.Helper()
	value, err := s.env.ExecuteActivity(protocol.ActivitySupervise)
	if err == nil {
		err = value.Get(&pass)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return pass
}

// claimOf claims a partition for a run of its own.
func (s *supervisor) claimOf(topic *metastore.Topic, partition int32, run string) string {
	s.t.Helper()
	epoch, err := s.f.Store.HoldController(s.t.Context(), agenttest.ControllerID)
	if err != nil {
		s.t.Fatal(err)
	}
	id := agenttest.ID()
	if _, _, err := s.f.Store.ClaimMove(s.t.Context(), metastore.ClaimRequest{MoveID: id, Kind: "move", Topic: topic.Name, Partition: partition, To: "b2", WorkflowID: "same", RunID: run, ControllerEpoch: epoch}); err != nil {
		s.t.Fatal(err)
	}
	return id
}

// A workflow is terminated: its claim would stand for ever, and no move of the partition could start.
func TestR17TheClaimOfAClosedRunIsTakenBack(t *testing.T) {
	faultstest.Story(t, "R17", func(t *testing.T) string {
		f := agenttest.New(t)
		b1 := f.Start("b1", native.Limits{})
		f.Start("b2", native.Limits{})
		orders := f.CreateTopic("orders", 1, b1)
		s := newSupervisor(t, f, agenttest.ControllerID)
		s.says["gone"] = enums.WORKFLOW_EXECUTION_STATUS_TERMINATED
		s.claimOf(orders, 0, "gone")
		s.pass()
		if row := f.Row(orders, 0); row.Moving() != "" {
			return fmt.Sprintf("the claim of a terminated run stands: %s", row.Moving())
		}
		return ""
	})
}

// Each run is asked about by itself, and only what is surely closed loses its claim.
func TestR17OnlyClosedRunsLoseTheirClaims(t *testing.T) {
	f := agenttest.New(t)
	b1 := f.Start("b1", native.Limits{})
	f.Start("b2", native.Limits{})
	runs := map[string]struct {
		says  any
		stays bool
	}{
		"running":   {enums.WORKFLOW_EXECUTION_STATUS_RUNNING, true},
		"unasked":   {serviceerror.NewUnavailable("no"), true},
		"deadline":  {serviceerror.NewDeadlineExceeded("no"), true},
		"namespace": {serviceerror.NewNamespaceNotFound("elsewhere"), true},
		"lost":      {serviceerror.NewNotFound("never heard of it"), false},
		"ended":     {enums.WORKFLOW_EXECUTION_STATUS_COMPLETED, false},
		"failed":    {enums.WORKFLOW_EXECUTION_STATUS_FAILED, false},
		"reset":     {enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, false},
	}
	orders := f.CreateTopic("orders", int32(len(runs)), b1)
	s := newSupervisor(t, f, agenttest.ControllerID)
	at := map[string]int32{}
	for run, r := range runs {
		s.says[run] = r.says
		at[run] = int32(len(at))
		s.claimOf(orders, at[run], run)
	}
	pass := s.pass()
	for run, r := range runs {
		if stays := f.Row(orders, at[run]).Moving() != ""; stays != r.stays {
			t.Errorf("the claim of run %q stands: %v", run, stays)
		}
	}
	if pass.Running != len(runs) || len(pass.Released) != 4 || pass.Unknown != 3 {
		t.Errorf("the pass says %+v", pass)
	}
	if again := s.pass(); again.Running != 4 || len(again.Released) != 0 {
		t.Errorf("the next pass says %+v", again)
	}
}

// A deployment that was superseded takes nothing back.
func TestR17ASupersededSupervisorTouchesNothing(t *testing.T) {
	f := agenttest.New(t)
	b1 := f.Start("b1", native.Limits{})
	f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	s := newSupervisor(t, f, "an older deployment")
	s.says["gone"] = enums.WORKFLOW_EXECUTION_STATUS_TERMINATED
	s.claimOf(orders, 0, "gone")
	if pass := s.pass(); pass.Superseded != agenttest.ControllerID || f.Row(orders, 0).Moving() == "" {
		t.Errorf("the pass says %+v", pass)
	}
}

// A swap is terminated: both partitions are free again, and both are told.
func TestR17TheClaimOfATerminatedSwapIsTakenBackFromBothSides(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	orders, payments := f.CreateTopic("orders", 1, b1), f.CreateTopic("payments", 1, b2)
	epoch, err := f.Store.HoldController(t.Context(), agenttest.ControllerID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Store.ClaimSwap(t.Context(), metastore.SwapRequest{SwapID: agenttest.ID(), Sides: [2]metastore.Place{{Topic: orders.Name}, {Topic: payments.Name}},
		WorkflowID: "swap", RunID: "gone", ControllerEpoch: epoch}); err != nil {
		t.Fatal(err)
	}
	s := newSupervisor(t, f, agenttest.ControllerID)
	s.says["gone"] = enums.WORKFLOW_EXECUTION_STATUS_TERMINATED
	if pass := s.pass(); pass.Running != 2 || len(pass.Released) != 2 {
		t.Errorf("the pass says %+v", pass)
	}
	if f.Row(orders, 0).Moving() != "" || f.Row(payments, 0).Moving() != "" {
		t.Error("the claim of a terminated swap stands")
	}
}
