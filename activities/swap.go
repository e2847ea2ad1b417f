package activities

import (
	"context"
	"fmt"
	"sync"

	"go.temporal.io/sdk/activity"

	"portage/internal/faults"
	"portage/metastore"
	"portage/planner"
	"portage/workflows/protocol"
)

// SwapFacts gathers what stands for and against two partitions changing places. It changes nothing.
func (m *Moves) SwapFacts(ctx context.Context, sides [2]protocol.SwapPartition) (facts [2]planner.MoveFacts, err error) {
	var owners [2]string
	for i, side := range sides {
		row, err := m.Store.FindAssignment(ctx, side.Topic, *side.Partition)
		if err != nil {
			return facts, err
		}
		if row != nil {
			owners[i] = row.Owner
		}
	}
	for i, side := range sides {
		if facts[i], err = m.Facts(ctx, side.Topic, *side.Partition, owners[1-i]); err != nil {
			return facts, err
		}
	}
	return facts, nil
}

// SwapClaim checks the request and reserves both partitions, or neither. Claims whose workflow run is closed are released
// first.
//
// The worker dies after the write, or its reply is lost: the repeat finds its own claim. Postgres dies: waited for.
func (m *Moves) SwapClaim(ctx context.Context, args protocol.SwapClaimArgs) (protocol.SwapClaim, error) {
	info := activity.GetInfo(ctx).WorkflowExecution
	return claiming(ctx, m, fmt.Sprintf("%s and %s", args.Input.A, args.Input.B), func(ctx context.Context) (protocol.SwapClaim, error) {
		return m.claimSwapOnce(ctx, args, info.ID, info.RunID)
	})
}

func (m *Moves) claimSwapOnce(ctx context.Context, args protocol.SwapClaimArgs, workflowID, runID string) (claim protocol.SwapClaim, err error) {
	// A claim whose reply was lost is found again whatever has changed since.
	known, err := m.Store.SwapSides(ctx, args.SwapID)
	if err != nil {
		return claim, &metastore.Unknown{Write: "reading the swap", Cause: err}
	}
	if len(known) == 0 {
		if err := m.place(ctx, args.Input.Plan, args.Attempt, len(claim.Sides)); err != nil {
			return claim, err
		}
		if err := m.swapDrifted(ctx, args.Input); err != nil {
			return claim, err
		}
		facts, err := m.SwapFacts(ctx, args.Input.Sides())
		if err != nil {
			return claim, &metastore.Unknown{Write: "reading the swap's facts", Cause: err}
		}
		if err := objection(planner.CheckSwap(facts[0], facts[1]), args.Attempt); err != nil {
			return claim, err
		}
	}
	req := metastore.SwapRequest{SwapID: args.SwapID, WorkflowID: workflowID, RunID: runID, ControllerEpoch: m.ControllerEpoch, RequestedBy: args.Input.By, Reason: args.Input.Reason,
		Plan: args.Input.Plan, PlanSeq: args.Input.PlanSeq, Again: args.Attempt > 1}
	for i, side := range args.Input.Sides() {
		req.Sides[i] = metastore.Place{Topic: side.Topic, Partition: *side.Partition}
		req.Expect[i] = expected(side.Expect, args.Attempt)
	}
	claimed, err := m.Store.ClaimSwap(ctx, req)
	if err != nil {
		return claim, err
	}
	for i, side := range claimed {
		claim.Sides[i] = m.claimOf(side.Row, side.Move)
	}
	return claim, nil
}

// swapDrifted refuses a swap of which a side is not where its plan has it: what stands against it then would be about other
// brokers than the plan's. Versions are left to the claim, which sees them under lock.
func (m *Moves) swapDrifted(ctx context.Context, in protocol.SwapInput) error {
	for _, side := range in.Sides() {
		e := expected(side.Expect, 0)
		if e == nil {
			continue
		}
		row, err := m.Store.FindAssignment(ctx, side.Topic, *side.Partition)
		if err != nil {
			return &metastore.Unknown{Write: "reading the swap's rows", Cause: err}
		}
		e.Version = 0
		if row != nil && row.Moving() == "" {
			if drifted := e.Differs(row); drifted != nil {
				return drifted
			}
		}
	}
	return nil
}

// SwapOwners reads where both partitions are. It changes nothing.
func (m *Moves) SwapOwners(ctx context.Context, in protocol.SwapInput) (protocol.SwapOwners, error) {
	return patiently(ctx, m, protocol.CodeMetastoreUnreachable, func(ctx context.Context) (owners protocol.SwapOwners, err error) {
		for i, side := range in.Sides() {
			row, err := m.Store.FindAssignment(ctx, side.Topic, *side.Partition)
			switch {
			case err != nil:
				return owners, &metastore.Unknown{Write: "reading the owners", Cause: err}
			case row == nil:
				return owners, refused(metastore.CodeUnknownPartition, fmt.Sprintf("there is no partition %s any more", side))
			}
			owners.Brokers[i] = row.Owner
		}
		return owners, nil
	})
}

