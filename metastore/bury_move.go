package metastore

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// BuryMove ends a move id that has claimed nothing (yet): a claim that is still on its way is refused when it arrives, since
// the id is dead for ever (R7). Without it an abort that overtakes its own claim would leave the claim standing.
//
// Everyone dies before it: the claim may stand, and the Supervisor takes it back once the workflow's run is closed (R17).
// After it: the id is dead. The reply is lost: repeated, which changes nothing. It is refused with CodeAlreadyMoving when the
// claim was first: then AbortMove ends it.
func (s *Store) BuryMove(ctx context.Context, moveID, topic string, partition int32, to, by, reason string) error {
	return s.guarded(ctx, "BuryMove", func(ctx context.Context, tx pgx.Tx) error {
		topicID := uuid.Nil
		if known, err := readTopic(ctx, tx, topic); err != nil {
			return err
		} else if known != nil {
			topicID = known.ID
		}
		// A claim by the same id that is not committed yet is waited for here, by the primary key.
		tag, err := tx.Exec(ctx, `INSERT INTO moves (id, kind, topic_id, topic, partition, from_broker, to_broker, workflow_id, run_id, claim_version, phase, outcome, outcome_by,
			outcome_reason, ended_at, finished_at) VALUES ($1, 'buried', $2, $3, $4, '', $5, '', '', 0, 'aborted', 'aborted', $6, $7, now(), now()) ON CONFLICT (id) DO NOTHING`,
			moveID, topicID, topic, partition, to, by, reason)
		if err != nil || tag.RowsAffected() == 1 {
			return err
		}
		move, err := readMove(ctx, tx, moveID)
		if err != nil {
			return err
		}
		if move != nil && move.Ended() == OutcomeAborted {
			return nil
		}
		return &Refused{Code: CodeAlreadyMoving, Move: move, Reason: fmt.Sprintf("move %s has claimed its partition meanwhile: abort it", moveID)}
	})
}
