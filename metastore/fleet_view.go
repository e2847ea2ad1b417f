package metastore

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// FleetView is one consistent read of everything a plan is made of.
type FleetView struct {
	Snapshot
	At time.Time // of the read, by Postgres's clock
	// Capacities are what operators set of brokers; a broker that is not in it has nothing set.
	Capacities map[string]Capacity
	Replicas   []Replica
	// Disk are the bytes on disk as was last reported of the latest epoch: of a partition that has just moved that is its former
	// owner's report, until the new owner has made one.
	Disk      map[PartitionID]int64
	Cooldowns []Cooldown
}

// PartitionID names a partition by its topic's id.
type PartitionID struct {
	TopicID   uuid.UUID
	Partition int32
}

// Capacity is what an operator set of a broker for the planner; 0: not set.
type Capacity struct {
	DiskBytes      int64   `json:"diskBytes,omitempty"`
	NetBytesPerSec int64   `json:"netBytesPerSec,omitempty"`
	Weight         float64 `json:"weight,omitempty"`
}

// Replica is one row of replicas.
type Replica struct {
	TopicID   uuid.UUID `db:"topic_id"`
	Partition int32     `db:"partition"`
	Broker    string    `db:"broker"`
	Role      string    `db:"role"`
}

// Cooldown keeps a broker or a partition out of plans until a moment, by Postgres's clock. Subject is "broker/b1" or
// "partition/<topic id>/3".
type Cooldown struct {
	Subject   string    `db:"subject"`
	Until     time.Time `db:"until"`
	Reason    string    `db:"reason"`
	Rebalance string    `db:"rebalance"` // the id of the one it comes of; may be empty
}

// BrokerSubject and PartitionSubject name what cools.
func BrokerSubject(broker string) string { return "broker/" + broker }

// PartitionSubject names a partition by its topic's id, so that a recreated topic does not inherit it.
func PartitionSubject(topic uuid.UUID, partition int32) string {
	return fmt.Sprintf("partition/%s/%d", topic, partition)
}

// ReadFleet reads the fleet as of one moment of the primary.
func (s *Store) ReadFleet(ctx context.Context) (*FleetView, error) {
	v := &FleetView{Capacities: map[string]Capacity{}, Disk: map[PartitionID]int64{}}
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := readFleet(ctx, tx, &v.Snapshot); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, "SELECT now()").Scan(&v.At); err != nil {
			return err
		}
		var err error
		if v.Replicas, err = collect[Replica](ctx, tx, "SELECT topic_id, partition, broker, role FROM replicas"); err != nil {
			return err
		}
		if v.Cooldowns, err = collect[Cooldown](ctx, tx, "SELECT subject, until, reason, rebalance FROM cooldowns WHERE until > now()"); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "SELECT id, capacity FROM brokers WHERE capacity <> '{}'")
		if err != nil {
			return err
		}
		var id string
		var capacity Capacity
		if _, err := pgx.ForEachRow(rows, []any{&id, &capacity}, func() error {
			v.Capacities[id], capacity = capacity, Capacity{}
			return nil
		}); err != nil {
			return err
		}
		rows, err = tx.Query(ctx, `SELECT DISTINCT ON (l.topic_id, l.partition) l.topic_id, l.partition, l.disk_bytes FROM load_reports l
			JOIN assignments a ON a.topic_id = l.topic_id AND a.partition = l.partition ORDER BY l.topic_id, l.partition, l.epoch DESC, (a.owner = l.broker) DESC`)
		if err != nil {
			return err
		}
		var p PartitionID
		var disk int64
		_, err = pgx.ForEachRow(rows, []any{&p.TopicID, &p.Partition, &disk}, func() error {
			v.Disk[p] = disk
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Cool keeps subjects out of plans for a while, all but those of the named rebalance; what cools longer already goes on as it is.
func (s *Store) Cool(ctx context.Context, subjects []string, d time.Duration, reason, rebalance string) error {
	if d <= 0 || len(subjects) == 0 {
		return nil
	}
	_, err := s.q.Exec(ctx, `INSERT INTO cooldowns (subject, until, reason, rebalance) SELECT DISTINCT s, now() + $2::interval, $3, $4 FROM unnest($1::text[]) AS s
		ON CONFLICT (subject) DO UPDATE SET until = EXCLUDED.until, reason = EXCLUDED.reason, rebalance = EXCLUDED.rebalance WHERE cooldowns.until < EXCLUDED.until`, subjects, d, reason, rebalance)
	return err
}
