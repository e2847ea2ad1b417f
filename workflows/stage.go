package workflows

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// stage is what Move and Swap share: the status people see, and how a step is run.
type stage struct {
	status      protocol.Status
	abandoned   *protocol.Decision // a person's, to give it all up
	revocable   bool               // the present commit can still be given up
	tooLong     int                // how often the present claim's cutover would have frozen for too long
	toldWaits   bool               // its rebalance was told that it waits for a place in the fleet
	held        *protocol.Pause    // nothing is copied and no cutover begins while it is set
	telling     workflow.Mutex     // one pace is told at a time, in the order in which they came
	stopTelling workflow.CancelFunc
	told        bool               // the present claim's copies were told a pace, which they keep
	toldPace    *protocol.ByteSize // which; nil: it is not known whether it has arrived
	of          described
}

// described is a workflow that moves partitions, as it says of itself.
type described interface {
	place() protocol.Place
	title() string  // what goes where
	where() string  // where it is and where it is to be; it brings that up to date in the status
	toUndo() string // what undoes it once it is committed
	pace() protocol.ByteSize
	setPace(ctx workflow.Context, pace protocol.ByteSize, within time.Duration) error
}

var (
	topicKey     = temporal.NewSearchAttributeKeyKeyword(protocol.AttributeTopic)
	partitionKey = temporal.NewSearchAttributeKeyInt64(protocol.AttributePartition)
	sourceKey    = temporal.NewSearchAttributeKeyKeyword(protocol.AttributeSource)
	targetKey    = temporal.NewSearchAttributeKeyKeyword(protocol.AttributeTarget)
	phaseKey     = temporal.NewSearchAttributeKeyKeyword(protocol.AttributePhase)
	blockedKey   = temporal.NewSearchAttributeKeyKeyword(protocol.AttributeBlocked)
)

// notBlocked is the search attribute's value while nothing blocks, so that `MoveBlocked != "none"` finds what does.
const notBlocked = "none"

// expose sets up what people see and ask: the query, the update tune, the progress signals.
func (s *stage) expose(ctx workflow.Context, tune func(workflow.Context, protocol.Tune) (protocol.Status, error), progress func(workflow.Context, protocol.Progress)) error {
	err := workflow.SetQueryHandlerWithOptions(ctx, protocol.QueryStatus, func() (protocol.Status, error) { return s.status, nil },
		workflow.QueryHandlerOptions{Description: "phase, bytes, rate and what blocks the move"})
	if err != nil {
		return err
	}
	if err := workflow.SetUpdateHandlerWithOptions(ctx, protocol.UpdateTune, tune, workflow.UpdateHandlerOptions{
		Validator: s.tunable, Description: "change the pace of a running copy, or force its cutover"}); err != nil {
		return err
	}
	channel := workflow.GetSignalChannel(ctx, protocol.SignalProgress)
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var p protocol.Progress
			if more := channel.Receive(ctx, &p); !more || ctx.Err() != nil {
				return
			}
			progress(ctx, p)
			s.tellRebalance(ctx, p.Blocked == protocol.CodeFleetBusy || p.Blocked == protocol.CodeLimitsStartNone)
		}
	})
	return nil
}

// tellRebalance lets the rebalance that started it show whether it waits for a place in the fleet. It is gone: there is nobody to
// show it.
func (s *stage) tellRebalance(ctx workflow.Context, waits bool) {
	parent := workflow.GetInfo(ctx).ParentWorkflowExecution
	if parent == nil || s.toldWaits == waits {
		return
	}
	s.toldWaits = waits
	workflow.SignalExternalWorkflow(ctx, parent.ID, "", protocol.SignalWaits, protocol.Waiting{Workflow: workflow.GetInfo(ctx).WorkflowExecution.ID, Waits: waits})
}

