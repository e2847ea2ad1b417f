package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/planner"
	"portage/workflows/protocol"
)

const (
	// shedPause is waited before a broker that could not give everything away is looked at again. It doubles up to shedPauseMax while
	// there are moves to make and none is made: each such look keeps a plan.
	shedPause    = 10 * time.Second
	shedPauseMax = time.Minute
	// shedRounds bounds one run's history: a round is some 20 events.
	shedRounds = 200
)

// Decommission empties one broker and takes it out of the fleet.
//
//	check    every guard at once; a refusal comes before any side effect
//	drain    mark it: it takes nothing more and serves on     undo: clear the mark
//	shed     Rebalance, which gives everything away           undo: cancel what is not committed
//	remove   one transaction that checks every guard again    ------ nothing is undone after it
//
// Whoever dies, the step is repeated. What can not leave now, because its owner does not answer or nobody has room, is
// waited for, visibly. A cancel before the removal cancels the moves that have not committed and clears the mark; what was moved stays
// where it is. The mark is a row of the metastore: it survives every restart, of the agent too (N27).
func Decommission(ctx workflow.Context, raw converter.RawValue) (*protocol.DecommissionResult, error) {
	in, err := protocol.ParseDecommissionInput(raw.Payload().GetData())
	if err != nil {
		return nil, temporal.NewNonRetryableApplicationError(err.Error(), protocol.ErrInvalidInput, nil)
	}
	d := &decommission{in: in, args: protocol.DrainArgs{Broker: in.Broker, MinBrokers: in.Least(), By: in.By, Reason: in.Reason},
		status: protocol.DecommissionStatus{Broker: in.Broker, By: in.By, Reason: in.Reason}}
	if c := in.Carried; c != nil {
		d.marked, d.status.Rounds, d.status.Counts = true, c.Rounds, c.Counts
	}
	d.watchShedding(ctx)
	err = workflow.SetQueryHandlerWithOptions(ctx, protocol.QueryStatus, func() (protocol.DecommissionStatus, error) { return d.status, nil },
		workflow.QueryHandlerOptions{Description: "what is left on the broker and what it waits for"})
	if err != nil {
		return nil, err
	}
	result, err := d.do(ctx)
	if err != nil && d.marked && ctx.Err() != nil {
		return nil, d.takeBack(ctx)
	}
	return result, err
}

// decommission is the state of one Decommission workflow.
type decommission struct {
	in     protocol.DecommissionInput
	args   protocol.DrainArgs
	status protocol.DecommissionStatus
	marked bool // the broker may be draining because of this
}

func (d *decommission) do(ctx workflow.Context) (*protocol.DecommissionResult, error) {
	if d.in.Carried == nil {
		if done, err := d.begin(ctx); done != nil || err != nil {
			return done, err
		}
	}
	pause := shedPause
	for range shedRounds {
		d.status.Rounds++
		moved := d.status.Counts.Moved
		removed, err := d.shedAndRemove(ctx)
		if err != nil {
			return nil, err
		}
		if removed {
			return d.safe(ctx), nil
		}
		if d.status.Counts.Moved > moved || d.status.Check.Moves == 0 {
			pause = shedPause
		}
		if err := workflow.Sleep(ctx, pause); err != nil {
			return nil, err
		}
		pause = min(2*pause, shedPauseMax)
	}
	in := d.in
	in.Carried = &protocol.DecommissionCarried{Rounds: d.status.Rounds, Counts: d.status.Counts}
	return nil, workflow.NewContinueAsNewError(ctx, protocol.WorkflowDecommission, in)
}

// begin checks every guard and marks the broker. It is done at once when only a look was asked for, or the broker is gone already.
func (d *decommission) begin(ctx workflow.Context) (done *protocol.DecommissionResult, err error) {
	d.enter(ctx, protocol.PhaseChecking)
	if err := d.check(ctx); err != nil {
		return nil, err
	}
	check := d.status.Check
	switch {
	case d.in.DryRun:
		return &protocol.DecommissionResult{Broker: d.in.Broker, Verdict: "only looked, as asked; nothing was changed", Check: check}, nil
	case check.Removed:
		return d.safe(ctx), nil
	case len(check.Refused) > 0:
		return nil, refusedBy(check.Refused)
	}
	d.enter(ctx, protocol.PhaseDraining)
	d.marked = true // before it: the reply may be lost
	return nil, d.run(ctx, protocol.ActivityBeginDrain, d.in.Broker+" takes nothing more", d.args, nil)
}

