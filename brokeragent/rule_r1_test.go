//go:build portage_faults

package brokeragent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/internal/faults/faultstest"
	"portage/internal/reconcile"
	"portage/metastore"
)

// goBack puts a partition's row back to an earlier state and says nothing of it, as a database does that was restored from
// a file copy and goes on under the same timeline. The moves since are gone, too.
func goBack(f *agenttest.Fleet, earlier *metastore.Assignment) {
	f.T.Helper()
	f.Exec("DELETE FROM moves WHERE topic_id = $1 AND claim_version > $2", earlier.TopicID, earlier.Version)
	f.Exec("UPDATE moves SET outcome = NULL, phase = 'cutover', commit_epoch = NULL, ended_at = NULL WHERE id = $1", earlier.MoveID)
	f.Exec(`UPDATE assignments SET owner = $3, owner_storage = $4, target = $5, target_storage = $6, epoch = $7, version = $8, opened_epoch = $9, opened_process = $10, move_id = $11, last_move = $12
		WHERE topic_id = $1 AND partition = $2`, earlier.TopicID, earlier.Partition, earlier.Owner, earlier.OwnerStorage, earlier.Target, earlier.TargetStorage, earlier.Epoch, earlier.Version,
		earlier.OpenedEpoch, earlier.OpenedProcess, earlier.MoveID, earlier.LastMove)
}

// A move is committed and the new owner acknowledges records. Then the metastore is restored to before the commit, and the
// old owner, which was down meanwhile, comes back and reads that the partition is its own.
func TestR1ARestoredMetastoreDoesNotMakeASecondOwner(t *testing.T) {
	faultstest.Story(t, "R1", func(t *testing.T) string {
		f, b1, b2, orders := agenttest.Pair(t)
		b1.Write(orders, 0, "one")
		m := f.Copied(orders, 0, b2)
		frozen, drained := m.Cutover()
		before := f.Row(orders, 0)
		b1.Stop() // it never hears of the commit
		m.Commit(frozen, drained)
		b2.WaitState(orders, 0, native.StateOpen)
		b2.Write(orders, 0, "two")

		goBack(f, before)
		// Someone who holds nothing ends the move on the old row: that frees the old owner's way.
		agenttest.Eventually(t, "b2 has seen the older row, or nobody looks", func() bool {
			return b2.Partition(orders, 0).Suspended != "" || f.Row(orders, 0).Version == before.Version
		})
		if b2.Partition(orders, 0).Suspended == "" {
			if _, err := f.Store.AbortMove(t.Context(), m.ID, "worker", "the metastore says it runs"); err != nil {
				t.Log(err)
			}
		}
		b1.Boot()
		agenttest.Eventually(t, "b1 has decided", func() bool {
			state := b1.Partition(orders, 0).State
			return state == string(native.StateOpen) || state == string(native.StateClosed)
		})
		code1, _ := b1.Produce(orders, 0, agenttest.Record("three"))
		code2, _ := b2.Produce(orders, 0, agenttest.Record("four"))
		if code1 == 0 && code2 == 0 {
			return "two brokers accept writes of one partition"
		}
		if code2 != 0 {
			t.Errorf("the owner that was open answers %d", code2)
		}
		status := b2.Partition(orders, 0)
		if status.Suspended != metastore.CodeMetastoreOlder {
			t.Errorf("b2 says of it: %+v", status)
		}
		if status := b1.Partition(orders, 0); status.Suspended == "" || status.ReasonCode != status.Suspended {
			t.Errorf("b1 says of it: %+v", status)
		}
		return ""
	})
}

// A topic is missing from an older metastore. Its data is put away without the rule, and stays in service with it.
func TestR1AMissingTopicIsNoDeletedTopic(t *testing.T) {
	faultstest.Story(t, "R1", func(t *testing.T) string {
		f := agenttest.New(t)
		b1 := f.Start("b1", native.Limits{})
		orders := f.CreateTopic("orders", 1, b1)
		b1.Write(orders, 0, "one")
		lose(f, orders)
		agenttest.Eventually(t, "b1 has seen that the topic is missing", func() bool {
			status := b1.Partition(orders, 0)
			return status.Suspended != "" || (status.State == "" && agenttest.Files(b1.PartitionDir(orders, 0)) == 0)
		})
		if _, err := os.Stat(b1.PartitionDir(orders, 0)); err != nil {
			return "the data of a topic that nobody deleted was put away"
		}
		if values := b1.Values(orders, 0); len(values) != 1 {
			t.Errorf("it serves %q", values)
		}
		b1.Write(orders, 0, "two")
		b1.Restart()
		if status := b1.WaitState(orders, 0, native.StateClosed); status.ReasonCode != metastore.CodeMetastoreOlder {
			t.Errorf("after a restart: %+v", status)
		}
		if files := agenttest.Files(b1.PartitionDir(orders, 0)); files == 0 {
			t.Error("its data is gone after a restart")
		}
		return ""
	})
}

