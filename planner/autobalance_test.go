package planner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// simulation is a fleet under autobalance: each minute brokers report, and a plan is made and carried out at once.
type simulation struct {
	t        *testing.T
	random   *rand.Rand
	settings Settings
	noise    float64 // of each partition's rate in each minute, as sigma of a lognormal factor
	peak     float64 // how far the day's peak is above its mean
	now      time.Time
	windows  *Windows
	brokers  []Broker
	base     []float64 // bytes a second of each partition
	phase    []float64 // of its day, in hours
	owner    []string
	version  []int64
	sums     []int64
	disk     []int64
	cooled   []Cooldown
	moves    []int // of each minute
}

func simulate(t *testing.T, seed uint64, settings Settings, noise, peak float64) *simulation {
	s := &simulation{t: t, random: rand.New(rand.NewPCG(seed, 0)), settings: settings, noise: noise, peak: peak, now: time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)}
	var err error
	if s.windows, err = NewWindows(settings); err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		s.brokers = append(s.brokers, Broker{ID: fmt.Sprintf("b%02d", i), Alive: true, DiskBytes: 40 << 40, DiskFreeBytes: 39 << 40})
	}
	for i := range 360 {
		s.base = append(s.base, 1e6*math.Exp(s.random.NormFloat64()))
		s.phase = append(s.phase, float64(i%3)) // topics peak an hour apart
		s.owner = append(s.owner, s.brokers[min(s.random.IntN(12), s.random.IntN(12))].ID)
		s.disk = append(s.disk, int64(gib*math.Exp(s.random.NormFloat64())))
	}
	s.version, s.sums = make([]int64, len(s.base)), make([]int64, len(s.base))
	return s
}

// minute passes; it returns the plan that was carried out.
func (s *simulation) minute() *Plan {
	s.now = s.now.Add(time.Minute)
	hour := float64(s.now.Hour()) + float64(s.now.Minute())/60
	b := NewBuilder(len(s.base))
	b.TakenAt = s.now
	var err error
	for _, broker := range s.brokers {
		err = add(err, b.AddBroker(broker))
	}
	err = add(err, b.AddTopic(Topic{Name: "t"}))
	for i := range s.base {
		rate := s.base[i] * (1 + s.peak*math.Sin((hour-s.phase[i])/24*2*math.Pi)) * math.Exp(s.noise*s.random.NormFloat64())
		s.sums[i] += int64(rate * 60)
		s.disk[i] += int64(rate * 60 * 0.01)
		key := PartitionKey{Partition: int32(i)}
		err = add(err, s.windows.Feed(Report{Key: key, At: s.now, Disk: s.disk[i], Produced: s.sums[i], Consumed: 2 * s.sums[i]}))
		l := s.windows.Loads(key)
		p := Partition{Topic: "t", Partition: int32(i), Owner: s.owner[i], Version: s.version[i], In: l.In, Out: l.Out, Disk: l.Disk}
		if !l.Trusted {
			p.Untrusted = []Goal{NWIn, NWOut, Disk}
		}
		err = add(err, b.Add(p))
	}
	s.windows.EndPass()
	for _, c := range s.cooled {
		b.AddCooldown(c)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	snapshot, err := b.Build()
	if err != nil {
		s.t.Fatal(err)
	}
	plan := planned(s.t, snapshot, s.settings)
	if err := againstRules(snapshot, s.settings, plan); err != nil {
		s.t.Fatal(err)
	}
	for _, a := range plan.Actions {
		for _, l := range a.Legs {
			s.owner[l.Partition] = l.To
			s.version[l.Partition]++
		}
	}
	cooled, err := snapshot.Cool(plan, s.settings)
	if err != nil {
		s.t.Fatal(err)
	}
	s.cooled = cooled.Cooldowns
	s.moves = append(s.moves, plan.Moves())
	return plan
}

// movesIn adds up the moves of a span of hours.
func (s *simulation) movesIn(from, to int) (n int) {
	for _, m := range s.moves[from*60 : to*60] {
		n += m
	}
	return n
}

func TestHoursOfAutobalanceAreBalancedAndSteady(t *testing.T) {
	for seed := range uint64(2) {
		s := simulate(t, seed, DefaultSettings(), 0.3, 0.5)
		over, minutes := 0, 0
		for minute := range 24 * 60 {
			plan := s.minute()
			if minute >= 4*60 {
				minutes++
				for _, g := range plan.Goals {
					over += g.OverAfter
				}
			}
		}
		first, rest := s.movesIn(0, 4), s.movesIn(4, 24)
		t.Logf("seed %d: %d moves in the first 4 hours, %d in the 20 after; %.2f brokers of 12 above a band at a time", seed, first, rest, float64(over)/float64(minutes)/4)
		if first < 20 {
			t.Errorf("seed %d: %d moves even out a skewed fleet", seed, first)
		}
		if perHour := float64(rest) / 20; perHour > 2 {
			t.Errorf("seed %d: %.1f moves an hour once balanced", seed, perHour)
		}
		if mean := float64(over) / float64(minutes) / 4; mean > 0.25 {
			t.Errorf("seed %d: %.2f brokers above a band at a time, of each goal", seed, mean)
		}
	}
}

// A band as narrow as the noise: the margin keeps the next sample from moving something back.
func TestWithoutTheMarginBalanceThrashes(t *testing.T) {
	moves := func(margin float64) int {
		settings := DefaultSettings()
		settings.Window, settings.BrokerCooldown, settings.PartitionCooldown = 3, 0, 0
		settings.Margin = margin
		for g := range settings.Goals {
			settings.Goals[g].Enabled = Goal(g) == NWIn
		}
		settings.Goals[NWIn].Deviation = 0.02
		s := simulate(t, 1, settings, 0.15, 0)
		for range 4 * 60 {
			s.minute()
		}
		return s.movesIn(1, 4)
	}
	with, without := moves(0.1), moves(0)
	t.Logf("in 3 hours: %d moves with the margin, %d without", with, without)
	if with > 20 || without < 200 {
		t.Errorf("in 3 hours %d moves with the margin and %d without", with, without)
	}
}
