package operate

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"portage/metastore"
	"portage/workflows/protocol"
)

// StartRebalance starts the fleet's rebalance. A dry run has an id of its own: looking is possible while another one moves.
func (f *Fleet) StartRebalance(ctx context.Context, in protocol.RebalanceInput, repeat Repeat) (Started, error) {
	id := protocol.RebalanceWorkflowID(f.TaskQueue)
	if in.DryRun {
		id += ":plan"
	} else if err := Said(in.By, in.Reason); err != nil {
		return Started{}, err
	}
	o := order{id: id, workflow: protocol.WorkflowRebalance, summary: "rebalance the fleet", in: in, repeat: repeat,
		busy: "workflow \"" + id + "\" is running already; wait for it, or cancel it"}
	if in.Deadline != nil && !in.Deadline.After(time.Now()) {
		o.against = errorf(Invalid, CodeInvalidInput, "the rebalance can not start: its deadline %s has passed", in.Deadline.UTC().Format(time.RFC3339))
	}
	return f.start(ctx, o)
}

// RebalanceBegun waits until the first plan of a rebalance is made, or it has ended: a hash or an id that is not known is refused by
// then. A context that ends first ends only the waiting.
func (f *Fleet) RebalanceBegun(ctx context.Context, s Started) (protocol.RebalanceStatus, error) {
	status := func() (protocol.RebalanceStatus, error) { return f.StatusOf(ctx, s) }
	planned := func(s protocol.RebalanceStatus) bool {
		return s.Ended == "" && s.Phase != "" && (s.Phase != protocol.PhasePlanning || s.Plan != nil)
	}
	begin, err := begun(ctx, f, s, status, planned, func() error { _, err := f.RebalanceResult(ctx, s); return err })
	if NoWorker(err) {
		err = Queued(err, "the rebalance", s)
	}
	return begin, err
}

