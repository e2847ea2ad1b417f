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
	first := f.brokers["b1"]
	if err := f.Heartbeat(t.Context(), "b1", first.Process, 100, 50); err != nil {
		t.Fatal(err)
	}
	if b, err := f.FindBroker(t.Context(), "b1"); err != nil || b.Heartbeat != 1 || b.DiskTotalBytes != 100 || b.DiskFreeBytes != 50 {
		t.Errorf("%+v (%v)", b, err)
	}
	second := first
	second.Process = uuid.New()
	if _, err := f.RegisterBroker(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if err := f.Heartbeat(t.Context(), "b1", first.Process, 1, 1); !refusedFor(err, metastore.CodeSuperseded) {
		t.Errorf("the former process's heartbeat ended with %v", err)
	}
	if err := f.Heartbeat(t.Context(), "b1", second.Process, 1, 1); err != nil {
		t.Error(err)
	}
	f.exec("UPDATE brokers SET removed = true WHERE id = 'b1'")
	if err := f.Heartbeat(t.Context(), "b1", second.Process, 1, 1); !refusedFor(err, metastore.CodeSuperseded) {
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
