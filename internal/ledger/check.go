package ledger

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
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

// bounds are the first and the next offset of every partition.
func bounds(ctx context.Context, admin *kadm.Client, topic string) (starts, ends map[int32]int64, err error) {
	starts, ends = map[int32]int64{}, map[int32]int64{}
	first, err := admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = first.Error()
	}
	if err != nil {
		return nil, nil, err
	}
	last, err := admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = last.Error()
	}
	if err != nil {
		return nil, nil, err
	}
	first.Each(func(o kadm.ListedOffset) { starts[o.Partition] = o.Offset })
	last.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	return starts, ends, nil
}
