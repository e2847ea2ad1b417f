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
	At        time.Time // when the owner last told: of one that does not answer any more it stands still
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
		// What an owner last told is of loads_at, whichever figures it had to tell. An older agent does not say when; its heartbeat does.
		// An owner whose report is of an older epoch has not reported as the owner yet: its partition is there, and nothing is said of it.
		rows, err := tx.Query(ctx, `SELECT a.topic_id, a.partition, COALESCE(l.process_instance, $1), COALESCE(l.disk_bytes, 0), COALESCE(l.produced_bytes, 0), COALESCE(l.consumed_bytes, 0),
				COALESCE(CASE WHEN b.loads_at > b.heartbeat_at - interval '1 minute' THEN b.loads_at END, b.heartbeat_at, now())
			FROM assignments a LEFT JOIN (load_reports l JOIN brokers b ON b.id = l.broker AND b.process_instance = l.process_instance)
				ON a.topic_id = l.topic_id AND a.partition = l.partition AND a.owner = l.broker AND l.epoch = a.epoch`, uuid.Nil)
		if err != nil {
			return err
		}
		reports, times, err := packSamples(rows)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO load_samples (at, reports, reported) VALUES (now(), $1, $2)", reports, times); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM load_samples WHERE id <= (SELECT id FROM load_samples ORDER BY id DESC OFFSET $1 LIMIT 1)", max(keep, 1))
		taken = err == nil
		return err
	})
	return taken, err
}

// packSamples packs the samples, and the times of their reports in the same order.
func packSamples(rows pgx.Rows) (reports, times []byte, err error) {
	defer rows.Close()
	r, t := newPacking(), newPacking()
	for rows.Next() {
		var l LoadSample
		if err := rows.Scan(&l.TopicID, &l.Partition, &l.Process, &l.Disk, &l.Produced, &l.Consumed, &l.At); err != nil {
			return nil, nil, err
		}
		record := append(r.record[:0], l.TopicID[:]...)
		record = binary.BigEndian.AppendUint32(record, uint32(l.Partition))
		record = append(record, l.Process[:]...)
		for _, n := range []int64{l.Disk, l.Produced, l.Consumed} {
			record = binary.BigEndian.AppendUint64(record, uint64(n))
		}
		r.add(record)
		t.add(binary.BigEndian.AppendUint64(t.record[:0], uint64(l.At.UnixMicro())))
	}
	return r.close(), t.close(), rows.Err()
}

// packing is records one after the other, compressed. Nothing fails: it is written to memory.
type packing struct {
	packed bytes.Buffer
	z      *gzip.Writer
	record []byte // where the next one is put together
}

func newPacking() *packing {
	p := &packing{record: make([]byte, 0, sampleBytes)}
	p.z, _ = gzip.NewWriterLevel(&p.packed, gzip.BestSpeed) // fails only for an unknown level
	return p
}

func (p *packing) add(record []byte) { _, _ = p.z.Write(record) }

func (p *packing) close() []byte {
	_ = p.z.Close()
	return p.packed.Bytes()
}

// LoadSamples gives the newest passes to each, the oldest first, one at a time.
func (s *Store) LoadSamples(ctx context.Context, newest int, each func(LoadPass) error) error {
	rows, err := s.pool.Query(ctx, "SELECT at, reports, reported FROM (SELECT id, at, reports, reported FROM load_samples ORDER BY id DESC LIMIT $1) n ORDER BY id", newest)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		pass := LoadPass{}
		var reports, times []byte
		if err := rows.Scan(&pass.At, &reports, &times); err != nil {
			return err
		}
		if pass.Samples, err = unpackSamples(reports, times, pass.At); err != nil {
			return fmt.Errorf("the samples of %s: %w", pass.At.UTC().Format(time.RFC3339), err)
		}
		if err := each(pass); err != nil {
			return err
		}
	}
	return rows.Err()
}

// unpackSamples are the samples; without times, which older binaries do not write, all are of the pass's.
func unpackSamples(reports, times []byte, at time.Time) (all []LoadSample, err error) {
	var record [sampleBytes]byte
	number := func(from int) int64 { return int64(binary.BigEndian.Uint64(record[from:])) }
	err = unpack(reports, record[:], func() {
		all = append(all, LoadSample{TopicID: uuid.UUID(record[:16]), Partition: int32(binary.BigEndian.Uint32(record[16:])), Process: uuid.UUID(record[20:36]),
			Disk: number(36), Produced: number(44), Consumed: number(52), At: at})
	})
	if err != nil || times == nil {
		return all, err
	}
	n := 0
	err = unpack(times, record[:8], func() {
		if n < len(all) {
			all[n].At = time.UnixMicro(number(0))
		}
		n++
	})
	if err == nil && n != len(all) {
		err = fmt.Errorf("%d reports have %d times", len(all), n)
	}
	return all, err
}

// unpack reads one record after the other.
func unpack(packed, record []byte, each func()) error {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	r := bufio.NewReader(z)
	for {
		if _, err := io.ReadFull(r, record); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		each()
	}
}
