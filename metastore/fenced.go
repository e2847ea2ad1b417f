package metastore

import (
	"context"

	"github.com/google/uuid"
)

// Fenced is a partition whose owner fences itself (R2).
type Fenced struct {
	TopicID   uuid.UUID `db:"topic_id"`
	Partition int32     `db:"partition"`
	MoveID    string    `db:"promote_fence"`
}

// ReadFenced lists the partitions that a broker owns under a claim that may promote over it. Asked after an acknowledged
// heartbeat it proves that nothing was promoted before that heartbeat; what would be promoted after it names an older counter
// and is refused (R2).
func (s *Store) ReadFenced(ctx context.Context, broker string) ([]Fenced, error) {
	return collect[Fenced](ctx, s.q, "SELECT topic_id, partition, promote_fence FROM assignments WHERE owner = $1 AND promote_fence = move_id", broker)
}
