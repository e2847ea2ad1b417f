//go:build portage_faults

package brokeragent_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
	"portage/internal/faults/faultstest"
)

// frozenFleet has one partition frozen on b1 for a move to b2, with the given records before the freeze.
func frozenFleet(t *testing.T, limits native.Limits, before ...[]byte) (*agenttest.Fleet, *agenttest.Move, func() *agenttest.Move) {
	t.Helper()
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", limits), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	for _, batch := range before {
		if code, _ := b1.Produce(orders, 0, batch); code != 0 {
			t.Fatalf("code %d", code)
		}
	}
	m := f.Copied(orders, 0, b2)
	return f, m, func() *agenttest.Move {
		frozen := m.Freeze()
		m.Commit(frozen, m.Drain(frozen))
		return m
	}
}

// Two batches of a client that numbers nothing are on their way on one connection. The first is refused out of the park;
// then the source thaws. If the second were appended, it would have overtaken the first.
func TestR27iNothingOvertakesARefusedBatch(t *testing.T) {
	faultstest.Story(t, "R27", func(t *testing.T) string {
		_, m, _ := frozenFleet(t, native.Limits{ParkFor: 500 * time.Millisecond})
		b1, orders := m.From, m.Topic
		m.Freeze()
		c := b1.Dial()
		first, second := agenttest.ProduceRequest(orders, 0, agenttest.Record("first")), agenttest.ProduceRequest(orders, 0, agenttest.Record("second"))
		c.Send(first)
		c.Send(second)
		if code := agenttest.Produced(c.Receive(first)).ErrorCode; code != requestTimedOut {
			t.Fatalf("the first batch was answered with code %d", code)
		}
		m.Abort(false)
		if answer := agenttest.Produced(c.Receive(second)); answer.ErrorCode == 0 {
			return fmt.Sprintf("the second batch is at offset %d, the first, refused, is nowhere", answer.BaseOffset)
		}
		// Sent again, in order, both are taken.
		for _, req := range []*kmsg.ProduceRequest{first, second} {
			if code := agenttest.Produced(c.Ask(req)).ErrorCode; code != 0 {
				t.Errorf("sent again, a batch was answered with code %d", code)
			}
		}
		if values := b1.Values(orders, 0); !slices.Equal(values, []string{"first", "second"}) {
			t.Errorf("the partition holds %q", values)
		}
		return ""
	})
}

// A refusal belongs to its freeze: in the next one the same connection's batches are parked like everybody's.
func TestR27iARefusalEndsWithItsFreeze(t *testing.T) {
	f, m, _ := frozenFleet(t, native.Limits{ParkFor: 300 * time.Millisecond})
	b1, orders := m.From, m.Topic
	m.Freeze()
	c := b1.Dial()
	if code := agenttest.Produced(c.Ask(agenttest.ProduceRequest(orders, 0, agenttest.Record("one")))).ErrorCode; code != requestTimedOut {
		t.Fatalf("code %d", code)
	}
	m.Abort(false)
	if code := agenttest.Produced(c.Ask(agenttest.ProduceRequest(orders, 0, agenttest.Record("one")))).ErrorCode; code != 0 {
		t.Fatalf("code %d after the thaw", code)
	}
	again := f.Claim(orders, 0, m.To)
	again.Ensure()
	again.Copy()
	again.Freeze()
	two := agenttest.ProduceRequest(orders, 0, agenttest.Record("two"))
	c.Send(two)
	agenttest.Eventually(t, "the batch is parked or answered", func() bool {
		if b1.Partition(orders, 0).Parked == 1 {
			return true
		}
		if resp, err := c.TryReceive(two, 10*time.Millisecond); err == nil {
			t.Fatalf("not parked, but answered with code %d at once", agenttest.Produced(resp).ErrorCode)
		}
		return false
	})
	again.Abort(false)
	if code := agenttest.Produced(c.Receive(two)).ErrorCode; code != 0 && code != requestTimedOut {
		t.Errorf("code %d", code)
	}
}

