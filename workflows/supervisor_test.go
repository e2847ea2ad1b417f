package workflows

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

func TestR17TheSupervisorContinuesAsNewAndCarriesWhatItDid(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	passes := 0
	env.RegisterActivityWithOptions(func(context.Context) (protocol.SupervisorPass, error) {
		passes++
		if passes == 2 {
			return protocol.SupervisorPass{}, errors.New("the metastore does not answer")
		}
		if passes == 3 {
			return protocol.SupervisorPass{Running: 4, Unknown: 1, Released: []string{"orders/3: move m"}}, nil
		}
		return protocol.SupervisorPass{}, nil
	}, activity.RegisterOptions{Name: protocol.ActivitySupervise})
	env.ExecuteWorkflow(Supervisor, protocol.SupervisorInput{Passes: 7, Released: 2, Last: []string{"orders/1: move l"}})
	var next *workflow.ContinueAsNewError
	if !errors.As(env.GetWorkflowError(), &next) {
		t.Fatalf("it ended with %v", env.GetWorkflowError())
	}
	var in protocol.SupervisorInput
	if err := converter.GetDefaultDataConverter().FromPayloads(next.Input, &in); err != nil {
		t.Fatal(err)
	}
	if in.Passes != 7+passesARun || in.Released != 3 || strings.Join(in.Last, ", ") != "orders/1: move l, orders/3: move m" {
		t.Errorf("it goes on with %+v", in)
	}
}
