package planner

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// uncapped are the default settings without the cap on actions.
func uncapped() Settings {
	s := DefaultSettings()
	s.MaxActions = 0
	return s
}

func TestHN10InFlightMovesCountAtTheirDestination(t *testing.T) {
	s := fleetFor(t, func(b *Builder) error {
		err := add(b.AddBroker(Broker{ID: "b1", Alive: true}), b.AddBroker(Broker{ID: "b2", Alive: true}), b.AddBroker(Broker{ID: "b3", Alive: false}), b.AddTopic(Topic{Name: "t"}))
		for i := range int32(4) {
			err = add(err, b.Add(Partition{Topic: "t", Partition: i, Owner: "b1"}))
		}
		return add(err, b.Add(Partition{Topic: "t", Partition: 4, Owner: "b3", Target: "b1"}), b.Add(Partition{Topic: "t", Partition: 5, Owner: "b3", Target: "b1"}))
	})
	plan, err := BalanceCounts(s, uncapped())
	if err != nil {
		t.Fatal(err)
	}
	if plan.Moves() != 3 {
		t.Errorf("4 settled and 2 on their way against 0: %d moves, want 3", plan.Moves())
	}
}

// besideParents is a fleet whose b1 has partitions of a topic that keeps away from another, which b2 has partition 0 of. b2
// and b3 have `others` partitions that are kept from nobody.
func besideParents(t *testing.T, children int32, others [2]int32) *Snapshot {
	return fleetFor(t, func(b *Builder) error {
		err := add(b.AddBroker(Broker{ID: "b1", Alive: true}), b.AddBroker(Broker{ID: "b2", Alive: true}), b.AddBroker(Broker{ID: "b3", Alive: true}), b.AddTopic(Topic{Name: "parent"}),
			b.AddTopic(Topic{Name: "child", Config: map[string]string{AntiAffinityConfig: "parent"}}), b.AddTopic(Topic{Name: "other"}), b.Add(Partition{Topic: "parent", Owner: "b2"}))
		for i := range children {
			err = add(err, b.Add(Partition{Topic: "child", Partition: i, Owner: "b1", Disk: gib}))
		}
		for i := range others[0] {
			err = add(err, b.Add(Partition{Topic: "other", Partition: i, Owner: "b2"}))
		}
		for i := range others[1] {
			err = add(err, b.Add(Partition{Topic: "other", Partition: others[0] + i, Owner: "b3"}))
		}
		return err
	})
}

func TestCountsPreferWhomTheParentIsNotOn(t *testing.T) {
	for _, tc := range []struct {
		name     string
		children int32
		others   [2]int32
		want     []string
	}{
		{"of two that lack equally", 5, [2]int32{0, 1}, []string{"0 b1>b3", "1 b1>b2"}},
		{"even to one that lacks more", 6, [2]int32{0, 2}, []string{"0 b1>b3", "1 b1>b2", "2 b1>b2"}},
		{"unless only that one lacks any", 5, [2]int32{0, 3}, []string{"0 b1>b2", "1 b1>b2"}},
	} {
		plan, err := BalanceCounts(besideParents(t, tc.children, tc.others), uncapped())
		if got := told(plan); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q (%v)", tc.name, got, tc.want, err)
		}
	}
}

