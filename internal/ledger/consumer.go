package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ConsumerOptions describe a simple consumer: fixed partitions, no membership in its group.
type ConsumerOptions struct {
	Bootstrap  []string
	Partitions int32
	Group      string        // commits its positions here; empty: it commits nothing
	Every      time.Duration // between commits; a second by default
	AtEnd      bool          // begins at the end instead of the start
	MaxWait    time.Duration // of one fetch without records; franz-go's default (5s) when 0
}

// Consumer reads a topic all the time and notes every error, gap and repeat.
type Consumer struct {
	topic   string
	options ConsumerOptions
	client  *kgo.Client
	admin   *kadm.Client
	stop    context.CancelFunc
	loops   sync.WaitGroup
	once    sync.Once

	mu        sync.Mutex       // guards all below
	next      map[int32]int64  // the offset each partition goes on with
	committed map[int32]commit // what the group was told
	records   int64
	retries   int64
	faults    int64
	examples  []string
}

// commit is a position: acknowledged, and the highest one that may have been stored though no answer said so.
type commit struct {
	acknowledged int64 // -1: none yet
	attempted    int64
}

// StartConsumer starts a consumer.
func (l *Ledger) StartConsumer(o ConsumerOptions) (*Consumer, error) {
	if o.Every == 0 {
		o.Every = time.Second
	}
	from := map[int32]kgo.Offset{}
	for p := range o.Partitions {
		if from[p] = kgo.NewOffset().AtStart(); o.AtEnd {
			from[p] = kgo.NewOffset().AtEnd()
		}
	}
	options := []kgo.Opt{kgo.SeedBrokers(o.Bootstrap...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: from})}
	if o.MaxWait > 0 {
		options = append(options, kgo.FetchMaxWait(o.MaxWait))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("ledger: consumer: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Consumer{topic: l.topic, options: o, client: client, admin: kadm.NewClient(client), stop: stop, next: map[int32]int64{}, committed: map[int32]commit{}}
	l.mu.Lock()
	l.consumers = append(l.consumers, c)
	l.mu.Unlock()
	c.loops.Go(func() { c.read(ctx) })
	if o.Group != "" {
		c.loops.Go(func() { c.keepCommitting(ctx) })
	}
	return c, nil
}

func (c *Consumer) read(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := c.client.PollFetches(ctx)
		c.mu.Lock()
		fetches.EachError(func(_ string, partition int32, err error) {
			var away *kgo.ErrFirstReadEOF
			if errors.As(err, &away) {
				return // the broker was killed between connection and first answer: the client tells of it and goes on
			}
			if ctx.Err() == nil {
				c.faultLocked("partition %d: %v", partition, err)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			c.records++
			if want, begun := c.next[r.Partition]; begun && r.Offset != want {
				c.faultLocked("partition %d: offset %d came where %d was due", r.Partition, r.Offset, want)
			}
			c.next[r.Partition] = r.Offset + 1
			if _, _, err := decode(r.Key, r.Value); err != nil && !errors.Is(err, errForeign) {
				c.faultLocked("partition %d, offset %d: %v", r.Partition, r.Offset, err)
			}
		})
		c.mu.Unlock()
	}
}

func (c *Consumer) faultLocked(format string, args ...any) {
	c.faults++
	if len(c.examples) < maxExamples {
		c.examples = append(c.examples, fmt.Sprintf(format, args...))
	}
}

func (c *Consumer) keepCommitting(ctx context.Context) {
	ticker := time.NewTicker(c.options.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.commit(ctx)
		}
	}
}

