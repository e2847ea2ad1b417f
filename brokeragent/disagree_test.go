package brokeragent_test

import (
	"os"
	"strings"
	"testing"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
	"portage/metastore"
)

// A backup from after the last opening is put back into the data folder: only what the heartbeats reported since tells that
// it lacks confirmed records.
func TestARestoredBackupOfTheDataFolderStaysClosed(t *testing.T) {
	f := agenttest.New(t)
	b1 := f.Start("b1", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	b1.Restart() // it opens with one record
	backup := t.TempDir()
	agenttest.CopyDir(t, b1.PartitionDir(orders, 0), backup)
	b1.Write(orders, 0, "two")
	storage := f.Row(orders, 0).OwnerStorage
	agenttest.Eventually(t, "a heartbeat has reported both records", func() bool {
		loads := agenttest.Must(f.Store.ReadLoads(t.Context(), "b1", storage))(t)
		return len(loads) == 1 && loads[0].LogEnd == 2
	})
	b1.Stop()
	newest := t.TempDir()
	agenttest.CopyDir(t, b1.PartitionDir(orders, 0), newest)
	put := func(from string) {
		if err := os.RemoveAll(b1.PartitionDir(orders, 0)); err != nil {
			t.Fatal(err)
		}
		agenttest.CopyDir(t, from, b1.PartitionDir(orders, 0))
	}
	put(backup)
	b1.Boot()
	if status := b1.WaitState(orders, 0, native.StateClosed); status.ReasonCode != native.CodeDataOlder || !strings.Contains(status.Reason, "had 2") {
		t.Errorf("it says: %+v", status)
	}
	if code, _ := b1.Produce(orders, 0, agenttest.Record("three")); code == 0 {
		t.Error("a closed partition accepts a record")
	}
	b1.Stop()
	put(newest)
	b1.Boot()
	b1.WaitState(orders, 0, native.StateOpen)
	if values := b1.Values(orders, 0); len(values) != 2 {
		t.Errorf("the newest data holds %q", values)
	}
}

// The machine of a broker was copied, and the copy starts. It takes the place of the first, which stops: of two processes
// one serves.
func TestACopiedAgentSupersedesTheFirst(t *testing.T) {
	f := agenttest.New(t)
	b1 := f.Start("b1", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	first := f.Row(orders, 0).OpenedProcess
	folder := t.TempDir()
	agenttest.CopyDir(t, b1.Data, folder)
	twin := b1.Twin(folder)
	twin.Boot()
	twin.WaitState(orders, 0, native.StateOpen)
	if second := f.Row(orders, 0).OpenedProcess; *second == *first {
		t.Fatal("the copy did not open the partition")
	}
	if err := b1.Ended(); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("the first ended with %v", err)
	}
	twin.Write(orders, 0, "two")
	if values := twin.Values(orders, 0); len(values) != 2 {
		t.Errorf("the copy holds %q", values)
	}
}

// Between the copy's opening and its own next heartbeat the first accepts nothing and opens nothing.
func TestASupersededProcessOpensNothing(t *testing.T) {
	f := agenttest.New(t)
	b1 := f.Start("b1", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	row := f.Row(orders, 0)
	f.Exec("UPDATE brokers SET process_instance = gen_random_uuid() WHERE id = 'b1'")
	_, err := f.Store.OpenOwner(t.Context(), metastore.OpenRequest{TopicID: orders.ID, Broker: "b1", Epoch: row.Epoch, Storage: row.OwnerStorage, Process: *row.OpenedProcess})
	if _, refused := metastore.RefusedWith(err, metastore.CodeSuperseded); !refused {
		t.Errorf("its opening ended with %v", err)
	}
	if err := b1.Ended(); err == nil {
		t.Error("it runs on")
	}
}

// The metastore was restored to before this process registered: nobody took its place, so it registers again and serves on.
func TestAnAgentThatAnOlderMetastoreDoesNotKnowServesOn(t *testing.T) {
	f := agenttest.New(t)
	b1 := f.Start("b1", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	agenttest.Eventually(t, "it has heartbeats behind it", func() bool { return agenttest.Must(f.Store.FindBroker(t.Context(), "b1"))(t).Heartbeat > 1 })
	process := agenttest.Must(f.Store.FindBroker(t.Context(), "b1"))(t).ProcessInstance
	f.Exec("UPDATE brokers SET process_instance = gen_random_uuid(), heartbeat = 0 WHERE id = 'b1'")
	agenttest.Eventually(t, "it is registered again", func() bool {
		return agenttest.Must(f.Store.FindBroker(t.Context(), "b1"))(t).ProcessInstance == process
	})
	b1.Write(orders, 0, "two")
}