// tunable refuses a change that would change nothing any more.
func (s *stage) tunable(_ workflow.Context, t protocol.Tune) error {
	switch {
	case t.Limit == nil && t.Force == nil:
		return errors.New(`nothing to change: give {"limit":"64MiB"} or {"force":true}`)
	case s.status.Committed:
		return errors.New("too late: the move is committed")
	}
	return nil
}

const (
	// tunedWithin is how long a person waits for a destination to learn its pace.
	tunedWithin = time.Minute
	// toldWithin is how long one attempt lasts to let it learn its pace.
	toldWithin = 10 * time.Minute
)

// setPace tells a running copy its new pace; within is how long that is tried.
func setPace(ctx workflow.Context, claim protocol.Claim, limit protocol.ByteSize, within time.Duration) workflow.Future {
	// One that is given up is waited for: it must not arrive after the next.
	quick := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 10 * time.Second, ScheduleToCloseTimeout: within, WaitForCancellation: true,
		Summary: fmt.Sprintf("%s copies at %s", claim.To, pace(limit)), RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, MaximumInterval: 5 * time.Second}})
	return workflow.ExecuteActivity(quick, protocol.ActivityPace, protocol.PaceArgs{Claim: claim, Limit: limit})
}

func pace(limit protocol.ByteSize) string {
	if limit == 0 {
		return "full speed"
	}
	return limit.String() + "/s"
}

// take takes one decision of a person, as an update, which says at once what speaks against it, and as a signal, for the plain
// `temporal workflow signal`, whose objection is shown as the last failure.
func (s *stage) take(ctx workflow.Context, name string, objection func(protocol.Decision) error, decide func(workflow.Context, protocol.Decision)) error {
	signals := workflow.GetSignalChannel(ctx, name)
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var d protocol.Decision
			if more := signals.Receive(ctx, &d); !more || ctx.Err() != nil {
				return
			}
			if err := objection(d); err != nil {
				s.status.LastFailure = fmt.Sprintf("the signal %s was not taken: %v", name, err)
				s.show(ctx)
				continue
			}
			decide(ctx, d)
		}
	})
	return workflow.SetUpdateHandlerWithOptions(ctx, name, func(ctx workflow.Context, d protocol.Decision) (protocol.Status, error) {
		decide(ctx, d)
		return s.status, nil
	}, workflow.UpdateHandlerOptions{Validator: objection, Description: "decides on a move whose source is gone: {by, reason}"})
}

// takeAbandon takes a person's decision to give it all up: end cancels the workflow from within.
func (s *stage) takeAbandon(ctx workflow.Context, end workflow.CancelFunc) error {
	return s.take(ctx, protocol.DecisionAbandon, s.againstAbandoning, func(_ workflow.Context, d protocol.Decision) {
		s.abandoned = &d
		end()
	})
}

// againstAbandoning says why it can not be given up any more.
func (s *stage) againstAbandoning(protocol.Decision) error {
	if s.status.Committed || s.status.Phase == protocol.PhaseCommit && !s.revocable {
		return fmt.Errorf("too late: the move is committed, or about to be; %s", s.of.toUndo())
	}
	return nil
}

// enter shows the next phase. The attributes travel with the command that follows, so they cost an event and no hop.
func (s *stage) enter(ctx workflow.Context, phase string, more ...temporal.SearchAttributeUpdate) {
	s.status.Phase, s.status.Since = phase, workflow.Now(ctx)
	if phase == protocol.PhaseClaim {
		s.tooLong = 0
	}
	s.status.Blocked, s.status.BlockedReason, s.status.BlockedSince, s.status.Unblock = "", "", nil, ""
	s.upsert(ctx, append([]temporal.SearchAttributeUpdate{phaseKey.ValueSet(phase), blockedKey.ValueSet(notBlocked)}, more...)...)
	s.show(ctx)
	if phase != protocol.PhaseClaim {
		s.tellRebalance(ctx, false) // whether or not the step that had waited could say so
	}
	if phase == protocol.PhaseCopy {
		s.tellAgain(ctx)
	}
}

