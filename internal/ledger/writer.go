package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// WriterOptions describe a steady load.
type WriterOptions struct {
	ID         string // unique within the ledger
	Bootstrap  []string
	Rate       int   // records a second; 0 is as fast as they go, without noting waits
	Keys       int   // 64 by default
	ValueBytes int   // 128 by default; about 64 at the least
	Count      int64 // ends by itself after so many; 0 is until Close
	Linger     time.Duration
	Client     []kgo.Opt // beside the client's defaults
}

// Wait is one record's way to its acknowledgement.
type Wait struct {
	At   time.Time // when it was handed to the client
	Took time.Duration
}

// Writer writes keyed, idempotent records with franz-go and notes every answer.
type Writer struct {
	journal *journal
	client  *kgo.Client
	stop    context.CancelFunc
	sending sync.WaitGroup
	done    chan struct{} // closed when all Count records are sent

	began time.Time
	mu    sync.Mutex // guards waits
	waits []wait
	once  sync.Once
	err   error
}

// wait is a Wait in 12 bytes, in microseconds since the writer began.
type wait struct {
	at   int64
	took int32
}

// StartWriter starts a writer; it writes until its count is reached or it is closed.
func (l *Ledger) StartWriter(o WriterOptions) (*Writer, error) {
	if o.Keys == 0 {
		o.Keys = 64
	}
	if o.ValueBytes == 0 {
		o.ValueBytes = 128
	}
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(o.Bootstrap...), kgo.DefaultProduceTopic(l.topic), kgo.ProducerLinger(o.Linger)}, o.Client...)...)
	if err != nil {
		return nil, fmt.Errorf("ledger: writer %s: %w", o.ID, err)
	}
	j, err := l.open(o.ID, o.Keys)
	if err != nil {
		client.Close()
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &Writer{journal: j, client: client, stop: stop, done: make(chan struct{}), began: time.Now()}
	l.mu.Lock()
	l.writers = append(l.writers, w)
	l.mu.Unlock()
	w.sending.Go(func() {
		defer close(w.done)
		key := 0
		pace(ctx, o.Rate, o.Count, func() bool {
			id, value := j.next(key, o.ValueBytes)
			key = (key + 1) % o.Keys
			at := time.Now()
			// Without the cancellation: a record that was handed over ends with its own answer, not with the writer's stop.
			client.Produce(context.Background(), &kgo.Record{Key: []byte(keyName(id.writer, id.key)), Value: value}, func(r *kgo.Record, err error) {
				w.answered(id, r, err, at, o.Rate > 0)
			})
			return true
		})
	})
	return w, nil
}

func (w *Writer) answered(id identity, r *kgo.Record, err error, at time.Time, note bool) {
	switch {
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, kgo.ErrAborting):
		return // in flight when the writer was closed
	case err != nil:
		w.journal.fail(id, err)
		return
	}
	w.journal.acknowledge(id, r.Partition, r.Offset)
	if note {
		w.mu.Lock()
		w.waits = append(w.waits, wait{at.Sub(w.began).Microseconds(), int32(min(time.Since(at), 30*time.Minute).Microseconds())})
		w.mu.Unlock()
	}
}

// Wait waits until a writer with a count has every answer.
func (w *Writer) Wait(ctx context.Context) error {
	select {
	case <-w.done:
		return w.client.Flush(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Counts says how many records were sent and acknowledged and how many errors the client reported.
func (w *Writer) Counts() (sent, acknowledged, failed int64) { return w.journal.counts() }

// LongestWait is the longest wait of an acknowledged record.
func (w *Writer) LongestWait() (longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.waits {
		longest = max(longest, time.Duration(n.took)*time.Microsecond)
	}
	return longest
}

// Waits are the waits that overlap a window; zero times leave it open.
func (w *Writer) Waits(from, to time.Time) (all []Wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.waits {
		at, took := w.began.Add(time.Duration(n.at)*time.Microsecond), time.Duration(n.took)*time.Microsecond
		if (to.IsZero() || at.Before(to)) && (from.IsZero() || at.Add(took).After(from)) {
			all = append(all, Wait{at, took})
		}
	}
	return all
}

// Close stops sending and waits for the answers still out until the context ends; what has none then was in flight.
func (w *Writer) Close(ctx context.Context) error {
	w.once.Do(func() {
		w.stop()
		// A send that waits for room in the client's buffer ends when the client closes.
		sent := make(chan struct{})
		go func() { w.sending.Wait(); close(sent) }()
		select {
		case <-sent:
			_ = w.client.Flush(ctx) // only the context ends it early
		case <-ctx.Done():
		}
		w.client.Close()
		<-sent
		w.err = w.journal.close()
	})
	return w.err
}
