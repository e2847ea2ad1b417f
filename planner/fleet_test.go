package planner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// randomFleet is a fleet of whatever can be in one: dead, draining and cooling brokers, capacities, racks, moves in
// flight, untrusted loads, former copies, internal topics.
func randomFleet(t testing.TB, random *rand.Rand, shuffle bool) *Snapshot {
	brokers, partitions := 2+random.IntN(9), 1+random.IntN(150)
	heterogeneous, tight := random.IntN(3) == 0, random.IntN(3) == 0
	var all []Broker
	for i := range brokers {
		b := Broker{ID: fmt.Sprintf("b%02d", i), Alive: i < 2 || random.IntN(12) > 0, Draining: i > 1 && random.IntN(10) == 0, DiskBytes: 4000 * gib, DiskFreeBytes: 3000 * gib, NetBytesPerSec: 1 << 30}
		if heterogeneous {
			scale := int64(1 + random.IntN(3))
			b.DiskBytes, b.NetBytesPerSec, b.Weight = b.DiskBytes*scale, b.NetBytesPerSec*scale, float64(scale)
		}
		if tight {
			b.DiskFreeBytes = int64(random.IntN(60)) * gib
		}
		if random.IntN(20) == 0 {
			b.DiskBytes = 0
		}
		all = append(all, b)
	}
	lognormal := func(median float64) int64 { return int64(median * math.Exp(1.5*random.NormFloat64())) }
	var parts []Partition
	topics := []Topic{{Name: "a"}, {Name: "b", Config: map[string]string{AntiAffinityConfig: "a"}}, {Name: "__c"}}
	counts := [3]int32{}
	skewed := func() string { return all[min(random.IntN(brokers), random.IntN(brokers))].ID }
	var cooldowns []Cooldown
	for range partitions {
		topic := min(random.IntN(20)/9, 2)
		p := Partition{Topic: topics[topic].Name, Partition: counts[topic], Owner: skewed(), Version: random.Int64N(100), In: lognormal(1 << 20), Out: lognormal(1 << 21), Disk: lognormal(gib)}
		counts[topic]++
		if random.IntN(12) == 0 {
			p.Target = skewed()
			if p.Target == p.Owner {
				p.Target = ""
			}
		}
		if random.IntN(10) == 0 {
			p.Untrusted = []Goal{NWIn, NWOut}
		}
		if random.IntN(10) == 0 {
			if at := skewed(); at != p.Owner && at != p.Target {
				p.Copies = []Copy{{at, random.Int64N(p.Disk + 1)}}
			}
		}
		if random.IntN(15) == 0 {
			cooldowns = append(cooldowns, Cooldown{Topic: p.Topic, Partition: p.Partition, Until: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)})
		}
		if random.IntN(15) == 0 {
			p.In = 0
		}
		parts = append(parts, p)
	}
	if random.IntN(5) == 0 {
		cooldowns = append(cooldowns, Cooldown{Broker: all[random.IntN(brokers)].ID, Until: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)})
	}
	if shuffle {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		rand.Shuffle(len(topics), func(i, j int) { topics[i], topics[j] = topics[j], topics[i] })
		rand.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	}
	return fleetFor(t, func(b *Builder) error {
		var err error
		for _, x := range all {
			err = add(err, b.AddBroker(x))
		}
		for _, x := range topics {
			err = add(err, b.AddTopic(x))
		}
		for _, x := range parts {
			err = add(err, b.Add(x))
		}
		for _, x := range cooldowns {
			b.AddCooldown(x)
		}
		return err
	})
}

// someSettings are settings as somebody may have made them.
func someSettings(random *rand.Rand) Settings {
	s := uncapped()
	for g := range s.Goals {
		s.Goals[g].Enabled = random.IntN(6) > 0
		s.Goals[g].Deviation = []float64{0.05, 0.2, 0.5}[random.IntN(3)]
	}
	if random.IntN(2) == 0 {
		s.Margin = 0
	}
	if random.IntN(4) == 0 {
		s.Goals[NWIn].Priority, s.Goals[Disk].Priority = s.Goals[Disk].Priority, s.Goals[NWIn].Priority
	}
	s.Swaps = random.IntN(5) > 0
	return s
}

// fleets runs a property on many random fleets; its failure names the seed.
func fleets(t *testing.T, n int, property func(t *testing.T, s *Snapshot, settings Settings) error) {
	t.Helper()
	for seed := range uint64(n) {
		random := rand.New(rand.NewPCG(seed, 11))
		s := randomFleet(t, random, false)
		settings := someSettings(random)
		if err := property(t, s, settings); err != nil {
			t.Fatalf("seed %d, %+v: %v\n%v", seed, settings, err, describe(s))
		}
	}
}

func planned(t testing.TB, s *Snapshot, settings Settings) *Plan {
	t.Helper()
	plan, err := MakePlan(s, settings)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}