// block shows what the move waits for. Waiting for something the operator must mend is not a failure.
func (s *stage) block(ctx workflow.Context, code, reason string) {
	if code != s.status.Blocked {
		s.status.BlockedSince = nil
		attribute := notBlocked
		if code != "" {
			now := workflow.Now(ctx)
			s.status.BlockedSince = &now
			attribute = code
		}
		s.upsert(ctx, blockedKey.ValueSet(attribute))
	}
	s.status.Blocked, s.status.BlockedReason = code, reason
	s.status.Unblock = protocol.Unblock(code, s.of.place())
	s.show(ctx)
}

// blockedNow shows what blocks, or that nothing does, only when that has changed.
func (s *stage) blockedNow(ctx workflow.Context, code, reason string) {
	if code != s.status.Blocked || reason != s.status.BlockedReason {
		s.block(ctx, code, reason)
		return
	}
	s.show(ctx)
}

func (s *stage) upsert(ctx workflow.Context, updates ...temporal.SearchAttributeUpdate) {
	if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
		workflow.GetLogger(ctx).Warn("search attributes were not set", "error", err)
	}
}

// givenBack reports that partitions are being given back, or were.
func (s *stage) givenBack() bool {
	return s.status.Phase == protocol.PhaseRollback || s.status.Phase == protocol.PhaseCancelled || s.status.Phase == protocol.PhaseRolledBack
}

// show writes the status where the UI shows it without any tool.
func (s *stage) show(ctx workflow.Context) {
	where := s.of.where()
	status := s.status
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nphase **%s** since %s, attempt %d\n\n%s", s.of.title(), status.Phase, status.Since.UTC().Format(time.RFC3339), status.Attempt, where)
	if status.By != "" {
		fmt.Fprintf(&b, ", asked for by %s", status.By)
	}
	if status.Reason != "" {
		fmt.Fprintf(&b, ": %s", status.Reason)
	}
	b.WriteString("\n\n")
	if status.BytesTotal > 0 {
		fmt.Fprintf(&b, "copied %s of %s", protocol.ByteSize(status.BytesDone), protocol.ByteSize(status.BytesTotal))
		if status.BytesPerSec > 0 {
			fmt.Fprintf(&b, " at %s/s", protocol.ByteSize(status.BytesPerSec))
		}
		if eta, ok := status.ETA(); ok {
			fmt.Fprintf(&b, ", about %s left", eta.Round(time.Second))
		}
		b.WriteString("\n\n")
	}
	if status.Blocked != "" {
		fmt.Fprintf(&b, "**blocked: `%s`** since %s: %s\n\n", status.Blocked, status.BlockedSince.UTC().Format(time.RFC3339), status.BlockedReason)
		if status.Unblock != "" {
			fmt.Fprintf(&b, "to unblock it: %s\n\n", status.Unblock)
		}
	}
	if p := status.Promotion; p != nil {
		fmt.Fprintf(&b, "**the source is gone.** The copy on %s ends at %d, the source was last known to have %d; last look at it %s, with %d groups and %d producers. ",
			status.To, p.StagedEnd, p.HighWatermark, p.SnapshotAt.UTC().Format(time.RFC3339), p.Groups, p.Producers)
		if p.Missing != "" {
			fmt.Fprintf(&b, "It can not be promoted: %s. ", p.Missing)
		}
		fmt.Fprintf(&b, "Mind that %s.\n\n", p.Warning)
	}
	if status.LastFailure != "" {
		fmt.Fprintf(&b, "last failure: %s\n\n", status.LastFailure)
	}
	if status.Committed && status.WentOn == "" {
		fmt.Fprintf(&b, "committed: a cancel comes too late; %s\n\n", s.of.toUndo())
	}
	if status.WentOn != "" {
		fmt.Fprintf(&b, "%s\n\n", status.WentOn)
	}
	if status.TooLate != "" {
		fmt.Fprintf(&b, "%s\n\n", status.TooLate)
	}
	fmt.Fprintf(&b, "move id `%s`\n", status.MoveID)
	workflow.SetCurrentDetails(ctx, b.String())
}

