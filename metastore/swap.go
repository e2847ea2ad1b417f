package metastore

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"portage/internal/faults"
)

// A swap is one claim on two partitions of two owners, each of which goes to where the other is. Each side is a move of its
// own, with its own id, row and copy session, so that an agent acts on its row as it does in any move; what begins and ends
// them is one transaction for both (R32). Rows are locked in the order of (topic id, partition), moves after them.

// SwapSide is the id of the move that is one side of a swap; side is 0 or 1.
func SwapSide(swapID string, side int) string { return swapID + "." + strconv.Itoa(side) }

// Place is a partition by its topic's name.
type Place struct {
	Topic     string
	Partition int32
}

// SwapRequest asks for two partitions to be claimed for one swap.
type SwapRequest struct {
	SwapID string
	Sides  [2]Place
	// Expect, where there is one, is what that side's row must be for the claim to be made: what a plan was made of.
	Expect          [2]*ExpectedRow
	WorkflowID      string
	RunID           string
	ControllerEpoch int64 // fences new claims only (R15)
	RequestedBy     string
	Reason          string
	// Plan and PlanSeq name the action of a plan that this swap carries out. Both moves carry them, so that what takes a plan
	// back finds both.
	Plan    string
	PlanSeq int
	// Again: the swap has begun before, under another id, so it waits for no place in the fleet.
	Again bool
}

// Claimed is one side of a claimed swap.
type Claimed struct {
	Row  *Assignment
	Move *Move
}

// ClaimSwap reserves two partitions, each for the other's owner, or neither. It refuses what ClaimMove refuses of either
// side, and two partitions of one owner; one side that is not as expected refuses both. The answer is in the order of the request.
//
// Everyone dies after it: both rows carry the claim, both sources serve on, the workflow repeats the claim and finds its
// own. A claim whose workflow is gone is taken back by AbortMove, from both.
func (s *Store) ClaimSwap(ctx context.Context, req SwapRequest) ([2]Claimed, error) {
	var claimed [2]Claimed
	err := s.guarded(ctx, "ClaimSwap", func(ctx context.Context, tx pgx.Tx) error {
		if err := lockPlaces(ctx, tx, req.Plan); err != nil {
			return err
		}
		rows, err := lockBoth(ctx, tx, req.Sides)
		if err != nil {
			return err
		}
		if rows[0].Owner == rows[1].Owner {
			for i, expected := range req.Expect {
				if drifted := expected.Differs(rows[i]); drifted != nil {
					return drifted // that is why they are
				}
			}
			return &Refused{Code: CodeSameOwner, Row: rows[0], Reason: fmt.Sprintf("%s and %s are both on %s; there is nothing to swap", rows[0].Name(), rows[1].Name(), rows[0].Owner)}
		}
		for i, row := range rows {
			side := ClaimRequest{MoveID: SwapSide(req.SwapID, i), Kind: KindSwap, Topic: row.Topic, Partition: row.Partition, To: rows[1-i].Owner, WorkflowID: req.WorkflowID,
				RunID: req.RunID, ControllerEpoch: req.ControllerEpoch, RequestedBy: req.RequestedBy, Reason: req.Reason, OnSourceLoss: LossNever,
				Expect: req.Expect[i], Plan: req.Plan, PlanSeq: req.PlanSeq, swap: req.SwapID}
			if i == 0 && !req.Again {
				side.places = len(rows)
			}
			if !faults.Enforced("R32") {
				side.OnSourceLoss = LossAsk // a person may promote one side alone
			}
			side.normal()
			if claimed[i].Row, claimed[i].Move, err = claimLocked(ctx, tx, side, row); err != nil {
				return err
			}
		}
		return nil
	})
	return claimed, err
}

