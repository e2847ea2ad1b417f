package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// Swap lets two partitions of two brokers change places. Both flip in one transaction, or neither (R32).
//
// The steps, and what undoes each; they are a Move's, for both sides at once:
//
//	claim    reserve both partitions (one guarded write)      undo: AbortMove, for both
//	ensure   room, vacancy and staging at both brokers        undo: drop the stagings
//	copy     until BOTH are near their tails, unfrozen        undo: drop the stagings
//	cutover  freeze both, drain both, install both            undo: AbortMove, for both; the sources then reopen by themselves
//	---------------------------------------------------------- point of no return
//	commit   CommitSwap: each is the other's broker's         nothing is undone, everything rolls forward
//	confirm  both open, both sources redirect
//
// Whoever dies, the step is repeated when they are back. A source that is gone is waited for: a swap never promotes, a person
// may abandon it. Where there is too little room for both at once, the swap is refused, or, when the input says so, done as
// two moves one after the other.
func Swap(ctx workflow.Context, raw converter.RawValue) (*protocol.SwapResult, error) {
	in, err := protocol.ParseSwapInput(raw.Payload().GetData())
	if err != nil {
		return nil, temporal.NewNonRetryableApplicationError(err.Error(), protocol.ErrInvalidInput, nil)
	}
	s := newSwap(ctx, in)
	ctx, end := workflow.WithCancel(ctx)
	if err := errors.Join(s.expose(ctx, s.tune, s.progress), s.takeAbandon(ctx, end)); err != nil {
		return nil, err
	}
	s.takeAdjustments(ctx, s.adjust)
	for {
		result, err := s.attempt(ctx)
		if err != nil && s.fitsOnlyAsTwoMoves(ctx, err) {
			result, err = s.twoMoves(ctx, err)
		}
		switch {
		case err == nil:
			s.enter(ctx, protocol.PhaseDone)
			return result, nil
		case s.startsOver(ctx, err):
			if isLong(ctx) { // between two claims nothing is claimed; swap ids carry the run's id, so none comes twice
				return nil, s.anew(ctx)
			}
		default:
			return nil, s.ended(ctx, err, s.stays())
		}
	}
}

// anew goes on in a new run of the same workflow before the history is too long.
func (s *swap) anew(ctx workflow.Context) error {
	if err := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		return s.ended(ctx, err, s.stays())
	}
	in := s.in
	in.Earlier = &protocol.EarlierRuns{Attempts: s.status.Attempt, LastFailure: s.status.LastFailure, Held: s.held}
	return workflow.NewContinueAsNewError(ctx, protocol.WorkflowSwap, in)
}

// attempt is one claim of both partitions and everything under it.
func (s *swap) attempt(ctx workflow.Context) (result *protocol.SwapResult, err error) {
	s.beginAttempt(ctx)
	s.enter(ctx, protocol.PhaseClaim)
	defer func() { // registered before the claim: its reply may be lost
		if err != nil && !s.status.Committed {
			err = s.rollBack(ctx, err)
		}
	}()
	var claim protocol.SwapClaim
	args := protocol.SwapClaimArgs{SwapID: s.status.MoveID, Attempt: s.status.Attempt, Input: s.in}
	if err := start(ctx, protocol.ActivitySwapClaim, fmt.Sprintf("reserve %s and %s to change places", s.in.A, s.in.B), args).Get(ctx, &claim); err != nil {
		return nil, err
	}
	s.claimed, s.claims = true, claim.Sides

	s.enter(ctx, protocol.PhaseEnsure)
	err = s.each(ctx, func(ctx workflow.Context, i int) error {
		return start(ctx, protocol.ActivityEnsure, "room and a vacant place on "+s.claims[i].To, s.step(i)).Get(ctx, &s.copied[i])
	})
	if err != nil {
		return nil, err
	}
	if err := s.copyBoth(ctx); err != nil {
		return nil, err
	}
	evidence, err := s.cutOver(ctx)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // the last moment at which a cancel is not too late
	}

	// From here on nothing is cancelled or compensated: the outcome of the commit may be unknown, and unknown is settled
	// by repeating it.
	committing, _ := workflow.NewDisconnectedContext(ctx)
	commit := protocol.SwapCommitArgs{SwapID: s.status.MoveID}
	for i := range commit.Sides {
		commit.Sides[i] = protocol.CommitArgs{StepArgs: s.step(i), Evidence: evidence.Sides[i]}
	}
	var committed protocol.SwapCommitted
	summary := fmt.Sprintf("point of no return: %s belongs to %s, %s to %s", s.in.A, s.claims[0].To, s.in.B, s.claims[1].To)
	// ===== POINT OF NO RETURN =====
	if err := start(committing, protocol.ActivitySwapCommit, summary, commit).Get(committing, &committed); err != nil {
		return nil, err // refused, so surely not done
	}
	s.status.Committed = true
	return s.confirm(ctx, evidence, committed)
}