func orUnknown(s string) string {
	if s == "" {
		return "?"
	}
	return s
}

// start begins one activity under the options of all. It is waited for also when cancelled: a step that may still be running
// is not compensated over.
func start(ctx workflow.Context, activity, summary string, args any) workflow.Future {
	options := workflow.ActivityOptions{
		StartToCloseTimeout: 30 * 24 * time.Hour, // a copy takes what it takes; a dead worker is noticed by the heartbeat
		HeartbeatTimeout:    5 * time.Second,
		WaitForCancellation: true,
		Summary:             summary,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second,
			NonRetryableErrorTypes: []string{protocol.ErrRefused, protocol.ErrMoveLost, protocol.ErrFreezeTooLong, protocol.ErrInvalidInput, protocol.ErrSourceLost}},
	}
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), activity, args)
}

const (
	copyAgainPause    = 10 * time.Second
	copyAgainPauseMax = 5 * time.Minute
	startOverPause    = 2 * time.Second
	startOverPauseMax = 5 * time.Minute
)

// pauseBeforeCopyingAgain is how long a cutover that would freeze for too long is waited with. It grows, for each round costs
// history.
func (s *stage) pauseBeforeCopyingAgain() time.Duration {
	pause := min(copyAgainPause<<min(s.tooLong, 5), copyAgainPauseMax)
	s.tooLong++
	return pause
}

// startsOver reports whether the failure ended only this claim, and waits before the next one.
func (s *stage) startsOver(ctx workflow.Context, err error) bool {
	var failure *temporal.ApplicationError
	if s.status.Committed || ctx.Err() != nil || !errors.As(err, &failure) || failure.Type() != protocol.ErrMoveLost {
		return false
	}
	pause := min(startOverPause<<min(s.status.Attempt-1, 8), startOverPauseMax)
	s.status.LastFailure = failure.Message()
	s.block(ctx, protocol.CodeStartingOver, fmt.Sprintf("%s; starting over in %s", failure.Message(), pause))
	return workflow.Sleep(ctx, pause) == nil
}

// ended maps the last error to the phase and the error people see; stays says what stays where.
func (s *stage) ended(ctx workflow.Context, err error, stays string) error {
	show, _ := workflow.NewDisconnectedContext(ctx)
	s.status.LastFailure = reasonOf(err)
	if s.status.Committed {
		s.show(show)
		return err // committed stays committed; nothing is rolled back or cancelled any more
	}
	if d := s.abandoned; d != nil && ctx.Err() != nil {
		s.enter(show, protocol.PhaseRolledBack)
		return temporal.NewNonRetryableApplicationError(fmt.Sprintf("abandoned by %s: %s; %s", d.By, d.Reason, stays), protocol.ErrAbandoned, nil)
	}
	if temporal.IsCanceledError(err) || ctx.Err() != nil {
		s.enter(show, protocol.PhaseCancelled)
		return temporal.NewCanceledError("cancelled; " + stays)
	}
	s.enter(show, protocol.PhaseRolledBack)
	return err
}

// errCommittedBefore ends a run that can not be rolled back: only a reset run can find this, its earlier self had committed.
func errCommittedBefore(where string, cause error) error {
	return temporal.NewNonRetryableApplicationError("nothing is rolled back: this move had been committed before, "+where, protocol.ErrRefused, cause)
}

func typeOf(err error) string {
	var failure *temporal.ApplicationError
	if errors.As(err, &failure) {
		return failure.Type()
	}
	return ""
}

func reasonOf(err error) string {
	var failure *temporal.ApplicationError
	if errors.As(err, &failure) {
		return failure.Message()
	}
	if temporal.IsCanceledError(err) {
		return "cancelled"
	}
	return err.Error()
}
