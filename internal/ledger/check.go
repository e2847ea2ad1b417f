package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Check closes whatever still writes or reads, reads the whole topic with a fresh client, from the start up to the end of
// every partition, and compares it record by record. The error means that the topic could not be read.
func (l *Ledger) Check(ctx context.Context, bootstrap []string) (Verdict, error) {
	if err := l.Close(ctx); err != nil {
		return Verdict{}, err
	}
	c := compare(l.snapshot()...)
	if err := readAll(ctx, bootstrap, l.topic, c.add); err != nil {
		return Verdict{}, fmt.Errorf("read topic %s for the ledger: %w", l.topic, err)
	}
	verdict := c.finish()
	verdict.LongestWait = l.LongestWait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, consumer := range l.consumers {
		n, examples := consumer.Errors()
		verdict.ConsumerErrors += n
		for _, text := range examples {
			verdict.Examples = append(verdict.Examples, "consumer error: "+text)
		}
	}
	return verdict, nil
}

// readAll hands every record of a topic to take, each partition in the order of its offsets.
func readAll(ctx context.Context, bootstrap []string, topic string, take func(found)) error {
	finder, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...))
	if err != nil {
		return err
	}
	defer finder.Close()
	starts, ends, err := bounds(ctx, kadm.NewClient(finder), topic)
	if err != nil {
		return err
	}
	from, left := map[int32]kgo.Offset{}, map[int32]int64{}
	for partition, end := range ends {
		if starts[partition] < end {
			from[partition], left[partition] = kgo.NewOffset().At(starts[partition]), end
		}
	}
	if len(left) == 0 {
		return nil
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchMaxBytes(16<<20))
	if err != nil {
		return err
	}
	defer reader.Close()
	for len(left) > 0 {
		fetches := reader.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%d partitions unfinished: %w", len(left), err)
		}
		for _, e := range fetches.Errors() {
			return fmt.Errorf("partition %d: %w", e.Partition, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, wanted := left[r.Partition]
			if !wanted || r.Offset >= end {
				return
			}
			take(found{r.Partition, r.Offset, r.Key, r.Value})
			if r.Offset == end-1 {
				delete(left, r.Partition)
				reader.PauseFetchPartitions(map[string][]int32{topic: {r.Partition}})
			}
		})
	}
	return nil
}

// bounds lists where each partition starts and ends. A client that last looked before a move is told to look again, which
// kadm leaves to its caller.
func bounds(ctx context.Context, admin *kadm.Client, topic string) (starts, ends map[int32]int64, err error) {
	for {
		if starts, err = listed(ctx, topic, admin.ListStartOffsets); err == nil {
			ends, err = listed(ctx, topic, admin.ListEndOffsets)
		}
		var code *kerr.Error
		if err == nil || !errors.As(err, &code) || !code.Retriable {
			return starts, ends, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func listed(ctx context.Context, topic string, list func(context.Context, ...string) (kadm.ListedOffsets, error)) (map[int32]int64, error) {
	answer, err := list(ctx, topic)
	if err == nil {
		err = answer.Error()
	}
	offsets := map[int32]int64{}
	answer.Each(func(o kadm.ListedOffset) { offsets[o.Partition] = o.Offset })
	return offsets, err
}
