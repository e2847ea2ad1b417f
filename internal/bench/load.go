package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"portage/internal/fleet"
)

// fill writes random records into partition 0 of a topic until it holds at least size bytes.
func fill(ctx context.Context, f *fleet.Fleet, topic string, size int64) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(f.Bootstrap()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(4096))
	if err != nil {
		return err
	}
	defer c.Close()
	const recordBytes = 64 << 10
	value := make([]byte, recordBytes)
	_, _ = rand.Read(value)
	var failed atomic.Pointer[error]
	for written := int64(0); written < size; written += recordBytes {
		c.Produce(ctx, &kgo.Record{Topic: topic, Partition: 0, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	if err := c.Flush(ctx); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return fmt.Errorf("fill %s: %w", topic, *err)
	}
	return nil
}

// call is one produce as the client saw it.
type call struct {
	at   time.Time
	took time.Duration
}

// load is a steady writer to partition 0 of a topic: linger 0, idempotent, acks all, as the client's defaults are.
type load struct {
	client *kgo.Client
	stop   context.CancelFunc
	ended  sync.WaitGroup

	mu     sync.Mutex // guards calls, errors
	calls  []call
	errors int
}

const (
	recordsPerSec  = 2000
	loadValueBytes = 100
)

func startLoad(ctx context.Context, f *fleet.Fleet, topic string) (*load, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(f.Bootstrap()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	l := &load{client: c, stop: stop}
	l.ended.Go(func() { l.write(ctx, topic) })
	return l, nil
}

func (l *load) write(ctx context.Context, topic string) {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	began, sent := time.Now(), 0
	value := make([]byte, loadValueBytes)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for due := int(time.Since(began).Seconds() * recordsPerSec); sent < due; sent++ {
			at := time.Now()
			l.client.Produce(context.WithoutCancel(ctx), &kgo.Record{Topic: topic, Partition: 0, Value: value}, func(_ *kgo.Record, err error) {
				l.mu.Lock()
				defer l.mu.Unlock()
				if err != nil {
					l.errors++
				}
				l.calls = append(l.calls, call{at, time.Since(at)})
			})
		}
	}
}

// close ends the load and reports how many calls failed.
func (l *load) close(ctx context.Context) (failed int, err error) {
	l.stop()
	l.ended.Wait()
	err = l.client.Flush(ctx)
	l.client.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errors, err
}

// waits are the times, in ms, of the calls that overlap a window.
func (l *load) waits(from, to time.Time) []float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []float64
	for _, c := range l.calls {
		if c.at.Before(to) && c.at.Add(c.took).After(from) {
			all = append(all, milliseconds(c.took))
		}
	}
	return all
}
