package metastore

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Contradict marks a row that an agent has found older than the one it holds, so that no guarded write of anyone changes
// its owner before `portage reconcile`: a worker holds no rows and would not notice (R1). The version stays, for nothing
// that the row says has changed. It is done, too, when the row is marked already or is not older any more.
//
// The agent dies before it: the next agent that reads the row, or the same after its restart, marks it. The reply is
// lost: repeated at the next read.
func (s *Store) Contradict(ctx context.Context, topicID uuid.UUID, partition int32, broker string, held Held) error {
	return s.guarded(ctx, "Contradict", func(ctx context.Context, tx pgx.Tx) error {
		row, err := lockAssignment(ctx, tx, topicID, partition)
		if err != nil || row == nil || row.Restored || !row.Older(held) {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE assignments SET timeline = $3 WHERE topic_id = $1 AND partition = $2", topicID, partition, contradicted); err != nil {
			return err
		}
		entry := auditEntry{action: "contradict", actor: broker, topicID: &topicID, topic: row.Topic, partition: &partition, before: row, after: held,
			reason: "the agent holds a newer row"}
		return entry.write(ctx, tx)
	})
}
