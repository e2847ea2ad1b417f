package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// move is the state of one Move workflow.
type move struct {
	stage
	in      protocol.MoveInput
	claim   protocol.Claim
	claimed bool
	round   int32
	copied  protocol.CopyResult
	begins  int    // the first attempt of this run
	tuned   int    // how often it was tuned
	goesOn  string // the owner after a later decision than this move

	lost     bool               // the source is gone and not back
	mustAsk  string             // why "onSourceLoss":"auto" can not decide on this claim and a person must
	decision *protocol.Decision // a person's, to promote
}

func newMove(ctx workflow.Context, in protocol.MoveInput) *move {
	m := &move{in: in, stage: stage{telling: workflow.NewMutex(ctx), status: protocol.Status{Topic: in.Topic, Partition: *in.Partition, To: in.To, Phase: protocol.PhaseClaim, Since: workflow.Now(ctx),
		ShouldBeOn: in.To, By: in.By, Reason: in.Reason}}}
	m.of = m
	if e := in.Earlier; e != nil {
		m.held = e.Held
		m.status.Attempt, m.status.From, m.status.LastFailure, m.in.Earlier = e.Attempts, e.From, e.LastFailure, nil
	}
	m.begins = m.status.Attempt + 1
	return m
}

// tune changes a running move: what follows uses the new values, and a copy that is under way is told at once.
func (m *move) tune(ctx workflow.Context, t protocol.Tune) (protocol.Status, error) {
	m.tuned++
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
	return m.status, m.tunePace(ctx)
}

// adjust takes what the rebalance that started the move changes of it.
func (m *move) adjust(ctx workflow.Context, a protocol.Adjust) (tell bool) {
	if a.Limit != nil {
		m.in.Limit = *a.Limit
	}
	return m.adjusted(ctx, a)
}

func (m *move) pace() protocol.ByteSize { return m.paced(m.in.Limit) }

func (m *move) setPace(ctx workflow.Context, pace protocol.ByteSize, within time.Duration) error {
	return setPace(ctx, m.claim, pace, within).Get(ctx, nil)
}

func (m *move) progress(ctx workflow.Context, p protocol.Progress) {
	m.status.Took(p)
	if (m.lost || m.held != nil) && p.Blocked == "" {
		return // that is what it waits for, whatever else was in the way meanwhile
	}
	m.blockedNow(ctx, p.Blocked, p.BlockedReason)
}

// beginAttempt takes a new move id: an ended one is dead for ever (R7).
func (m *move) beginAttempt(ctx workflow.Context) {
	m.status.Attempt++
	m.round, m.claimed, m.lost, m.decision, m.mustAsk = 0, false, false, nil, ""
	m.told, m.toldPace = false, nil
	m.status.Promotion, m.status.Deciding = nil, false
	m.claim = protocol.Claim{MoveID: fmt.Sprintf("%s.%d", workflow.GetInfo(ctx).WorkflowExecution.RunID, m.status.Attempt), Topic: m.in.Topic, Partition: *m.in.Partition, To: m.in.To}
	m.status.MoveID = m.claim.MoveID
}

// enter shows the next phase, and who is part of the move once that is known.
func (m *move) enter(ctx workflow.Context, phase string) {
	var who []temporal.SearchAttributeUpdate
	if phase == protocol.PhaseClaim && m.status.Attempt == m.begins {
		who = append(who, topicKey.ValueSet(m.in.Topic), partitionKey.ValueSet(int64(*m.in.Partition)), targetKey.ValueSet(m.in.To))
	}
	if phase == protocol.PhaseEnsure {
		m.status.From = m.claim.From
		who = append(who, sourceKey.ValueSet(m.claim.From))
	}
	m.stage.enter(ctx, phase, who...)
}

func (m *move) title() string {
	return fmt.Sprintf("**%s/%d**: %s → **%s**", m.in.Topic, *m.in.Partition, orUnknown(m.status.From), m.in.To)
}

func (m *move) where() string {
	m.status.IsOn, m.status.ShouldBeOn = m.whereabouts()
	return fmt.Sprintf("it is on **%s** and should be on **%s**", orUnknown(m.status.IsOn), orUnknown(m.status.ShouldBeOn))
}

func (m *move) toUndo() string {
	return fmt.Sprintf("move %s/%d back to undo it", m.in.Topic, *m.in.Partition)
}

func (m *move) place() protocol.Place {
	return protocol.Place{Partition: fmt.Sprintf("%s/%d", m.in.Topic, *m.in.Partition), From: m.status.From, To: m.in.To}
}

// whereabouts says where the partition is and where it is to be.
func (m *move) whereabouts() (is, should string) {
	switch {
	case m.status.WentOn != "":
		return m.goesOn, m.goesOn
	case m.status.Committed:
		return m.in.To, m.in.To
	case m.givenBack():
		return m.status.From, m.status.From
	}
	return m.status.From, m.in.To
}

// wentOn takes that the partition has left this move's destination behind.
func (m *move) wentOn(f protocol.FinishResult) { m.status.WentOn, m.goesOn = f.WentOn, f.Owner }

func (m *move) step() protocol.StepArgs {
	return protocol.StepArgs{Claim: m.claim, Attempt: m.status.Attempt, Input: m.in, Round: m.round}
}

// run executes one activity and waits for it.
func (m *move) run(ctx workflow.Context, activity string, args, result any) error {
	return start(ctx, activity, m.summary(activity), args).Get(ctx, result)
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
		FrozenMS: f.FrozenMS, TotalMS: f.TotalMS, Parked: f.Parked, Attempts: m.status.Attempt, TooLate: m.status.TooLate, WentOn: m.status.WentOn}
}
