package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// disks is a fleet of brokers with partitions of one topic, each given by its size in units of 100 MiB; only DISK is on.
func disks(t *testing.T, brokers [][]int64, change ...func(i int32, p *Partition)) (*Snapshot, Settings) {
	t.Helper()
	settings := uncapped()
	settings.Margin = 0
	for g := range settings.Goals {
		settings.Goals[g].Enabled = Goal(g) == Disk
	}
	return fleetFor(t, func(b *Builder) error {
		err := b.AddTopic(Topic{Name: "t"})
		for i := range brokers {
			err = add(err, b.AddBroker(Broker{ID: fmt.Sprintf("b%d", i), Alive: true}))
		}
		number := int32(0)
		for i, sizes := range brokers {
			for _, size := range sizes {
				p := Partition{Topic: "t", Partition: number, Owner: fmt.Sprintf("b%d", i), Disk: size * 100 << 20}
				for _, c := range change {
					c(number, &p)
				}
				err = add(err, b.Add(p))
				number++
			}
		}
		return err
	}), settings
}

// told are a plan's legs as "t/3 b0>b1", swaps with a "+".
func told(p *Plan) (all []string) {
	for _, a := range p.Actions {
		var legs []string
		for _, l := range a.Legs {
			legs = append(legs, fmt.Sprintf("%d %s>%s", l.Partition, l.From, l.To))
		}
		all = append(all, strings.Join(legs, " + "))
	}
	return all
}

// silent makes b2 a broker that stopped reporting: it counts, and is given nothing.
func silent(_ int32, p *Partition) {
	if p.Owner == "b2" {
		p.Untrusted = []Goal{Disk}
	}
}