// commit stores the positions. What may be retried is, at the next turn, as clients do; anything else is a fault.
func (c *Consumer) commit(ctx context.Context) {
	var offsets kadm.Offsets
	c.mu.Lock()
	for partition, next := range c.next {
		known, begun := c.committed[partition]
		if !begun {
			known.acknowledged = -1
		}
		if next != known.acknowledged {
			offsets.AddOffset(c.topic, partition, next, -1)
			c.committed[partition] = commit{known.acknowledged, next}
		}
	}
	c.mu.Unlock()
	if len(offsets) == 0 {
		return
	}
	answers, err := c.admin.CommitOffsets(ctx, c.options.Group, offsets)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		c.refusedLocked("commit", err)
		return
	}
	answers.Each(func(a kadm.OffsetResponse) {
		if a.Err != nil {
			c.refusedLocked(fmt.Sprintf("commit of partition %d", a.Partition), a.Err)
			return
		}
		known := c.committed[a.Partition]
		known.acknowledged = a.At
		c.committed[a.Partition] = known
	})
}

func (c *Consumer) refusedLocked(what string, err error) {
	var code *kerr.Error
	if errors.As(err, &code) && !code.Retriable {
		c.faultLocked("%s: %v", what, err)
		return
	}
	c.retries++
}

// Errors are the faults so far and the first few in words.
func (c *Consumer) Errors() (int64, []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faults, slices.Clone(c.examples)
}

// Counts are the records read and the commits that had to be tried again.
func (c *Consumer) Counts() (records, retriedCommits int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records, c.retries
}

// WaitEnd waits until the consumer has read everything that is in the topic now; that it does not get there is a fault.
func (c *Consumer) WaitEnd(ctx context.Context) error {
	_, ends, err := bounds(ctx, c.admin, c.topic)
	if err != nil {
		return fmt.Errorf("consumer: find the ends of topic %s: %w", c.topic, err)
	}
	for {
		behind := ""
		c.mu.Lock()
		for partition, end := range ends {
			if c.next[partition] < end && (c.next[partition] > 0 || !c.options.AtEnd) {
				behind = fmt.Sprintf("partition %d: read up to %d of %d", partition, c.next[partition], end)
			}
		}
		c.mu.Unlock()
		if behind == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			c.faultLocked("%s", behind)
			return fmt.Errorf("consumer: %s: %w", behind, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stored reads the group's committed offsets with a client of its own: the consumer's may still know a coordinator that was
// killed, and franz-go does not look for another when it can not be dialled.
func (c *Consumer) stored(ctx context.Context) (kadm.OffsetResponses, error) {
	for {
		client, err := kgo.NewClient(kgo.SeedBrokers(c.options.Bootstrap...))
		if err != nil {
			return nil, err
		}
		stored, err := kadm.NewClient(client).FetchOffsets(ctx, c.options.Group)
		client.Close()
		if err == nil {
			err = stored.Error()
		}
		var code *kerr.Error
		if err == nil || (errors.As(err, &code) && !code.Retriable) {
			return stored, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// CheckCommitted asks the brokers for the group's positions and compares them with the last acknowledged commits; a
// difference is a fault of the consumer, and the error.
func (c *Consumer) CheckCommitted(ctx context.Context) error {
	// What was acknowledged before the question must be in the answer; the consumer goes on committing meanwhile.
	c.mu.Lock()
	before := maps.Clone(c.committed)
	c.mu.Unlock()
	stored, err := c.stored(ctx)
	if err != nil {
		return fmt.Errorf("read the committed offsets of group %s: %w", c.options.Group, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []error
	for partition, known := range before {
		at := int64(-1)
		if o, ok := stored.Lookup(c.topic, partition); ok {
			at = o.At
		}
		if at < known.acknowledged || at > c.committed[partition].attempted {
			all = append(all, fmt.Errorf("partition %d: offset %d was committed, %d is stored", partition, known.acknowledged, at))
			c.faultLocked("%v", all[len(all)-1])
		}
	}
	return errors.Join(all...)
}

// Close ends the consumer. CheckCommitted and WaitEnd come before it.
func (c *Consumer) Close() {
	c.once.Do(func() {
		c.stop()
		c.loops.Wait()
		c.client.Close()
	})
}
