package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"portage/internal/ledger"
)

const loadPerSecond = 400

// fetchWait is the other clients' default. A partition that moves to a broker where a fetch of an idle one waits is not
// read there before that wait is over, and with franz-go's default every test would end by waiting for it.
const fetchWait = 500 * time.Millisecond

// load is a steady, keyed, idempotent writer to the moving partition, and a simple consumer of the whole topic that
// commits its positions; the ledger keeps every acknowledged record outside the fleet.
type load struct {
	w        *world
	ledger   *ledger.Ledger
	consumer *ledger.Consumer
	fills    int
	verdict  string // once finished
}

// startLoad begins to write and read; finish ends it and compares.
func (w *world) startLoad() *load {
	w.t.Helper()
	journal, err := ledger.New(filepath.Join(w.t.TempDir(), "ledger"), w.topic)
	w.must(err)
	l := &load{w: w, ledger: journal}
	w.t.Cleanup(func() {
		// Only what a failed test left running; there is nothing to wait for.
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = journal.Close(ended)
	})
	_, err = journal.StartWriter(ledger.WriterOptions{ID: "steady", Bootstrap: w.Bootstrap(), Rate: loadPerSecond, Client: toMovingPartition()})
	w.must(err)
	l.consumer, err = journal.StartConsumer(ledger.ConsumerOptions{Bootstrap: w.Bootstrap(), Partitions: 2, Group: w.topic, Every: 200 * time.Millisecond, MaxWait: fetchWait})
	w.must(err)
	l.acknowledge(1) // the producer is known and the first record is in
	return l
}

func toMovingPartition() []kgo.Opt { return []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())} }

// kcat adds a second writer, librdkafka's, to both partitions.
func (l *load) kcat() {
	l.w.t.Helper()
	_, err := l.ledger.StartKcat(ledger.KcatOptions{ID: "kcat", Bootstrap: l.w.Bootstrap()})
	l.w.must(err)
}

// fill adds n MiB to the moving partition in large records and waits until all of them are acknowledged.
func (l *load) fill(mib int64) {
	l.w.t.Helper()
	l.fills++
	writer, err := l.ledger.StartWriter(ledger.WriterOptions{ID: fmt.Sprintf("fill%d", l.fills), Bootstrap: l.w.Bootstrap(), ValueBytes: 64 << 10, Count: mib * 16,
		Client: append(toMovingPartition(), kgo.ProducerBatchCompression(kgo.NoCompression()))})
	l.w.must(err)
	l.w.must(writer.Wait(l.w.ctx))
}

// acknowledge waits until n more records are acknowledged: the partition takes writes.
func (l *load) acknowledge(n int64) {
	l.w.t.Helper()
	want := l.ledger.Acknowledged() + n
	l.w.await("the partition takes writes", func() string {
		if have := l.ledger.Acknowledged(); have < want {
			return fmt.Sprintf("%d records are acknowledged, %d are wanted", have, want)
		}
		return ""
	})
}

// finish waits until everything sent is answered and read, and fails the test unless the ledger is whole and the
// consumer's committed positions are found again.
func (l *load) finish() {
	l.w.t.Helper()
	l.w.must(l.ledger.CloseWriters(l.w.ctx))
	if err := l.consumer.WaitEnd(l.w.ctx); err != nil {
		l.w.t.Error(err)
	}
	if err := l.consumer.CheckCommitted(l.w.ctx); err != nil {
		l.w.t.Error(err)
	}
	verdict, err := l.ledger.Check(l.w.ctx, l.w.Bootstrap())
	l.w.must(err)
	l.verdict = "whole"
	if !verdict.Whole() || verdict.Foreign > 0 || verdict.Unacknowledged > 0 {
		l.w.t.Errorf("the ledger says: %s; %d foreign\n%v", verdict, verdict.Foreign, verdict.Examples)
		l.verdict = "NOT WHOLE"
	}
}
