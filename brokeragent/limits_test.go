//go:build portage_faults

package brokeragent_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/control"
	"portage/brokeragent/native"
)

// Liveness goes by heartbeat counters as each process sees them change; the times beside them are for people. A metastore
// whose clock jumps makes nobody dead.
func TestLivenessComparesNoClocks(t *testing.T) {
	f := agenttest.New(t)
	b1 := f.Start("b1", native.Limits{})
	f.Start("b2", native.Limits{})
	f.Exec("CREATE FUNCTION jump() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.heartbeat_at = now() - interval '1 day'; RETURN NEW; END $$")
	f.Exec("CREATE TRIGGER jump BEFORE UPDATE ON brokers FOR EACH ROW EXECUTE FUNCTION jump()")
	f.Exec("UPDATE brokers SET rack = rack")
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version, create.TimeoutMillis = 5, 1000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "orders", 4, 1
	create.Topics = append(create.Topics, topic)
	created := b1.Dial().Ask(create).(*kmsg.CreateTopicsResponse).Topics[0]
	if created.ErrorCode != 0 {
		t.Fatalf("the topic was not created: %d", created.ErrorCode)
	}
	orders, err := f.Store.FindTopic(t.Context(), "orders")
	if err != nil || orders == nil {
		t.Fatal(err)
	}
	owners := map[string]int{}
	for p := range int32(4) {
		owners[f.Row(orders, p).Owner]++
	}
	if owners["b1"] != 2 || owners["b2"] != 2 {
		t.Errorf("the partitions are on %v", owners)
	}
}

// No freeze can end while Postgres is away, so few may stand at once.
func TestFewPartitionsAreFrozenAtOnce(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 3, b1)
	var moves []*agenttest.Move
	for p := range int32(3) {
		b1.Write(orders, p, "one")
		m := f.Copied(orders, p, b2)
		moves = append(moves, m)
	}
	moves[0].Freeze()
	second := moves[1].Freeze()
	if _, err := moves[2].TryFreeze(f.Row(orders, 2).Version); control.CodeOf(err) != control.CodeBusy {
		t.Errorf("a third freeze ended with %v", err)
	}
	b1.Write(orders, 2, "two") // and nothing of it was frozen
	moves[1].Commit(second, moves[1].Drain(second))
	third := moves[2].Freeze()
	moves[2].Commit(third, moves[2].Drain(third))
}

// A frozen owner may have been flipped over without knowing it: what it knows of a group may be old, so it does not say
// (R13).
func TestAFrozenOwnerAnswersNoOffsets(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{ParkFor: 50 * time.Millisecond}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	if code := b1.CommitOffset(orders, 0, "readers", 1); code != 0 {
		t.Fatalf("commit: %d", code)
	}
	m := f.Copied(orders, 0, b2)
	frozen := m.Freeze()
	if code, offset := b1.CommittedOffset(orders, 0, "readers"); code != kerr.CoordinatorLoadInProgress.Code {
		t.Errorf("under the freeze a group is told offset %d (code %d)", offset, code)
	}
	m.Commit(frozen, m.Drain(frozen))
	m.Confirm()
	if code, offset := b1.CommittedOffset(orders, 0, "readers"); code != 0 || offset != 1 {
		t.Errorf("after the flip a group is told offset %d (code %d)", offset, code)
	}
}

// The tail of a frozen partition does not queue behind copies, nor is it paced like them: clients are waiting.
func TestADrainWaitsForNoCopy(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	b3 := f.Start("b3", native.Limits{})
	b1.Config.MaxTransfers, b1.Config.LimitOutPerSec = 1, 1<<20
	orders := f.CreateTopic("orders", 2, b1)
	large := strings.Repeat("x", 1<<20)
	for range 8 {
		b1.Write(orders, 0, large)
	}
	b1.Write(orders, 1, "one")
	b1.Restart()
	quick := f.Copied(orders, 1, b3)
	slow := f.Claim(orders, 0, b2)
	slow.Ensure()
	slow.StartCopy()
	agenttest.Eventually(t, "the slow copy has begun", func() bool { return slow.Session(0).CopiedBytes > 0 })
	for range 3 {
		b1.Write(orders, 1, large)
	}
	frozen := quick.Freeze()
	quick.Commit(frozen, quick.Drain(frozen))
	quick.Confirm()
	if s := slow.Session(-1); s.State == control.CopyReady {
		t.Error("the slow copy was through before the drain, so this shows nothing")
	}
	if values := b3.Values(orders, 1); !slices.Equal(values, []string{"one", large, large, large}) {
		t.Errorf("the new owner has %d records", len(values))
	}
}
