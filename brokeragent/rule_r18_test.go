//go:build portage_faults

package brokeragent_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/google/uuid"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/internal/faults/faultstest"
	"portage/metastore"
)

// ownerGone leaves the former copy of b2, which ends at 2, while b1 owned the partition up to 4 and is gone.
func ownerGone(t *testing.T) (f *agenttest.Fleet, b1, b2 *agenttest.Agent, orders *metastore.Topic) {
	t.Helper()
	f = agenttest.New(t)
	b1, b2 = f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	orders = f.CreateTopic("orders", 1, b2)
	b2.Write(orders, 0, "one", "two")
	b2.CommitOffset(orders, 0, "readers", 1)
	f.Move(orders, 0, b1)
	b1.Write(orders, 0, "three", "four")
	b1.CommitOffset(orders, 0, "readers", 4)
	agenttest.Eventually(t, "b1 has reported its end", func() bool {
		var end int64
		_ = f.SQL.QueryRow(t.Context(), "SELECT log_end FROM load_reports WHERE broker = 'b1' AND topic_id = $1", orders.ID).Scan(&end)
		return end == 4
	})
	return f, b1, b2, orders
}

func (d decisionOn) of(f *agenttest.Fleet, orders *metastore.Topic, copyID string, end int64) metastore.CopyPromotion {
	row := f.Row(orders, 0)
	p := metastore.CopyPromotion{ID: uuid.NewString(), TopicID: orders.ID, Owner: row.Owner, Epoch: row.Epoch, Version: row.Version, Broker: d.broker, Copy: copyID, CopyEnd: end, By: "me", Reason: "gone"}
	owner, err := f.Store.FindBroker(f.T.Context(), row.Owner)
	if err != nil {
		f.T.Fatal(err)
	}
	p.Heartbeat = owner.Heartbeat
	return p
}

type decisionOn struct{ broker string }

// The owner and its disk are gone, and an older copy is promoted. No offset is given out twice, what was lost is told, and the
// owner that comes back after all keeps what only it has, apart.
func TestR18APromotedCopyGoesOnBehindTheLastKnownEnd(t *testing.T) {
	faultstest.Story(t, "R18", func(t *testing.T) string {
		f, b1, b2, orders := ownerGone(t)
		b1.Stop()
		kept := keptBy(t, f, b2)
		if len(kept) != 1 || kept[0].End != 2 {
			t.Fatalf("left are %+v", kept)
		}
		_, evidence, err := f.Store.PromoteCopy(t.Context(), decisionOn{"b2"}.of(f, orders, kept[0].ID, kept[0].End))
		if err != nil {
			t.Fatal(err)
		}
		b2.WaitState(orders, 0, native.StateOpen)
		if at := b2.Write(orders, 0, "five"); at != 4 {
			return fmt.Sprintf("offset %d was confirmed for another record before", at)
		}
		if evidence.KnownEnd != 4 || evidence.Lost != 2 {
			t.Errorf("told is %+v", evidence)
		}
		if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one", "two", "five"}) {
			t.Errorf("the new owner has %q", values)
		}
		if code, offset := b2.CommittedOffset(orders, 0, "readers"); code != 0 || offset != 1 {
			t.Errorf("the group is at %d, code %d", offset, code)
		}
		b2.Restart()
		if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one", "two", "five"}) {
			t.Errorf("after a restart the new owner has %q", values)
		}
		b1.Boot()
		b1.WaitReady()
		agenttest.Eventually(t, "the copy of the former owner is in quarantine", func() bool {
			all := keptBy(t, f, b1)
			return len(all) == 1 && all[0].Quarantined && all[0].Divergence == 2 && all[0].Records == 2
		})
		// The log with its gap moves like any other.
		f.Move(orders, 0, b1)
		if values := b1.Values(orders, 0); !slices.Equal(values, []string{"one", "two", "five"}) {
			t.Errorf("after a move the owner has %q", values)
		}
		return ""
	})
}

// While the owner lives nothing is promoted over it.
func TestR18NothingIsPromotedOverAnOwnerThatLives(t *testing.T) {
	f, b1, b2, orders := ownerGone(t)
	p := decisionOn{"b2"}.of(f, orders, keptBy(t, f, b2)[0].ID, 2)
	agenttest.Eventually(t, "b1 has sent another heartbeat", func() bool {
		owner, err := f.Store.FindBroker(t.Context(), "b1")
		return err == nil && owner.Heartbeat != p.Heartbeat
	})
	if _, _, err := f.Store.PromoteCopy(t.Context(), p); !refusedWith(err, metastore.CodeSourceAlive) {
		t.Errorf("it ended with %v", err)
	}
	other := uuid.New()
	p.Closed = &other
	if _, _, err := f.Store.PromoteCopy(t.Context(), p); !refusedWith(err, metastore.CodeSourceAlive) {
		t.Errorf("by the word of another process it ended with %v", err)
	}
	b1.Write(orders, 0, "five")
}

