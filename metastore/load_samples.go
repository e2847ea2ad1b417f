package metastore

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// LoadSample is what one pass saw of one partition at its owner.
type LoadSample struct {
	TopicID   uuid.UUID
	Partition int32
	Process   uuid.UUID // of the owner's, which the sums count from; nil: the owner has not reported as the owner yet
	Disk      int64
	Produced  int64 // bytes since the process started
	Consumed  int64
}

// LoadPass is what one pass saw of all.
type LoadPass struct {
	At      time.Time
	Samples []LoadSample
}

// sampleBytes is one sample as it is kept.
const sampleBytes = 16 + 4 + 16 + 8 + 8 + 8

// SampleLoads keeps what the owners' newest reports say as one pass, and the newest keep passes. It does nothing when a
// pass was taken less than half of every ago, so any number of workers may call it. It reports whether a pass was taken.
//
// Everyone dies before it: a pass is missing, the next difference spans two. After it, or the reply is lost: a repeat
// finds the pass.
func (s *Store) SampleLoads(ctx context.Context, every time.Duration, keep int) (taken bool, err error) {
	err = s.guarded(ctx, "SampleLoads", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('portage_load_samples'))"); err != nil {
			return err
		}
		var recent bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM load_samples WHERE at > now() - $1::interval / 2)", every).Scan(&recent); err != nil || recent {
			return err
		}
		// An owner whose report is of an older epoch has not reported as the owner yet: its partition is there, and nothing is said of it.
		rows, err := tx.Query(ctx, `SELECT a.topic_id, a.partition, COALESCE(l.process_instance, $1), COALESCE(l.disk_bytes, 0), COALESCE(l.produced_bytes, 0), COALESCE(l.consumed_bytes, 0)
			FROM assignments a LEFT JOIN (load_reports l JOIN brokers b ON b.id = l.broker AND b.process_instance = l.process_instance)
				ON a.topic_id = l.topic_id AND a.partition = l.partition AND a.owner = l.broker AND l.epoch = a.epoch`, uuid.Nil)
		if err != nil {
			return err
		}
		packed, err := packSamples(rows)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO load_samples (at, reports) VALUES (now(), $1)", packed); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM load_samples WHERE id <= (SELECT id FROM load_samples ORDER BY id DESC OFFSET $1 LIMIT 1)", max(keep, 1))
		taken = err == nil
		return err
	})
	return taken, err
}

func packSamples(rows pgx.Rows) ([]byte, error) {
	defer rows.Close()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	record := make([]byte, 0, sampleBytes)
	for rows.Next() {
		var l LoadSample
		if err := rows.Scan(&l.TopicID, &l.Partition, &l.Process, &l.Disk, &l.Produced, &l.Consumed); err != nil {
			return nil, err
		}
		record = append(record[:0], l.TopicID[:]...)
		record = binary.BigEndian.AppendUint32(record, uint32(l.Partition))
		record = append(record, l.Process[:]...)
		for _, n := range []int64{l.Disk, l.Produced, l.Consumed} {
			record = binary.BigEndian.AppendUint64(record, uint64(n))
		}
		if _, err := w.Write(record); err != nil {
			return nil, err
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}

// LoadSamples gives the newest passes to each, the oldest first, one at a time.
func (s *Store) LoadSamples(ctx context.Context, newest int, each func(LoadPass) error) error {
	rows, err := s.pool.Query(ctx, "SELECT at, reports FROM (SELECT id, at, reports FROM load_samples ORDER BY id DESC LIMIT $1) n ORDER BY id", newest)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var at time.Time
		var packed []byte
		if err := rows.Scan(&at, &packed); err != nil {
			return err
		}
		samples, err := unpackSamples(packed)
		if err != nil {
			return fmt.Errorf("the samples of %s: %w", at.UTC().Format(time.RFC3339), err)
		}
		if err := each(LoadPass{at, samples}); err != nil {
			return err
		}
	}
	return rows.Err()
}

func unpackSamples(packed []byte) ([]LoadSample, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(z)
	var all []LoadSample
	var record [sampleBytes]byte
	for {
		if _, err := io.ReadFull(r, record[:]); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		number := func(at int) int64 { return int64(binary.BigEndian.Uint64(record[at:])) }
		all = append(all, LoadSample{TopicID: uuid.UUID(record[:16]), Partition: int32(binary.BigEndian.Uint32(record[16:])), Process: uuid.UUID(record[20:36]),
			Disk: number(36), Produced: number(44), Consumed: number(52)})
	}
}