// smallFleet is a random fleet that brute force can exhaust.
func smallFleet(t *testing.T, random *rand.Rand) *Snapshot {
	return fleetFor(t, func(b *Builder) error {
		brokers := 2 + random.IntN(3)
		var err error
		for i := range brokers {
			err = add(err, b.AddBroker(Broker{ID: fmt.Sprintf("b%d", i), Alive: i == 0 || random.IntN(8) > 0, Draining: i > 0 && random.IntN(6) == 0}))
			if random.IntN(6) == 0 {
				b.AddCooldown(Cooldown{Broker: fmt.Sprintf("b%d", i), Until: b.TakenAt.Add(time.Hour)})
			}
		}
		err = add(err, b.AddTopic(Topic{Name: "t"}), b.AddTopic(Topic{Name: "__i"}))
		for i := range int32(1 + random.IntN(7)) {
			p := Partition{Topic: "t", Partition: i, Owner: fmt.Sprintf("b%d", random.IntN(brokers))}
			if random.IntN(3) == 0 {
				p.Owner = "b0"
			}
			if random.IntN(5) == 0 {
				p.Target = fmt.Sprintf("b%d", random.IntN(brokers))
			}
			if random.IntN(8) == 0 {
				p.Topic = "__i"
			}
			if random.IntN(4) == 0 {
				p.Disk, p.Copies = 10, []Copy{{fmt.Sprintf("b%d", random.IntN(brokers)), 5}}
			}
			if random.IntN(8) == 0 {
				b.AddCooldown(Cooldown{Topic: "t", Partition: i, Until: b.TakenAt.Add(time.Hour)})
			}
			err = add(err, b.Add(p))
		}
		return err
	})
}

// bestCounts tries every placement that cooldowns allow: the evenest first (the least sum of squares over receivers, with
// everything that can leave draining brokers gone), of those the fewest moves.
func bestCounts(s *Snapshot) (squares, moves int) {
	squares = -1
	at := make([]int32, s.Len())
	var try func(i int32, moved, stuck int)
	try = func(i int32, moved, stuck int) {
		if int(i) == s.Len() {
			counts := make([]int, len(s.Brokers))
			sum := stuck * 10000
			for p := range i {
				if s.counts(p) && s.Brokers[at[p]].receives() {
					counts[at[p]]++
				}
			}
			for _, n := range counts {
				sum += n * n
			}
			if squares < 0 || sum < squares || (sum == squares && moved < moves) {
				squares, moves = sum, moved
			}
			return
		}
		home := s.countedAt(i)
		at[i] = home
		draining := s.Brokers[home].Alive && s.Brokers[home].Draining
		movable := s.counts(i) && s.sourceRule(i, draining) == "" && (draining || !s.brokerCooling[home])
		if draining && movable {
			try(i+1, moved, stuck+1)
		} else {
			try(i+1, moved, stuck)
		}
		if !movable {
			return
		}
		for b := range int32(len(s.Brokers)) {
			if b != home && s.Brokers[b].receives() && (draining || !s.brokerCooling[b]) {
				at[i] = b
				try(i+1, moved+1, stuck)
			}
		}
	}
	try(0, 0, 0)
	return squares, moves
}

func TestCountsAreAsEvenAsCanBeWithTheFewestMoves(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 3000 {
		s := smallFleet(t, random)
		plan, err := BalanceCounts(s, uncapped())
		if err != nil {
			t.Fatal(err)
		}
		squares := 0
		for b, r := range plan.Brokers {
			if s.Brokers[b].receives() {
				squares += int(r.After.Partitions * r.After.Partitions)
			}
		}
		want, fewest := bestCounts(s)
		if receivers := receiversOf(s); receivers > 0 && (squares != want || plan.Moves() != fewest) {
			t.Fatalf("seed %d, round %d: sum of squares %d with %d moves, the best is %d with %d: %v", seed, round, squares, plan.Moves(), want, fewest, describe(s))
		}
		for _, then := range []After{Settled, InFlight} {
			after, err := s.After(plan, then)
			if err != nil {
				t.Fatal(err)
			}
			again, err := BalanceCounts(after, uncapped())
			if err != nil || again.Moves() > 0 {
				t.Fatalf("seed %d, round %d: planned again, with the first plan's moves %v, it moves %+v (%v): %v", seed, round, then, again.Actions, err, describe(s))
			}
		}
	}
}

func receiversOf(s *Snapshot) (n int) {
	for i := range s.Brokers {
		if s.Brokers[i].receives() {
			n++
		}
	}
	return n
}

