package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portage/metastore"
)

// The volume with the partitions is not mounted when the agent starts: the partition is closed and nothing is created.
func TestAnAgentWhoseVolumeIsNotMountedCreatesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2})
	w.must(w.produce(w.topic, "b1"))
	w.must(w.KillAgent("b1"))
	mounted := filepath.Join(w.Agent("b1").Data, "partitions")
	away := mounted + ".away"
	w.must(os.Rename(mounted, away))
	w.must(w.StartAgent("b1"))
	w.must(w.WaitReady(w.ctx, "b1"))
	if status := w.partition("b1"); status.State != "closed" || status.ReasonCode != "data_missing" {
		t.Errorf("b1 says: %+v", status)
	}
	if left, err := os.ReadDir(mounted); err != nil || len(left) > 0 {
		t.Errorf("created were %v (%v)", left, err)
	}
	w.must(w.KillAgent("b1"))
	w.must(os.Remove(mounted))
	w.must(os.Rename(away, mounted))
	w.must(w.StartAgent("b1"))
	w.must(w.WaitReady(w.ctx, "b1"))
	w.await("b1 is open", func() string { return missingState(w.partition("b1").State, "open") })
}

// A broker's disk is gone. The new folder is refused with the command that accepts the loss; after it the broker serves
// again, and what was on the old disk stays closed.
func TestABrokerWhoseDiskIsGoneGoesOnWithANewOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, alone: true})
	w.must(w.produce(w.topic, "b1"))
	replace := func(broker, storage string) (string, int) {
		return w.run("broker", "replace-storage", broker, "--storage", storage, "--accept-loss", "--watch", "5s", "--dsn", w.DSN())
	}
	w.must(w.KillAgent("b1"))
	data := w.Agent("b1").Data
	w.must(os.Rename(data, data+".lost"))
	w.must(w.StartAgent("b1"))
	select {
	case <-w.Agent("b1").Process.Exited():
	case <-w.ctx.Done():
		t.Fatal("the agent with a new folder runs on")
	}
	var identity struct{ Storage string }
	content, err := os.ReadFile(filepath.Join(data, "storage.json"))
	w.must(err)
	w.must(json.Unmarshal(content, &identity))
	said, err := os.ReadFile(w.Agent("b1").Process.LogFile())
	w.must(err)
	if command := "portage broker replace-storage b1 --storage " + identity.Storage + " --accept-loss"; !strings.Contains(string(said), command) {
		t.Errorf("its log does not name the command: %s", said)
	}
	if said, code := replace("b2", identity.Storage); code != 1 || !strings.Contains(said, "is alive") {
		t.Errorf("a broker that is alive: %d, %s", code, said)
	}
	if said, code := replace("b1", identity.Storage); code != 0 || !strings.Contains(said, "1 partition") {
		t.Fatalf("%d, %s", code, said)
	}
	w.must(w.StartAgent("b1"))
	w.must(w.WaitReady(w.ctx, "b1"))
	if status := w.partition("b1"); status.State != "closed" || status.ReasonCode != metastore.CodeStorageChanged {
		t.Errorf("b1 says: %+v", status)
	}
	if _, err := os.Stat(w.partitionDir("b1")); err == nil {
		t.Error("an empty log was created over a lost one")
	}
	fresh := w.topic + "-new"
	w.must(w.CreateTopic(w.ctx, fresh, 1, "b1"))
	w.must(w.produce(fresh, "b1"))
}
