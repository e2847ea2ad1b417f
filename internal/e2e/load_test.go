package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	loadPerSecond = 400
	loadKeys      = 16
	loadBytes     = 512
)

// load is a steady, keyed, idempotent writer to partition 0 of the world's topic, and a reader that follows it. It keeps
// every acknowledged record outside the fleet.
type load struct {
	w       *world
	writer  *kgo.Client
	reader  *kgo.Client
	stop    context.CancelFunc
	writing sync.WaitGroup
	reading sync.WaitGroup
	filled  int

	mu     sync.Mutex       // guards everything below
	acked  map[int64]string // offset → "key/sequence"
	errs   []error
	sent   int
	read   map[int64]string
	latest int64
	more   chan struct{} // closed and renewed at every acknowledgement
}

// startLoad begins to write and read; finish ends it and compares.
func (w *world) startLoad() *load {
	w.t.Helper()
	l := &load{w: w, acked: map[int64]string{}, read: map[int64]string{}, latest: -1, more: make(chan struct{})}
	var err error
	l.writer, err = kgo.NewClient(kgo.SeedBrokers(w.Bootstrap()...), kgo.DefaultProduceTopic(w.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	w.must(err)
	l.reader, err = kgo.NewClient(kgo.SeedBrokers(w.Bootstrap()...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{w.topic: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchMaxWait(200*time.Millisecond))
	w.must(err)
	ctx, stop := context.WithCancel(w.ctx)
	l.stop = stop
	l.writing.Go(func() { l.write(ctx) })
	reading, stopReading := context.WithCancel(w.ctx)
	l.reading.Go(func() { l.consume(reading) })
	w.t.Cleanup(func() {
		stop()
		l.writing.Wait()
		stopReading()
		l.reading.Wait()
		l.writer.Close()
		l.reader.Close()
	})
	l.acknowledge(1) // the producer is known and the first record is in
	return l
}

func (l *load) write(ctx context.Context) {
	ticker := time.NewTicker(time.Second / 100)
	defer ticker.Stop()
	var sequence [loadKeys]int
	n := 0
	for began := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for due := int(time.Since(began).Seconds() * loadPerSecond); n < due; n++ {
			key := n % loadKeys
			l.produce(fmt.Sprintf("k%d", key), sequence[key], loadBytes)
			sequence[key]++
		}
	}
}

// produce sends one record and notes where it was acknowledged.
func (l *load) produce(key string, sequence, size int) {
	name := fmt.Sprintf("%s/%d", key, sequence)
	value := make([]byte, size)
	copy(value, name)
	l.mu.Lock()
	l.sent++
	l.mu.Unlock()
	l.writer.Produce(l.w.ctx, &kgo.Record{Partition: 0, Key: []byte(key), Value: value}, func(r *kgo.Record, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err != nil {
			l.errs = append(l.errs, fmt.Errorf("produce %s: %w", name, err))
			return
		}
		if before, twice := l.acked[r.Offset]; twice {
			l.errs = append(l.errs, fmt.Errorf("offset %d was acknowledged for %s and for %s", r.Offset, before, name))
		}
		l.acked[r.Offset] = name
		l.latest = max(l.latest, r.Offset)
		close(l.more)
		l.more = make(chan struct{})
	})
}

// fill adds n MiB in large records and waits until they are acknowledged, with everything before them.
func (l *load) fill(mib int) {
	l.w.t.Helper()
	for i := range mib * 16 {
		l.produce("fill", l.filled+i, 64<<10)
	}
	l.filled += mib * 16
	l.w.must(l.writer.Flush(l.w.ctx))
}

func (l *load) consume(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := l.reader.PollFetches(ctx)
		l.mu.Lock()
		fetches.EachError(func(topic string, partition int32, err error) {
			if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				l.errs = append(l.errs, fmt.Errorf("fetch %s/%d: %w", topic, partition, err))
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			if want := int64(len(l.read)); r.Offset != want {
				l.errs = append(l.errs, fmt.Errorf("the consumer saw offset %d after %d", r.Offset, want-1))
			}
			l.read[r.Offset] = nameOf(r)
		})
		close(l.more)
		l.more = make(chan struct{})
		l.mu.Unlock()
	}
}

func nameOf(r *kgo.Record) string {
	for i, b := range r.Value {
		if b == 0 {
			return string(r.Value[:i])
		}
	}
	return string(r.Value)
}

// acknowledge waits until n more records are acknowledged: the partition takes writes.
func (l *load) acknowledge(n int) {
	l.w.t.Helper()
	l.mu.Lock()
	want := len(l.acked) + n
	l.mu.Unlock()
	for {
		l.mu.Lock()
		have, more := len(l.acked), l.more
		l.mu.Unlock()
		if have >= want {
			return
		}
		select {
		case <-more:
		case <-l.w.ctx.Done():
			l.w.t.Fatalf("the partition takes no writes: %d acknowledged, waiting for %d", have, want)
		}
	}
}

// finish stops the writer, waits until everything it sent is answered and read, and compares the journal record by
// record with what the consumer saw all along and with a fresh read of the whole partition.
func (l *load) finish() {
	l.w.t.Helper()
	l.stop()
	l.writing.Wait()
	if err := l.writer.Flush(l.w.ctx); err != nil {
		l.w.t.Fatalf("what was sent is not answered: %v", err)
	}
	for {
		l.mu.Lock()
		have, latest, more := int64(len(l.read)), l.latest, l.more
		l.mu.Unlock()
		if have > latest {
			break
		}
		select {
		case <-more:
		case <-l.w.ctx.Done():
			l.w.t.Fatalf("the consumer stands at %d of %d", have, latest+1)
		}
	}
	fresh := l.w.readAll()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, err := range l.errs {
		l.w.t.Errorf("a client saw an error: %v", err)
	}
	if len(l.acked) != l.sent {
		l.w.t.Errorf("%d records were sent, %d acknowledged", l.sent, len(l.acked))
	}
	next := map[string]int{}
	found := 0
	for offset := int64(0); offset < int64(len(fresh)); offset++ {
		got := fresh[offset]
		if want, ok := l.acked[offset]; ok {
			found++
			if got != want || l.read[offset] != want {
				l.w.t.Errorf("offset %d was acknowledged for %s, holds %s, the consumer saw %s", offset, want, got, l.read[offset])
			}
		} else {
			l.w.t.Errorf("offset %d holds %s, which was never acknowledged there", offset, got)
		}
		key, sequence := split(got)
		if sequence != next[key] {
			l.w.t.Errorf("offset %d holds %s, the next of its key is %d", offset, got, next[key])
		}
		next[key] = sequence + 1
	}
	if found != len(l.acked) {
		l.w.t.Errorf("%d records are acknowledged, %d found", len(l.acked), found)
	}
}

func split(name string) (key string, sequence int) {
	for i := range name {
		if name[i] == '/' {
			sequence, _ = strconv.Atoi(name[i+1:])
			return name[:i], sequence
		}
	}
	return name, -1
}

// readAll reads the whole partition as it stands.
func (w *world) readAll() map[int64]string {
	w.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.Bootstrap()...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{w.topic: {0: kgo.NewOffset().AtStart()}}))
	w.must(err)
	defer c.Close()
	ends, err := kadm.NewClient(c).ListEndOffsets(w.ctx, w.topic)
	w.must(err)
	end, ok := ends.Lookup(w.topic, 0)
	if !ok || end.Err != nil {
		w.t.Fatalf("the end of %s/0: %+v", w.topic, end)
	}
	records := map[int64]string{}
	for int64(len(records)) < end.Offset {
		fetches := c.PollFetches(w.ctx)
		if err := fetches.Err(); err != nil {
			w.t.Fatalf("read %s/0: %v", w.topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { records[r.Offset] = nameOf(r) })
	}
	return records
}
