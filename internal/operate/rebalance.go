package operate

import (
	"context"
	"errors"

	"go.temporal.io/sdk/temporal"

	"portage/workflows/protocol"
)

// StartRebalance starts the fleet's rebalance. A dry run has an id of its own: looking is possible while another one moves.
func (f *Fleet) StartRebalance(ctx context.Context, in protocol.RebalanceInput, repeat Repeat) (Started, error) {
	id := protocol.RebalanceWorkflowID(f.TaskQueue)
	if in.DryRun {
		id += ":plan"
	}
	return f.start(ctx, order{id: id, workflow: protocol.WorkflowRebalance, summary: "rebalance the fleet", in: in, repeat: repeat,
		busy: "workflow \"" + id + "\" is running already; wait for it, or cancel it"})
}

// RebalanceBegun waits until the first plan of a rebalance is made, or it has ended: a hash or an id that is not known is refused by
// then. A context that ends first ends only the waiting.
func (f *Fleet) RebalanceBegun(ctx context.Context, s Started) (protocol.RebalanceStatus, error) {
	status := func() (protocol.RebalanceStatus, error) { return f.StatusOf(ctx, s) }
	planned := func(s protocol.RebalanceStatus) bool {
		return s.Phase != "" && (s.Phase != protocol.PhasePlanning || s.Plan != nil)
	}
	return begun(ctx, f, s, status, planned, func() error { _, err := f.RebalanceResult(ctx, s); return err })
}

// Planned waits for a dry run and gives its plan, which is kept under its hash.
func (f *Fleet) Planned(ctx context.Context, s Started) (*protocol.PlanSummary, error) {
	if _, err := f.RebalanceResult(ctx, s); err != nil {
		return nil, err
	}
	status, err := f.rebalanceStatus(ctx, s.WorkflowID, s.RunID)
	return status.Plan, err
}

// RebalanceResult waits for the end of a rebalance.
func (f *Fleet) RebalanceResult(ctx context.Context, s Started) (protocol.RebalanceResult, error) {
	var result protocol.RebalanceResult
	err := f.Temporal.GetWorkflow(ctx, s.WorkflowID, s.RunID).Get(ctx, &result)
	return result, RebalanceOutcome(err)
}

// RebalanceOutcome turns the end of a rebalance into the error people see.
func RebalanceOutcome(err error) error {
	return ended(err, "the rebalance was cancelled; what was not committed is as it was", "the rebalance was terminated; its moves were asked to cancel")
}

// RebalanceStatus is the fleet's rebalance, the running one or the last.
func (f *Fleet) RebalanceStatus(ctx context.Context) (protocol.RebalanceStatus, error) {
	return f.rebalanceStatus(ctx, protocol.RebalanceWorkflowID(f.TaskQueue), "")
}

// StatusOf is the rebalance that was started.
func (f *Fleet) StatusOf(ctx context.Context, s Started) (protocol.RebalanceStatus, error) {
	return f.rebalanceStatus(ctx, s.WorkflowID, s.RunID)
}

func (f *Fleet) rebalanceStatus(ctx context.Context, id, run string) (protocol.RebalanceStatus, error) {
	status, err := query[protocol.RebalanceStatus](ctx, f.Temporal, id, run)
	return status, noRebalance(err)
}

// Running reports whether what was started has not ended.
func (f *Fleet) Running(ctx context.Context, s Started) (bool, error) {
	return f.running(ctx, s.WorkflowID, s.RunID)
}

// LimitsChange is the update limits, with who asked and why; those stand in the workflow's history.
type LimitsChange struct {
	protocol.Limits
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// UpdateRebalance sends one update to the fleet's rebalance and says why it was not taken.
func (f *Fleet) UpdateRebalance(ctx context.Context, name string, arg any) error {
	return noRebalance(f.update(ctx, protocol.RebalanceWorkflowID(f.TaskQueue), name, arg))
}

// CancelRebalance asks the fleet's rebalance to cancel; RebalanceCancelled waits for its end.
func (f *Fleet) CancelRebalance(ctx context.Context, by, reason string) error {
	return noRebalance(f.cancel(ctx, protocol.RebalanceWorkflowID(f.TaskQueue), by, reason))
}

// CancelStarted asks one run to cancel.
func (f *Fleet) CancelStarted(ctx context.Context, s Started) error {
	return noRebalance(f.Temporal.CancelWorkflow(ctx, s.WorkflowID, s.RunID))
}

// RebalanceCancelled waits until the rebalance and its moves have ended, however they did.
func (f *Fleet) RebalanceCancelled(ctx context.Context) error {
	err := f.Temporal.GetWorkflow(ctx, protocol.RebalanceWorkflowID(f.TaskQueue), "").Get(ctx, nil)
	if temporal.IsCanceledError(err) {
		return nil
	}
	return RebalanceOutcome(err)
}

func noRebalance(err error) error {
	return absent(err, CodeNoRebalance, "no rebalance is running, or none that Temporal still knows; start one with `portage rebalance`")
}

// refusal is what a workflow said to an update that it did not take.
func refusal(err error) (string, bool) {
	var failure *temporal.ApplicationError
	if errors.As(err, &failure) {
		return failure.Message(), true
	}
	return "", false
}
