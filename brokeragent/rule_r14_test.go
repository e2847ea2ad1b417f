//go:build portage_faults

package brokeragent_test

import (
	"fmt"
	"testing"
	"time"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/internal/faults/faultstest"
	"portage/metastore"
)

// A freeze that was on its way for long arrives after its move was aborted.
func TestR14AFreezeOfAnAbortedMoveIsRefused(t *testing.T) {
	faultstest.Story(t, "R14", func(t *testing.T) string {
		f := agenttest.New(t)
		b1, b2 := f.Start("b1", native.Limits{FreezeLease: time.Hour, MaxFreeze: time.Hour, ParkFor: 200 * time.Millisecond}), f.Start("b2", native.Limits{})
		orders := f.CreateTopic("orders", 1, b1)
		m := f.Claim(orders, 0, b2)
		m.Ensure()
		version := f.Row(orders, 0).Version
		m.Abort(false)
		b1.Write(orders, 0, "one")

		_, err := m.TryFreeze(version)
		if code, _ := b1.Produce(orders, 0, agenttest.Record("two")); code != 0 {
			return fmt.Sprintf("a dead move has the partition frozen (%v): a produce was answered with code %d", err, code)
		}
		if control.CodeOf(err) != control.CodeRowMoved {
			t.Errorf("the late freeze ended with %v", err)
		}
		return ""
	})
}

// The same for a move that lives, at a version that has passed: what that freeze answered could never be committed.
func TestR14AFreezeAtAnOlderVersionIsRefused(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	m := f.Claim(orders, 0, b2)
	m.Ensure()
	version := f.Row(orders, 0).Version
	b1.Restart()
	if _, err := m.TryFreeze(version); control.CodeOf(err) != control.CodeRowMoved {
		t.Errorf("a freeze at version %d ended with %v; the row is at %d", version, err, f.Row(orders, 0).Version)
	}
	b1.Write(orders, 0, "one")
}

// The source takes its move back too late: the refusal carries the row, for whoever receives it to act on.
func TestR14ARefusedAbortCarriesTheRow(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one")
	m := f.Move(orders, 0, b2)
	_, err := f.Store.AbortMove(t.Context(), m.ID, "b1", "the freeze's lease ended")
	refused, ok := metastore.RefusedWith(err, metastore.CodeMoveCommitted)
	if !ok || refused.Row == nil || refused.Row.Owner != "b2" || refused.Row.Epoch != m.Claimed.Epoch+1 {
		t.Fatalf("a late abort ended with %v and row %+v", err, refused)
	}
	if b1.Partition(orders, 0).State != string(native.StateElsewhere) {
		t.Errorf("the former owner has it %q", b1.Partition(orders, 0).State)
	}
}

// A topic is deleted while one of its partitions is frozen: the move ends with it, AbortMove can be won, nothing stays shut.
func TestR14ADeletedTopicEndsTheFreezeOfItsPartition(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one")
	m := f.Copied(orders, 0, b2)
	frozen, drained := m.Cutover()
	if err := f.Store.DeleteTopic(t.Context(), "orders", orders.ID, "test"); err != nil {
		t.Fatal(err)
	}
	if row, err := f.Store.AbortMove(t.Context(), m.ID, "test", "anything"); err != nil || row != nil {
		t.Errorf("aborting the move of a deleted topic ended with %+v and %v", row, err)
	}
	if _, err := m.TryCommit(frozen, drained); !refusedWith(err, metastore.CodeMoveEnded) {
		t.Errorf("committing it ended with %v", err)
	}
	if _, err := m.TryFreeze(frozen.Version); control.CodeOf(err) != control.CodeNotFound && control.CodeOf(err) != control.CodeNotOwner {
		t.Errorf("freezing it ended with %v", err)
	}
	for _, a := range []*agenttest.Agent{b1, b2} {
		agenttest.Eventually(t, a.ID+" has put the deleted partition away", func() bool {
			return a.Partition(orders, 0).State == "" && agenttest.Files(a.PartitionDir(orders, 0)) == 0
		})
	}
	// The name is free again, and the new topic has nothing of the old.
	again := f.CreateTopic("orders", 1, b1)
	b1.Write(again, 0, "two")
	if values := b1.Values(again, 0); len(values) != 1 {
		t.Errorf("the new topic holds %q", values)
	}
}
