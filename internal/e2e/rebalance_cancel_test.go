package e2e

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.temporal.io/sdk/client"

	"portage/internal/ledger"
	"portage/metastore"
	"portage/workflows/protocol"
)

// rebalanceStatus is what the fleet's rebalance says of itself.
func (w *world) rebalanceStatus() (s protocol.RebalanceStatus, err error) {
	value, err := w.Client.QueryWorkflow(w.ctx, protocol.RebalanceWorkflowID(w.TaskQueue()), "", protocol.QueryStatus)
	if err == nil {
		err = value.Get(&s)
	}
	return s, err
}

// inProgress are the claims that are held.
func (w *world) inProgress() []metastore.Move {
	w.t.Helper()
	moves, err := w.Store.Moves(w.ctx, false, 1000)
	w.must(err)
	return moves
}

// A rebalance is cancelled before its first move has committed, half-way, and before its last: every partition is moved or as it was, nothing
// of what was under way is left, no throttle either, and the moves that are done are taken back by an undo to the placement that was recorded.
func TestARebalanceCancelledAtAnyPointLeavesEachPartitionMovedOrAsItWas(t *testing.T) {
	t.Parallel()
	const partitions = 12
	w := newWorld(t, setup{brokers: 3, workers: 1, alone: true})
	first := w.topic // one of its partitions is on b1, too
	w.topic += "-leaving"
	w.must(w.CreateTopic(w.ctx, w.topic, partitions, slices.Repeat([]string{"b1"}, partitions)...))
	w.id = w.row().TopicID
	book, err := ledger.New(t.TempDir(), w.topic)
	w.must(err)
	_, err = book.StartWriter(ledger.WriterOptions{ID: "steady", Bootstrap: w.Bootstrap(), Rate: 100})
	w.must(err)
	// The first partition is much larger than the others: it is planned first and is copied when all others are moved.
	fill, err := book.StartWriter(ledger.WriterOptions{ID: "fill", Bootstrap: w.Bootstrap(), ValueBytes: 64 << 10, Count: 24 * 16,
		Client: append(toMovingPartition(), kgo.ProducerBatchCompression(kgo.NoCompression()))})
	w.must(err)
	w.must(fill.Wait(w.ctx))
	spread, err := book.StartWriter(ledger.WriterOptions{ID: "spread", Bootstrap: w.Bootstrap(), ValueBytes: 4 << 10, Count: 600,
		Client: []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())}})
	w.must(err)
	w.must(spread.Wait(w.ctx))
	before := w.placement(w.topic)

	for _, c := range []struct {
		at       string
		moveRate protocol.ByteSize
		moved    int // when it is cancelled, at least
	}{
		{"0 %", 4 << 10, 0},
		{"50 %", 256 << 10, partitions / 2},
		{"99 %", 256 << 10, partitions},
	} {
		w.must(w.Store.SetDraining(w.ctx, "b1", true, "test", ""))
		run, err := w.Client.ExecuteWorkflow(w.ctx, client.StartWorkflowOptions{ID: protocol.RebalanceWorkflowID(w.TaskQueue()), TaskQueue: w.TaskQueue()}, protocol.WorkflowRebalance,
			protocol.RebalanceInput{Drain: true, Limits: protocol.Limits{MaxInFlight: ptr(3), TransfersPerBroker: ptr(3), MoveRate: &c.moveRate}})
		w.must(err)
		w.await("it is at "+c.at, func() string {
			s, err := w.rebalanceStatus()
			if err != nil || s.Counts.Moved < c.moved || len(s.InFlight) == 0 {
				return fmt.Sprintf("moved are %d, in flight %v (%v)", s.Counts.Moved, s.InFlight, err)
			}
			return ""
		})
		if c.moved == 0 {
			w.await("bytes are copied", func() string {
				for _, m := range w.inProgress() {
					if s, err := w.Agents.Session(w.ctx, w.Agent(m.ToBroker).ControlURL, m.ID, 0, 0); err == nil && s.CopiedBytes > 0 {
						return ""
					}
				}
				return "no copy has any"
			})
		}
		if output, code := w.command("rebalance", "cancel", "--reason", "enough")(); code != 0 {
			t.Fatalf("%s: the cancel answers %d: %s", c.at, code, output)
		}
		if err := run.Get(w.ctx, nil); err == nil {
			t.Errorf("%s: the cancelled rebalance ended well", c.at)
		}
		s, err := w.rebalanceStatus()
		w.must(err)
		if len(s.InFlight) > 0 || s.Counts.Failed > 0 || s.Counts.Cancelled == 0 {
			t.Errorf("%s: cancelled, it says %+v", c.at, s)
		}
		gone := 0
		for p, owner := range w.placement(w.topic) {
			if owner != "b1" {
				gone++
			}
			w.await(fmt.Sprintf("%s: partition %d is at %s and nothing of a move is left", c.at, p, owner), func() string { return w.unsettledAt(p, owner) })
		}
		if w.ownedOf(first)["b1"] == 0 {
			gone++
		}
		if gone != s.Counts.Moved {
			t.Errorf("%s: %d have left b1, and it counted %d", c.at, gone, s.Counts.Moved)
		}
		if left := w.inProgress(); len(left) > 0 {
			t.Errorf("%s: still claimed are %+v", c.at, left)
		}
		w.must(w.Store.SetDraining(w.ctx, "b1", false, "test", ""))
		if s.Counts.Moved == 0 {
			continue
		}
		if undone := w.rebalance("--undo", s.ID); undone.Counts.Moved != s.Counts.Moved || !maps.Equal(w.placement(w.topic), before) {
			t.Errorf("%s: undone were %+v of %+v; the placement is %v", c.at, undone.Counts, s.Counts, w.placement(w.topic))
		}
	}
	w.must(book.CloseWriters(w.ctx))
	verdict, err := book.Check(w.ctx, w.Bootstrap())
	w.must(err)
	if !verdict.Whole() || verdict.Unacknowledged > 0 {
		t.Errorf("the ledger says: %s\n%v", verdict, verdict.Examples)
	}
}