// M41: who sheds, what, to whom.
func TestWhatAGoalMoves(t *testing.T) {
	for _, tc := range []struct {
		name    string
		brokers [][]int64
		set     func(s *Settings)
		change  func(i int32, p *Partition)
		want    []string
	}{
		{name: "fewer than 2 brokers", brokers: [][]int64{{9, 9}}},
		{name: "a mean below the threshold", brokers: [][]int64{{2, 2, 2}, {0}, {0}}, set: func(s *Settings) { s.Goals[Disk].DetectThreshold = 200<<20 + 1 }},
		{name: "a mean at the threshold", brokers: [][]int64{{2, 2, 2}, {0}, {0}}, set: func(s *Settings) { s.Goals[Disk].DetectThreshold = 200 << 20 }, want: []string{"0 b0>b1", "1 b0>b2"}},
		{name: "within the band", brokers: [][]int64{{5}, {4, 0}, {3}}},
		{name: "exactly at the band's end", brokers: [][]int64{{4, 1}, {2, 1}}, set: func(s *Settings) { s.Goals[Disk].Deviation = 0.25 }},
		{name: "above it by the least", brokers: [][]int64{{4, 1}, {2, 1}}, set: func(s *Settings) { s.Goals[Disk].Deviation = 0.2499 }, want: []string{"1 b0>b1"}},
		{name: "above it by less than the margin", brokers: [][]int64{{4, 1}, {2, 1}}, set: func(s *Settings) { s.Goals[Disk].Deviation, s.Margin = 0.2, 0.1 }},
		{name: "the largest that are needed whole, to who has fewer partitions", brokers: [][]int64{{10, 4, 3, 2, 1}, {4, 4}, {4, 4}, {8}, {8}}, want: []string{"1 b0>b3", "2 b0>b4"}},
		{name: "the cheapest that suffices", brokers: [][]int64{{5, 4, 3}, {6}, {6}, {6}, {8}}, want: []string{"2 b0>b1"}},
		{name: "the hottest first, to the coldest", brokers: [][]int64{{4, 4, 4}, {5, 5, 5, 5}, {2}, {1}, {3}}, want: []string{"3 b1>b3", "4 b1>b2", "5 b1>b4", "0 b0>b3 + 8 b3>b0"}},
		{name: "nothing without load", brokers: [][]int64{{9, 0, 0}, {0, 0}}},
		{name: "nothing that would take the receiver over its band", brokers: [][]int64{{9}, {0}, {0}}},
		{name: "a swap where no move fits, the one that copies least", brokers: [][]int64{{9, 6}, {4, 1}}, set: func(s *Settings) { s.Goals[Disk].Deviation = 0.05 }, want: []string{"1 b0>b1 + 3 b1>b0"}},
		{name: "of two swaps that gain the same the one with a copy", brokers: [][]int64{{9, 6}, {3, 1, 1}}, set: func(s *Settings) { s.Goals[Disk].Deviation = 0.05 }, change: func(i int32, p *Partition) {
			if i == 3 {
				p.Copies = []Copy{{"b0", 100 << 20}}
			}
		}, want: []string{"1 b0>b1 + 3 b1>b0"}},
		{name: "and the other way round", brokers: [][]int64{{9, 6}, {3, 1, 1}}, set: func(s *Settings) { s.Goals[Disk].Deviation = 0.05 }, change: func(i int32, p *Partition) {
			if i == 4 {
				p.Copies = []Copy{{"b0", 100 << 20}}
			}
		}, want: []string{"1 b0>b1 + 4 b1>b0"}},
		{name: "a swap that gains less than the margin", brokers: [][]int64{{100, 100}, {99, 30}}, set: func(s *Settings) { s.Goals[Disk].Deviation, s.Margin = 0.05, 0.1 }},
		{name: "and without a margin", brokers: [][]int64{{100, 100}, {99, 30}}, set: func(s *Settings) { s.Goals[Disk].Deviation = 0.05 }, want: []string{"0 b0>b1 + 2 b1>b0"}},
		{name: "down to the band, not only to where the margin ends (F27)", brokers: [][]int64{{1, 1, 1, 1, 1}, {0}, {0}, {3}}, set: func(s *Settings) { s.Goals[Disk].Deviation, s.Margin = 0, 0.5 },
			want: []string{"0 b0>b1", "1 b0>b2", "2 b0>b1"}},
		{name: "likewise in swaps", brokers: [][]int64{{8, 8, 8}, {6, 6, 2, 2}}, set: func(s *Settings) { s.Goals[Disk].Deviation, s.Margin = 0, 0.1 }, want: []string{"0 b0>b1 + 4 b1>b0", "1 b0>b1 + 3 b1>b0"}},
		{name: "to nobody who is above the mean already", brokers: [][]int64{{10, 1, 1, 1, 1}, {11}, {5}}, change: silent},
		{name: "to nobody above the mean", brokers: [][]int64{{9, 1, 1, 1, 1, 1, 1, 1, 1}, {9}, {4}}, change: silent, want: []string{"1 b0>b1"}},
		{name: "nor in a swap", brokers: [][]int64{{80, 70}, {62, 48}, {40}}, change: silent},
		{name: "copies in progress order nothing (F26)", brokers: [][]int64{{2, 2, 2}, {0, 0}, {0}, {2}}, change: func(i int32, p *Partition) {
			if i == 4 {
				p.Target = "b3"
			}
		}, want: []string{"0 b0>b1", "1 b0>b2"}},
		{name: "no swap when they are off", brokers: [][]int64{{9, 6}, {4, 1}}, set: func(s *Settings) { s.Goals[Disk].Deviation, s.Swaps = 0.05, false }},
		{name: "no untrusted load", brokers: [][]int64{{2, 2, 2}, {0}, {0}}, change: func(i int32, p *Partition) {
			if i == 0 {
				p.Untrusted = []Goal{Disk}
			}
		}, want: []string{"1 b0>b1", "2 b0>b2"}},
		{name: "untrusted too where trust is not asked", brokers: [][]int64{{2, 2, 2}, {0}, {0}}, set: func(s *Settings) { s.Goals[Disk].TrustedOnly = false }, change: func(i int32, p *Partition) {
			p.Untrusted = []Goal{Disk}
		}, want: []string{"0 b0>b1", "1 b0>b2"}},
		{name: "a former copy wins a tie", brokers: [][]int64{{2, 2, 2}, {0}, {0}}, change: func(i int32, p *Partition) {
			if i == 0 {
				p.Copies = []Copy{{"b2", 100}}
			}
		}, want: []string{"0 b0>b2", "1 b0>b1"}},
		{name: "nothing to a broker that stopped reporting", brokers: [][]int64{{2, 2, 2}, {0, 0, 0}, {0}}, change: func(i int32, p *Partition) {
			if p.Owner == "b1" {
				p.Untrusted = []Goal{Disk}
			}
		}, want: []string{"0 b0>b2"}},
		{name: "what is in flight counts where it goes", brokers: [][]int64{{4, 4}, {0}}, change: func(i int32, p *Partition) {
			if i == 0 {
				p.Target = "b1"
			}
		}},
		{name: "the goal is off", brokers: [][]int64{{9, 9}, {0}}, set: func(s *Settings) { s.Goals[Disk].Enabled = false }},
		{name: "capped", brokers: [][]int64{{4, 4, 4, 4}, {0}, {0}, {0}}, set: func(s *Settings) { s.MaxActions = 2 }, want: []string{"0 b0>b1", "1 b0>b2"}},
	} {
		var changes []func(int32, *Partition)
		if tc.change != nil {
			changes = append(changes, tc.change)
		}
		s, settings := disks(t, tc.brokers, changes...)
		if tc.set != nil {
			tc.set(&settings)
		}
		plan := planned(t, s, settings)
		if got := told(plan); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q\n%+v", tc.name, got, tc.want, plan.Goals)
		}
		if plan.Capped != (tc.name == "capped") {
			t.Errorf("%s: capped %v", tc.name, plan.Capped)
		}
	}
}

