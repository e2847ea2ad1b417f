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

// move is the state of one Move workflow.
type move struct {
	in      protocol.MoveInput
	status  protocol.Status
	claim   protocol.Claim
	claimed bool
	round   int32
	copied  protocol.CopyResult

	lost      bool               // the source is gone and not back
	decision  *protocol.Decision // a person's, to promote
	abandoned *protocol.Decision // a person's, to give the move up
}

func newMove(ctx workflow.Context, in protocol.MoveInput) *move {
	return &move{in: in, status: protocol.Status{Topic: in.Topic, Partition: *in.Partition, To: in.To, Phase: protocol.PhaseClaim, Since: workflow.Now(ctx),
		ShouldBeOn: in.To, By: in.By, Reason: in.Reason}}
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

// expose sets up what people see and ask: the query, the progress signals.
func (m *move) expose(ctx workflow.Context) error {
	err := workflow.SetQueryHandlerWithOptions(ctx, protocol.QueryStatus, func() (protocol.Status, error) { return m.status, nil },
		workflow.QueryHandlerOptions{Description: "phase, bytes, rate and what blocks the move"})
	if err != nil {
		return err
	}
	if err := workflow.SetUpdateHandlerWithOptions(ctx, protocol.UpdateTune, m.tune, workflow.UpdateHandlerOptions{
		Validator: m.tunable, Description: "change the pace of a running copy, or force its cutover"}); err != nil {
		return err
	}
	channel := workflow.GetSignalChannel(ctx, protocol.SignalProgress)
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var p protocol.Progress
			if more := channel.Receive(ctx, &p); !more || ctx.Err() != nil {
				return
			}
			m.progress(ctx, p)
		}
	})
	return nil
}

// tunable refuses a change that would change nothing any more.
func (m *move) tunable(_ workflow.Context, t protocol.Tune) error {
	switch {
	case t.Limit == nil && t.Force == nil:
		return errors.New(`nothing to change: give {"limit":"64MiB"} or {"force":true}`)
	case m.status.Committed:
		return errors.New("too late: the move is committed")
	}
	return nil
}

// tune changes a running move: what follows uses the new values, and a copy that is under way is told at once. A
// destination that does not answer learns it from the next order.
func (m *move) tune(ctx workflow.Context, t protocol.Tune) (protocol.Status, error) {
	if t.Force != nil {
		m.in.Force = *t.Force
	}
	if t.Limit == nil {
		return m.status, nil
	}
	m.in.Limit = *t.Limit
	if !m.claimed {
		return m.status, nil
	}
	quick := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 10 * time.Second, ScheduleToCloseTimeout: time.Minute,
		Summary: fmt.Sprintf("%s copies at %s", m.in.To, pace(m.in.Limit))})
	err := workflow.ExecuteActivity(quick, protocol.ActivityPace, protocol.PaceArgs{Claim: m.claim, Limit: m.in.Limit}).Get(ctx, nil)
	return m.status, err
}

func pace(limit protocol.ByteSize) string {
	if limit == 0 {
		return "full speed"
	}
	return limit.String() + "/s"
}

func (m *move) progress(ctx workflow.Context, p protocol.Progress) {
	if p.BytesTotal > 0 {
		m.status.BytesDone, m.status.BytesTotal, m.status.BytesPerSec = p.BytesDone, p.BytesTotal, p.BytesPerSec
	}
	if m.lost && p.Blocked == "" {
		return // the source is what it waits for, whatever else was in the way meanwhile
	}
	if p.Blocked != m.status.Blocked || p.BlockedReason != m.status.BlockedReason {
		m.block(ctx, p.Blocked, p.BlockedReason)
		return
	}
	m.show(ctx)
}

// beginAttempt takes a new move id: an ended one is dead for ever (R7).
func (m *move) beginAttempt(ctx workflow.Context) {
	m.status.Attempt++
	m.round, m.claimed, m.lost, m.decision = 0, false, false, nil
	m.status.Promotion, m.status.Deciding = nil, false
	m.claim = protocol.Claim{MoveID: fmt.Sprintf("%s.%d", workflow.GetInfo(ctx).WorkflowExecution.RunID, m.status.Attempt), Topic: m.in.Topic, Partition: *m.in.Partition, To: m.in.To}
	m.status.MoveID = m.claim.MoveID
}

