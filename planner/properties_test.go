package planner

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestAPlanOfWhatAPlanLeadsToIsEmpty(t *testing.T) {
	fleets(t, 1500, func(t *testing.T, s *Snapshot, settings Settings) error {
		plan := planned(t, s, settings)
		for _, how := range []After{Settled, InFlight} {
			after, err := s.After(plan, how)
			if err != nil {
				return err
			}
			if again := planned(t, after, settings); again.Moves() > 0 {
				return fmt.Errorf("with the first plan's %d moves %s, the second has %d: %+v", plan.Moves(), how, again.Moves(), again.Actions)
			}
		}
		return nil
	})
}

func TestAPlanBreaksNoHardRule(t *testing.T) {
	fleets(t, 1500, func(t *testing.T, s *Snapshot, settings Settings) error {
		if err := againstRules(s, settings, planned(t, s, settings)); err != nil {
			return err
		}
		plan, err := BalanceCounts(s, settings)
		if err != nil {
			return err
		}
		if err := againstRules(s, settings, plan); err != nil {
			return fmt.Errorf("by count: %w", err)
		}
		return nil
	})
}

// againstRules checks a plan by what the snapshot says, not by the planner's own state.
func againstRules(s *Snapshot, settings Settings, plan *Plan) error {
	seen := map[int]bool{}
	room, whole := newRooms(s, settings.RoomMargin), newRooms(s, settings.RoomMargin)
	for _, a := range plan.Actions {
		if (a.Kind == ActionSwap) != (len(a.Legs) == 2) || a.Reason == "" {
			return fmt.Errorf("%+v is no action", a)
		}
		for _, l := range a.Legs {
			i := s.Find(l.Topic, l.Partition)
			p := s.Partition(i)
			from, to := s.Brokers[s.broker(l.From)], s.Brokers[s.broker(l.To)]
			drains := a.Goal == DrainGoal
			switch {
			case seen[i]:
				return fmt.Errorf("%s/%d is moved twice", l.Topic, l.Partition)
			case p.Owner != l.From || p.Version != l.Version || l.From == l.To:
				return fmt.Errorf("%+v is not of %+v", l, p)
			case p.Target != "" || s.flags[i]&internal != 0 || !from.Alive || len(p.Followers) > 0:
				return fmt.Errorf("%+v may not move", p)
			case drains != from.Draining:
				return fmt.Errorf("%+v: a draining broker's partitions leave for DRAIN, and only they", a)
			case !to.Alive || to.Draining:
				return fmt.Errorf("%s takes no partitions", l.To)
			case !drains && (s.flags[i]&cooling != 0 || s.brokerCooling[s.broker(l.From)] || s.brokerCooling[s.broker(l.To)]):
				return fmt.Errorf("%+v moves something that is cooling", l)
			}
			seen[i] = true
			if b := s.broker(l.To); l.Bytes > 0 {
				if !whole.fits(b, l.Bytes) {
					return fmt.Errorf("%s has no room for %+v with the margin, even alone", l.To, l)
				}
				if room.free[b] -= l.Bytes; !room.unknown[b] && room.free[b] < 0 {
					return fmt.Errorf("%s has no room for %+v", l.To, l)
				}
			}
		}
		if goal := new(Goal); a.Goal != DrainGoal && goal.UnmarshalText([]byte(a.Goal)) == nil && settings.Goals[*goal].TrustedOnly {
			for _, l := range a.Legs {
				if !s.flags[s.Find(l.Topic, l.Partition)].trusts(*goal) {
					return fmt.Errorf("%+v moves for %s without a trusted load", l, a.Goal)
				}
			}
		}
	}
	return nil
}