func describe(s *Snapshot) (all []string) {
	for _, b := range s.Brokers {
		all = append(all, fmt.Sprintf("\n%+v", b))
	}
	for i := range s.Len() {
		all = append(all, fmt.Sprintf("\n%+v %b", s.Partition(i), s.flags[i]))
	}
	return all
}

// counted is a fleet of brokers with so many partitions of 2 GiB each, numbered through from b0 on. b0 drains if any does; the
// copies are of partition 0.
func counted(t *testing.T, counts []int, drains bool, cooling string, copies ...Copy) *Snapshot {
	return fleetFor(t, func(b *Builder) error {
		err, number := b.AddTopic(Topic{Name: "t"}), int32(0)
		for i := range counts {
			err = add(err, b.AddBroker(Broker{ID: fmt.Sprintf("b%d", i), Alive: true, Draining: drains && i == 0}))
		}
		for i, n := range counts {
			for range n {
				err = add(err, b.Add(Partition{Topic: "t", Partition: number, Owner: fmt.Sprintf("b%d", i), Disk: 2 * gib, Copies: copies}))
				number, copies = number+1, nil
			}
		}
		if cooling != "" {
			b.AddCooldown(Cooldown{Broker: cooling, Until: b.TakenAt.Add(time.Hour)})
		}
		return err
	})
}

func TestOnlyWhatLeavesADrainingBrokerWaitsForNoCooldownOfABroker(t *testing.T) {
	for _, tc := range []struct {
		name   string
		counts []int
		drains bool
		cools  string
		want   []string
	}{
		{"a cooling broker takes nothing", []int{4, 0, 0}, false, "b2", []string{"0 b0>b1", "1 b0>b1"}},
		{"and sheds nothing", []int{4, 0}, false, "b0", nil},
		{"but takes what leaves a draining one", []int{2, 2, 0}, true, "b2", []string{"0 b0>b2", "1 b0>b2"}},
		{"a draining one that cools sheds all the same", []int{2, 1, 1}, true, "b0", []string{"0 b0>b1", "1 b0>b2"}},
		{"nothing of another goes to a cooling one meanwhile", []int{1, 5, 0}, true, "b2", []string{"0 b0>b2"}},
		{"but where nothing cools", []int{1, 4, 0, 1}, true, "b2", []string{"0 b0>b2", "1 b1>b3"}},
		{"and a cooling one still sheds nothing", []int{1, 4, 0}, true, "b1", []string{"0 b0>b2"}},
		{"what leaves goes first where nothing else may", []int{1, 4, 1, 1}, true, "b3", []string{"0 b0>b3", "1 b1>b2"}},
		{"a draining one that has nothing is no reason", []int{0, 4, 0}, true, "b2", nil},
	} {
		plan, err := BalanceCounts(counted(t, tc.counts, tc.drains, tc.cools), uncapped())
		if got := told(plan); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q (%v)", tc.name, got, tc.want, err)
		}
	}
}

func TestCountsLeaveTheRoomThatIsTaken(t *testing.T) {
	s := counted(t, []int{6, 0, 0}, false, "")
	s.Brokers[1].DiskBytes, s.Brokers[1].DiskFreeBytes = 100*gib, 3*gib
	plan, err := BalanceCounts(s, uncapped())
	if got, want := told(plan), []string{"0 b0>b1", "1 b0>b2", "2 b0>b2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("b1 has room for one of the two it lacks: %q, want %q (%v)", got, want, err)
	}
}