// enter shows the next phase. The attributes travel with the command that follows, so they cost an event and no hop.
func (m *move) enter(ctx workflow.Context, phase string) {
	m.status.Phase, m.status.Since = phase, workflow.Now(ctx)
	m.status.Blocked, m.status.BlockedReason, m.status.BlockedSince, m.status.Unblock = "", "", nil, ""
	updates := []temporal.SearchAttributeUpdate{phaseKey.ValueSet(phase), blockedKey.ValueSet(notBlocked)}
	if phase == protocol.PhaseClaim && m.status.Attempt == 1 {
		updates = append(updates, topicKey.ValueSet(m.in.Topic), partitionKey.ValueSet(int64(*m.in.Partition)), targetKey.ValueSet(m.in.To))
	}
	if phase == protocol.PhaseEnsure {
		m.status.From = m.claim.From
		updates = append(updates, sourceKey.ValueSet(m.claim.From))
	}
	m.upsert(ctx, updates...)
	m.show(ctx)
}

// block shows what the move waits for. Waiting for something the operator must mend is not a failure.
func (m *move) block(ctx workflow.Context, code, reason string) {
	if code != m.status.Blocked {
		m.status.BlockedSince = nil
		attribute := notBlocked
		if code != "" {
			now := workflow.Now(ctx)
			m.status.BlockedSince = &now
			attribute = code
		}
		m.upsert(ctx, blockedKey.ValueSet(attribute))
	}
	m.status.Blocked, m.status.BlockedReason = code, reason
	m.status.Unblock = protocol.Unblock(code, m.place())
	m.show(ctx)
}

func (m *move) upsert(ctx workflow.Context, updates ...temporal.SearchAttributeUpdate) {
	if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
		workflow.GetLogger(ctx).Warn("search attributes were not set", "error", err)
	}
}

func (m *move) place() protocol.Place {
	return protocol.Place{Partition: fmt.Sprintf("%s/%d", m.in.Topic, *m.in.Partition), From: m.status.From, To: m.in.To}
}

// whereabouts says where the partition is and where it is to be.
func (m *move) whereabouts() (is, should string) {
	switch {
	case m.status.Committed:
		return m.in.To, m.in.To
	case m.status.Phase == protocol.PhaseRollback, m.status.Phase == protocol.PhaseCancelled, m.status.Phase == protocol.PhaseRolledBack:
		return m.status.From, m.status.From
	}
	return m.status.From, m.in.To
}

// show writes the status where the UI shows it without any tool.
func (m *move) show(ctx workflow.Context) {
	m.status.IsOn, m.status.ShouldBeOn = m.whereabouts()
	s := m.status
	var b strings.Builder
	fmt.Fprintf(&b, "**%s/%d**: %s → **%s**\n\nphase **%s** since %s, attempt %d\n\n", s.Topic, s.Partition, orUnknown(s.From), s.To, s.Phase, s.Since.UTC().Format(time.RFC3339), s.Attempt)
	fmt.Fprintf(&b, "it is on **%s** and should be on **%s**", orUnknown(s.IsOn), orUnknown(s.ShouldBeOn))
	if s.By != "" {
		fmt.Fprintf(&b, ", asked for by %s", s.By)
	}
	if s.Reason != "" {
		fmt.Fprintf(&b, ": %s", s.Reason)
	}
	b.WriteString("\n\n")
	if s.BytesTotal > 0 {
		fmt.Fprintf(&b, "copied %s of %s", protocol.ByteSize(s.BytesDone), protocol.ByteSize(s.BytesTotal))
		if s.BytesPerSec > 0 {
			fmt.Fprintf(&b, " at %s/s", protocol.ByteSize(s.BytesPerSec))
		}
		if eta, ok := s.ETA(); ok {
			fmt.Fprintf(&b, ", about %s left", eta.Round(time.Second))
		}
		b.WriteString("\n\n")
	}
	if s.Blocked != "" {
		fmt.Fprintf(&b, "**blocked: `%s`** since %s: %s\n\n", s.Blocked, s.BlockedSince.UTC().Format(time.RFC3339), s.BlockedReason)
		if s.Unblock != "" {
			fmt.Fprintf(&b, "to unblock it: %s\n\n", s.Unblock)
		}
	}
	if p := s.Promotion; p != nil {
		fmt.Fprintf(&b, "**the source is gone.** The copy on %s ends at %d, the source was last known to have %d; last look at it %s, with %d groups and %d producers. ",
			s.To, p.StagedEnd, p.HighWatermark, p.SnapshotAt.UTC().Format(time.RFC3339), p.Groups, p.Producers)
		if p.Missing != "" {
			fmt.Fprintf(&b, "It can not be promoted: %s. ", p.Missing)
		}
		fmt.Fprintf(&b, "Mind that %s.\n\n", p.Warning)
	}
	if s.LastFailure != "" {
		fmt.Fprintf(&b, "last failure: %s\n\n", s.LastFailure)
	}
	if s.Committed {
		b.WriteString("committed: the destination is the owner; a cancel comes too late, move it back to undo\n\n")
	}
	if s.TooLate != "" {
		fmt.Fprintf(&b, "%s\n\n", s.TooLate)
	}
	fmt.Fprintf(&b, "move id `%s`\n", s.MoveID)
	workflow.SetCurrentDetails(ctx, b.String())
}

