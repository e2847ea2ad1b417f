package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"

	"portage/activities"
	"portage/metastore"
	"portage/planner"
	"portage/workflows/protocol"
)

// StartDecommission starts emptying a broker, or joins a decommission of it that is running, whatever that was asked for with:
// a deployment script may be run again. A dry run has an id of its own.
func (f *Fleet) StartDecommission(ctx context.Context, in protocol.DecommissionInput, repeat Repeat) (Started, error) {
	id := protocol.DecommissionWorkflowID(in.Broker)
	if in.DryRun {
		id += ":plan"
	} else if err := Said(in.By, in.Reason); err != nil {
		return Started{}, err
	}
	return f.start(ctx, order{id: id, workflow: protocol.WorkflowDecommission, summary: "decommission " + in.Broker, in: in, repeat: repeat, joinAny: true})
}

// Begun waits until the guards have let a decommission begin, or it has ended. A refusal has every guard that refuses.
func (f *Fleet) Begun(ctx context.Context, s Started, broker string) (protocol.DecommissionStatus, error) {
	status := func() (protocol.DecommissionStatus, error) { return f.decommissionStatus(ctx, s) }
	checked := func(s protocol.DecommissionStatus) bool { return s.Phase != "" && s.Phase != protocol.PhaseChecking }
	begin, err := begun(ctx, f, s, status, checked, func() error { _, err := f.DecommissionResult(ctx, s, broker); return err })
	if NoWorker(err) {
		err = Queued(err, "the decommission of "+broker, s)
	}
	return begin, err
}

// Checked waits for a dry run, which nobody may take up: then it is withdrawn.
func (f *Fleet) Checked(ctx context.Context, s Started, broker string) (result protocol.DecommissionResult, err error) {
	err = f.looked(ctx, s, func(ctx context.Context) (err error) { result, err = f.DecommissionResult(ctx, s, broker); return err })
	return result, err
}

// DecommissionResult waits for the verdict. A context that ends first ends only the waiting.
func (f *Fleet) DecommissionResult(ctx context.Context, s Started, broker string) (protocol.DecommissionResult, error) {
	var result protocol.DecommissionResult
	err := ended(f.Temporal.GetWorkflow(ctx, s.WorkflowID, s.RunID).Get(ctx, &result), fmt.Sprintf("the decommission was cancelled; broker %s takes partitions again", broker),
		"the decommission was terminated; the broker may still be draining: decommission it again, or `portage broker drain --cancel --reason TEXT`")
	var e *Error
	if errors.As(err, &e) && e.Kind == Refused {
		if status, err := f.decommissionStatus(ctx, s); err == nil { // only tells more
			e.Refusals = status.Check.Refused
		}
	}
	return result, err
}

func (f *Fleet) decommissionStatus(ctx context.Context, s Started) (protocol.DecommissionStatus, error) {
	return query[protocol.DecommissionStatus](ctx, f, s.WorkflowID, s.RunID)
}

// DecommissionStatus is the broker's decommission, the running one or the last.
func (f *Fleet) DecommissionStatus(ctx context.Context, broker string) (protocol.DecommissionStatus, error) {
	status, err := f.decommissionStatus(ctx, Started{WorkflowID: protocol.DecommissionWorkflowID(broker)})
	return status, noDecommission(err, broker)
}

// DecommissionProgress is how far the decommission that was started is, and the rebalance by which it empties the broker, while that runs.
func (f *Fleet) DecommissionProgress(ctx context.Context, s Started) (protocol.DecommissionStatus, *protocol.RebalanceStatus, error) {
	status, err := f.decommissionStatus(ctx, s)
	if err != nil || status.Phase != protocol.PhaseShedding || status.Rebalance == "" {
		return status, nil, err
	}
	shed, err := f.current(ctx, status.Rebalance)
	if err != nil {
		return status, nil, nil // it has just begun or ended
	}
	moves, err := query[protocol.RebalanceStatus](ctx, f, shed.WorkflowID, shed.RunID)
	if err != nil {
		return status, nil, nil
	}
	return status, &moves, nil
}

// CheckDecommission looks at every guard and plans what would leave. It changes nothing and starts nothing.
func (f *Fleet) CheckDecommission(ctx context.Context, args protocol.DrainArgs) (protocol.DrainCheck, error) {
	check, err := (&activities.Plans{Store: f.Store, Agents: f.Agents}).Check(ctx, args)
	return check, ofStore(err)
}

// CancelDecommission asks the decommission of a broker that runs to cancel; DecommissionCancelled waits for the answer. Where none runs
// and the metastore is at hand, the broker's row says whether one is too late or the broker drains without any.
func (f *Fleet) CancelDecommission(ctx context.Context, broker, by, reason string) (Started, error) {
	if err := Said(by, reason); err != nil {
		return Started{}, err
	}
	s, err := f.cancelRunning(ctx, protocol.DecommissionWorkflowID(broker), by, reason)
	if missing(err) && f.Store != nil {
		if err := f.TakesPartitions(ctx, broker); err != nil {
			return s, err
		}
		return s, because(err, NotFound, CodeNoDecommission, "no decommission of %s is running, and the broker takes partitions", broker)
	}
	return s, noDecommission(err, broker)
}

