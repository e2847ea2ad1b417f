package workflows

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

const (
	// looksARun bounds the history of one run: a pass is about a dozen events.
	looksARun = 200
	// keptDeclined bounds what is shown.
	keptDeclined = 20
	// failedPause is waited after a pass that failed, twice as long after each further one, at most failedPauseMost.
	failedPause     = time.Minute
	failedPauseMost = time.Hour
)

// Autobalance balances one fleet by itself, for ever, as the settings autobalance and autobalance.every say:
//
//	watch    until a broker registered, came back with other storage, began or ceased to drain, or was given another capacity,
//	         and no other followed for a while; or until the time has come. What changed is in the brokers' rows
//	pass     Rebalance under the one id of the fleet, so that it and a person's never run at once
//	mark     keep, in the rows, what of the brokers the pass has seen
//
// Nothing is lost, whoever dies between a registration and its pass: a broker is a reason for a pass until its row says that
// one has seen it as it is, so whoever is back finds it there. Before the pass: it is begun later. In it: the Rebalance goes
// on, and this waits for it. Between pass and mark, or the mark's reply is lost: another pass finds little to do. This is
// terminated: its pass is cancelled, and a worker starts it again, which finds the same rows. While the mode is off, reasons
// are marked and told, and nothing moves. A pass that failed marks nothing and is made again, each time later.
func Autobalance(ctx workflow.Context, in protocol.AutobalanceInput) error {
	a := &autobalance{status: in.Status}
	err := workflow.SetQueryHandlerWithOptions(ctx, protocol.QueryStatus, func() (protocol.AutobalanceStatus, error) { return a.status, nil },
		workflow.QueryHandlerOptions{Description: "what the last pass did, what runs, and when and why the next begins"})
	if err != nil {
		return err
	}
	for range looksARun {
		known := protocol.WatchFleetArgs{Mode: a.status.Mode, Every: a.status.Every, Blocked: a.status.Blocked, Due: a.status.Due, NotBefore: a.status.NotBefore}
		var news protocol.FleetNews
		if err := start(ctx, protocol.ActivityWatchFleet, "wait for a reason for a pass", known).Get(ctx, &news); err != nil {
			return err
		}
		if err := a.act(ctx, news); err != nil {
			return err
		}
		a.show(ctx)
	}
	return workflow.NewContinueAsNewError(ctx, protocol.WorkflowAutobalance, protocol.AutobalanceInput{Status: a.status})
}

// autobalance is the state of one Autobalance workflow.
type autobalance struct {
	status protocol.AutobalanceStatus
}

// act does what the news ask for.
func (a *autobalance) act(ctx workflow.Context, news protocol.FleetNews) error {
	switch {
	case news.Mode != a.status.Mode || news.Every != a.status.Every:
		a.configure(ctx, news)
		return nil
	case news.Blocked != a.status.Blocked:
		a.block(news.Blocked, news.BlockedReason)
		return nil
	case a.status.Mode == protocol.AutobalanceOff:
		return a.decline(ctx, news.Changes)
	case len(news.Changes) == 0 && !news.Due:
		return nil
	}
	return a.pass(ctx, news)
}

// configure takes over settings that were changed. Whoever switches it on gets a pass at once.
func (a *autobalance) configure(ctx workflow.Context, news protocol.FleetNews) {
	switched := news.Mode != a.status.Mode
	a.status.Mode, a.status.Every = news.Mode, news.Every
	a.block("", "")
	if switched {
		a.status.Declined = nil // of the time before
	}
	switch {
	case news.Mode == protocol.AutobalanceOff:
		a.status.Due, a.status.NotBefore, a.status.Failures = nil, nil, 0
	case switched:
		now := workflow.Now(ctx)
		a.status.Due, a.status.DueWhy, a.status.NotBefore, a.status.Failures = &now, "it was switched to "+news.Mode, nil, 0
	default:
		a.comeAgain(ctx)
	}
}

// comeAgain sets when the next pass begins for no other reason.
func (a *autobalance) comeAgain(ctx workflow.Context) {
	a.status.Due = nil
	if every := time.Duration(a.status.Every); every > 0 {
		due := workflow.Now(ctx).Add(every)
		a.status.Due, a.status.DueWhy = &due, fmt.Sprintf("%s have passed since the last", every)
	}
}

// decline tells of reasons for a pass while the mode is off.
func (a *autobalance) decline(ctx workflow.Context, changes []protocol.FleetChange) error {
	for _, c := range changes {
		a.status.Declined = append(a.status.Declined, fmt.Sprintf("%s %s: nothing was begun, because autobalance is off", stamp(workflow.Now(ctx)), c.What))
	}
	a.status.Declined = a.status.Declined[max(0, len(a.status.Declined)-keptDeclined):]
	return a.mark(ctx, changes)
}

// mark keeps what was seen of brokers.
func (a *autobalance) mark(ctx workflow.Context, changes []protocol.FleetChange) error {
	if len(changes) == 0 {
		return nil
	}
	return start(ctx, protocol.ActivityMarkBalanced, "keep what was seen of the brokers", changes).Get(ctx, nil)
}

