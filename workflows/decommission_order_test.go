package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/workflow"

	"portage/planner"
	"portage/workflows/protocol"
)

// The rebalance by which a decommission gives everything away has the decommission's limits.
func TestDecommissionShedsUnderItsOwnLimits(t *testing.T) {
	l := newLeaving(t, 1)
	var limits []protocol.Limits
	l.env.OnWorkflow(protocol.WorkflowRebalance, mock.Anything, mock.Anything).Return(func(_ workflow.Context, in protocol.RebalanceInput) (*protocol.RebalanceResult, error) {
		limits = append(limits, in.Limits)
		l.owned = 0
		return &protocol.RebalanceResult{}, nil
	})
	one, two, rate, brokerRate := 1, 2, protocol.ByteSize(8<<20), protocol.ByteSize(9<<20)
	in := protocol.DecommissionInput{Limits: protocol.Limits{MaxInFlight: &one, TransfersPerBroker: &two, MoveRate: &rate, BrokerRate: &brokerRate}}
	if _, err := l.run(t, in); err != nil {
		t.Fatal(err)
	}
	if len(limits) != 1 || *limits[0].MaxInFlight != 1 || *limits[0].TransfersPerBroker != 2 || *limits[0].MoveRate != rate || *limits[0].BrokerRate != brokerRate {
		t.Errorf("its rebalances had %+v", limits)
	}
}

// A cancel that comes after the removal, whose reply was lost, says so: a broker that is out takes no partitions again.
func TestDecommissionCancelledTooLateSaysSo(t *testing.T) {
	l := newLeaving(t, 10)
	l.lasts = time.Hour
	l.env.OnActivity(protocol.ActivityCancelDrain, mock.Anything, mock.Anything).Return(protocol.RemoveResult{Refused: &planner.Objection{Code: "broker_removed", Reason: "b4 was removed"}}, nil)
	l.env.RegisterDelayedCallback(l.env.CancelWorkflow, time.Minute)
	_, err := l.run(t, protocol.DecommissionInput{})
	if code, reason := refusalOf(err); code != "broker_removed" || reason != "too late: b4 was removed" {
		t.Errorf("it ended with %v", err)
	}
	if s := l.status(t); s.Phase == protocol.PhaseCancelled || s.Blocked != "broker_removed" {
		t.Errorf("it is shown as %+v", s)
	}
}
