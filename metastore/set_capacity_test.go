package metastore_test

import (
	"math"
	"testing"

	"portage/metastore"
)

func TestWhatIsSetOfABrokerIsAuditedAndPlannedWith(t *testing.T) {
	f := newFixture(t)
	disk, net, weight, none := int64(2<<40), int64(125e6), 2.0, 0.0
	change := func(c metastore.CapacityChange) metastore.Capacity {
		t.Helper()
		c.Broker, c.By, c.Reason = "b2", "ops", "a larger machine"
		set, err := f.SetCapacity(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	audits := f.audits()
	change(metastore.CapacityChange{DiskBytes: &disk, Weight: &weight})
	want := metastore.Capacity{DiskBytes: disk, NetBytesPerSec: net, Weight: 2}
	if set := change(metastore.CapacityChange{NetBytesPerSec: &net}); set != want || f.audits() != audits+2 {
		t.Errorf("what is set is %+v, with %d lines of audit more", set, f.audits()-audits)
	}
	v, err := f.ReadFleet(t.Context())
	if err != nil || len(v.Capacities) != 1 || v.Capacities["b2"] != want {
		t.Errorf("a plan reads %+v (%v)", v, err)
	}
	if b, err := f.FindBroker(t.Context(), "b2"); err != nil || b.Capacity != want {
		t.Errorf("the broker is %+v (%v)", b, err)
	}
	if set := change(metastore.CapacityChange{Weight: &none}); set.Weight != 0 || set.DiskBytes != disk {
		t.Errorf("0 takes back what was set: %+v", set)
	}

	negative, much, nan := int64(-1), metastore.MostWeight+1.0, math.NaN()
	for code, c := range map[string][]metastore.CapacityChange{
		metastore.CodeInvalidSetting: {{Broker: "b1", Reason: "r"}, {Broker: "b1", Weight: &weight}, {Broker: "b1", DiskBytes: &negative, Reason: "r"}, {Broker: "b1", NetBytesPerSec: &negative, Reason: "r"},
			{Broker: "b1", Weight: &much, Reason: "r"}, {Broker: "b1", Weight: &nan, Reason: "r"}},
		metastore.CodeUnknownBroker: {{Broker: "b9", Weight: &weight, Reason: "r"}},
	} {
		for _, change := range c {
			f.refused(code, func() error { _, err := f.SetCapacity(t.Context(), change); return err })
		}
	}
	f.refused(metastore.CodeUnknownBroker, func() error { return f.SetDraining(t.Context(), "b9", true, "ops", "") })
	f.exec("UPDATE brokers SET draining = true, removed = true WHERE id = 'b3'")
	f.refused(metastore.CodeBrokerRemoved, func() error { return f.SetDraining(t.Context(), "b3", false, "ops", "") })
	f.refused(metastore.CodeBrokerRemoved, func() error {
		_, err := f.SetCapacity(t.Context(), metastore.CapacityChange{Broker: "b3", Weight: &weight, Reason: "r"})
		return err
	})
}
