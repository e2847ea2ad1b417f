package metastore

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Snapshot is one consistent read of the whole fleet.
type Snapshot struct {
	FleetID     uuid.UUID
	Brokers     []Broker
	Topics      []Topic
	Assignments []Assignment
}

// snapshotTimeout bounds a read of the whole fleet, a million rows at the most.
const snapshotTimeout = 30 * time.Second

// ReadSnapshot reads brokers, topics and assignments as of one moment of the primary.
func (s *Store) ReadSnapshot(ctx context.Context) (*Snapshot, error) {
	var snap Snapshot
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return readFleet(ctx, tx, &snap)
	})
	if err != nil {
		return nil, err
	}
	return &snap, nil
}

func readFleet(ctx context.Context, tx pgx.Tx, snap *Snapshot) error {
	if err := tx.QueryRow(ctx, "SELECT id FROM fleet").Scan(&snap.FleetID); err != nil {
		return err
	}
	var err error
	if snap.Brokers, err = collect[Broker](ctx, tx, "SELECT "+brokerColumns+" FROM brokers ORDER BY node_id"); err != nil {
		return err
	}
	if snap.Topics, err = collect[Topic](ctx, tx, "SELECT "+topicColumns+" FROM topics ORDER BY name"); err != nil {
		return err
	}
	snap.Assignments, err = collect[Assignment](ctx, tx, "SELECT "+assignmentColumns+" FROM assignments a JOIN topics t ON t.id = a.topic_id ORDER BY t.name, a.partition")
	return err
}

// ReadAssignment reads one row from the primary; nil when there is none. A read never proves the outcome of a write (R6)
// and never opens a partition (R4).
func (s *Store) ReadAssignment(ctx context.Context, topicID uuid.UUID, partition int32) (*Assignment, error) {
	rows, err := s.q.Query(ctx, "SELECT "+assignmentColumns+" FROM assignments a JOIN topics t ON t.id = a.topic_id WHERE a.topic_id = $1 AND a.partition = $2", topicID, partition)
	if err != nil {
		return nil, err
	}
	return oneOrNil[Assignment](rows)
}

// FindAssignment reads one row by the topic's name; nil when topic or partition do not exist.
func (s *Store) FindAssignment(ctx context.Context, topic string, partition int32) (*Assignment, error) {
	rows, err := s.q.Query(ctx, "SELECT "+assignmentColumns+" FROM assignments a JOIN topics t ON t.id = a.topic_id WHERE t.name = $1 AND a.partition = $2", topic, partition)
	if err != nil {
		return nil, err
	}
	return oneOrNil[Assignment](rows)
}

// FindTopic reads one topic by name; nil when it does not exist.
func (s *Store) FindTopic(ctx context.Context, name string) (*Topic, error) {
	return readTopic(ctx, s.q, name)
}

// FindBroker reads one broker; nil when it does not exist.
func (s *Store) FindBroker(ctx context.Context, id string) (*Broker, error) {
	rows, err := s.q.Query(ctx, "SELECT "+brokerColumns+" FROM brokers WHERE id = $1", id)
	if err != nil {
		return nil, err
	}
	return oneOrNil[Broker](rows)
}

// Brokers lists all brokers that were not removed, by node id.
func (s *Store) Brokers(ctx context.Context) ([]Broker, error) {
	return collect[Broker](ctx, s.q, "SELECT "+brokerColumns+" FROM brokers WHERE NOT removed ORDER BY node_id")
}

// FindMove reads one move; nil when there is none.
func (s *Store) FindMove(ctx context.Context, id string) (*Move, error) {
	return readMove(ctx, s.q, id)
}

// Moves lists moves, newest first: the running ones, or with all the last `limit` of every outcome.
func (s *Store) Moves(ctx context.Context, all bool, limit int) ([]Move, error) {
	if all {
		return collect[Move](ctx, s.q, "SELECT "+moveColumns+" FROM moves ORDER BY started_at DESC LIMIT $1", limit)
	}
	return collect[Move](ctx, s.q, "SELECT "+moveColumns+" FROM moves WHERE finished_at IS NULL AND outcome IS DISTINCT FROM 'aborted' ORDER BY started_at DESC LIMIT $1", limit)
}

// MoveProgress is what a worker tells of a running move, for people; nothing is decided on it.
type MoveProgress struct {
	MoveID      string
	Phase       string
	BytesCopied int64
	Converged   *bool
	FrozenMS    *float64
	Finished    bool
}

// ReportMove records progress on a move's row.
func (s *Store) ReportMove(ctx context.Context, p MoveProgress) error {
	_, err := s.q.Exec(ctx, `UPDATE moves SET phase = COALESCE(NULLIF($2, ''), phase), bytes_copied = GREATEST(bytes_copied, $3), converged = COALESCE($4, converged),
		frozen_ms = COALESCE($5, frozen_ms), finished_at = CASE WHEN $6 THEN COALESCE(finished_at, now()) ELSE finished_at END WHERE id = $1`,
		p.MoveID, p.Phase, p.BytesCopied, p.Converged, p.FrozenMS, p.Finished)
	return err
}

// AuditEntry is one line of the audit, for display.
type AuditEntry struct {
	At        time.Time `db:"at" json:"at"`
	Action    string    `db:"action" json:"action"`
	Actor     string    `db:"actor" json:"actor"`
	MoveID    *string   `db:"move_id" json:"moveId,omitempty"`
	Reason    string    `db:"reason" json:"reason,omitempty"`
	Partition *int32    `db:"partition" json:"partition,omitempty"`
}

// Audit lists what happened to one partition, newest first.
func (s *Store) Audit(ctx context.Context, topicID uuid.UUID, partition int32, limit int) ([]AuditEntry, error) {
	return collect[AuditEntry](ctx, s.q, "SELECT at, action, actor, move_id, reason, partition FROM audit WHERE topic_id = $1 AND partition = $2 ORDER BY id DESC LIMIT $3", topicID, partition, limit)
}

func readMove(ctx context.Context, q querier, id string) (*Move, error) {
	rows, err := q.Query(ctx, "SELECT "+moveColumns+" FROM moves WHERE id = $1", id)
	if err != nil {
		return nil, err
	}
	return oneOrNil[Move](rows)
}

func collect[T any](ctx context.Context, q querier, sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[T])
}