const (
	// copiesApart is how long one copy may have been near its tail before the other is: beyond it, it catches up once more.
	copiesApart = 5 * time.Second
	// mostCatchUps bounds that. The cutover drains whatever tail is left then.
	mostCatchUps = 4
)

// copyBoth copies both sides at once until both copies are near their tails. One that does not come near, because the write
// rate is near the copy rate, is copied on, visibly: nothing is frozen before both have converged (R32).
func (s *swap) copyBoth(ctx workflow.Context) error {
	if err := s.whileHeld(ctx); err != nil {
		return err
	}
	s.enter(ctx, protocol.PhaseCopy)
	var ended [2]time.Time
	copySide := func(ctx workflow.Context, i int) error {
		adopted := s.copied[i].Adopted
		err := start(ctx, protocol.ActivityCopy, fmt.Sprintf("%s: %s → %s while clients go on", s.in.Sides()[i], s.claims[i].From, s.claims[i].To), s.step(i)).Get(ctx, &s.copied[i])
		if err != nil {
			return err
		}
		ended[i] = workflow.Now(ctx)
		s.hasCopied(i, adopted)
		return nil
	}
	if err := s.each(ctx, copySide); err != nil {
		return err
	}
	for catchUps := 0; ; {
		if far := s.unconverged(); far != "" {
			if isLong(ctx) {
				return temporal.NewNonRetryableApplicationError(far+"; the swap goes on in a new run", protocol.ErrMoveLost, nil)
			}
			s.block(ctx, protocol.CodeFreezeTooLong, far)
			if err := workflow.Sleep(ctx, s.pauseBeforeCopyingAgain()); err != nil {
				return err
			}
			if err := s.whileHeld(ctx); err != nil {
				return err
			}
			s.round++
			s.enter(ctx, protocol.PhaseCopy)
			if err := s.each(ctx, copySide); err != nil {
				return err
			}
			continue
		}
		if s.held != nil { // for hours, it may be: what is written meanwhile is copied before the freeze, not in it
			if err := s.whileHeld(ctx); err != nil {
				return err
			}
			s.round++
			if err := s.each(ctx, copySide); err != nil {
				return err
			}
			continue
		}
		earlier := 0
		if ended[1].Before(ended[0]) {
			earlier = 1
		}
		if catchUps == mostCatchUps || ended[1-earlier].Sub(ended[earlier]) <= copiesApart {
			return nil
		}
		catchUps++
		s.round++
		if err := copySide(ctx, earlier); err != nil {
			return err
		}
	}
}

// cutOver freezes and drains both sides in one activity, so that no hop lies in the frozen time. An expected freeze above the
// limit goes back to copying, visibly, until the write rate allows it or a person accepts it.
func (s *swap) cutOver(ctx workflow.Context) (evidence protocol.SwapEvidence, err error) {
	for {
		s.enter(ctx, protocol.PhaseCutover)
		if s.round > 0 {
			s.round++ // in repeated phases the rounds alone order the steps
		}
		var args protocol.SwapCutoverArgs
		for i := range args.Sides {
			args.Sides[i] = protocol.CutoverArgs{StepArgs: s.step(i), ExpectedFreeze: s.copied[i].ExpectedFreeze}
		}
		summary := fmt.Sprintf("freeze %s and %s, drain both tails, install both", s.in.A, s.in.B)
		err = start(ctx, protocol.ActivitySwapCutover, summary, args).Get(ctx, &evidence)
		if typeOf(err) != protocol.ErrFreezeTooLong {
			return evidence, err
		}
		s.block(ctx, protocol.CodeFreezeTooLong, reasonOf(err))
		if _, err := workflow.AwaitWithTimeout(ctx, s.pauseBeforeCopyingAgain(), func() bool { return s.in.Force }); err != nil {
			return evidence, err
		}
		s.round++
		if err := s.copyBoth(ctx); err != nil {
			return evidence, err
		}
	}
}

