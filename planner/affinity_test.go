package planner

import (
	"slices"
	"testing"
)

// Anti-affinity chooses between brokers that are else as good, and keeps nothing from being moved. (By count alone:
// TestCountsPreferWhomTheParentIsNotOn.)
func TestAPartitionRatherKeepsAwayFromItsParent(t *testing.T) {
	for _, tc := range []struct {
		name    string
		brokers int // beside b0, which has three of the topic child; b1 has partition 0 of its parent, the others as much of another
		drains  bool
		want    []string
	}{
		{"in a move", 2, false, []string{"0 b0>b2", "1 b0>b1"}},
		{"in a drain", 2, true, []string{"0 b0>b2", "1 b0>b1", "2 b0>b1"}},
		{"in a move that has no choice", 1, false, []string{"0 b0>b1"}},
		{"in a drain that has no choice", 1, true, []string{"0 b0>b1", "1 b0>b1", "2 b0>b1"}},
	} {
		s := fleetFor(t, func(b *Builder) error {
			err := add(b.AddBroker(Broker{ID: "b0", Alive: true, Draining: tc.drains}), b.AddTopic(Topic{Name: "parent"}), b.AddTopic(Topic{Name: "other"}),
				b.AddTopic(Topic{Name: "child", Config: map[string]string{AntiAffinityConfig: "parent"}}))
			for i, id := range []string{"b1", "b2"}[:tc.brokers] {
				err = add(err, b.AddBroker(Broker{ID: id, Alive: true}), b.Add(Partition{Topic: []string{"parent", "other"}[i], Owner: id}))
			}
			for i := range int32(3) {
				err = add(err, b.Add(Partition{Topic: "child", Partition: i, Owner: "b0", Disk: gib}))
			}
			return err
		})
		_, settings := disks(t, nil)
		if got := told(planned(t, s, settings)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