func TestALaterGoalNeverWorsensAnEarlierOnesBand(t *testing.T) {
	fleets(t, 800, func(t *testing.T, s *Snapshot, settings Settings) error {
		st := newState(s, &settings)
		goals := settings.byPriority()
		for changed := true; changed; {
			changed = st.drain()
			st.beginRound()
			for n, g := range goals {
				if !st.bands[g].inEffect {
					continue
				}
				earlier := st.inEffect(goals[:n])
				above := func() (sums []int64) {
					for _, h := range append(earlier, g) {
						sum, _ := excess(s, &st.bands[h], st.load[h])
						sums = append(sums, sum)
					}
					return sums
				}
				before := above()
				did := st.move(g, earlier, st.inEffect(goals[n+1:]))
				if settings.Swaps && g != PartitionCount {
					did = st.swap(g, earlier) || did
				}
				after := above()
				for h := range before {
					if last := h == len(before)-1; after[h] > before[h] || (last && did && after[h] >= before[h]) {
						return fmt.Errorf("%s took what is above the bands of %v from %d to %d", g, append(earlier, g), before, after)
					}
				}
				changed = changed || did
			}
		}
		return nil
	})
}

func TestCappedPlansEndAndMoveNoPartitionTwice(t *testing.T) {
	caps := 0
	fleets(t, 450, func(t *testing.T, s *Snapshot, settings Settings) error {
		caps++
		settings.MaxActions = 1 + caps%3
		settings.BrokerCooldown = 0
		moved := map[string]bool{}
		for round := 0; ; round++ {
			plan := planned(t, s, settings)
			if plan.Moves() > settings.MaxActions {
				return fmt.Errorf("%d moves", plan.Moves())
			}
			if plan.Moves() == 0 {
				if plan.Capped && settings.MaxActions > 1 {
					return fmt.Errorf("a plan of nothing is capped")
				}
				settings.Swaps = false
				if n := planned(t, s, settings).Moves(); n > 0 {
					return fmt.Errorf("a plan of nothing, where %d move alone", n) // there was no room for a swap, but for them
				}
				return nil
			}
			if round > s.Len() {
				return fmt.Errorf("no end after %d plans", round)
			}
			for _, a := range plan.Actions {
				for _, l := range a.Legs {
					name := fmt.Sprintf("%s/%d", l.Topic, l.Partition)
					if moved[name] {
						return fmt.Errorf("%s moves twice", name)
					}
					moved[name] = true
				}
			}
			next, err := s.After(plan, Settled)
			if err != nil {
				return err
			}
			// The cooldowns outlast the test: nothing turns the clock.
			if s, err = next.Cool(plan, settings); err != nil {
				return err
			}
		}
	})
}

func TestTheSameSnapshotGivesTheSamePlan(t *testing.T) {
	for seed := range uint64(200) {
		settings := someSettings(rand.New(rand.NewPCG(seed, 5)))
		a := planned(t, randomFleet(t, rand.New(rand.NewPCG(seed, 3)), false), settings)
		b := planned(t, randomFleet(t, rand.New(rand.NewPCG(seed, 3)), true), settings)
		x, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if y, _ := json.Marshal(b); string(x) != string(y) {
			t.Fatalf("seed %d: read in another order it gives another plan:\n%s\n%s", seed, x, y)
		}
	}
}

func TestAPlanReportsNoLessThanItsFloors(t *testing.T) {
	fleets(t, 500, func(t *testing.T, s *Snapshot, settings Settings) error {
		settings.Margin = 0 // with one, a broker may stay a little above its band
		plan := planned(t, s, settings)
		bands := true
		for _, g := range plan.Goals {
			if g.ExcessAfter < g.ExcessFloor {
				return fmt.Errorf("%s ends with %d above the bands, less than the floor of %d", g.Goal, g.ExcessAfter, g.ExcessFloor)
			}
			if (g.ExcessAfter > 0) != (len(g.Left) > 0) {
				return fmt.Errorf("%s has %d above the bands and says of %d brokers why", g.Goal, g.ExcessAfter, len(g.Left))
			}
			bands = bands && g.ExcessAfter == 0
		}
		if bands && len(plan.Blocked) == 0 && plan.BytesMoved < plan.BytesFloor {
			return fmt.Errorf("all bands are met with %d bytes, less than the floor of %d", plan.BytesMoved, plan.BytesFloor)
		}
		return nil
	})
}