// What the owner itself has, a restored backup, is all there is: it goes on with that.
func TestR18AnOwnerGoesOnWithTheCopyInItsPlace(t *testing.T) {
	f, b1, _, orders := ownerGone(t)
	backup := t.TempDir()
	b1.Stop()
	agenttest.CopyDir(t, b1.PartitionDir(orders, 0), backup)
	b1.Boot()
	b1.WaitState(orders, 0, native.StateOpen)
	b1.Write(orders, 0, "five")
	b1.CommitOffset(orders, 0, "readers", 5)
	b1.Restart() // what it opened at is known
	b1.WaitState(orders, 0, native.StateOpen)
	b1.Stop()
	if err := os.RemoveAll(b1.PartitionDir(orders, 0)); err != nil {
		t.Fatal(err)
	}
	agenttest.CopyDir(t, backup, b1.PartitionDir(orders, 0))
	b1.Boot()
	closed := b1.WaitState(orders, 0, native.StateClosed)
	if closed.ReasonCode != native.CodeDataOlder || closed.End != 4 {
		t.Fatalf("it is %+v", closed)
	}
	p := decisionOn{"b1"}.of(f, orders, control.CopyInPlace, closed.End)
	owner, err := f.Store.FindBroker(t.Context(), "b1")
	if err != nil {
		t.Fatal(err)
	}
	p.Closed = &owner.ProcessInstance
	if _, evidence, err := f.Store.PromoteCopy(t.Context(), p); err != nil || evidence.Lost != 1 {
		t.Fatalf("%+v, %v", evidence, err)
	}
	b1.WaitState(orders, 0, native.StateOpen)
	if at := b1.Write(orders, 0, "six"); at != 5 {
		t.Errorf("the next record is at %d", at)
	}
	b1.Restart()
	if values := b1.Values(orders, 0); !slices.Equal(values, []string{"one", "two", "three", "four", "six"}) {
		t.Errorf("it has %q", values)
	}
	if code, offset := b1.CommittedOffset(orders, 0, "readers"); code != 0 || offset != 4 {
		t.Errorf("the group is at %d, code %d", offset, code)
	}
}

// No copy is left anywhere: an empty log begins where the lost one ended.
func TestR18AnEmptyLogBeginsAtTheLastKnownEnd(t *testing.T) {
	f, b1, b2, orders := ownerGone(t)
	b1.Stop()
	p := decisionOn{"b2"}.of(f, orders, "", 0)
	first, evidence, err := f.Store.PromoteCopy(t.Context(), p)
	if err != nil || evidence.Lost != 4 {
		t.Fatalf("%+v, %v", evidence, err)
	}
	if again, _, err := f.Store.PromoteCopy(t.Context(), p); err != nil || again.Epoch != first.Epoch {
		t.Errorf("the repeat: %+v, %v", again, err)
	}
	b2.WaitState(orders, 0, native.StateOpen)
	if at := b2.Write(orders, 0, "five"); at != 4 {
		t.Errorf("the next record is at %d", at)
	}
	b1.Boot()
	b1.WaitReady()
	agenttest.Eventually(t, "the copy of the former owner is in quarantine", func() bool {
		all := keptBy(t, f, b1)
		return len(all) == 1 && all[0].Quarantined && all[0].Divergence == 0 && all[0].Records == 4
	})
}

// A copy that is not there keeps the partition closed, and another decision can be made.
func TestR18AMissingCopyKeepsThePartitionClosed(t *testing.T) {
	f, b1, b2, orders := ownerGone(t)
	b1.Stop()
	if _, _, err := f.Store.PromoteCopy(t.Context(), decisionOn{"b2"}.of(f, orders, "not-here", 2)); err != nil {
		t.Fatal(err)
	}
	b2.WaitState(orders, 0, native.StateClosed)
	p := decisionOn{"b2"}.of(f, orders, keptBy(t, f, b2)[0].ID, 2)
	owner, err := f.Store.FindBroker(t.Context(), "b2")
	if err != nil {
		t.Fatal(err)
	}
	p.Closed = &owner.ProcessInstance
	if _, _, err := f.Store.PromoteCopy(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	b2.WaitState(orders, 0, native.StateOpen)
	if at := b2.Write(orders, 0, "five"); at != 4 {
		t.Errorf("the next record is at %d", at)
	}
}

// The opening of a promoted partition was acknowledged, and its agent died before it had written the epoch's start: what was
// lost must still go into it, or the former owner's copy would seem to be needless.
func TestR18AnOpeningWhoseAnswerWasLostForgetsNoLoss(t *testing.T) {
	f, b1, b2, orders := ownerGone(t)
	b1.Stop()
	b2.Stop()
	row, _, err := f.Store.PromoteCopy(t.Context(), decisionOn{"b2"}.of(f, orders, "", 0))
	if err != nil {
		t.Fatal(err)
	}
	dead := agenttest.Must(f.Store.FindBroker(t.Context(), "b2"))(t)
	_, err = f.Store.OpenOwner(t.Context(), metastore.OpenRequest{TopicID: orders.ID, Broker: "b2", Epoch: row.Epoch, Storage: row.OwnerStorage, Process: dead.ProcessInstance, LogEnd: 4})
	if err != nil {
		t.Fatal(err)
	}
	b2.Boot()
	b2.WaitState(orders, 0, native.StateOpen)
	if at := b2.Write(orders, 0, "five"); at != 4 {
		t.Errorf("the next record is at %d", at)
	}
	b1.Boot()
	b1.WaitReady()
	agenttest.Eventually(t, "the copy of the former owner is in quarantine", func() bool {
		all := keptBy(t, f, b1)
		return len(all) == 1 && all[0].Quarantined && all[0].Records == 4
	})
}
