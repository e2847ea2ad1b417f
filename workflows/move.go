package workflows

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// Move carries one single-owner partition from its owner to another broker.
//
// The steps, and what undoes each:
//
//	claim    reserve the partition (guarded write)            undo: AbortMove
//	ensure   room, vacancy and staging at the destination     undo: drop the staging
//	copy     catch up with the source's tail, unfrozen        undo: drop the staging
//	cutover  freeze, drain, offsets, install                  undo: AbortMove; the source then reopens by itself
//	---------------------------------------------------------- point of no return
//	commit   CommitOwner: the destination is the owner        nothing is undone, everything rolls forward
//	confirm  the destination opens, the source redirects
//
// Whoever dies, the step is repeated when they are back. A claim that someone else ended (the freeze's lease, an
// operator) starts the move over under a new move id, and what was copied is taken over by digest. A cancel before the
// commit restores everything; after it the answer is that it came too late.
func Move(ctx workflow.Context, raw converter.RawValue) (*protocol.MoveResult, error) {
	in, err := protocol.ParseMoveInput(raw.Payload().GetData())
	if err != nil {
		return nil, temporal.NewNonRetryableApplicationError(err.Error(), protocol.ErrInvalidInput, nil)
	}
	m := newMove(ctx, in)
	ctx, end := workflow.WithCancel(ctx)
	if err := errors.Join(m.expose(ctx, m.tune, m.progress), m.decisions(ctx, end)); err != nil {
		return nil, err
	}
	m.takeAdjustments(ctx, m.adjust)
	for {
		result, err := m.attempt(ctx)
		switch {
		case err == nil:
			m.enter(ctx, protocol.PhaseDone)
			return result, nil
		case m.startsOver(ctx, err):
			if m.long(ctx) {
				return nil, m.anew(ctx)
			}
		default:
			return nil, m.ended(ctx, err, fmt.Sprintf("%s/%d stays on %s", m.in.Topic, *m.in.Partition, m.status.From))
		}
	}
}

// attempt is one claim of the partition and everything under it.
func (m *move) attempt(ctx workflow.Context) (result *protocol.MoveResult, err error) {
	m.beginAttempt(ctx)
	m.enter(ctx, protocol.PhaseClaim)
	defer func() { // registered before the claim: its reply may be lost
		if err != nil && !m.status.Committed {
			err = m.rollBack(ctx, err)
		}
	}()
	if err := m.run(ctx, protocol.ActivityClaim, protocol.ClaimArgs{MoveID: m.claim.MoveID, Attempt: m.status.Attempt, Input: m.in}, &m.claim); err != nil {
		return nil, err
	}
	m.claimed = true

	m.enter(ctx, protocol.PhaseEnsure)
	if err := m.run(ctx, protocol.ActivityEnsure, m.step(), &m.copied); err != nil {
		return nil, err
	}
	evidence, promoted, err := m.copyAndCutOver(ctx)
	if err != nil {
		return nil, err
	}
	if promoted != nil {
		return m.confirm(ctx, protocol.Evidence{InstalledEnd: promoted.End}, promoted.Epoch)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // the last moment at which a cancel is not too late
	}

	// From here on nothing is cancelled or compensated: the outcome of the commit may be unknown, and unknown is settled
	// by repeating it.
	committing, _ := workflow.NewDisconnectedContext(ctx)
	var epoch int32
	// ===== POINT OF NO RETURN =====
	if err := m.run(committing, protocol.ActivityCommit, protocol.CommitArgs{StepArgs: m.step(), Evidence: evidence}, &epoch); err != nil {
		return nil, err // refused, so surely not done
	}
	m.status.Committed = true
	return m.confirm(ctx, evidence, epoch)
}

// confirm waits until the new owner is open. Nothing is cancelled any more: a cancel is answered that it came too late.
func (m *move) confirm(cancellable workflow.Context, evidence protocol.Evidence, epoch int32) (*protocol.MoveResult, error) {
	ctx, _ := workflow.NewDisconnectedContext(cancellable)
	m.enter(ctx, protocol.PhaseConfirm)
	var finish protocol.FinishResult
	if err := m.run(ctx, protocol.ActivityFinish, protocol.FinishArgs{StepArgs: m.step(), Copy: m.copied}, &finish); err != nil {
		return nil, err
	}
	m.wentOn(finish)
	if cancellable.Err() != nil && finish.WentOn == "" {
		m.status.TooLate = fmt.Sprintf("the cancel came too late: committed, %s/%d is on %s; move it back to undo", m.in.Topic, *m.in.Partition, m.in.To)
	}
	return m.result(evidence, epoch, finish), nil
}