// watchShedding shows what its moves as a whole wait for, as the rebalance that makes them says.
func (d *decommission) watchShedding(ctx workflow.Context) {
	signals := workflow.GetSignalChannel(ctx, protocol.SignalBlocked)
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var o planner.Objection
			if more := signals.Receive(ctx, &o); !more || ctx.Err() != nil {
				return
			}
			if d.status.Phase != protocol.PhaseShedding {
				continue
			}
			if o.Code == "" {
				d.enter(ctx, protocol.PhaseShedding)
				continue
			}
			d.block(ctx, o.Code, o.Reason)
		}
	})
}

// shedAndRemove gives away what can go now, and removes the broker once nothing is left.
func (d *decommission) shedAndRemove(ctx workflow.Context) (removed bool, err error) {
	if err := d.check(ctx); err != nil {
		return false, err
	}
	if d.status.Check.Owned > 0 {
		if d.status.Check.Moves == 0 {
			d.waitFor(ctx)
			return false, nil
		}
		return false, d.shed(ctx)
	}
	d.enter(ctx, protocol.PhaseRemoving)
	var result protocol.RemoveResult
	if err := d.run(ctx, protocol.ActivityRemoveBroker, "take "+d.in.Broker+" out of the fleet", d.args, &result); err != nil {
		return false, err
	}
	if r := result.Refused; r != nil {
		d.block(ctx, r.Code, r.Reason)
		return false, nil
	}
	return true, nil
}

// shed runs one Rebalance that does nothing but drain this broker: the moves of another decommission are not its own to end. How it
// ends is no failure of this: what it could not move is looked at again.
func (d *decommission) shed(ctx workflow.Context) error {
	d.enter(ctx, protocol.PhaseShedding)
	d.status.Rebalance = protocol.ShedWorkflowID(d.in.Broker)
	child := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: d.status.Rebalance, ParentClosePolicy: enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		WaitForCancellation: true, WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, StaticSummary: "give away what " + d.in.Broker + " has"})
	in := protocol.RebalanceInput{Drain: true, DrainBroker: d.in.Broker, Limits: d.in.Limits, By: d.in.By, Reason: strings.TrimSpace("decommission of " + d.in.Broker + ": " + d.in.Reason)}
	var result protocol.RebalanceResult
	waiting, _ := workflow.NewDisconnectedContext(ctx)
	err := workflow.ExecuteChildWorkflow(child, protocol.WorkflowRebalance, in).Get(waiting, &result)
	d.status.Counts.Moved += result.Counts.Moved
	d.status.Counts.Failed += result.Counts.Failed
	d.status.Counts.Bytes += result.Counts.Bytes
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		d.block(ctx, protocol.CodeStartingOver, reasonOf(err))
	case len(result.Troubles) > 0:
		last := result.Troubles[len(result.Troubles)-1]
		d.block(ctx, last.Code, fmt.Sprintf("%s did not move to %s: %s", last.Partition, last.To, last.Reason))
	}
	return nil
}

// waitFor shows what can not leave now.
func (d *decommission) waitFor(ctx workflow.Context) {
	check := d.status.Check
	d.status.Waits = check.Waits
	if len(check.Waits) == 0 {
		d.block(ctx, "broker_in_use", fmt.Sprintf("%s still owns %d partitions, which are moving or are to be moved by hand", d.in.Broker, check.Owned))
		return
	}
	first := check.Waits[0]
	d.block(ctx, first.Code, fmt.Sprintf("%d partitions can not leave now; %s/%d: %s", check.Owned, first.Topic, first.Partition, first.Reason))
}

func (d *decommission) safe(ctx workflow.Context) *protocol.DecommissionResult {
	d.marked = false
	d.enter(ctx, protocol.PhaseSafe)
	return &protocol.DecommissionResult{Broker: d.in.Broker, Safe: true, Verdict: protocol.VerdictSafe, Check: d.status.Check, Counts: d.status.Counts}
}