// SwapCutover freezes both sources, then drains both tails, each pair at once: the frozen time is the longer of the two, and
// no hop lies between. Nothing is frozen while a broker does not answer, since the other side would be frozen in vain.
//
// The worker dies: the freezes end by their leases, either of which takes the whole swap back, or the next attempt repeats
// freeze and drain, which answer the same. A source dies: its next process opens at a higher version, so its freeze is asked
// for again, and the other side's is answered as before while its lease lasts. A destination dies: the lease ends and the swap
// starts over; what was copied stays.
func (m *Moves) SwapCutover(ctx context.Context, args protocol.SwapCutoverArgs) (protocol.SwapEvidence, error) {
	return patiently(ctx, m, protocol.CodeParticipantUnreachable, func(ctx context.Context) (e protocol.SwapEvidence, err error) {
		var sides [2]*cutover
		for i := range sides {
			if sides[i], err = m.beginCutover(ctx, args.Sides[i]); err != nil {
				return e, err
			}
		}
		for _, side := range sides {
			if !m.answers(ctx, side.source) {
				return e, fmt.Errorf("%s does not answer, so nothing is frozen", side.source.ID)
			}
		}
		faults.Point("swap.before")
		if err := both(func(i int) error { return sides[i].freeze(ctx, m.Agents) }); err != nil {
			return e, err
		}
		faults.Point("swap.frozen")
		err = both(func(i int) (err error) {
			e.Sides[i], err = sides[i].drain(ctx, m.Agents)
			return err
		})
		if err != nil {
			return e, err
		}
		faults.Point("swap.drained")
		return e, nil
	})
}

// both does something for both sides at once and returns the first side's error before the second's. Whatever it was that
// failed, the caller asks for both again.
func both(do func(side int) error) error {
	var errs [2]error
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { errs[i] = do(i) })
	}
	group.Wait()
	if errs[0] != nil {
		return errs[0]
	}
	return errs[1]
}

// SwapCommit is the point of no return: CommitSwap, named with what both sources acknowledged and both destinations
// installed. It returns the new epochs.
//
// The reply is lost: repeated; the moves' own rows say whether it was done (R6). Refused: surely not done for either side,
// the claim is settled by SwapAbort. Everybody dies after it: the destinations act on their rows by themselves.
func (m *Moves) SwapCommit(ctx context.Context, args protocol.SwapCommitArgs) (protocol.SwapCommitted, error) {
	var done protocol.SwapCommitted
	commit := metastore.SwapCommit{SwapID: args.SwapID}
	for i, side := range args.Sides {
		commit.Sides[i] = commitOf(side.Claim, side.Evidence)
		done.Epochs[i] = side.Claim.Epoch + 1 // this swap's own; the row may have moved on, or be gone with its topic
	}
	_, err := patiently(ctx, m, protocol.CodeMetastoreUnreachable, func(ctx context.Context) (struct{}, error) {
		faults.Point("swapcommit.before")
		_, err := m.Store.CommitSwap(ctx, commit)
		return struct{}{}, orSettled(err)
	})
	if err != nil {
		return done, err
	}
	faults.Point("swapcommit.after")
	return done, nil
}

// SwapAbort settles the swap before its point of no return and restores what it touched, on both sides (R32): AbortMove comes
// before anything is thawed or dropped (R6). It finds out when it comes too late.
//
// Anyone dies: repeated. A source that is away thaws by itself when it is back; a destination that is away puts its staging
// away by itself when it sees the row.
func (m *Moves) SwapAbort(ctx context.Context, args protocol.SwapAbortArgs) (protocol.AbortResult, error) {
	return patiently(ctx, m, protocol.CodeMetastoreUnreachable, func(ctx context.Context) (protocol.AbortResult, error) {
		faults.Point("swapabort.before")
		_, err := m.Store.AbortMove(ctx, args.SwapID, m.ControllerID, args.Sides[0].Reason)
		if _, missing := metastore.RefusedWith(err, metastore.CodeUnknownMove); missing {
			// It never came to a claim, or the claim is still on its way: then it must find its ids dead (R7).
			for _, side := range args.Sides {
				if err := m.bury(ctx, side); err != nil {
					return protocol.AbortResult{}, err
				}
			}
			return protocol.AbortResult{}, nil
		}
		if _, committed := metastore.RefusedWith(err, metastore.CodeMoveCommitted); committed {
			return protocol.AbortResult{Committed: true}, nil
		}
		if err != nil {
			return protocol.AbortResult{}, err
		}
		faults.Point("swapabort.after")
		_ = both(func(i int) error { m.restore(ctx, args.Sides[i]); return nil })
		return protocol.AbortResult{}, nil
	})
}