// DecommissionCancelled waits for the end of a decommission that was asked to cancel: nil when it was cancelled. Where the metastore is at
// hand, the broker's row must say so too.
func (f *Fleet) DecommissionCancelled(ctx context.Context, s Started, broker string) error {
	err := f.whileHeard(ctx, s, func(ctx context.Context) error { _, err := f.DecommissionResult(ctx, s, broker); return err })
	switch {
	case err == nil:
		return tooLate(broker)
	case !wasCancelled(err):
		return cancelQueued(err)
	case f.Store != nil:
		return f.TakesPartitions(ctx, broker)
	}
	return nil
}

func tooLate(broker string) error {
	return errorf(Refused, CodeTooLate, "too late: broker %s is out of the fleet", broker)
}

// TakesPartitions says, from the broker's row on the primary, why a broker takes no partitions; nil when it does.
func (f *Fleet) TakesPartitions(ctx context.Context, broker string) error {
	row, err := f.Store.FindBroker(ctx, broker)
	switch {
	case err != nil:
		return ofStore(err)
	case row == nil:
		return unknownBroker(broker)
	case row.Removed:
		return tooLate(broker)
	case row.Draining:
		return errorf(Refused, CodeStillDraining, "no decommission of %s runs, but it drains: `portage broker drain %s --cancel --reason TEXT` lets it take partitions again", broker, broker)
	}
	return nil
}

func unknownBroker(broker string) error {
	return errorf(NotFound, metastore.CodeUnknownBroker, "there is no broker %q; `portage cluster members` lists them", broker)
}

// Verdict says whether a broker's machine may go.
type Verdict struct {
	Broker string `json:"broker"`
	// Safe: the metastore's primary says that the broker is out of the fleet. Nothing but that is safe.
	Safe    bool   `json:"safe"`
	Verdict string `json:"verdict"`
	// What it waits for while it is not safe yet.
	Phase   string                       `json:"phase,omitempty"`
	Blocked []planner.Objection          `json:"blocked,omitempty"`
	Status  *protocol.DecommissionStatus `json:"status,omitempty"`
}

// VerdictOn waits until a broker is safe to remove, or its decommission has ended otherwise (an [Error]), or wait is over. What
// it says is safe was read from the primary, never from a workflow.
func (f *Fleet) VerdictOn(ctx context.Context, broker string, wait time.Duration) (Verdict, error) {
	deadline := time.Now().Add(wait)
	s := Started{WorkflowID: protocol.DecommissionWorkflowID(broker)}
	for {
		if safe, err := f.removed(ctx, broker); err != nil || safe {
			return Verdict{Broker: broker, Safe: safe, Verdict: protocol.VerdictSafe}, err
		}
		described, err := f.Temporal.DescribeWorkflow(ctx, s.WorkflowID, "")
		if err != nil {
			return Verdict{}, noDecommission(err, broker)
		}
		if described.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
			return f.endedVerdict(ctx, broker, described.WorkflowExecution.RunID)
		}
		left := time.Until(deadline)
		if left <= 0 {
			return f.notYet(ctx, broker, s)
		}
		waiting, cancel := context.WithTimeout(ctx, left)
		err = f.Temporal.GetWorkflow(waiting, s.WorkflowID, described.WorkflowExecution.RunID).Get(waiting, nil)
		over := waiting.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return Verdict{}, ctx.Err()
		}
		if over && err != nil {
			deadline = time.Time{} // one last look
		}
	}
}

// removed asks the primary whether the broker is out of the fleet.
func (f *Fleet) removed(ctx context.Context, broker string) (bool, error) {
	row, err := f.Store.FindBroker(ctx, broker)
	switch {
	case err != nil:
		return false, ofStore(err)
	case row == nil:
		return false, unknownBroker(broker)
	}
	return row.Removed, nil
}

// endedVerdict is for a decommission that has ended: its own reason, or that the metastore does not bear it out.
func (f *Fleet) endedVerdict(ctx context.Context, broker, run string) (Verdict, error) {
	if _, err := f.DecommissionResult(ctx, Started{protocol.DecommissionWorkflowID(broker), run, false}, broker); err != nil {
		return Verdict{}, err
	}
	if safe, err := f.removed(ctx, broker); err != nil || safe { // it ended just now
		return Verdict{Broker: broker, Safe: safe, Verdict: protocol.VerdictSafe}, err
	}
	return Verdict{}, errorf(Refused, CodeNotRemoved, "the last decommission of %s has ended, but the metastore has the broker in the fleet: decommission it again", broker)
}

func (f *Fleet) notYet(ctx context.Context, broker string, s Started) (Verdict, error) {
	v := Verdict{Broker: broker, Verdict: "not yet"}
	status, err := f.decommissionStatus(ctx, s)
	if err != nil {
		return v, noDecommission(err, broker)
	}
	v.Status, v.Phase = &status, status.Phase
	if status.Blocked != "" || status.BlockedReason != "" {
		v.Blocked = append(v.Blocked, planner.Objection{Code: status.Blocked, Reason: status.BlockedReason})
	}
	for _, w := range status.Waits {
		v.Blocked = append(v.Blocked, planner.Objection{Code: w.Code, Reason: fmt.Sprintf("%s/%d: %s", w.Topic, w.Partition, w.Reason)})
	}
	return v, nil
}

func noDecommission(err error, broker string) error {
	return absent(err, CodeNoDecommission, "no decommission of %s is running; `portage broker drain %s --cancel --reason TEXT` lets it take partitions again", broker, broker)
}
