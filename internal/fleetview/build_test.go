package fleetview

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"

	"portage/brokeragent/control"
	"portage/metastore"
	"portage/planner"
)

func TestASnapshotIsWhatTheMetastoreAndTheAgentsSay(t *testing.T) {
	topic, process, start := uuid.New(), uuid.New(), time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	target := "b2"
	fleet := &metastore.FleetView{At: start, Capacities: map[string]metastore.Capacity{"b2": {DiskBytes: 600, NetBytesPerSec: 7, Weight: 2}},
		Disk: map[metastore.PartitionID]int64{{TopicID: topic, Partition: 1}: 77},
		Snapshot: metastore.Snapshot{Brokers: []metastore.Broker{{ID: "b1"}, {ID: "b2"}, {ID: "dead"}, {ID: "gone", Removed: true}}, Topics: []metastore.Topic{{ID: topic, Name: "t"}},
			Assignments: []metastore.Assignment{{TopicID: topic, Topic: "t", Partition: 0, Owner: "b1", Version: 4}, {TopicID: topic, Topic: "t", Partition: 1, Owner: "b1", Target: &target}}},
		Replicas:  []metastore.Replica{{TopicID: topic, Partition: 0, Broker: "b1", Role: "owner"}, {TopicID: topic, Partition: 0, Broker: "b2", Role: "follower"}},
		Cooldowns: []metastore.Cooldown{{Subject: metastore.PartitionSubject(topic, 0), Until: start.Add(time.Hour)}, {Subject: metastore.PartitionSubject(uuid.New(), 0), Until: start.Add(time.Hour)}}}
	status := &control.AgentStatus{DiskTotalBytes: 1000, DiskFreeBytes: 900}
	answers := map[string]answer{"b1": {status: status, copies: []control.RetainedCopy{{TopicID: topic, Partition: 0, Bytes: 9}}},
		"b2": {status: status, copies: []control.RetainedCopy{{TopicID: topic, Partition: 1, Bytes: 5}, {TopicID: topic, Partition: 0, Bytes: 8, Quarantined: true}}}}
	settings := planner.DefaultSettings()
	windows, err := planner.NewWindows(settings)
	if err != nil {
		t.Fatal(err)
	}
	for pass := range int64(2) {
		report := planner.Report{Key: key(topic, 0), Process: process, At: start.Add(time.Duration(pass) * 10 * time.Second), Disk: 50, Produced: 200 * pass, Consumed: 400 * pass}
		if err := windows.Feed(report); err != nil {
			t.Fatal(err)
		}
	}
	s, err := build(fleet, answers, windows)
	if err != nil {
		t.Fatal(err)
	}
	want := []planner.Partition{
		{Topic: "t", Partition: 0, Owner: "b1", Version: 4, In: 20, Out: 40, Disk: 50, Followers: []string{"b2"}},
		{Topic: "t", Partition: 1, Owner: "b1", Target: "b2", Disk: 77, Copies: []planner.Copy{{Broker: "b2", Bytes: 5}}, Untrusted: []planner.Goal{planner.NWIn, planner.NWOut, planner.Disk}},
	}
	for i, p := range want {
		if got := s.Partition(i); !reflect.DeepEqual(got, p) {
			t.Errorf("partition %d is %+v, want %+v", i, got, p)
		}
	}
	brokers := []planner.Broker{{ID: "b1", Alive: true, DiskBytes: 1000, DiskFreeBytes: 900}, {ID: "b2", Alive: true, DiskBytes: 600, DiskFreeBytes: 500, NetBytesPerSec: 7, Weight: 2}, {ID: "dead"}}
	if !reflect.DeepEqual(s.Brokers, brokers) || len(s.Cooldowns) != 1 {
		t.Errorf("brokers %+v, cooldowns %+v", s.Brokers, s.Cooldowns)
	}
}
