package workflows

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// lostCounter reads a failure that says that the source is gone: its heartbeat counter as it stood still.
func lostCounter(err error) (heartbeat int64, lost bool) {
	var failure *temporal.ApplicationError
	if !errors.As(err, &failure) || failure.Type() != protocol.ErrSourceLost {
		return 0, false
	}
	return heartbeat, failure.Details(&heartbeat) == nil
}

// maxAutoRefusals is how often a promotion by policy may be refused under one claim for what lacks for a moment (a copy that
// is being opened) before a person is asked: each one costs history.
const maxAutoRefusals = 5

// sourceLost waits for whichever comes first: the source, a person's decision, or, where the move may decide by itself, a copy
// that can be promoted. It returns the promotion that was done, nil when the source is back and the copy goes on.
//
// One activity watches for as long as nothing changes, so waiting costs no history.
func (m *move) sourceLost(ctx workflow.Context, heartbeat int64) (*protocol.PromoteResult, error) {
	m.lost, m.decision = true, nil
	var known *protocol.Promotion
	refusals := 0 // of promotions that the policy made
	for {
		m.round++
		watching, stop := workflow.WithCancel(ctx)
		watch := start(watching, protocol.ActivityWatchSource, m.summary(protocol.ActivityWatchSource), protocol.WatchArgs{StepArgs: m.step(), Heartbeat: heartbeat, Known: known})
		waited := workflow.Await(ctx, func() bool { return watch.IsReady() || m.decision != nil })
		stop()
		var loss protocol.SourceLoss
		err := watch.Get(ctx, &loss)
		decision := m.decision
		switch {
		case waited != nil:
			return nil, waited
		case decision != nil: // it came while nothing spoke against it; the destination looks again
		case err != nil:
			return nil, err
		case loss.Back:
			m.lost, m.status.Promotion, m.status.Deciding, m.mustAsk = false, nil, false, ""
			m.round++
			return nil, nil
		default:
			known = &loss.Promotion
			if decision = m.weigh(ctx, known); decision == nil {
				continue
			}
		}
		promoted, err := m.promote(ctx, heartbeat, *decision)
		if err != nil || promoted.Refused == "" {
			return promoted, err
		}
		m.decision = nil
		if decision.By == protocol.ByPolicy && workflow.GetVersion(ctx, "ask-once-auto-was-refused", workflow.DefaultVersion, 1) >= 1 {
			if refusals++; promoted.NeedsPerson || refusals >= maxAutoRefusals {
				m.mustAsk = promoted.Refused
			}
		}
		known = &promoted.Promotion
		known.Eligible, known.Missing = false, promoted.Refused
		m.weigh(ctx, known)
	}
}

// weigh shows what is known and what the move waits for. It returns a decision where none is needed from a person. A decision of
// its own that was refused is not made again under this claim: the next look would only find the same copy.
func (m *move) weigh(ctx workflow.Context, known *protocol.Promotion) *protocol.Decision {
	m.status.Promotion = known
	policy, why := m.in.Policy(), ""
	if m.mustAsk != "" {
		policy, why = protocol.LossAsk, fmt.Sprintf("onSourceLoss=auto was refused: %s. ", m.mustAsk)
	}
	m.status.Deciding = policy == protocol.LossAsk && known.Eligible
	switch {
	case policy == protocol.LossAuto && known.Eligible:
		return &protocol.Decision{By: protocol.ByPolicy, Reason: fmt.Sprintf("%s has said nothing for %s", m.claim.From, m.in.SilentFor())}
	case m.status.Deciding:
		m.block(ctx, protocol.CodePromotionNeedsDecision, fmt.Sprintf("%s is gone. %sThe copy on %s ends at %d, and nothing beyond that is known of %s; its last look was at %s. "+
			"Mind that %s", m.claim.From, why, m.in.To, known.StagedEnd, m.claim.From, known.SnapshotAt.UTC().Format("2006-01-02T15:04:05Z"), known.Warning))
	case known.Missing != "":
		m.block(ctx, protocol.CodeSourceLost, fmt.Sprintf("%s is gone, and its copy can not be promoted: %s", m.claim.From, known.Missing))
	default:
		m.block(ctx, protocol.CodeSourceLost, fmt.Sprintf("%s is gone, and this move was started with onSourceLoss=never", m.claim.From))
	}
	return nil
}

// promote is the point of no return of a move whose source is gone. It waits for the destination, so it can be given up: what
// then became of it is settled, for its outcome may be unknown, and a promotion that was done goes on.
func (m *move) promote(ctx workflow.Context, heartbeat int64, decision protocol.Decision) (*protocol.PromoteResult, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	settling, _ := workflow.NewDisconnectedContext(ctx)
	m.revocable = workflow.GetVersion(ctx, "give-up-a-promotion", workflow.DefaultVersion, 1) >= 1
	defer func() { m.revocable = false }()
	if !m.revocable {
		ctx = settling
	}
	m.status.Deciding = false
	m.round++
	m.enter(ctx, protocol.PhaseCommit)
	var result protocol.PromoteResult
	args := protocol.PromoteArgs{StepArgs: m.step(), Heartbeat: heartbeat, By: decision.By, Reason: decision.Reason}
	err := m.run(ctx, protocol.ActivityPromote, args, &result)
	if temporal.IsCanceledError(err) {
		m.revocable = false
		m.round++
		args.StepArgs, args.Settle = m.step(), true
		err = m.run(settling, protocol.ActivityPromote, args, &result)
	}
	if err != nil {
		return nil, err // refused or settled, so surely not done
	}
	if result.Refused == "" {
		m.status.Committed = true
		m.status.Promotion = &result.Promotion
	} else {
		m.enter(ctx, protocol.PhaseCopy)
	}
	return &result, nil
}

// decisions takes promote and abandon.
func (m *move) decisions(ctx workflow.Context, end workflow.CancelFunc) error {
	if err := m.take(ctx, protocol.DecisionPromote, m.againstPromoting, func(_ workflow.Context, d protocol.Decision) { m.decision = &d }); err != nil {
		return err
	}
	return m.takeAbandon(ctx, end)
}

// againstPromoting says why the copy can not be promoted now.
func (m *move) againstPromoting(protocol.Decision) error {
	switch p := m.status.Promotion; {
	case m.status.Committed:
		return errors.New("the move is committed already")
	case !m.lost || p == nil:
		return errors.New("the source is not known to be gone, so there is nothing to decide; the move goes on by itself")
	case m.in.Policy() == protocol.LossNever:
		return errors.New("the move was started with onSourceLoss=never; abandon it, and promote a copy with `portage promote`")
	case !p.Eligible:
		return fmt.Errorf("the copy can not be promoted: %s", p.Missing)
	case m.decision != nil:
		return errors.New("it is being promoted already")
	}
	return nil
}
