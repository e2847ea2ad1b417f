package metastore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"portage/internal/faults"
)

// AbortMove ends a move before its point of no return and frees the partition. It is the one write that settles an
// unknown CommitOwner: both take the row lock, and one wins. It is subject neither to the controller epoch nor to a
// pending recovery, so that it can always be won or be told who did (R14). Aborting twice is done; aborting a committed
// move is refused with the row.
//
// Given a swap, or the move that is one side of it, it ends both sides and frees both partitions, or neither (R32): a side
// that went on alone would stay frozen for a commit that can not come.
//
// Everyone dies after it: the move id is dead for ever (R7); the source reopens when it sees the row without the move.
// The returned row is nil when the topic is gone. A row that may be older than what was acknowledged is not written on
// (R1): the move then waits for `portage reconcile`.
func (s *Store) AbortMove(ctx context.Context, moveID, by, reason string) (*Assignment, error) {
	return s.AbortMoveHolding(ctx, moveID, by, reason, Held{})
}

// AbortMoveHolding is AbortMove by an agent, refused when the row of the named move is older than the one it holds (R1).
func (s *Store) AbortMoveHolding(ctx context.Context, moveID, by, reason string, held Held) (*Assignment, error) {
	var after *Assignment
	err := s.guarded(ctx, "AbortMove", func(ctx context.Context, tx pgx.Tx) error {
		sides, err := lockSides(ctx, tx, moveID)
		if err != nil {
			return err
		}
		if len(sides) == 0 {
			return &Refused{Code: CodeUnknownMove, Reason: fmt.Sprintf("there is no move %q; `portage cluster moves` lists them", moveID)}
		}
		for _, side := range sides {
			if !side.named(moveID) {
				continue
			}
			if refused := refuseAbort(side, held); refused != nil {
				return refused
			}
		}
		for i, side := range sides {
			row, err := abortLocked(ctx, tx, side, by, reason)
			if err != nil {
				return err
			}
			if i == 0 || side.move.ID == moveID {
				after = row
			}
		}
		return nil
	})
	return after, err
}

// refuseAbort says why a side that was named can not be aborted. The other side never stands in its way: when
// `portage reconcile` has ended it alone, or is needed for its row, that side is left to itself.
func refuseAbort(side side, held Held) *Refused {
	row, move := side.row, side.move
	switch move.Ended() {
	case OutcomeCommitted:
		return &Refused{Code: CodeMoveCommitted, Row: row, Move: move,
			Reason: fmt.Sprintf("too late: move %s is committed, %s/%d is on %s; move it back to undo", move.ID, move.Topic, move.Partition, move.ToBroker)}
	case OutcomeAborted:
		return nil
	}
	if row == nil {
		return nil
	}
	refused := refuseLineage(row, held)
	if refused != nil {
		refused.Move = move
	}
	return refused
}

// abortLocked frees one row and gives its move its outcome.
func abortLocked(ctx context.Context, tx pgx.Tx, side side, by, reason string) (after *Assignment, err error) {
	row, move := side.row, side.move
	if move.Ended() != "" || (row != nil && refuseLineage(row, Held{}) != nil) {
		return row, nil
	}
	after = row
	if row != nil && row.Moving() == move.ID {
		after, err = change(ctx, tx, row, auditEntry{action: "abort_move", actor: by, moveID: move.ID, reason: reason},
			"target = NULL, target_storage = NULL, move_id = NULL, promote_fence = NULL, last_move = $3", move.ID)
		if err != nil {
			return nil, err
		}
	}
	_, err = tx.Exec(ctx, `UPDATE moves SET outcome = 'aborted', outcome_by = $2, outcome_reason = $3, phase = 'aborted', ended_at = now() WHERE id = $1`, move.ID, by, reason)
	return after, err
}

// side is a move under its lock with the row it claimed; the row is nil when the topic is gone.
type side struct {
	move *Move
	row  *Assignment
}

// named reports whether an abort names the side itself, or the swap.
func (s side) named(moveID string) bool { return s.move.ID == moveID || value(s.move.Swap) == moveID }

// lockSides locks what one abort ends: a move and its row, or both sides of its swap. The rows come first, in the order of
// (topic id, partition), so that two writes on the same two rows wait for each other and never deadlock (R32).
func lockSides(ctx context.Context, tx pgx.Tx, moveID string) ([]side, error) {
	moves, err := collect[Move](ctx, tx, "SELECT "+moveColumns+` FROM moves WHERE id = $1 OR swap = $1 OR ($2 AND swap = (SELECT swap FROM moves WHERE id = $1))
		ORDER BY topic_id, partition`, moveID, faults.Enforced("R32"))
	if err != nil {
		return nil, err
	}
	sides := make([]side, len(moves))
	for i := range moves {
		if sides[i].row, err = lockAssignment(ctx, tx, moves[i].TopicID, moves[i].Partition); err != nil {
			return nil, err
		}
	}
	for i := range moves {
		if sides[i].move, err = lockMove(ctx, tx, moves[i].ID); err != nil {
			return nil, err
		}
		if sides[i].move == nil {
			return nil, errors.New("a move vanished while it was being locked")
		}
	}
	return sides, nil
}
