package planner

import (
	"reflect"
	"testing"
)

func TestCheckMove(t *testing.T) {
	const mib = 1 << 20
	good := MoveFacts{Topic: "orders", Partition: 3, TopicExists: true, PartitionExists: true, Partitions: 4, Owner: "b1", To: "b2", TargetExists: true, TargetAlive: true,
		PartitionBytes: 100 * mib, TargetRoomBytes: 200 * mib}
	for _, tc := range []struct {
		name   string
		change func(f *MoveFacts)
		want   []string
	}{
		{"nothing", func(*MoveFacts) {}, nil},
		{"unknown topic", func(f *MoveFacts) { f.TopicExists, f.TargetExists = false, false }, []string{"unknown_topic"}},
		{"internal topic", func(f *MoveFacts) { f.Internal = true }, []string{"internal_topic"}},
		{"unknown partition", func(f *MoveFacts) { f.PartitionExists = false }, []string{"unknown_partition"}},
		{"moving", func(f *MoveFacts) { f.MovingUnder = "w" }, []string{"already_moving"}},
		{"moving to a broker that drains", func(f *MoveFacts) { f.MovingUnder, f.TargetDraining = "w", true }, []string{"already_moving", "broker_draining"}},
		{"unknown broker", func(f *MoveFacts) { f.TargetExists, f.TargetAlive = false, false }, []string{"unknown_broker"}},
		{"removed broker", func(f *MoveFacts) { f.TargetRemoved = true }, []string{"broker_removed"}},
		{"already owner", func(f *MoveFacts) { f.To = "b1" }, []string{"already_owner"}},
		{"draining", func(f *MoveFacts) { f.TargetDraining = true }, []string{"broker_draining"}},
		{"dead", func(f *MoveFacts) { f.TargetAlive, f.TargetRoomBytes = false, 0 }, []string{"broker_dead"}},
		{"draining and dead", func(f *MoveFacts) { f.TargetDraining, f.TargetAlive = true, false }, []string{"broker_draining", "broker_dead"}},
		{"no room", func(f *MoveFacts) { f.TargetRoomBytes = 109 * mib }, []string{"too_little_room"}},
		{"room to the byte", func(f *MoveFacts) { f.TargetRoomBytes = 110 * mib }, nil},
		{"less than no room", func(f *MoveFacts) { f.TargetRoomBytes = -mib }, []string{"too_little_room"}},
		{"an owner that did not say how much", func(f *MoveFacts) { f.PartitionBytes, f.TargetRoomBytes = -1, 0 }, nil},
		{"an empty partition and a full disk", func(f *MoveFacts) { f.PartitionBytes, f.TargetRoomBytes = 0, 0 }, nil},
	} {
		f := good
		tc.change(&f)
		var got []string
		for _, o := range CheckMove(f) {
			if o.Reason == "" {
				t.Errorf("%s: %s has no reason", tc.name, o.Code)
			}
			got = append(got, o.Code)
		}
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: against it stand %q, want %q", tc.name, got, tc.want)
		}
	}
}
