package planner

import (
	"fmt"
	"math/rand/v2"
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

func TestCountsPreferWhomTheParentIsNotOn(t *testing.T) {
	s := fleetFor(t, func(b *Builder) error {
		return add(b.AddBroker(Broker{ID: "b1", Alive: true}), b.AddBroker(Broker{ID: "b2", Alive: true}), b.AddBroker(Broker{ID: "b3", Alive: true}), b.AddTopic(Topic{Name: "parent"}),
			b.AddTopic(Topic{Name: "child", Config: map[string]string{AntiAffinityConfig: "parent"}}),
			b.Add(Partition{Topic: "parent", Partition: 0, Owner: "b2"}), b.Add(Partition{Topic: "child", Partition: 0, Owner: "b1"}),
			b.Add(Partition{Topic: "child", Partition: 1, Owner: "b1"}), b.Add(Partition{Topic: "child", Partition: 2, Owner: "b1"}),
			b.Add(Partition{Topic: "child", Partition: 3, Owner: "b1"}), b.Add(Partition{Topic: "child", Partition: 4, Owner: "b1"}))
	})
	plan, err := BalanceCounts(s, uncapped())
	if err != nil {
		t.Fatal(err)
	}
	if plan.Moves() != 3 || plan.Actions[0].Legs[0].Topic != "child" || plan.Actions[0].Legs[0].Partition != 0 || plan.Actions[0].Legs[0].To != "b3" {
		t.Errorf("child/0 keeps away from b2, where parent/0 is: %+v", plan.Actions)
	}
	// With b3 gone there is only b2 to take it.
	s, err = s.WithBrokerDraining("b3")
	if err != nil {
		t.Fatal(err)
	}
	if plan, err = BalanceCounts(s, uncapped()); err != nil || plan.Moves() != 2 || plan.Actions[0].Legs[0].To != "b2" {
		t.Errorf("balance wins over anti-affinity: %+v, %v", plan, err)
	}
}

// smallFleet is a random fleet that brute force can exhaust.
func smallFleet(t *testing.T, random *rand.Rand) *Snapshot {
	return fleetFor(t, func(b *Builder) error {
		brokers := 2 + random.IntN(3)
		var err error
		for i := range brokers {
			err = add(err, b.AddBroker(Broker{ID: fmt.Sprintf("b%d", i), Alive: i == 0 || random.IntN(8) > 0, Draining: i > 0 && random.IntN(6) == 0}))
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
			if random.IntN(8) == 0 {
				b.AddCooldown(Cooldown{Topic: "t", Partition: i, Until: b.TakenAt.Add(time.Hour)})
			}
			err = add(err, b.Add(p))
		}
		return err
	})
}

// bestCounts tries every placement: the evenest first (the least sum of squares over receivers, with everything that can
// leave draining brokers gone), of those the fewest moves.
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
		movable := s.counts(i) && s.sourceRule(i, draining) == ""
		if draining && movable {
			try(i+1, moved, stuck+1)
		} else {
			try(i+1, moved, stuck)
		}
		if !movable {
			return
		}
		for b := range int32(len(s.Brokers)) {
			if b != home && s.Brokers[b].receives() {
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
