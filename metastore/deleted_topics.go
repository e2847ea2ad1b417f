package metastore

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// DeletedTopic is the proof that a topic was deleted. A topic that is merely absent may be missing from an older copy of
// the metastore, so that nothing is put away or swept for its absence.
type DeletedTopic struct {
	ID   uuid.UUID `db:"topic_id" json:"id"`
	Name string    `db:"name" json:"name"`
	At   time.Time `db:"deleted_at" json:"at"`
	By   string    `db:"deleted_by" json:"by"`
}

// DeletedTopics reads which of the given topics were deleted.
func (s *Store) DeletedTopics(ctx context.Context, ids []uuid.UUID) ([]DeletedTopic, error) {
	return collect[DeletedTopic](ctx, s.q, "SELECT topic_id, name, deleted_at, deleted_by FROM deleted_topics WHERE topic_id = ANY($1)", ids)
}