// F26: of brokers that lack equally, and are not avoided, the one to which least must be copied.
func TestCountsUseTheCopiesThatBrokersRetained(t *testing.T) {
	for _, tc := range []struct {
		name   string
		copies []Copy // of partition 0
		cools  string
		counts []int
		room   int64 // of b3
		want   []string
		bytes  int64
	}{
		{"a copy wins a tie", []Copy{{"b3", gib}}, "", []int{4, 0, 0, 0}, 0, []string{"0 b0>b3", "1 b0>b1", "2 b0>b2"}, 5 * gib},
		{"the larger of two", []Copy{{"b2", 1}, {"b3", gib}}, "", []int{4, 0, 0, 0}, 0, []string{"0 b0>b3", "1 b0>b1", "2 b0>b2"}, 5 * gib},
		{"the lower of two equal", []Copy{{"b2", gib}, {"b3", gib}}, "", []int{4, 0, 0, 0}, 0, []string{"0 b0>b2", "1 b0>b1", "2 b0>b3"}, 5 * gib},
		{"one that holds nothing of it is none", []Copy{{"b3", 0}}, "", []int{4, 0, 0, 0}, 0, []string{"0 b0>b1", "1 b0>b2", "2 b0>b3"}, 6 * gib},
		{"but not before one that lacks more", []Copy{{"b3", gib}}, "", []int{7, 0, 0, 1}, 0, []string{"0 b0>b1", "1 b0>b2", "2 b0>b1", "3 b0>b2", "4 b0>b3"}, 10 * gib},
		{"nor where it cools", []Copy{{"b3", gib}}, "b3", []int{4, 0, 0, 0}, 0, []string{"0 b0>b1", "1 b0>b2"}, 4 * gib},
		{"nor where there is no room for the rest", []Copy{{"b3", gib}}, "", []int{4, 0, 0, 0}, gib, []string{"0 b0>b1", "1 b0>b2"}, 4 * gib},
		{"where there is room for the rest alone", []Copy{{"b3", gib}}, "", []int{4, 0, 0, 0}, 2 * gib, []string{"0 b0>b3", "1 b0>b1", "2 b0>b2"}, 5 * gib},
	} {
		s := counted(t, tc.counts, false, tc.cools, tc.copies...)
		s.Brokers[3].DiskBytes, s.Brokers[3].DiskFreeBytes = tc.room, tc.room
		plan, err := BalanceCounts(s, uncapped())
		if got := told(plan); err != nil || !slices.Equal(got, tc.want) || plan.BytesMoved != tc.bytes {
			t.Errorf("%s: %q with %d bytes, want %q with %d (%v)", tc.name, got, plan.BytesMoved, tc.want, tc.bytes, err)
		}
	}
	// What leaves a draining broker goes first to the one that cools down, wherever its copies are.
	if plan, err := BalanceCounts(counted(t, []int{3, 0, 0, 0}, true, "b3", Copy{"b1", gib}), uncapped()); err != nil || !slices.Equal(told(plan), []string{"0 b0>b3", "1 b0>b1", "2 b0>b2"}) {
		t.Errorf("of a draining broker: %q (%v)", told(plan), err)
	}
	avoided := besideParents(t, 5, [2]int32{0, 1})
	avoided.flags[0] |= hasCopies
	avoided.copies = []copyAt{{0, 1, gib}}
	if plan, err := BalanceCounts(avoided, uncapped()); err != nil || plan.Actions[0].Legs[0].To != "b3" {
		t.Errorf("N23: whom it keeps away from is not asked for a copy: %q (%v)", told(plan), err)
	}
}

// The order of the hungry is that of a list that is sorted each time.
func TestTheHungryStayInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 0))
	for range 500 {
		var h hungry
		lack := map[int32]int{}
		for b := range int32(1 + random.IntN(20)) {
			lack[b] = 1 + random.IntN(4)
			h.push(b, lack[b])
		}
		for len(lack) > 0 {
			first := none
			all := slices.Sorted(maps.Keys(lack))
			for _, b := range all {
				if first == none || lack[b] > lack[first] {
					first = b
				}
			}
			if h.len() != len(lack) || h.first() != first {
				t.Fatalf("of %v the first is %d, not %d", lack, h.first(), first)
			}
			fed := all[random.IntN(len(all))]
			h.feed(fed)
			if lack[fed]--; lack[fed] == 0 {
				delete(lack, fed)
			}
		}
		if h.len() > 0 {
			t.Fatalf("%d are left that lack nothing", h.len())
		}
	}
}
