package planner

import (
	"slices"
	"testing"
)

// A swap that the cap has no room for keeps nothing else from being done, and is told.
func TestACapThatHasNoRoomForASwapGoesOnWithWhatFits(t *testing.T) {
	s := fleetFor(t, func(b *Builder) error {
		err := add(b.AddBroker(Broker{ID: "b0", Alive: true}), b.AddBroker(Broker{ID: "b1", Alive: true}), b.AddTopic(Topic{Name: "t"}))
		for i, p := range []Partition{{Owner: "b0", In: 9 << 20}, {Owner: "b0", In: 6 << 20}, {Owner: "b0", Disk: 2 * gib}, {Owner: "b0", Disk: 2 * gib}, {Owner: "b0", Disk: 2 * gib},
			{Owner: "b1", In: 4 << 20}, {Owner: "b1", In: 1 << 20}, {Owner: "b1"}} {
			p.Topic, p.Partition = "t", int32(i)
			err = add(err, b.Add(p))
		}
		return err
	})
	settings := uncapped()
	settings.Margin = 0
	settings.Goals[NWIn].Deviation = 0.05
	settings.Goals[NWOut].Enabled, settings.Goals[PartitionCount].Enabled = false, false
	const swap, move = "0 b0>b1 + 5 b1>b0", "2 b0>b1"
	const goesOn = "the plan has reached maxActions; the next one goes on"
	for _, tc := range []struct {
		most    int
		noSwaps bool
		want    []string
		capped  bool
		why     string // NW_IN stays above its band
	}{
		{most: 1, want: []string{move}, capped: true, why: "only a swap would help, which moves two partitions, and maxActions is 1"},
		{most: 1, noSwaps: true, want: []string{move}, why: "none of the other 2 fits on a colder broker within its bands and its room, alone or in a swap"},
		{most: 2, want: []string{swap}, capped: true},
		{most: 3, want: []string{swap, move}},
		{most: 0, want: []string{swap, move}},
	} {
		settings.MaxActions, settings.Swaps = tc.most, !tc.noSwaps
		plan := planned(t, s, settings)
		why := ""
		for _, l := range plan.Goals[0].Left {
			why = l.Reason
		}
		if got := told(plan); !slices.Equal(got, tc.want) || plan.Capped != tc.capped || why != tc.why {
			t.Errorf("at most %d: %q, capped %v, left because %q; want %+v", tc.most, got, plan.Capped, why, tc)
		}
	}
	// One place is left when the swap is wanted, and something else takes it.
	more, err := s.WithBroker(Broker{ID: "b9", Alive: true, Draining: true})
	if err != nil {
		t.Fatal(err)
	}
	more.owner[7] = more.broker("b9")
	settings.MaxActions, settings.Swaps = 2, true
	plan := planned(t, more, settings)
	if plan.Moves() != 2 || plan.Actions[0].Goal != DrainGoal || plan.Actions[1].Goal != "DISK" || !plan.Capped || len(plan.Goals[0].Left) != 1 || plan.Goals[0].Left[0].Reason != goesOn {
		t.Errorf("after a drain: %q, %+v", told(plan), plan.Goals)
	}
}

// What was kept from being done, and then was not needed any more, is not told. DISK moves what NW_IN does not trust.
func TestACapThatASwapWasTooLargeForIsNoneOnceItIsNotWanted(t *testing.T) {
	s := fleetFor(t, func(b *Builder) error {
		err := add(b.AddBroker(Broker{ID: "b0", Alive: true}), b.AddBroker(Broker{ID: "b1", Alive: true}), b.AddTopic(Topic{Name: "t"}))
		for i, p := range []Partition{{Owner: "b0", In: 10 << 20}, {Owner: "b0", In: 5 << 20, Untrusted: []Goal{NWIn}, Disk: 2 * gib}, {Owner: "b0", Disk: 2 * gib}, {Owner: "b0", Disk: 2 * gib},
			{Owner: "b1", In: 5 << 20}} {
			p.Topic, p.Partition = "t", int32(i)
			err = add(err, b.Add(p))
		}
		return err
	})
	settings := uncapped()
	settings.Margin, settings.MaxActions = 0, 1
	settings.Goals[NWIn].Deviation = 0.05
	settings.Goals[NWOut].Enabled, settings.Goals[PartitionCount].Enabled = false, false
	plan := planned(t, s, settings)
	if got := told(plan); !slices.Equal(got, []string{"1 b0>b1"}) || plan.Capped {
		t.Errorf("%q, capped %v", got, plan.Capped)
	}
	settings.MaxActions, settings.Goals[Disk].Enabled = 2, false
	if got := told(planned(t, s, settings)); !slices.Equal(got, []string{"0 b0>b1 + 4 b1>b0"}) {
		t.Errorf("without DISK: %q", got)
	}
}

// A drain that the cap stops goes no further, names nothing as blocked, and is gone on with by the next plan.
func TestACapStopsADrainUntilTheNextPlan(t *testing.T) {
	s, settings := disks(t, [][]int64{{2, 2, 2}, {9, 1, 1}, {0}})
	settings.MaxActions = 2
	s, err := s.WithBrokerDraining("b0")
	if err != nil {
		t.Fatal(err)
	}
	plan := planned(t, s, settings)
	if got := told(plan); !slices.Equal(got, []string{"0 b0>b2", "1 b0>b2"}) || !plan.Capped || len(plan.Blocked) > 0 {
		t.Errorf("%q, capped %v, blocked %+v", got, plan.Capped, plan.Blocked)
	}
	if s, err = s.After(plan, Settled); err != nil {
		t.Fatal(err)
	}
	if got := told(planned(t, s, settings)); len(got) == 0 || got[0] != "2 b0>b2" {
		t.Errorf("the next plan: %q", got)
	}
}