// pass makes one pass and waits for its end.
func (a *autobalance) pass(ctx workflow.Context, news protocol.FleetNews) error {
	p := protocol.AutobalancePass{Why: a.why(news), Mode: a.status.Mode, Began: workflow.Now(ctx)}
	child := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: protocol.RebalanceWorkflowID(workflow.GetInfo(ctx).TaskQueueName),
		ParentClosePolicy: enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL, WaitForCancellation: true, WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary: "autobalance: " + p.Why})
	in := protocol.RebalanceInput{CountOnly: p.Mode == protocol.AutobalanceCount, By: protocol.ByAutobalance, Reason: p.Why}
	running := workflow.ExecuteChildWorkflow(child, protocol.WorkflowRebalance, in)
	waiting, _ := workflow.NewDisconnectedContext(ctx)
	var started workflow.Execution
	if err := running.GetChildWorkflowExecution().Get(waiting, &started); err != nil {
		if temporal.IsWorkflowExecutionAlreadyStartedError(err) {
			a.block(protocol.CodeRebalanceRunning, "a rebalance of the fleet runs; a pass follows it")
			return nil
		}
		return a.failed(ctx, p, err)
	}
	p.Rebalance = started.RunID
	a.status.Running = &p
	a.show(ctx)
	var result protocol.RebalanceResult
	err := running.Get(waiting, &result)
	a.status.Running = nil
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.Counts = result.Counts
	switch {
	case temporal.IsCanceledError(err):
		p.Outcome = "a person cancelled it; what it was made for is left as it is"
	case err != nil:
		return a.failed(ctx, p, err)
	case result.Counts.Failed > 0:
		return a.failed(ctx, p, fmt.Errorf("%d of its moves failed and %d succeeded; its report says why", result.Counts.Failed, result.Counts.Moved))
	default:
		p.Outcome = fmt.Sprintf("%s: %d moved (%s), %d failed, %d held", result.Ended, result.Counts.Moved, protocol.ByteSize(result.Counts.Bytes), result.Counts.Failed, result.Counts.Held)
	}
	// A broker that did not answer was given nothing: it stays a reason for a pass.
	answered := slices.DeleteFunc(slices.Clone(news.Changes), func(c protocol.FleetChange) bool { return slices.Contains(result.Silent, c.Broker) })
	if err := a.mark(ctx, answered); err != nil {
		return err
	}
	a.end(ctx, p)
	if len(answered) < len(news.Changes) {
		a.later(ctx, "a broker did not answer the last pass")
		return nil
	}
	a.status.Failures, a.status.NotBefore = 0, nil
	a.comeAgain(ctx)
	return nil
}

// why is the reason of a pass in one sentence without its full stop.
func (a *autobalance) why(news protocol.FleetNews) string {
	const named = 5
	var all []string
	for i, c := range news.Changes {
		if i == named {
			all = append(all, fmt.Sprintf("and so on, %d brokers in all", len(news.Changes)))
			break
		}
		all = append(all, c.What)
	}
	if len(all) == 0 {
		return a.status.DueWhy
	}
	return strings.Join(all, ", ")
}

// failed ends a pass that did nothing. The brokers stay a reason for one; it is made again after a pause.
func (a *autobalance) failed(ctx workflow.Context, p protocol.AutobalancePass, err error) error {
	a.later(ctx, "the last pass failed")
	p.Outcome = "failed: " + reasonOf(err)
	a.end(ctx, p)
	return nil
}

// later lets the next pass begin after a pause, twice as long each time.
func (a *autobalance) later(ctx workflow.Context, why string) {
	again := workflow.Now(ctx).Add(min(failedPause<<min(a.status.Failures, 6), failedPauseMost))
	a.status.Failures++
	a.status.NotBefore, a.status.Due, a.status.DueWhy = &again, &again, why
}

func (a *autobalance) end(ctx workflow.Context, p protocol.AutobalancePass) {
	now := workflow.Now(ctx)
	p.Ended = &now
	a.status.Last = &p
	a.status.Passes++
}

func (a *autobalance) block(code, reason string) {
	a.status.Blocked, a.status.BlockedReason, a.status.Unblock = code, reason, protocol.Codes[code].Unblock
}

// show writes the state where the web UI shows it.
func (a *autobalance) show(ctx workflow.Context) {
	s := &a.status
	var b strings.Builder
	switch {
	case s.Mode == protocol.AutobalanceOff:
		fmt.Fprintf(&b, "**off**: nothing moves unless a person says so; `portage config set autobalance count --reason ...` switches it on\n\n")
	default:
		fmt.Fprintf(&b, "**on** (%s), every %s\n\n", s.Mode, time.Duration(s.Every))
	}
	if s.Running != nil {
		fmt.Fprintf(&b, "a pass runs since %s, because %s: rebalance %s\n\n", stamp(s.Running.Began), s.Running.Why, s.Running.Rebalance)
	}
	if s.Blocked != "" {
		fmt.Fprintf(&b, "a pass waits: %s (`%s`)\n\n", s.BlockedReason, s.Blocked)
	}
	if s.Last != nil {
		fmt.Fprintf(&b, "last pass at %s, because %s: %s; %d passes in all\n\n", stamp(s.Last.Began), s.Last.Why, s.Last.Outcome, s.Passes)
	}
	if s.Due != nil {
		fmt.Fprintf(&b, "the next begins at %s at the latest, because %s\n\n", stamp(*s.Due), s.DueWhy)
	}
	for _, line := range s.Declined {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	workflow.SetCurrentDetails(ctx, b.String())
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }
