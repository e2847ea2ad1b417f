package metastore

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// HeartbeatReport is what a broker's process says of itself every few seconds.
type HeartbeatReport struct {
	Broker                        string
	Process, Storage              uuid.UUID
	DiskTotalBytes, DiskFreeBytes int64
	Quarantined                   int // copies in quarantine
	// Loads are of the partitions whose figures changed since they were last acknowledged; the others' stand where they were.
	// Nil: this heartbeat does not tell.
	Loads   []Load
	Counter int64 // the last counter this process got; 0 before the first
}

// Load is one open partition of the reporting broker. The sums are bytes since the process started; copies never count.
type Load struct {
	TopicID       uuid.UUID `db:"topic_id"`
	Partition     int32     `db:"partition"`
	Epoch         int32     `db:"epoch"`
	LogEnd        int64     `db:"log_end"` // durable
	DiskBytes     int64     `db:"disk_bytes"`
	ProducedBytes int64     `db:"produced_bytes"`
	ConsumedBytes int64     `db:"consumed_bytes"`
}

// Heartbeat raises the broker's counter, keeps its reports in the same transaction, and returns the counter. It is
// refused once another process has registered under the same id (CodeSuperseded): that process serves now. A counter
// below the one this process got before is no successor's but an older metastore's (CodeMetastoreOlder, R1): the agent
// registers again and serves on.
func (s *Store) Heartbeat(ctx context.Context, h HeartbeatReport) (counter int64, err error) {
	topics, numbers, epochs := make([]uuid.UUID, len(h.Loads)), make([]int32, len(h.Loads)), make([]int32, len(h.Loads))
	ends, disk, produced, consumed := make([]int64, len(h.Loads)), make([]int64, len(h.Loads)), make([]int64, len(h.Loads)), make([]int64, len(h.Loads))
	for i, l := range h.Loads {
		topics[i], numbers[i], epochs[i], ends[i] = l.TopicID, l.Partition, l.Epoch, l.LogEnd
		disk[i], produced[i], consumed[i] = l.DiskBytes, l.ProducedBytes, l.ConsumedBytes
	}
	err = s.q.QueryRow(ctx, `WITH beat AS (
			UPDATE brokers SET heartbeat = heartbeat + 1, heartbeat_at = now(), disk_total_bytes = $3, disk_free_bytes = $4, quarantined_copies = $13,
				loads_at = CASE WHEN $14 THEN now() ELSE loads_at END
			WHERE id = $1 AND process_instance = $2 AND NOT removed RETURNING heartbeat
		), report AS (
			INSERT INTO load_reports (broker, process_instance, storage_instance, topic_id, partition, epoch, log_end, disk_bytes, produced_bytes, consumed_bytes)
			SELECT $1, $2, $5, l.* FROM beat, unnest($6::uuid[], $7::int[], $8::int[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[]) AS l
			ON CONFLICT (broker, topic_id, partition) DO UPDATE SET process_instance = EXCLUDED.process_instance, storage_instance = EXCLUDED.storage_instance,
				epoch = EXCLUDED.epoch, log_end = EXCLUDED.log_end, disk_bytes = EXCLUDED.disk_bytes, produced_bytes = EXCLUDED.produced_bytes,
				consumed_bytes = EXCLUDED.consumed_bytes, reported_at = now()
		) SELECT heartbeat FROM beat`,
		h.Broker, h.Process, h.DiskTotalBytes, h.DiskFreeBytes, h.Storage, topics, numbers, epochs, ends, disk, produced, consumed, h.Quarantined, h.Loads != nil).Scan(&counter)
	if !errors.Is(err, pgx.ErrNoRows) {
		return counter, err
	}
	known, err := s.FindBroker(ctx, h.Broker)
	if err != nil {
		return 0, err
	}
	if known == nil || (!known.Removed && known.Heartbeat < h.Counter) {
		return 0, &Refused{Write: "Heartbeat", Code: CodeMetastoreOlder,
			Reason: fmt.Sprintf("the metastore's row of broker %q is older than this process's last heartbeat: the metastore went back in time", h.Broker)}
	}
	return 0, &Refused{Write: "Heartbeat", Code: CodeSuperseded, Reason: fmt.Sprintf("another process has registered as broker %q, or it was removed", h.Broker)}
}

// ReadLoads reads what a broker last reported of the partitions it had open on a storage, by whichever process.
func (s *Store) ReadLoads(ctx context.Context, broker string, storage uuid.UUID) ([]Load, error) {
	return collect[Load](ctx, s.q, `SELECT topic_id, partition, epoch, log_end, disk_bytes, produced_bytes, consumed_bytes
		FROM load_reports WHERE broker = $1 AND storage_instance = $2`, broker, storage)
}