// Planned waits for a dry run and gives its plan, which is kept under its hash. One that nobody takes up is withdrawn.
func (f *Fleet) Planned(ctx context.Context, s Started) (*protocol.PlanSummary, error) {
	if err := f.looked(ctx, s, func(ctx context.Context) error { _, err := f.RebalanceResult(ctx, s); return err }); err != nil {
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
	id := protocol.RebalanceWorkflowID(f.TaskQueue)
	status, err := f.rebalanceStatus(ctx, id, "")
	if err == nil && status.Deadline == nil {
		status.Deadline = f.deadlineOf(ctx, id, "")
	}
	return status, err
}

// StatusOf is the rebalance that was started.
func (f *Fleet) StatusOf(ctx context.Context, s Started) (protocol.RebalanceStatus, error) {
	return f.rebalanceStatus(ctx, s.WorkflowID, s.RunID)
}

// rebalanceStatus is what a rebalance says of itself, and how it ended where it could not say that itself.
func (f *Fleet) rebalanceStatus(ctx context.Context, id, run string) (protocol.RebalanceStatus, error) {
	described, err := f.Temporal.DescribeWorkflow(ctx, id, run)
	if err == nil && run != "" && described.Status == enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW {
		described, err = f.Temporal.DescribeWorkflow(ctx, id, "") // it goes on there
	}
	if err != nil {
		return protocol.RebalanceStatus{}, noRebalance(err)
	}
	run = described.WorkflowExecution.RunID
	status, err := query[protocol.RebalanceStatus](ctx, f, id, run)
	if err != nil {
		return status, noRebalance(err)
	}
	switch described.Status {
	case enums.WORKFLOW_EXECUTION_STATUS_FAILED, enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		status.Phase = protocol.PhaseFailed
	case enums.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		status.Phase = protocol.PhaseTerminated
	default:
		return status, nil
	}
	if at := described.WorkflowCloseTime; at != nil {
		status.Since = *at
	}
	status.InFlight, status.Waiting, status.Paused, status.Window, status.ETA, status.Late = []string{}, 0, nil, nil, nil, ""
	status.Blocked, status.BlockedReason, status.Unblock = "", "", ""
	if err := RebalanceOutcome(f.Temporal.GetWorkflow(ctx, id, run).Get(ctx, nil)); err != nil {
		status.Ended = err.Error()
	}
	if status.Phase == protocol.PhaseTerminated {
		if why := f.terminatedBecause(ctx, id, run); why != "" {
			status.Ended += " (" + why + ")"
		}
	}
	return status, nil
}

// deadlineOf is the deadline a run was started with; nil also when that can not be read.
func (f *Fleet) deadlineOf(ctx context.Context, id, run string) *time.Time {
	history := f.Temporal.GetWorkflowHistory(ctx, id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	if !history.HasNext() {
		return nil
	}
	event, err := history.Next()
	var in struct{ Deadline *time.Time }
	if err != nil || converter.GetDefaultDataConverter().FromPayloads(event.GetWorkflowExecutionStartedEventAttributes().GetInput(), &in) != nil {
		return nil
	}
	return in.Deadline
}

// terminatedBecause is who terminated a run and why, as far as Temporal knows.
func (f *Fleet) terminatedBecause(ctx context.Context, id, run string) string {
	history := f.Temporal.GetWorkflowHistory(ctx, id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	if !history.HasNext() {
		return ""
	}
	event, err := history.Next()
	if err != nil {
		return ""
	}
	end := event.GetWorkflowExecutionTerminatedEventAttributes()
	return strings.Trim(end.GetIdentity()+": "+end.GetReason(), ": ")
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

// ApproveRebalance, PauseRebalance and ResumeRebalance, SkipPartition and LimitRebalance steer the fleet's rebalance that runs. They give
// its status after that, or why it was not taken.
func (f *Fleet) ApproveRebalance(ctx context.Context, hash, by, reason string) (protocol.RebalanceStatus, error) {
	return f.decide(ctx, protocol.UpdateApprove, protocol.Decide{Hash: hash, By: by, Reason: reason})
}

// PauseRebalance holds its copies; nothing more begins.
func (f *Fleet) PauseRebalance(ctx context.Context, by, reason string) (protocol.RebalanceStatus, error) {
	return f.decide(ctx, protocol.UpdatePause, protocol.Decide{By: by, Reason: reason})
}

// ResumeRebalance lets it go on.
func (f *Fleet) ResumeRebalance(ctx context.Context, by, reason string) (protocol.RebalanceStatus, error) {
	return f.decide(ctx, protocol.UpdateResume, protocol.Decide{By: by, Reason: reason})
}

// SkipPartition leaves a partition out of it. Whether there is such a partition is known only where the metastore is at hand.
func (f *Fleet) SkipPartition(ctx context.Context, topic string, partition *int32, by, reason string) (protocol.RebalanceStatus, error) {
	if f.Store != nil && topic != "" && partition != nil {
		row, err := f.Store.FindAssignment(ctx, topic, *partition)
		if err != nil {
			return protocol.RebalanceStatus{}, ofStore(err)
		}
		if row == nil {
			return protocol.RebalanceStatus{}, errorf(NotFound, metastore.CodeUnknownPartition, "there is no partition %s/%d, so there is nothing to leave out; check the name", topic, *partition)
		}
	}
	return f.decide(ctx, protocol.UpdateSkip, protocol.Decide{Topic: topic, Partition: partition, By: by, Reason: reason})
}

// LimitRebalance changes its limits.
func (f *Fleet) LimitRebalance(ctx context.Context, change LimitsChange) (protocol.RebalanceStatus, error) {
	if err := Said(change.By, change.Reason); err != nil {
		return protocol.RebalanceStatus{}, err
	}
	return f.updateRebalance(ctx, protocol.UpdateLimits, change)
}

func (f *Fleet) decide(ctx context.Context, name string, d protocol.Decide) (protocol.RebalanceStatus, error) {
	if err := Said(d.By, d.Reason); err != nil {
		return protocol.RebalanceStatus{}, err
	}
	return f.updateRebalance(ctx, name, d)
}

// updateRebalance sends one update to the fleet's rebalance and says why it was not taken.
func (f *Fleet) updateRebalance(ctx context.Context, name string, arg any) (status protocol.RebalanceStatus, err error) {
	err = noRebalance(f.update(ctx, protocol.RebalanceWorkflowID(f.TaskQueue), name, arg, &status))
	return status, err
}

// LimitsTaken says what a change of the limits leads to.
func LimitsTaken(s protocol.RebalanceStatus) string {
	switch p := s.Paused; {
	case p == nil:
		return "the rebalance goes on with the new limits"
	case p.Code != "":
		return "the rebalance will go on with the new limits once its window opens"
	}
	return "the rebalance is paused; it will go on with the new limits once it is resumed"
}

// CancelRebalance asks the fleet's rebalance that runs to cancel; RebalanceCancelled waits for its end.
func (f *Fleet) CancelRebalance(ctx context.Context, by, reason string) (Started, error) {
	if err := Said(by, reason); err != nil {
		return Started{}, err
	}
	s, err := f.cancelRunning(ctx, protocol.RebalanceWorkflowID(f.TaskQueue), by, reason)
	return s, noRebalance(err)
}

// CancelStarted asks one run to cancel.
func (f *Fleet) CancelStarted(ctx context.Context, s Started) error {
	return noRebalance(f.Temporal.CancelWorkflow(ctx, s.WorkflowID, s.RunID))
}

// RebalanceCancelled waits until a rebalance that was asked to cancel and its moves have ended, however they did.
func (f *Fleet) RebalanceCancelled(ctx context.Context, s Started) error {
	err := f.whileHeard(ctx, s, func(ctx context.Context) error { _, err := f.RebalanceResult(ctx, s); return err })
	if wasCancelled(err) {
		return nil
	}
	return cancelQueued(err)
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
