//go:build portage_faults

package brokeragent_test

import (
	"fmt"
	"testing"
	"time"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
	"portage/metastore"
)

var tidy = native.Limits{Housekeeping: 20 * time.Millisecond}

// retained fills a partition well beyond its topic's retention.bytes and waits until its owner has let go of the rest.
func retained(f *agenttest.Fleet, owner *agenttest.Agent, topic *metastore.Topic, partition int32, numbers int) {
	f.T.Helper()
	before := owner.Partition(topic, partition).Start
	for n := range numbers {
		owner.Write(topic, partition, fmt.Sprintf("%0500d", n))
	}
	agenttest.Eventually(f.T, "retention has removed something", func() bool { return owner.Partition(topic, partition).Start > before })
}

// Retention waits for a partition that is being copied, and goes on once the move is over.
func TestRetentionWaitsForACopy(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", tidy), f.Start("b2", tidy)
	b1.Config.Log.SegmentBytes, b2.Config.Log.SegmentBytes = 4<<10, 4<<10
	b1.Restart()
	b2.Restart()
	orders := f.CreateTopic("orders", 2, b1)
	for n := range 100 {
		b1.Write(orders, 0, fmt.Sprintf("%0500d", n))
	}
	m := f.Claim(orders, 0, b2)
	m.Ensure() // pins
	f.Exec(`UPDATE topics SET config = '{"retention.bytes": "8192"}'`)
	for range 2 { // the second time tells that a whole round has passed since the first
		retained(f, b1, orders, 1, 100)
	}
	if start := b1.Partition(orders, 0).Start; start != 0 {
		t.Errorf("retention took what is being copied: the log starts at %d", start)
	}
	m.Copy()
	frozen := m.Freeze()
	source := b1.Partition(orders, 0)
	m.Commit(frozen, m.Drain(frozen))
	m.Confirm()
	agenttest.Eventually(t, "the new owner applies the topic's retention", func() bool { return b2.Partition(orders, 0).Start > 0 })
	if now := b2.Partition(orders, 0); now.End != source.End {
		t.Errorf("the new owner ends at %d, the source ended at %d", now.End, source.End)
	}
}

// The owner's retention removes what a former copy elsewhere still begins with. A move back takes the rest of that copy,
// or starts over when nothing of it is left; records that were removed do not come back.
func TestAMoveBackAfterRetention(t *testing.T) {
	for _, far := range []int{40, 400} { // the copies overlap, or not at all
		t.Run(fmt.Sprint(far, " records later"), func(t *testing.T) {
			f := agenttest.New(t)
			b1, b2 := f.Start("b1", tidy), f.Start("b2", tidy)
			b1.Config.Log.SegmentBytes, b2.Config.Log.SegmentBytes = 4<<10, 4<<10
			b1.Restart()
			b2.Restart()
			orders := f.CreateTopic("orders", 1, b1)
			for n := range 30 {
				b1.Write(orders, 0, fmt.Sprintf("before %0500d", n))
			}
			f.Move(orders, 0, b2)
			f.Exec(`UPDATE topics SET config = '{"retention.bytes": "16384"}'`)
			retained(f, b2, orders, 0, far)
			before := b2.Partition(orders, 0)
			f.Move(orders, 0, b1)
			now := b1.WaitState(orders, 0, native.StateOpen)
			if now.Start < before.Start || now.End != before.End {
				t.Errorf("the new owner has %d to %d, the former had %d to %d", now.Start, now.End, before.Start, before.End)
			}
		})
	}
}
