package metastore_test

import (
	"testing"

	"github.com/google/uuid"

	"portage/metastore"
)

func TestRegisterBrokerRefusals(t *testing.T) {
	f := newFixture(t)
	fleet, err := f.FleetID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.exec("UPDATE brokers SET removed = true WHERE id = 'b3'")
	for _, tc := range []struct {
		name, code string
		change     func(r *metastore.Registration)
	}{
		{"a folder of another fleet", metastore.CodeOtherFleet, func(r *metastore.Registration) { r.FleetID = uuid.New() }},
		{"other storage under the same id", metastore.CodeStorageChanged, func(r *metastore.Registration) { r.Storage = uuid.New() }},
		{"a node id that is taken", metastore.CodeNodeIDTaken, func(r *metastore.Registration) { r.NodeID = 2 }},
		{"a new broker with a node id that is taken", metastore.CodeNodeIDTaken, func(r *metastore.Registration) { r.ID, r.Storage = "b4", uuid.New() }},
		{"a removed broker", metastore.CodeBrokerRemoved, func(r *metastore.Registration) { *r = f.brokers["b3"] }},
	} {
		r := f.brokers["b1"]
		tc.change(&r)
		f.refused(tc.code, func() error { _, err := f.RegisterBroker(t.Context(), r); return err })
	}
	// The next process of the same folder is welcome, at another address.
	r := f.brokers["b1"]
	r.FleetID, r.Process, r.ControlURL, r.ClientPort = fleet, uuid.New(), "http://elsewhere", 9999
	if got, err := f.RegisterBroker(t.Context(), r); err != nil || got != fleet {
		t.Fatalf("%s, %v", got, err)
	}
	if b, err := f.FindBroker(t.Context(), "b1"); err != nil || b.ControlURL != "http://elsewhere" || b.ClientPort != 9999 || b.ProcessInstance != r.Process || b.Heartbeat != 1 {
		t.Errorf("%+v (%v)", b, err)
	}
}

func TestHeartbeatOfASupersededProcessIsRefused(t *testing.T) {
	f := newFixture(t)
	beat := func(r metastore.Registration, totalBytes, freeBytes int64) (int64, error) {
		return f.Heartbeat(t.Context(), metastore.HeartbeatReport{Broker: "b1", Process: r.Process, Storage: r.Storage, DiskTotalBytes: totalBytes, DiskFreeBytes: freeBytes})
	}
	first := f.brokers["b1"]
	if n, err := beat(first, 100, 50); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if b, err := f.FindBroker(t.Context(), "b1"); err != nil || b.Heartbeat != 1 || b.DiskTotalBytes != 100 || b.DiskFreeBytes != 50 {
		t.Errorf("%+v (%v)", b, err)
	}
	second := first
	second.Process = uuid.New()
	if _, err := f.RegisterBroker(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if _, err := beat(first, 1, 1); !refusedFor(err, metastore.CodeSuperseded) {
		t.Errorf("the former process's heartbeat ended with %v", err)
	}
	if _, err := beat(second, 1, 1); err != nil {
		t.Error(err)
	}
	f.exec("UPDATE brokers SET removed = true WHERE id = 'b1'")
	if _, err := beat(second, 1, 1); !refusedFor(err, metastore.CodeSuperseded) {
		t.Errorf("a removed broker's heartbeat ended with %v", err)
	}
}

// R15: the epoch rises only when the holder changes.
func TestControllerEpochRisesWithItsHolder(t *testing.T) {
	f := newFixture(t)
	hold := func(holder string) int64 {
		t.Helper()
		epoch, err := f.HoldController(t.Context(), holder)
		if err != nil {
			t.Fatal(err)
		}
		return epoch
	}
	first := hold("one")
	if again := hold("one"); again != first {
		t.Errorf("the same holder: %d after %d", again, first)
	}
	if second := hold("two"); second != first+1 {
		t.Errorf("another holder: %d after %d", second, first)
	}
	// It fences new claims alone: a claimed move goes on.
	f.epoch = hold("three")
	row := f.claim("m1", "b2")
	hold("four")
	if _, _, err := f.ClaimMove(t.Context(), f.claimRequest("m1", "b2")); err != nil {
		t.Errorf("the repeated claim ended with %v", err)
	}
	if _, err := f.CommitOwner(t.Context(), f.evidence("m1", row)); err != nil {
		t.Errorf("the commit ended with %v", err)
	}
	f.refused(metastore.CodeStaleController, func() error { _, _, err := f.ClaimMove(t.Context(), f.claimRequest("m2", "b3")); return err })
}

func TestHeartbeatKeepsWhatItReports(t *testing.T) {
	f := newFixture(t)
	b1 := f.brokers["b1"]
	report := metastore.HeartbeatReport{Broker: "b1", Process: b1.Process, Storage: b1.Storage,
		Loads: []metastore.Load{{TopicID: f.topic.ID, Partition: 0, Epoch: 2, LogEnd: 100, DiskBytes: 7, ProducedBytes: 5, ConsumedBytes: 3}, {TopicID: f.topic.ID, Partition: 1, LogEnd: 9}}}
	if n, err := f.Heartbeat(t.Context(), report); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	report.Loads = report.Loads[:1]
	report.Loads[0].LogEnd = 150
	if n, err := f.Heartbeat(t.Context(), report); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	loads, err := f.ReadLoads(t.Context(), "b1", b1.Storage)
	if err != nil || len(loads) != 2 {
		t.Fatalf("%+v (%v)", loads, err)
	}
	for _, l := range loads {
		if l.Partition == 0 && l != report.Loads[0] || l.Partition == 1 && l.LogEnd != 9 {
			t.Errorf("kept is %+v", l)
		}
	}
	if other, err := f.ReadLoads(t.Context(), "b1", uuid.New()); err != nil || len(other) != 0 {
		t.Errorf("on other storage: %+v (%v)", other, err)
	}
	// A process that was superseded leaves no report.
	report.Process, report.Loads[0].LogEnd = uuid.New(), 1
	if _, err := f.Heartbeat(t.Context(), report); !refusedFor(err, metastore.CodeSuperseded) {
		t.Error(err)
	}
	if loads, err := f.ReadLoads(t.Context(), "b1", b1.Storage); err != nil || loads[0].LogEnd == 1 || loads[1].LogEnd == 1 {
		t.Errorf("%+v (%v)", loads, err)
	}
}

// R1: a counter that went back is an older metastore's, not a successor's.
func TestHeartbeatTellsAnOlderMetastoreFromASuccessor(t *testing.T) {
	f := newFixture(t)
	b1 := f.brokers["b1"]
	report := metastore.HeartbeatReport{Broker: "b1", Process: b1.Process, Counter: 5}
	f.exec("UPDATE brokers SET process_instance = gen_random_uuid(), heartbeat = 4 WHERE id = 'b1'")
	if _, err := f.Heartbeat(t.Context(), report); !refusedFor(err, metastore.CodeMetastoreOlder) {
		t.Errorf("a lower counter: %v", err)
	}
	f.exec("UPDATE brokers SET heartbeat = 6 WHERE id = 'b1'")
	if _, err := f.Heartbeat(t.Context(), report); !refusedFor(err, metastore.CodeSuperseded) {
		t.Errorf("a higher counter: %v", err)
	}
	report.Broker = "b9"
	if _, err := f.Heartbeat(t.Context(), report); !refusedFor(err, metastore.CodeMetastoreOlder) {
		t.Errorf("a broker that is not there: %v", err)
	}
}