func TestCooldownsHold(t *testing.T) {
	base, settings := disks(t, [][]int64{{2, 2, 2}, {0}, {0}})
	for _, tc := range []struct {
		name string
		cool Cooldown
		want []string
	}{
		{"a partition's", Cooldown{Topic: "t", Partition: 0}, []string{"1 b0>b1", "2 b0>b2"}},
		{"the source's", Cooldown{Broker: "b0"}, nil},
		{"a destination's", Cooldown{Broker: "b1"}, []string{"0 b0>b2"}},
		{"of something unknown", Cooldown{Broker: "b9"}, []string{"0 b0>b1", "1 b0>b2"}},
	} {
		s := base.clone()
		tc.cool.Until = s.TakenAt.Add(time.Second)
		s.Cooldowns = []Cooldown{tc.cool}
		if err := s.cool(); err != nil {
			t.Fatal(err)
		}
		if got := told(planned(t, s, settings)); !slices.Equal(got, tc.want) {
			t.Errorf("%s cooldown: %q, want %q", tc.name, got, tc.want)
		}
		s, err := s.WithBrokerDraining("b0")
		if err != nil {
			t.Fatal(err)
		}
		if got := told(planned(t, s, settings)); !slices.Equal(got, []string{"0 b0>b1", "1 b0>b2", "2 b0>b1"}) {
			t.Errorf("a drain waits for %s cooldown: %q", tc.name, got)
		}
	}
}

// Of two brokers that drain, one decommission empties its own: what the other has is not its to move, and waits for nothing of it.
func TestADrainOfOneBrokerLeavesTheOthersAlone(t *testing.T) {
	s, settings := disks(t, [][]int64{{3, 2}, {5}, {0}, {0}})
	var err error
	for _, broker := range []string{"b0", "b1"} {
		if s, err = s.WithBrokerDraining(broker); err != nil {
			t.Fatal(err)
		}
	}
	plan, err := MakeDrain(s, settings, "b0")
	if err != nil || !slices.Equal(told(plan), []string{"0 b0>b2", "1 b0>b3"}) || len(plan.Blocked) > 0 {
		t.Errorf("planned is %v, blocked %v (%v)", told(plan), plan.Blocked, err)
	}
	if all := planned(t, s, settings); len(told(all)) != 3 {
		t.Errorf("both together it is %v", told(all))
	}
	if _, err := MakeDrain(s, settings, "b9"); err == nil {
		t.Error("an unknown broker is drained")
	}
}

// The estimate of a kept plan is that of the limits it is carried out with.
func TestAPlanIsEstimatedWithOtherLimitsThanItWasMadeWith(t *testing.T) {
	s, settings := disks(t, [][]int64{{4, 4, 4}, {0}, {0}})
	plan := planned(t, s, settings)
	made := *plan.ETA
	if same := plan.Estimate(settings); *same != made {
		t.Errorf("with its own limits it takes %v, not %v", *same, made)
	}
	settings.MoveRate = 1 << 20
	if slow := plan.Estimate(settings); time.Duration(*slow) < 400*time.Second || *slow < made {
		t.Errorf("at 1 MiB a second it takes %v, it was %v", *slow, made)
	}
}

