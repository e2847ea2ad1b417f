//go:build portage_faults

package brokeragent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
	"portage/internal/durable"
	"portage/internal/faults/faultstest"
	"portage/metastore"
)

// The destination's disk is replaced between drain and commit: the installed copy is gone with it.
func TestR5ACommitNamesTheStorageThatHoldsTheCopy(t *testing.T) {
	faultstest.Story(t, "R5", func(t *testing.T) string {
		f, b1, b2, orders := agenttest.Pair(t)
		b1.Write(orders, 0, "one", "two")
		m := f.Copied(orders, 0, b2)
		frozen, drained := m.Cutover()
		replaceDisk(t, f, b2)

		_, err := m.TryCommit(frozen, drained)
		if _, refused := metastore.RefusedWith(err, metastore.CodeStorageChanged); refused {
			return ""
		}
		if err != nil {
			t.Fatal(err)
		}
		b2.WaitState(orders, 0, native.StateOpen)
		if values := b2.Values(orders, 0); len(values) != 2 {
			return fmt.Sprintf("two records were confirmed, the new owner's new disk has %q", values)
		}
		return ""
	})
}

// The volume of an owner is not mounted: its folder is there, the partition is not.
func TestR5AnOwnerWithoutItsDataIsClosedAndNothingIsCreated(t *testing.T) {
	faultstest.Story(t, "R5", func(t *testing.T) string {
		f := agenttest.New(t)
		b1 := f.Start("b1", native.Limits{})
		orders := f.CreateTopic("orders", 1, b1)
		b1.Write(orders, 0, "one", "two")
		b1.Stop()
		if err := os.RemoveAll(b1.PartitionDir(orders, 0)); err != nil {
			t.Fatal(err)
		}
		b1.Boot()
		b1.WaitReady() // open or closed, not in between
		status := b1.Partition(orders, 0)
		code, offset := b1.Produce(orders, 0, agenttest.Record("three"))
		if code == 0 {
			return fmt.Sprintf("a record was confirmed at offset %d of an empty log that stands for a lost one", offset)
		}
		if status.State != string(native.StateClosed) || status.Reason == "" {
			t.Errorf("the partition is %q because %q; want closed with a reason", status.State, status.Reason)
		}
		if n := agenttest.Files(b1.PartitionDir(orders, 0)); n > 0 {
			t.Errorf("%d files were made in the place of the lost ones", n)
		}
		return ""
	})
}

// The same with a disk that carries no identity at all: the row names the storage that is lost.
func TestR5AnOwnerOnOtherStorageIsRefused(t *testing.T) {
	faultstest.Story(t, "R5", func(t *testing.T) string {
		f := agenttest.New(t)
		b1 := f.Start("b1", native.Limits{})
		orders := f.CreateTopic("orders", 1, b1)
		b1.Write(orders, 0, "one")
		replaceDisk(t, f, b1)
		status := b1.Partition(orders, 0)
		if code, offset := b1.Produce(orders, 0, agenttest.Record("two")); code == 0 {
			return fmt.Sprintf("a record was confirmed at offset %d on storage that never held the partition", offset)
		}
		if status.State != string(native.StateClosed) {
			t.Errorf("the partition is %q: %s", status.State, status.Reason)
		}
		return ""
	})
}

// replaceDisk gives an agent an empty folder with a new storage instance, and the operator's word for it.
func replaceDisk(t *testing.T, f *agenttest.Fleet, a *agenttest.Agent) {
	t.Helper()
	a.Stop()
	var identity map[string]any
	file := filepath.Join(a.Data, "storage.json")
	if err := durable.ReadJSON(file, &identity); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"partitions", "staging", "sessions", "trash"} {
		if err := os.RemoveAll(filepath.Join(a.Data, dir)); err != nil {
			t.Fatal(err)
		}
	}
	storage := uuid.NewString()
	identity["storage"] = storage
	if err := durable.WriteJSON(file, identity); err != nil {
		t.Fatal(err)
	}
	f.Exec("UPDATE brokers SET storage_instance = $2 WHERE id = $1", a.ID, storage)
	a.Boot()
	a.WaitReady()
}