func orUnknown(s string) string {
	if s == "" {
		return "?"
	}
	return s
}

func (m *move) step() protocol.StepArgs {
	return protocol.StepArgs{Claim: m.claim, Attempt: m.status.Attempt, Input: m.in, Round: m.round}
}

// run executes one activity and waits for it, also when cancelled: a step that may still be running is not compensated over.
func (m *move) run(ctx workflow.Context, activity string, args, result any) error {
	return m.start(ctx, activity, args).Get(ctx, result)
}

// start begins one activity under the options of all.
func (m *move) start(ctx workflow.Context, activity string, args any) workflow.Future {
	options := workflow.ActivityOptions{
		StartToCloseTimeout: 30 * 24 * time.Hour, // a copy takes what it takes; a dead worker is noticed by the heartbeat
		HeartbeatTimeout:    5 * time.Second,
		WaitForCancellation: true,
		Summary:             m.summary(activity),
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second,
			NonRetryableErrorTypes: []string{protocol.ErrRefused, protocol.ErrMoveLost, protocol.ErrFreezeTooLong, protocol.ErrInvalidInput, protocol.ErrSourceLost}},
	}
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), activity, args)
}

// summary says what one activity does, for the history and the pending activities.
func (m *move) summary(activity string) string {
	name, from, to := fmt.Sprintf("%s/%d", m.in.Topic, *m.in.Partition), orUnknown(m.claim.From), m.in.To
	switch activity {
	case protocol.ActivityClaim:
		return fmt.Sprintf("reserve %s for a move to %s", name, to)
	case protocol.ActivityEnsure:
		return fmt.Sprintf("room and a vacant place on %s", to)
	case protocol.ActivityCopy:
		return fmt.Sprintf("%s → %s while clients go on", from, to)
	case protocol.ActivityCutover:
		return fmt.Sprintf("freeze %s on %s, drain the tail, install on %s", name, from, to)
	case protocol.ActivityCommit:
		return fmt.Sprintf("point of no return: %s belongs to %s", name, to)
	case protocol.ActivityWatchSource:
		return fmt.Sprintf("%s is gone: wait for it, or for a decision on the copy on %s", from, to)
	case protocol.ActivityPromote:
		return fmt.Sprintf("point of no return: %s belongs to %s, whose source %s is gone", name, to, from)
	case protocol.ActivityFinish:
		return fmt.Sprintf("%s opens, %s redirects", to, from)
	}
	return fmt.Sprintf("take the move back: %s stays on %s", name, from)
}

// result gathers what a finished move reports.
func (m *move) result(e protocol.Evidence, epoch int32, f protocol.FinishResult) *protocol.MoveResult {
	m.status.FrozenMS = f.FrozenMS
	return &protocol.MoveResult{Promoted: m.status.Promotion != nil, Promotion: m.status.Promotion,
		MoveID: m.claim.MoveID, Topic: m.in.Topic, Partition: *m.in.Partition, From: m.claim.From, To: m.in.To, Epoch: epoch,
		End: e.InstalledEnd, Bytes: m.copied.BytesCopied + e.TailBytes, Converged: m.copied.Converged, Adopted: m.copied.Adopted,
		FrozenMS: f.FrozenMS, TotalMS: f.TotalMS, Parked: f.Parked, Attempts: m.status.Attempt, TooLate: m.status.TooLate}
}