// lockBoth finds and locks the two rows of a swap, in the order of (topic id, partition), and returns them in the order asked.
func lockBoth(ctx context.Context, tx pgx.Tx, places [2]Place) (rows [2]*Assignment, err error) {
	var topics [2]*Topic
	for i, place := range places {
		if topics[i], err = movableTopic(ctx, tx, place.Topic); err != nil {
			return rows, err
		}
	}
	for _, i := range lockOrder(topics[0].ID, topics[1].ID, places[0].Partition, places[1].Partition) {
		if rows[i], err = lockAssignment(ctx, tx, topics[i].ID, places[i].Partition); err != nil {
			return rows, err
		}
		if rows[i] == nil {
			return rows, noSuchPartition(topics[i], places[i].Partition)
		}
	}
	return rows, nil
}

// lockOrder is the order in which two rows are locked by every write that takes both (R32): without it, two writes that
// name them the other way round would wait for each other.
func lockOrder(topicA, topicB uuid.UUID, partitionA, partitionB int32) [2]int {
	before := bytes.Compare(topicA[:], topicB[:])
	if faults.Enforced("R32") && (before > 0 || (before == 0 && partitionA > partitionB)) {
		return [2]int{1, 0}
	}
	return [2]int{0, 1}
}

// SwapCommit is the evidence CommitSwap needs: that of both sides, each under its own freeze.
type SwapCommit struct {
	SwapID string
	Sides  [2]Commit
}

// CommitSwap makes each destination the owner of its side: the point of no return of a swap. Both rows flip in one
// transaction, or neither: evidence of one side that is stale refuses the whole (R32). The rows come in the order asked.
//
// Everyone dies just before: the rows are the sources', whose leases end in AbortMove, for both. Just after: both
// destinations hold their installed copies and open by themselves. Reply lost: repeated; the moves' own rows say whether it
// was done, also after later moves of either partition (R6).
func (s *Store) CommitSwap(ctx context.Context, c SwapCommit) ([2]*Assignment, error) {
	var after [2]*Assignment
	if !faults.Enforced("R32") { // one row after the other
		var last error
		for i, side := range c.Sides {
			row, err := s.CommitOwner(ctx, side)
			if after[i] = row; err != nil {
				last = err
			}
		}
		return after, last
	}
	err := s.guarded(ctx, "CommitSwap", func(ctx context.Context, tx pgx.Tx) error {
		var rows [2]*Assignment
		var moves [2]*Move
		order := lockOrder(c.Sides[0].TopicID, c.Sides[1].TopicID, c.Sides[0].Partition, c.Sides[1].Partition)
		for _, i := range order {
			var err error
			if rows[i], err = lockAssignment(ctx, tx, c.Sides[i].TopicID, c.Sides[i].Partition); err != nil {
				return err
			}
		}
		for _, i := range order {
			var err error
			if moves[i], err = lockMove(ctx, tx, c.Sides[i].MoveID); err != nil {
				return err
			}
		}
		if committedBefore(c.Sides[0], rows[0], moves[0]) && committedBefore(c.Sides[1], rows[1], moves[1]) {
			after = rows
			return nil
		}
		for i, side := range c.Sides {
			if moves[i] != nil && value(moves[i].Swap) != c.SwapID {
				return &Refused{Code: CodeUnknownMove, Row: rows[i], Move: moves[i], Reason: fmt.Sprintf("move %s is no side of swap %s", side.MoveID, c.SwapID)}
			}
			if err := committable(ctx, tx, side, rows[i], moves[i]); err != nil {
				return err
			}
		}
		for i, side := range c.Sides {
			var err error
			if after[i], err = commitLocked(ctx, tx, side, rows[i], moves[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return after, err
}

// SwapSides reads the moves of a swap, in the order in which it was asked for; empty when there is no such swap.
func (s *Store) SwapSides(ctx context.Context, swapID string) ([]Move, error) {
	return collect[Move](ctx, s.q, "SELECT "+moveColumns+" FROM moves WHERE swap = $1 ORDER BY id", swapID)
}
