package metastore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// AbortMove ends a move before its point of no return and frees the partition. It is the one write that settles an
// unknown CommitOwner: both take the row lock, and one wins. It is subject neither to the controller epoch nor to a
// pending recovery, so that it can always be won or be told who did (R14). Aborting twice is done; aborting a committed
// move is refused with the row.
//
// Everyone dies after it: the move id is dead for ever (R7); the source reopens when it sees the row without the move.
// The returned row is nil when the topic is gone. A row that may be older than what was acknowledged is not written on
// (R1): the move then waits for `portage reconcile`.
func (s *Store) AbortMove(ctx context.Context, moveID, by, reason string) (*Assignment, error) {
	return s.AbortMoveHolding(ctx, moveID, by, reason, Held{})
}

// AbortMoveHolding is AbortMove by an agent, refused when the row is older than the one it holds (R1).
func (s *Store) AbortMoveHolding(ctx context.Context, moveID, by, reason string, held Held) (*Assignment, error) {
	var after *Assignment
	err := s.guarded(ctx, "AbortMove", func(ctx context.Context, tx pgx.Tx) error {
		seen, err := readMove(ctx, tx, moveID)
		if err != nil {
			return err
		}
		if seen == nil {
			return &Refused{Code: CodeUnknownMove, Reason: fmt.Sprintf("there is no move %q; `portage cluster moves` lists them", moveID)}
		}
		row, err := lockAssignment(ctx, tx, seen.TopicID, seen.Partition)
		if err != nil {
			return err
		}
		move, err := lockMove(ctx, tx, moveID)
		if err != nil {
			return err
		}
		switch move.Ended() {
		case OutcomeCommitted:
			return &Refused{Code: CodeMoveCommitted, Row: row, Move: move,
				Reason: fmt.Sprintf("too late: move %s is committed, %s/%d is on %s; move it back to undo", moveID, move.Topic, move.Partition, move.ToBroker)}
		case OutcomeAborted:
			after = row
			return nil
		}
		if row != nil {
			if refused := refuseLineage(row, held); refused != nil {
				refused.Move = move
				return refused
			}
		}
		if row != nil && row.Moving() == moveID {
			after, err = change(ctx, tx, row, auditEntry{action: "abort_move", actor: by, moveID: moveID, reason: reason},
				"target = NULL, target_storage = NULL, move_id = NULL, promote_fence = NULL, last_move = $3", moveID)
			if err != nil {
				return err
			}
		} else {
			after = row
		}
		_, err = tx.Exec(ctx, `UPDATE moves SET outcome = 'aborted', outcome_by = $2, outcome_reason = $3, phase = 'aborted', ended_at = now() WHERE id = $1`, moveID, by, reason)
		return err
	})
	return after, err
}