// The park is FIFO: what was parked is appended in the order it came, once the move is off.
func TestR27iAParkIsAppendedInOrderAfterAThaw(t *testing.T) {
	_, m, _ := frozenFleet(t, native.Limits{ParkFor: 20 * time.Second})
	b1, orders := m.From, m.Topic
	m.Freeze()
	var conns []*agenttest.Conn
	var reqs []*kmsg.ProduceRequest
	var want []string
	for i := range 5 {
		value := fmt.Sprint("record-", i)
		c, req := b1.Dial(), agenttest.ProduceRequest(orders, 0, agenttest.Record(value))
		c.Send(req)
		agenttest.Eventually(t, value+" is parked", func() bool { return b1.Partition(orders, 0).Parked == i+1 })
		conns, reqs, want = append(conns, c), append(reqs, req), append(want, value)
	}
	m.Abort(false)
	for i, c := range conns {
		if answer := agenttest.Produced(c.Receive(reqs[i])); answer.ErrorCode != 0 || answer.BaseOffset != int64(i) {
			t.Errorf("record %d: code %d at offset %d", i, answer.ErrorCode, answer.BaseOffset)
		}
	}
	if values := b1.Values(orders, 0); !slices.Equal(values, want) {
		t.Errorf("the partition holds %q", values)
	}
}

// The source can not read its row any more: it must stop sending an answer on which no client looks for another leader.
func TestR27iiASourceThatIsCutOffSendsClientsToLookForTheLeader(t *testing.T) {
	faultstest.Story(t, "R27", func(t *testing.T) string {
		_, m, _ := frozenFleet(t, native.Limits{ParkFor: 200 * time.Millisecond, FreezeLease: time.Second})
		b1, orders := m.From, m.Topic
		m.Freeze()
		b1.Metastore.Cut()
		c := b1.Dial()
		var codes []int16
		for len(codes) < 20 {
			answer := agenttest.Produced(c.Ask(agenttest.ProduceRequest(orders, 0, agenttest.Record("one"))))
			if codes = append(codes, answer.ErrorCode); answer.ErrorCode == notLeader {
				break
			}
			c = b1.Dial() // a refusal holds for its connection
		}
		if codes[0] != requestTimedOut {
			t.Errorf("the first park was answered with code %d", codes[0])
		}
		if codes[len(codes)-1] != notLeader {
			return fmt.Sprintf("cut off from Postgres, the source goes on answering %v", codes)
		}
		return ""
	})
}

// One batch is parked at the source; metadata names the destination already, and the client's next batch goes there.
func TestR27iiiABatchThatOvertookItsPredecessorIsHeld(t *testing.T) {
	for _, known := range []bool{true, false} {
		name := map[bool]string{true: "of a known producer", false: "of an unknown producer"}[known]
		t.Run(name, func(t *testing.T) {
			faultstest.Story(t, "R27", func(t *testing.T) string {
				const producer = 4711
				var before [][]byte
				sequence := int32(0)
				if known {
					before, sequence = append(before, agenttest.Sequenced(producer, 0, "before")), 1
				}
				_, m, flip := frozenFleet(t, native.Limits{ParkFor: 20 * time.Second}, before...)
				b1, b2, orders := m.From, m.To, m.Topic
				frozen := m.Freeze()
				first, second := agenttest.ProduceRequest(orders, 0, agenttest.Sequenced(producer, sequence, "first")), agenttest.ProduceRequest(orders, 0, agenttest.Sequenced(producer, sequence+1, "second"))
				atSource := b1.Dial()
				atSource.Send(first)
				agenttest.Eventually(t, "the first batch is parked", func() bool { return b1.Partition(orders, 0).Parked == 1 })
				_ = frozen
				flip()
				b2.WaitState(orders, 0, native.StateOpen)
				// One connection for each, for the second one's answer must wait for the first.
				ahead := b2.Dial()
				ahead.Send(second)
				if resp, err := ahead.TryReceive(second, 300*time.Millisecond); err == nil {
					if code := agenttest.Produced(resp).ErrorCode; code != 0 {
						return fmt.Sprintf("the second batch was answered with code %d, as if the first were lost", code)
					}
					code := agenttest.Produced(b2.Dial().Ask(first)).ErrorCode
					return fmt.Sprintf("the second batch was appended before the first, which is answered with code %d", code)
				}
				answer := agenttest.Produced(atSource.Receive(first))
				if answer.ErrorCode != notLeader || answer.CurrentLeader.LeaderID != b2.NodeID || answer.CurrentLeader.LeaderEpoch <= m.Claimed.Epoch {
					t.Errorf("what was parked is answered with %+v; want the new leader with its epoch", answer)
				}
				if code := agenttest.Produced(b2.Dial().Ask(first)).ErrorCode; code != 0 {
					t.Errorf("the first batch, sent to the new owner, was answered with code %d", code)
				}
				if code := agenttest.Produced(ahead.Receive(second)).ErrorCode; code != 0 {
					t.Errorf("the second batch was answered with code %d", code)
				}
				if values := b2.Values(orders, 0); !slices.Equal(values[len(values)-2:], []string{"first", "second"}) {
					t.Errorf("the partition holds %q", values)
				}
				return ""
			})
		})
	}
}