func TestADrainIsForRoomFirstAndSaysWhatItCanNot(t *testing.T) {
	s := fleetFor(t, func(b *Builder) error {
		return add(b.AddBroker(Broker{ID: "b0", Alive: true, Draining: true}), b.AddBroker(Broker{ID: "b1", Alive: true, DiskBytes: 100 * gib, DiskFreeBytes: 11 * gib}),
			b.AddBroker(Broker{ID: "b2", Alive: true, DiskBytes: 100 * gib, DiskFreeBytes: 40 * gib}), b.AddTopic(Topic{Name: "t"}), b.AddTopic(Topic{Name: "__i"}),
			b.Add(Partition{Topic: "t", Partition: 0, Owner: "b0", Disk: 30 * gib}), b.Add(Partition{Topic: "t", Partition: 1, Owner: "b0", Disk: 10 * gib}),
			b.Add(Partition{Topic: "t", Partition: 2, Owner: "b0", Disk: 20 * gib}), b.Add(Partition{Topic: "t", Partition: 3, Owner: "b0", Target: "b2", Disk: gib}),
			b.Add(Partition{Topic: "__i", Partition: 0, Owner: "b0"}))
	})
	plan := planned(t, s, uncapped())
	if got := told(plan); !slices.Equal(got, []string{"0 b0>b2", "1 b0>b1"}) {
		t.Errorf("%q", got)
	}
	var blocked []string
	for _, b := range plan.Blocked {
		blocked = append(blocked, fmt.Sprintf("%s/%d %s", b.Topic, b.Partition, b.Code))
		if b.Reason == "" {
			t.Errorf("%s has no reason", b.Code)
		}
	}
	if !slices.Equal(blocked, []string{"__i/0 internal_topic", "t/2 too_little_room"}) {
		t.Errorf("blocked: %q", blocked)
	}
}

func TestRecoveryGoesBeforeBalance(t *testing.T) {
	s, settings := disks(t, [][]int64{{2, 2, 2}, {0}, {0}})
	s.Recoveries = 1
	for _, plan := range []func(*Snapshot, Settings) (*Plan, error){MakePlan, BalanceCounts} {
		p, err := plan(s, settings)
		if err != nil || p.Held == nil || p.Held.Code != CodeRecoveryPending || p.Moves() > 0 {
			t.Errorf("%+v, %v", p, err)
		}
	}
}

func TestAHashIsOfWhatRuns(t *testing.T) {
	s, settings := disks(t, [][]int64{{2, 2, 2}, {0}, {0}})
	first := planned(t, s, settings)
	drifted := s.clone()
	drifted.version[0]++
	elsewhere, err := s.WithBrokerDraining("b1")
	if err != nil {
		t.Fatal(err)
	}
	hashes := map[string]bool{first.Hash: true, planned(t, s, settings).Hash: true, planned(t, drifted, settings).Hash: true, planned(t, elsewhere, settings).Hash: true}
	if len(hashes) != 3 {
		t.Errorf("of the same plan twice, one of another row version and one with another destination: %v", hashes)
	}
}

func TestScoresTellTheLoadedFromTheIdle(t *testing.T) {
	s, settings := disks(t, [][]int64{{40, 40}, {0}, {}})
	scores := Scores(s, settings)
	if !(scores[0].Total > scores[1].Total && scores[1].Total > scores[2].Total && scores[2].Total == 0) || scores[0].Owned != 2 || scores[0].History != 3 {
		t.Errorf("%+v", scores)
	}
	// Of nothing in the fleet, followers, traffic and copies, there is no average to be below.
	if mean := (scores[0].Total + scores[1].Total + scores[2].Total) / 3; mean < 0.999 || mean > 1.001 {
		t.Errorf("the mean of the scores is %v", mean)
	}
	// A plan of nothing leaves every score as it is, while copies are in progress too.
	s, settings = disks(t, [][]int64{{4}, {4}, {4}}, func(i int32, p *Partition) {
		if i == 0 {
			p.Owner, p.Target = "b1", "b0"
		}
	})
	for _, b := range planned(t, s, settings).Brokers {
		if b.Score.Total != b.ScoreAfter || b.Score.Total != 1 {
			t.Errorf("%s goes from %v to %v", b.ID, b.Score.Total, b.ScoreAfter)
		}
	}
}

func TestTheHardRulesOfCopies(t *testing.T) {
	s := fleetFor(t, func(b *Builder) error {
		return add(b.AddBroker(Broker{ID: "b0", Rack: "a", Alive: true}), b.AddBroker(Broker{ID: "b1", Rack: "b", Alive: true}), b.AddBroker(Broker{ID: "b2", Rack: "b", Alive: true}),
			b.AddBroker(Broker{ID: "b3", Rack: "c", Alive: true}), b.AddTopic(Topic{Name: "t"}), b.Add(Partition{Topic: "t", Owner: "b0", Followers: []string{"b1"}}))
	})
	for b, want := range []string{"", CodeCopyThere, CodeRackTaken, ""} {
		if got := s.copyRule(0, int32(b)); got != want {
			t.Errorf("b%d: %q, want %q", b, got, want)
		}
	}
	if got := s.sourceRule(0, true); got != CodeReplicated {
		t.Errorf("a partition with a follower: %q", got)
	}
}