// The owner's own opening is lost in a failover, and another one came to the same version. It stays closed after its restart, and
// what `portage reconcile` decides opens it.
func TestR1AnotherHistoryOfTheSameVersionIsReconciled(t *testing.T) {
	f := agenttest.New(t)
	b1 := f.Start("b1", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	held := *f.Row(orders, 0)
	b1.Stop()
	f.Exec("UPDATE assignments SET opened_process = gen_random_uuid() WHERE topic_id = $1", orders.ID)
	b1.Boot()
	status := b1.WaitState(orders, 0, native.StateClosed)
	if status.ReasonCode != metastore.CodeMetastoreOlder || !strings.Contains(status.SuspendedReason, "another history") {
		t.Errorf("it says of it: %+v", status)
	}
	snapshot := agenttest.Must(f.Store.ReadSnapshot(t.Context()))(t)
	decided := reconcile.Reconcile(snapshot, []reconcile.HeldByAgent{{Broker: "b1", Rows: []reconcile.HeldRow{{Row: held}}, Topics: []metastore.Topic{*orders}}}, nil)
	if len(decided) != 1 {
		t.Fatalf("decided is %+v", decided)
	}
	decided[0].Write.By = "test"
	if _, err := f.Store.ReconcileRow(t.Context(), decided[0].Write); err != nil {
		t.Fatal(err)
	}
	b1.WaitState(orders, 0, native.StateOpen)
	if values := b1.Values(orders, 0); len(values) != 1 {
		t.Errorf("it has %q", values)
	}
}

// lose takes a topic out of the metastore as an older copy would not have had it.
func lose(f *agenttest.Fleet, topic *metastore.Topic) {
	f.T.Helper()
	f.Exec(fmt.Sprintf("ALTER TABLE topics DISABLE TRIGGER topics_deleted; DELETE FROM topics WHERE id = '%s'; ALTER TABLE topics ENABLE TRIGGER topics_deleted", topic.ID))
}

// A former copy is not swept because the metastore does not know its topic, and not while its row is older than known.
func TestR1AFormerCopyIsNotSweptOnAnOlderMetastore(t *testing.T) {
	faultstest.Story(t, "R1", func(t *testing.T) string {
		f, b1, b2, orders := agenttest.Pair(t)
		b1.Write(orders, 0, "one")
		f.Move(orders, 0, b2)
		b2.Stop()
		lose(f, orders)
		answer := agenttest.Must(f.Peers.PurgeTrash(t.Context(), b1.URL()))(t)
		if answer.Deleted > 0 {
			return fmt.Sprintf("%d former copies were swept, and nobody had deleted the topic", answer.Deleted)
		}
		return ""
	})
}

// A deleted topic's data is put away, and may be swept.
func TestR1ADeletedTopicIsProvedByItsTombstone(t *testing.T) {
	f := agenttest.New(t)
	b1 := f.Start("b1", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	if err := f.Store.DeleteTopic(t.Context(), "orders", orders.ID, "test"); err != nil {
		t.Fatal(err)
	}
	agenttest.Eventually(t, "the partition's folder is put away", func() bool { return agenttest.Files(b1.PartitionDir(orders, 0)) == 0 })
	answer := agenttest.Must(f.Peers.PurgeTrash(t.Context(), b1.URL()))(t)
	if answer.Deleted != 1 {
		t.Errorf("the purge answered %+v", answer)
	}
	held := agenttest.Must(f.Peers.Rows(t.Context(), b1.URL()))(t)
	if len(held.Rows) != 0 || len(held.Topics) != 0 {
		t.Errorf("the agent still holds %+v", held)
	}
}

// The standby took over: rows of another timeline freeze nothing and open nothing, and what is open serves on.
func TestR1ASuspendedPartitionServesAndIsNotFrozen(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one")
	m := f.Copied(orders, 0, b2)
	f.Exec("UPDATE assignments SET timeline = timeline + 1")
	_, err := m.TryFreeze(f.Row(orders, 0).Version)
	if control.CodeOf(err) != metastore.CodeMetastoreRestored {
		t.Errorf("the freeze ended with %v", err)
	}
	b1.Write(orders, 0, "two")
	// It goes back to what it was: the suspension ends by itself, since no agent contradicts the row.
	f.Exec("UPDATE assignments SET timeline = timeline - 1")
	agenttest.Eventually(t, "the freeze is given", func() bool { _, err := m.TryFreeze(f.Row(orders, 0).Version); return err == nil })
}