// copyAndCutOver copies until the tail is near and then cuts over. A cutover that would freeze for too long goes back to
// copying, visibly, until the write rate allows it; forced, it is done as it is, for with a write rate above the copy rate
// every further pass would leave more. A source that was gone and is back goes on with the copy; one that stays away ends in a
// promotion of the copy, or is waited for.
func (m *move) copyAndCutOver(ctx workflow.Context) (evidence protocol.Evidence, promoted *protocol.PromoteResult, err error) {
	forced := false
	for {
		if err = m.whileHeld(ctx); err == nil && !forced {
			err = m.copyUp(ctx)
		}
		if err == nil && m.held != nil && workflow.GetVersion(ctx, "copy-again-after-a-hold", workflow.DefaultVersion, 1) >= 1 {
			m.round++
			continue // it may be held for hours: what is written meanwhile is copied before the freeze, not in it
		}
		if err == nil {
			err = m.whileHeld(ctx)
		}
		if err == nil {
			evidence, err = m.cutOver(ctx)
		}
		if heartbeat, lost := lostCounter(err); lost {
			forced = false
			if promoted, err = m.sourceLost(ctx, heartbeat); err != nil || promoted != nil {
				return evidence, promoted, err
			}
			continue
		}
		var failure *temporal.ApplicationError
		if !errors.As(err, &failure) || failure.Type() != protocol.ErrFreezeTooLong {
			return evidence, nil, err
		}
		m.block(ctx, protocol.CodeFreezeTooLong, failure.Message())
		tuned, wakes := m.tuned, workflow.GetVersion(ctx, "copy-again-once-tuned", workflow.DefaultVersion, 1) >= 1
		if _, err := workflow.AwaitWithTimeout(ctx, m.pauseBeforeCopyingAgain(), func() bool { return m.in.Force || wakes && m.tuned != tuned }); err != nil {
			return evidence, nil, err
		}
		if !m.in.Force && m.long(ctx) {
			return evidence, nil, temporal.NewNonRetryableApplicationError(failure.Message()+"; the move goes on in a new run", protocol.ErrMoveLost, nil)
		}
		forced, err = m.in.Force, nil
		m.round++
	}
}

// cutOver runs one cutover. In repeated phases the rounds alone order the steps, so it has one of its own then.
func (m *move) cutOver(ctx workflow.Context) (evidence protocol.Evidence, err error) {
	m.enter(ctx, protocol.PhaseCutover)
	if m.round > 0 {
		m.round++
	}
	args := protocol.CutoverArgs{StepArgs: m.step(), ExpectedFreeze: m.copied.ExpectedFreeze}
	err = m.run(ctx, protocol.ActivityCutover, args, &evidence)
	return evidence, err
}

// copyUp runs one catch-up.
func (m *move) copyUp(ctx workflow.Context) error {
	m.enter(ctx, protocol.PhaseCopy)
	adopted := m.copied.Adopted
	if err := m.run(ctx, protocol.ActivityCopy, m.step(), &m.copied); err != nil {
		return err
	}
	m.copied.Adopted = adopted
	m.status.Converged = &m.copied.Converged
	m.status.BytesDone, m.status.BytesTotal = m.copied.BytesTotal, m.copied.BytesTotal
	return nil
}

// longHistory is from how many events on a move goes on in a new run, well below the 51,200 at which Temporal ends one.
const longHistory = 8_000

// long reports that the history of this run has become long.
func (m *move) long(ctx workflow.Context) bool {
	return isLong(ctx) && workflow.GetVersion(ctx, "continue-a-long-move-as-new", workflow.DefaultVersion, 1) >= 1
}

func isLong(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() >= longHistory
}

// anew goes on in a new run of the same workflow, between two claims: nothing is claimed then. Move ids carry the run's id, so none
// comes twice, and the attempts count on.
func (m *move) anew(ctx workflow.Context) error {
	if err := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		return m.ended(ctx, err, fmt.Sprintf("%s/%d stays on %s", m.in.Topic, *m.in.Partition, m.status.From))
	}
	in := m.in
	in.Earlier = &protocol.EarlierRuns{Attempts: m.status.Attempt, From: m.status.From, LastFailure: m.status.LastFailure, Held: m.held}
	return workflow.NewContinueAsNewError(ctx, protocol.WorkflowMove, in)
}

// rollBack ends the claim and restores ownership, routing and disk. It runs on a context of its own, since the move's
// may be the one that was cancelled. It returns the error the move ends with.
func (m *move) rollBack(ctx workflow.Context, cause error) error {
	var failure *temporal.ApplicationError
	if !m.claimed && errors.As(cause, &failure) && failure.Type() == protocol.ErrRefused {
		return cause // nothing was claimed, nothing changed
	}
	cleanup, _ := workflow.NewDisconnectedContext(ctx)
	m.enter(cleanup, protocol.PhaseRollback)
	lost := errors.As(cause, &failure) && failure.Type() == protocol.ErrMoveLost
	args := protocol.AbortArgs{StepArgs: m.step(), Reason: reasonOf(cause), KeepStaging: (lost && ctx.Err() == nil) || m.lost || m.abandoned != nil}
	var result protocol.AbortResult
	if err := m.run(cleanup, protocol.ActivityAbort, args, &result); err != nil {
		return fmt.Errorf("rolling back after %v: %w", cause, err)
	}
	if result.Committed { // only a reset run can find this: its earlier self had committed
		m.status.Committed = true
		return errCommittedBefore(fmt.Sprintf("%s/%d is on %s", m.in.Topic, *m.in.Partition, m.in.To), cause)
	}
	return cause
}
