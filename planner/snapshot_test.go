package planner

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

const gib = 1 << 30

// fleetFor builds a snapshot or fails the test.
func fleetFor(t testing.TB, fill func(b *Builder) error) *Snapshot {
	t.Helper()
	b := NewBuilder(0)
	b.TakenAt = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	if err := fill(b); err != nil {
		t.Fatal(err)
	}
	s, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// add stops at the first error.
func add(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestASnapshotReadsAsItWasWritten(t *testing.T) {
	s := fleetFor(t, func(b *Builder) error {
		b.FleetID, b.Recoveries = "f", 2
		b.AddCooldown(Cooldown{Topic: "orders", Partition: 1, Until: b.TakenAt.Add(time.Minute), Reason: "moved"})
		b.AddCooldown(Cooldown{Broker: "b2", Until: b.TakenAt.Add(-time.Minute)})
		return add(
			b.AddBroker(Broker{ID: "b2", Rack: "r2", Alive: true, DiskBytes: gib, DiskFreeBytes: 5, NetBytesPerSec: 7, Weight: 2}),
			b.AddBroker(Broker{ID: "b1", Alive: true, Draining: true}),
			b.AddTopic(Topic{Name: "orders", ID: "x", Config: map[string]string{AntiAffinityConfig: "__g"}}),
			b.AddTopic(Topic{Name: "__g"}),
			b.Add(Partition{Topic: "orders", Partition: 1, Owner: "b2", Target: "b1", Version: 9, Disk: 10, In: 1, Out: 2, Untrusted: []Goal{NWOut}}),
			b.Add(Partition{Topic: "__g", Partition: 0, Owner: "b1", Version: 1}),
			b.Add(Partition{Topic: "orders", Partition: 0, Owner: "b1", Version: 3, Copies: []Copy{{"b2", 4}}, Followers: []string{"b2"}}),
		)
	})
	var first, second bytes.Buffer
	if _, err := s.WriteTo(&first); err != nil {
		t.Fatal(err)
	}
	again, err := ReadSnapshot(bytes.NewReader(first.Bytes()))
	if err != nil {
		t.Fatalf("%v\n%s", err, first.String())
	}
	if _, err := again.WriteTo(&second); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() {
		t.Errorf("written\n%s\nread and written\n%s", first.String(), second.String())
	}
	if i := again.Find("orders", 1); i != 2 || again.flags[i]&cooling == 0 || again.brokerCooling[1] {
		t.Errorf("orders/1 is number %d with flags %b, broker cooling %v", i, again.flags[2], again.brokerCooling)
	}
	if again.flags[0]&internal == 0 || again.parent[1] != 0 || again.parentOf(1) != 0 || again.parentOf(2) != none {
		t.Errorf("internal %b, parents %v", again.flags[0], again.parent)
	}
}

func TestASnapshotThatCanNotBeIsRefused(t *testing.T) {
	good := `{"format":1,"takenAt":"2026-01-01T00:00:00Z","brokers":[{"id":"b1","alive":true}],"topics":[{"name":"t"}],"partitions":[{"topic":"t","partition":0,"owner":"b1","version":1,"in":0,"out":0,"disk":0}]}`
	if _, err := ReadSnapshot(strings.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"a later format":      {`"format":1`, `"format":2`},
		"no format":           {`"format":1,`, ``},
		"an unknown key":      {`"format":1`, `"format":1,"colour":1`},
		"an unknown owner":    {`"owner":"b1"`, `"owner":"b7"`},
		"an unknown topic":    {`"topic":"t"`, `"topic":"u"`},
		"a negative load":     {`"disk":0`, `"disk":-1`},
		"a broker twice":      {`"brokers":[`, `"brokers":[{"id":"b1"},`},
		"a broker with no id": {`"id":"b1"`, `"id":""`},
		"a partition twice":   {`"partitions":[`, `"partitions":[{"topic":"t","partition":0,"owner":"b1"},`},
		"a negative weight":   {`"alive":true`, `"alive":true,"weight":-1`},
		"an unknown resource": {`"disk":0`, `"disk":0,"untrusted":["CPU"]`},
		"half a file":         {`]}`, ``},
		"another kind":        {`{"format"`, `[{"format"`},
		"both in a cooldown":  {`"topics"`, `"cooldowns":[{"broker":"b1","topic":"t","until":"2027-01-01T00:00:00Z"}],"topics"`},
	} {
		if _, err := ReadSnapshot(strings.NewReader(strings.Replace(good, change[0], change[1], 1))); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}