// A predecessor that does not come is not waited for: the batch is answered as any broker would.
func TestR27iiiAHeldBatchIsAnsweredWhenItsPredecessorDoesNotCome(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{HoldAheadFor: 400 * time.Millisecond})
	orders := f.CreateTopic("orders", 1, b1)
	if code, _ := b1.Produce(orders, 0, agenttest.Sequenced(4711, 0, "zero")); code != 0 {
		t.Fatalf("code %d", code)
	}
	f.Move(orders, 0, b2)
	if code, _ := b2.Produce(orders, 0, agenttest.Sequenced(4711, 5, "five")); code != outOfOrder {
		t.Errorf("the batch was answered with code %d", code)
	}
}

// Commits meet a freeze that outlasts the park. A code for the partition alone makes the Java client fail.
func TestR27vAFrozenCommitIsAnsweredForTheWholeRequest(t *testing.T) {
	faultstest.Story(t, "R27", func(t *testing.T) string {
		f := agenttest.New(t)
		b1, b2 := f.Start("b1", native.Limits{ParkFor: 300 * time.Millisecond}), f.Start("b2", native.Limits{ParkFor: 300 * time.Millisecond})
		orders := f.CreateTopic("orders", 2, b1)
		b1.Write(orders, 0, "one")
		m := f.Copied(orders, 0, b2)
		m.Freeze()
		for _, via := range []*agenttest.Agent{b1, b2} {
			codes := via.CommitOffsets(orders, "readers", map[int32]int64{0: 1, 1: 0})
			if codes[0] != coordinatorLoad || codes[1] != coordinatorLoad {
				return fmt.Sprintf("through %s, the commit of a frozen and an open partition was answered with %v; want %d for both", via.ID, codes, coordinatorLoad)
			}
		}
		// What was not committed is not there; what was, is, and a thaw lets commits in.
		m.Abort(false)
		b1.WaitState(orders, 0, native.StateOpen)
		if codes := b2.CommitOffsets(orders, "readers", map[int32]int64{0: 1, 1: 0}); codes[0] != 0 || codes[1] != 0 {
			t.Errorf("after the thaw the commit was answered with %v", codes)
		}
		return ""
	})
}

// A commit that meets a short freeze is parked like produce, and lands at the new owner.
func TestR27vACommitIsParkedAcrossTheFlip(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{ParkFor: 20 * time.Second}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	m := f.Copied(orders, 0, b2)
	frozen := m.Freeze()
	answered := make(chan map[int32]int16, 1)
	go func() { answered <- b1.CommitOffsets(orders, "readers", map[int32]int64{0: 1}) }()
	m.Commit(frozen, m.Drain(frozen))
	m.Confirm()
	if codes := <-answered; codes[0] != 0 {
		t.Fatalf("the parked commit was answered with %v", codes)
	}
	if code, offset := b2.CommittedOffset(orders, 0, "readers"); code != 0 || offset != 1 {
		t.Errorf("the new owner has the group at %d, code %d", offset, code)
	}
}
