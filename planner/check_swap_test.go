package planner

import (
	"slices"
	"testing"
)

func TestCheckSwap(t *testing.T) {
	const mib = 1 << 20
	good := func() (a, b MoveFacts) {
		a = MoveFacts{Topic: "orders", Partition: 3, TopicExists: true, PartitionExists: true, Partitions: 4, Owner: "b1", To: "b2", TargetExists: true, TargetAlive: true,
			PartitionBytes: 100 * mib, TargetRoomBytes: 200 * mib}
		b = a
		b.Topic, b.Partition, b.Owner, b.To = "payments", 1, "b2", "b1"
		return a, b
	}
	for _, tc := range []struct {
		name     string
		change   func(a, b *MoveFacts)
		want     []string
		onlyRoom bool
	}{
		{"nothing", func(_, _ *MoveFacts) {}, nil, false},
		{"an unknown topic is all that is said", func(a, b *MoveFacts) { b.TopicExists, a.To, a.TargetExists = false, "", false }, []string{"unknown_topic"}, false},
		{"an unknown partition is all that is said", func(a, b *MoveFacts) { a.PartitionExists, b.To, b.TargetExists = false, "", false }, []string{"unknown_partition"}, false},
		{"one owner", func(_, b *MoveFacts) { b.Owner = "b1" }, []string{"same_owner"}, false},
		{"each side's own", func(a, b *MoveFacts) { a.TargetDraining, b.MovingUnder = true, "w" }, []string{"broker_draining", "already_moving"}, false},
		{"room of one", func(a, _ *MoveFacts) { a.TargetRoomBytes = 0 }, []string{"too_little_room"}, true},
		{"room of both", func(a, b *MoveFacts) { a.TargetRoomBytes, b.TargetRoomBytes = 0, 0 }, []string{"too_little_room", "too_little_room"}, true},
		{"room and a dead broker", func(a, b *MoveFacts) { a.TargetRoomBytes, b.TargetAlive = 0, false }, []string{"too_little_room", "broker_dead"}, false},
	} {
		a, b := good()
		tc.change(&a, &b)
		against := CheckSwap(a, b)
		var got []string
		for _, o := range against {
			got = append(got, o.Code)
		}
		if !slices.Equal(got, tc.want) || OnlyRoom(against) != tc.onlyRoom {
			t.Errorf("%s: against it stand %q (room alone: %v), want %q", tc.name, got, OnlyRoom(against), tc.want)
		}
	}
}
