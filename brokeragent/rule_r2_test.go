//go:build portage_faults

package brokeragent_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/internal/faults/faultstest"
	"portage/metastore"
)

// fence is above the agents' heartbeat of 2 s, so that it closes only when heartbeats fail.
const fence = 3 * time.Second

// A source loses the metastore but not its clients. Its copy is promoted once it has been silent for twice the fence; by then
// it must have stopped acknowledging.
func TestR2ASourceThatIsCutOffStopsAcknowledgingBeforeItsCopyIsPromoted(t *testing.T) {
	faultstest.Story(t, "R2", func(t *testing.T) string {
		f := agenttest.New(t)
		b1, b2 := f.Start("b1", native.Limits{PromoteFence: fence}), f.Start("b2", native.Limits{})
		orders := f.CreateTopic("orders", 1, b1)
		b1.Write(orders, 0, "one", "two")
		m := f.ClaimAuto(orders, 0, b2, 2*fence)
		m.Ensure()
		m.Copy()
		b1.Write(orders, 0, "three") // what the copy has not seen: it is asked for below
		m.Copy()
		b1.Metastore.Cut()
		counter := m.Heartbeat()
		time.Sleep(2 * fence) // the rule itself: silence for as long as the move demands
		if _, err := m.TryPromote(counter); err != nil {
			t.Fatal(err)
		}
		b2.WaitState(orders, 0, native.StateOpen)
		if code, offset := b1.Produce(orders, 0, agenttest.Record("four")); code == 0 {
			return fmt.Sprintf("%s acknowledged a record at offset %d after its copy was promoted", b1.ID, offset)
		}
		if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one", "two", "three"}) {
			return fmt.Sprintf("the new owner has %q", values)
		}
		b2.Write(orders, 0, "five")
		return ""
	})
}

// The source reads the metastore again just before it is promoted over.
func TestR2ASourceThatReadsTheMetastoreAgainIsNotPromotedOver(t *testing.T) {
	faultstest.Story(t, "R2", func(t *testing.T) string {
		f := agenttest.New(t)
		b1, b2 := f.Start("b1", native.Limits{PromoteFence: fence}), f.Start("b2", native.Limits{})
		orders := f.CreateTopic("orders", 1, b1)
		b1.Write(orders, 0, "one")
		m := f.ClaimAuto(orders, 0, b2, 2*fence)
		m.Ensure()
		m.Copy()
		installed := agenttest.Must(m.TryInstall())(t)
		silent := m.Heartbeat()
		agenttest.Eventually(t, "b1 has sent another heartbeat", func() bool { return m.Heartbeat() != silent })
		b1.Write(orders, 0, "two")
		_, err := f.Store.ForcePromote(t.Context(), m.Promotion(installed, silent))
		if _, refused := metastore.RefusedWith(err, metastore.CodeSourceAlive); refused {
			if code, _ := b1.Produce(orders, 0, agenttest.Record("three")); code != 0 {
				t.Errorf("the source that stays the owner answers with code %d", code)
			}
			return ""
		}
		if err != nil {
			t.Fatal(err)
		}
		b2.WaitState(orders, 0, native.StateOpen)
		return fmt.Sprintf("two records were confirmed, the new owner has %q", b2.Values(orders, 0))
	})
}

// The fence counts from the start of the last heartbeat, opens again with the next one, and starts closed in a new process.
func TestR2TheFenceOpensAgainWithAHeartbeat(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{PromoteFence: fence}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 2, b1)
	m := f.ClaimAuto(orders, 0, b2, 2*fence)
	m.Ensure()
	m.Copy()
	refusedOn := func(partition int32) bool {
		code, _ := b1.Produce(orders, partition, agenttest.Record("x"))
		return code != 0
	}
	if refusedOn(0) {
		t.Error("the fence is closed although heartbeats go through")
	}
	b1.Metastore.Cut()
	agenttest.Eventually(t, "writes of the partition that moves are refused", func() bool { return refusedOn(0) })
	if refusedOn(1) {
		t.Error("a partition that does not move is refused")
	}
	if code := b1.CommitOffset(orders, 0, "readers", 0); code == 0 {
		t.Error("a commit was acknowledged behind the fence")
	}
	b1.Metastore.Mend()
	agenttest.Eventually(t, "writes are taken again", func() bool { return !refusedOn(0) })
	// The claim ends, and with it the fence.
	m.Abort(false)
	f.WaitRow(orders, 0, "the claim is gone", func(a *metastore.Assignment) bool { return a.Moving() == "" })
	agenttest.Eventually(t, "b1 knows that the claim is gone", func() bool { return b1.Partition(orders, 0).MoveID == "" })
	b1.Metastore.Cut()
	time.Sleep(fence + fence/2) // the fence, had it stayed
	if refusedOn(0) {
		t.Error("a partition without a claim is fenced")
	}
}

// A move that asks does not fence its source, and a copy that has not seen the source is not installed.
func TestR2WithoutTheMarkNothingIsFenced(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{PromoteFence: time.Millisecond}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	m := f.Claim(orders, 0, b2)
	m.Ensure()
	b1.Write(orders, 0, "two")
	if _, err := m.TryInstall(); control.CodeOf(err) != control.CodeNotEligible {
		t.Errorf("a copy without a look at the source: %v", err)
	}
	m.Attempt++
	b1.Write(orders, 0, "three")
}

// A fenced owner may have been promoted over: what it knows of a group, or of where the log ends, may be old (R13).
func TestR2AFencedOwnerTellsNoGroupWhereItStands(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{PromoteFence: fence, ParkFor: 50 * time.Millisecond}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	b1.CommitOffset(orders, 0, "readers", 1)
	m := f.ClaimAuto(orders, 0, b2, 2*fence)
	m.Ensure()
	if code, offset := b1.CommittedOffset(orders, 0, "readers"); code != 0 || offset != 1 {
		t.Fatalf("an open owner answers %d (code %d)", offset, code)
	}
	b1.Metastore.Cut()
	agenttest.Eventually(t, "the owner is fenced", func() bool {
		code, _ := b1.Produce(orders, 0, agenttest.Record("two"))
		return code == kerr.NotLeaderForPartition.Code
	})
	if code, offset := b1.CommittedOffset(orders, 0, "readers"); code != kerr.CoordinatorLoadInProgress.Code {
		t.Errorf("a fenced owner says that the group is at %d (code %d)", offset, code)
	}
	list := kmsg.NewPtrListOffsetsRequest()
	list.Version = 4
	topic := kmsg.NewListOffsetsRequestTopic()
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	topic.Topic, partition.Timestamp, partition.CurrentLeaderEpoch = orders.Name, -1, -1
	topic.Partitions = append(topic.Partitions, partition)
	list.Topics = append(list.Topics, topic)
	if answer := b1.Dial().Ask(list).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]; answer.ErrorCode != kerr.NotLeaderForPartition.Code {
		t.Errorf("a fenced owner says that the log ends at %d (code %d)", answer.Offset, answer.ErrorCode)
	}
}
