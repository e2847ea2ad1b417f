package e2e

import (
	"testing"
	"time"

	"portage/internal/ledger"
)

// TestLedgerHoldsUnderMoves moves partitions from broker to broker under steady keyed, idempotent load from franz-go and
// from kcat at their default settings, and compares every acknowledged record with a full read.
func TestLedgerHoldsUnderMoves(t *testing.T) {
	t.Parallel()
	moves := 8
	if all {
		moves = 60
	}
	w := newWorld(t, setup{brokers: 3, workers: 1})
	book, err := ledger.New(t.TempDir(), w.topic)
	w.must(err)
	_, err = book.StartWriter(ledger.WriterOptions{ID: "franz", Bootstrap: w.Bootstrap(), Rate: 300})
	w.must(err)
	_, err = book.StartKcat(ledger.KcatOptions{ID: "kcat", Bootstrap: w.Bootstrap(), Rate: 100})
	w.must(err)
	consumer, err := book.StartConsumer(ledger.ConsumerOptions{Bootstrap: w.Bootstrap(), Partitions: 2, Group: w.topic + "-readers", Every: 100 * time.Millisecond})
	w.must(err)
	for n := range moves {
		number, to := int32(n%2), []string{"b3", "b3", "b2", "b1", "b1", "b2"}[n%6]
		if result, err := w.Move(w.ctx, w.topic, number, to); err != nil {
			t.Fatalf("move %d of %s/%d to %s: %v (%+v)", n, w.topic, number, to, err, result)
		}
	}
	w.must(book.CloseWriters(w.ctx))
	w.must(consumer.WaitEnd(w.ctx))
	if err := consumer.CheckCommitted(w.ctx); err != nil {
		t.Errorf("committed offsets after %d moves: %v", moves, err)
	}
	w.must(book.Close(w.ctx))
	verdict, err := book.Check(w.ctx, w.Bootstrap())
	w.must(err)
	t.Logf("%d moves: %s", moves, verdict)
	if !verdict.Whole() {
		t.Fatalf("the ledger is not whole after %d moves: %s\n%v", moves, verdict, verdict.Examples)
	}
}
