package planner

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"portage/internal/units"
)

// A partition needs room for all of it and for the margin, wherever it goes and for whatever reason.
func TestNothingGoesWhereThereIsNoRoomWithTheMargin(t *testing.T) {
	const large = 100 // of the units of disks
	for _, tc := range []struct {
		name    string
		brokers [][]int64
		within  float64 // the deviation
		drains  bool
		plan    func(*Snapshot, Settings) (*Plan, error)
		want    []string
	}{
		{"a move", [][]int64{{large, large, large}, {0}, {101}}, 0.3, false, MakePlan, []string{"0 b0>b1"}},
		{"a swap", [][]int64{{150, large}, {67, 17}}, 0.05, false, MakePlan, []string{"1 b0>b1 + 3 b1>b0"}},
		{"a drain", [][]int64{{large}, {0}}, 0.3, true, MakePlan, []string{"0 b0>b1"}},
		{"by count", [][]int64{{large, large, large, large}, {0, 0}}, 0.3, false, BalanceCounts, []string{"0 b0>b1"}},
	} {
		base, settings := disks(t, tc.brokers)
		settings.Goals[Disk].Deviation = tc.within
		for b := range base.Brokers {
			base.Brokers[b].DiskBytes, base.Brokers[b].DiskFreeBytes = 1000*gib, 1000*gib
		}
		if tc.drains {
			base.Brokers[0].Draining = true
		}
		for _, room := range []struct {
			free   int64
			margin float64
			fits   bool
		}{{12500 << 20, 0.25, true}, {12500<<20 - 1, 0.25, false}, {10000 << 20, 0, true}, {10000<<20 - 1, 0, false}} {
			s := base.clone()
			s.Brokers[1].DiskFreeBytes = room.free
			settings.RoomMargin = room.margin
			plan, err := tc.plan(s, settings)
			if err != nil {
				t.Fatal(err)
			}
			if got := told(plan); slices.Equal(got, tc.want) != room.fits || (len(got) > 0) != room.fits {
				t.Errorf("%s, %d bytes free with a margin of %v: %q", tc.name, room.free, room.margin, got)
			}
		}
	}
}

// F26: a former copy decides in a drain too, where the bands allow both.
func TestADrainUsesTheCopiesThatBrokersRetained(t *testing.T) {
	copyAtB2 := func(i int32, p *Partition) {
		if i == 0 {
			p.Copies = []Copy{{"b2", 100 << 20}}
		}
	}
	for _, tc := range []struct {
		name    string
		brokers [][]int64
		want    []string
	}{
		{"a tie", [][]int64{{2}, {4}, {4}}, []string{"0 b0>b2"}},
		{"even where it is fuller", [][]int64{{2}, {5}, {6}}, []string{"0 b0>b2"}},
		{"but not above the band", [][]int64{{2}, {3}, {6}}, []string{"0 b0>b1"}},
	} {
		s, settings := disks(t, tc.brokers, copyAtB2)
		s, err := s.WithBrokerDraining("b0")
		if err != nil {
			t.Fatal(err)
		}
		if got := told(planned(t, s, settings)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// F27: the partition, whom it left and who took it, each for its time.
func TestWhatAPlanMovesCoolsDown(t *testing.T) {
	s, settings := disks(t, [][]int64{{2, 2}, {0}, {2}})
	settings.BrokerCooldown, settings.PartitionCooldown = units.Duration(time.Minute), units.Duration(time.Hour)
	plan := planned(t, s, settings)
	told := func(settings Settings) (all []string) {
		cooled, err := s.Cool(plan, settings)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cooled.Cooldowns {
			name := c.Broker
			if c.Topic != "" {
				name = fmt.Sprintf("%s/%d", c.Topic, c.Partition)
			}
			all = append(all, fmt.Sprintf("%s %s", name, c.Until.Sub(s.TakenAt)))
		}
		return all
	}
	if got, want := told(settings), []string{"t/0 1h0m0s", "b0 1m0s", "b1 1m0s"}; !slices.Equal(got, want) {
		t.Errorf("%q cool, want %q", got, want)
	}
	settings.BrokerCooldown, settings.PartitionCooldown = 0, 0
	if got := told(settings); len(got) > 0 {
		t.Errorf("without cooldowns %q cool", got)
	}
}