// takeBack clears the mark after a cancel. The moves have ended: the shedding waits for them. It may come too late: the broker
// was removed by a write whose reply was lost.
func (d *decommission) takeBack(ctx workflow.Context) error {
	undo, _ := workflow.NewDisconnectedContext(ctx)
	d.enter(undo, protocol.PhaseRollback)
	var result protocol.RemoveResult
	if err := d.run(undo, protocol.ActivityCancelDrain, d.in.Broker+" takes partitions again", d.args, &result); err != nil {
		return err
	}
	if r := result.Refused; r != nil {
		d.block(undo, r.Code, r.Reason)
		return temporal.NewNonRetryableApplicationError("too late: "+r.Reason, protocol.ErrRefused, nil, r.Code)
	}
	d.enter(undo, protocol.PhaseCancelled)
	return temporal.NewCanceledError(fmt.Sprintf("cancelled: broker %s takes partitions again; %d that were moved stay where they are", d.in.Broker, d.status.Counts.Moved))
}

func (d *decommission) check(ctx workflow.Context) error {
	d.status.Check = protocol.DrainCheck{}
	return d.run(ctx, protocol.ActivityCheckDecommission, "what stands against removing "+d.in.Broker, d.args, &d.status.Check)
}

func (d *decommission) run(ctx workflow.Context, activity, summary string, args, result any) error {
	return start(ctx, activity, summary, args).Get(ctx, result)
}

// refusedBy ends a decommission with every reason at once; the first one's code stands for all.
func refusedBy(all []planner.Objection) error {
	sentences := make([]string, len(all))
	for i, o := range all {
		sentences[i] = fmt.Sprintf("%s (%s)", o.Reason, o.Code)
	}
	return temporal.NewNonRetryableApplicationError(strings.Join(sentences, "; "), protocol.ErrRefused, nil, all[0].Code)
}

func (d *decommission) enter(ctx workflow.Context, phase string) {
	d.status.Phase, d.status.Since, d.status.Blocked, d.status.BlockedReason, d.status.Unblock, d.status.Waits = phase, workflow.Now(ctx), "", "", "", nil
	upsert(ctx, phaseKey.ValueSet(phase), blockedKey.ValueSet(notBlocked), sourceKey.ValueSet(d.in.Broker))
	d.show(ctx)
}

func (d *decommission) block(ctx workflow.Context, code, reason string) {
	if code != d.status.Blocked && code != "" {
		upsert(ctx, blockedKey.ValueSet(code))
	}
	d.status.Blocked, d.status.BlockedReason = code, reason
	d.status.Unblock = protocol.Unblock(code, protocol.Place{From: d.in.Broker})
	d.show(ctx)
}

// show writes the status where the UI shows it without any tool.
func (d *decommission) show(ctx workflow.Context) {
	s := d.status
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**: **%s** since %s", s.Broker, s.Phase, s.Since.UTC().Format(time.RFC3339))
	if s.By != "" {
		fmt.Fprintf(&b, ", asked for by %s", s.By)
	}
	if s.Reason != "" {
		fmt.Fprintf(&b, ": %s", s.Reason)
	}
	fmt.Fprintf(&b, "\n\nit owns %d partitions and %d are on their way to it; %d were moved away (%s), %d moves failed\n\n", s.Check.Owned, s.Check.Inbound, s.Counts.Moved, protocol.ByteSize(s.Counts.Bytes), s.Counts.Failed)
	if s.Blocked != "" || s.BlockedReason != "" {
		fmt.Fprintf(&b, "**waits: `%s`**: %s\n\n", s.Blocked, s.BlockedReason)
		if s.Unblock != "" {
			fmt.Fprintf(&b, "to unblock it: %s\n\n", s.Unblock)
		}
	}
	for _, w := range s.Waits {
		fmt.Fprintf(&b, "- %s/%d: %s\n", w.Topic, w.Partition, w.Reason)
	}
	if s.Rebalance != "" {
		fmt.Fprintf(&b, "\nits moves are those of the workflow `%s`\n", s.Rebalance)
	}
	workflow.SetCurrentDetails(ctx, b.String())
}