// confirm waits until both new owners are open. Nothing is cancelled any more: a cancel is answered that it came too late.
func (s *swap) confirm(cancellable workflow.Context, evidence protocol.SwapEvidence, committed protocol.SwapCommitted) (*protocol.SwapResult, error) {
	ctx, _ := workflow.NewDisconnectedContext(cancellable)
	s.enter(ctx, protocol.PhaseConfirm)
	var finished [2]protocol.FinishResult
	var finishing [2]workflow.Future
	for i := range finishing { // each for itself: what keeps one from opening does not keep the other
		finishing[i] = start(ctx, protocol.ActivityFinish, fmt.Sprintf("%s opens %s, %s redirects", s.claims[i].To, s.in.Sides()[i], s.claims[i].From),
			protocol.FinishArgs{StepArgs: s.step(i), Copy: s.copied[i]})
	}
	for i, finish := range finishing {
		err := finish.Get(ctx, &finished[i])
		if err != nil {
			_ = finishing[1].Get(ctx, nil)
			return nil, err
		}
		s.status.Sides[i].FrozenMS = finished[i].FrozenMS
	}
	s.status.FrozenMS = max(finished[0].FrozenMS, finished[1].FrozenMS)
	if cancellable.Err() != nil {
		s.status.TooLate = fmt.Sprintf("the cancel came too late: committed, %s is on %s and %s on %s; %s", s.in.A, s.claims[0].To, s.in.B, s.claims[1].To, s.toUndo())
	}
	return s.result(evidence, committed, finished), nil
}

// rollBack ends the claim of both sides and restores ownership, routing and disk. It runs on a context of its own, since the
// swap's may be the one that was cancelled. It returns the error the swap ends with.
func (s *swap) rollBack(ctx workflow.Context, cause error) error {
	if !s.claimed && typeOf(cause) == protocol.ErrRefused {
		return cause // nothing was claimed, nothing changed
	}
	cleanup, _ := workflow.NewDisconnectedContext(ctx)
	s.enter(cleanup, protocol.PhaseRollback)
	keep := (typeOf(cause) == protocol.ErrMoveLost && ctx.Err() == nil) || s.abandoned != nil
	args := protocol.SwapAbortArgs{SwapID: s.status.MoveID}
	for i := range args.Sides {
		args.Sides[i] = protocol.AbortArgs{StepArgs: s.step(i), Reason: reasonOf(cause), KeepStaging: keep}
	}
	var result protocol.AbortResult
	summary := fmt.Sprintf("take the swap back: %s and %s stay where they are", s.in.A, s.in.B)
	if err := start(cleanup, protocol.ActivitySwapAbort, summary, args).Get(cleanup, &result); err != nil {
		return fmt.Errorf("rolling back after %v: %w", cause, err)
	}
	if result.Committed {
		s.status.Committed = true
		return errCommittedBefore(fmt.Sprintf("%s and %s have changed places", s.in.A, s.in.B), cause)
	}
	return cause
}

// each runs one step for both sides at once. The first failure cancels the other side's step, which is waited for: nothing is
// compensated over a step that may still be running.
func (s *swap) each(ctx workflow.Context, step func(ctx workflow.Context, side int) error) error {
	ctx, stop := workflow.WithCancel(ctx)
	defer stop()
	var first error
	wait := workflow.NewWaitGroup(ctx)
	for i := range s.claims {
		wait.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer wait.Done()
			if err := step(ctx, i); err != nil && first == nil {
				first = err
				stop()
			}
		})
	}
	wait.Wait(ctx)
	return first
}
