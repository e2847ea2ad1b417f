package planner

import (
	"math"
	"slices"
	"sync"
)

// survey is what a plan tells of the fleet it begins with.
type survey struct {
	s        *Snapshot
	settings *Settings
	goals    []Goal
	start    []int32 // where each partition counts
	load     [numGoals][]int64
	bands    [numGoals]band
	floors   *floors
	scores   []BrokerScore
}

// startSurvey begins a survey, and returns what waits for it. Nothing in it depends on the plan, so it is made beside the
// planning: together they are half the time of a plan by count.
func startSurvey(s *Snapshot, settings *Settings, goals []Goal) (wait func() *survey) {
	v := &survey{s: s, settings: settings, goals: goals, start: make([]int32, s.Len())}
	var work sync.WaitGroup
	work.Go(func() {
		for i := range v.start {
			v.start[i] = s.countedAt(int32(i))
		}
		v.load = s.loadsBy(v.start)
		v.bands = bands(s, settings, &v.load)
		v.floors = newFloors(s, v.start, &v.load, &v.bands, goals)
		v.scores = scores(s, &settings.Score, v.start, true)
	})
	return func() *survey { work.Wait(); return v }
}

// finish fills in what a plan tells beside its actions. `at` is where each partition counts when they are done.
func (v *survey) finish(plan *Plan, at []int32) {
	var hashing sync.WaitGroup // it reads the actions alone, and takes as long as the rest
	hashing.Go(func() { plan.Hash = HashOf(v.s.FleetID, plan.Actions) })
	plan.ETA = eta(v.settings, plan.Actions, len(v.s.Brokers))
	after := v.s.loadsAfter(&v.load, v.start, at)
	plan.Brokers = v.brokerReports(plan, at, &after)
	for _, g := range v.goals {
		plan.Goals = append(plan.Goals, goalReport(v.s, v.settings, &v.bands[g], v.load[g], after[g], v.floors))
	}
	plan.BytesFloor = v.floors.total(v.goals)
	hashing.Wait()
}

func (v *survey) brokerReports(plan *Plan, at []int32, after *[numGoals][]int64) []BrokerReport {
	s := v.s
	reports := make([]BrokerReport, len(s.Brokers))
	scoreAfter := scores(s, &v.settings.Score, at, false)
	room := newRooms(s, 0)
	figures := func(of func(g Goal) int64) Figures { return Figures{of(NWIn), of(NWOut), of(Disk), of(PartitionCount)} }
	for b := range s.Brokers {
		r := &reports[b]
		r.ID, r.State = s.Brokers[b].ID, s.Brokers[b].State()
		r.Before = figures(func(g Goal) int64 { return v.load[g][b] })
		r.After = figures(func(g Goal) int64 { return after[g][b] })
		r.Upper = figures(func(g Goal) int64 {
			if !v.bands[g].inEffect {
				return 0
			}
			return v.bands[g].upper[b]
		})
		r.Score, r.ScoreAfter = v.scores[b], scoreAfter[b].lasting
		r.Score.Total = r.Score.lasting // comparable: copies in progress are over when the plan is
		r.RoomBytes, r.RoomUnknown = room.free[b], room.unknown[b]
	}
	for i := range plan.Actions {
		for _, l := range plan.Actions[i].Legs {
			plan.BytesMoved += l.Bytes
			from, to := &reports[l.from], &reports[l.to]
			from.Outbound++
			from.BytesOut += l.Bytes
			to.Inbound++
			to.BytesIn += l.Bytes
			to.RoomBytes -= l.Bytes
		}
	}
	return reports
}

func goalReport(s *Snapshot, settings *Settings, b *band, before, after []int64, floors *floors) GoalReport {
	r := GoalReport{Goal: b.goal, InEffect: b.inEffect, WhyNot: b.whyNot, Mean: b.average, Deviation: settings.Goals[b.goal].Deviation}
	r.PeakBefore, r.StddevBefore = spread(s, b, before)
	r.PeakAfter, r.StddevAfter = spread(s, b, after)
	if !b.inEffect {
		return r
	}
	r.ExcessBefore, r.OverBefore = excess(s, b, before)
	r.ExcessAfter, r.OverAfter = excess(s, b, after)
	r.ExcessFloor, r.BytesFloor = floors.excesses[b.goal], floors.bytes(b.goal)
	r.ExcessSingle = single(s, b)
	return r
}

// excess is what brokers in service that are above their bands by more than the margin have above them, and how many they
// are.
func excess(s *Snapshot, b *band, load []int64) (sum int64, over int) {
	for i := range s.Brokers {
		if s.Brokers[i].receives() && load[i] > b.trigger[i] {
			sum += load[i] - b.upper[i]
			over++
		}
	}
	return sum, over
}

// single is what partitions that alone are above every broker's band, by more than the margin, have above it wherever they
// are.
func single(s *Snapshot, b *band) (sum int64) {
	widest, trigger := slices.Max(b.upper), slices.Max(b.trigger)
	for i := range int32(s.Len()) {
		if load := s.loadOf(b.goal, i); load > trigger && s.counts(i) {
			sum += load - widest
		}
	}
	return sum
}

// spread is the highest load in terms of its broker's mean, and the population's standard deviation.
func spread(s *Snapshot, b *band, load []int64) (peak, stddev float64) {
	sum, squares, n := 0.0, 0.0, 0.0
	for i := range s.Brokers {
		if !s.Brokers[i].receives() {
			continue
		}
		if b.mean[i] > 0 {
			peak = max(peak, float64(load[i])/b.mean[i])
		}
		sum, squares, n = sum+float64(load[i]), squares+float64(load[i])*float64(load[i]), n+1
	}
	if n == 0 {
		return 0, 0
	}
	mean := sum / n
	return peak, math.Sqrt(max(0, squares/n-mean*mean))
}

// floors are the lower bounds of a plan: what no plan with the same effect can do without.
type floors struct {
	s         *Snapshot
	excesses  [numGoals]int64
	perBroker [numGoals][]int64 // bytes each broker must give away for each goal
	drained   []int64           // bytes a draining broker must give away
	scratch   []uint64
}

// newFloors works them out as if partitions could be divided: from each overloaded broker the partitions that bring most
// load a byte, until it is at its band.
func newFloors(s *Snapshot, at []int32, load *[numGoals][]int64, all *[numGoals]band, goals []Goal) *floors {
	f := &floors{s: s, drained: make([]int64, len(s.Brokers))}
	for g := range f.perBroker {
		f.perBroker[g] = make([]int64, len(s.Brokers))
	}
	var fixed [numGoals][]int64
	for g := range fixed {
		fixed[g] = make([]int64, len(s.Brokers))
	}
	over := make([]bool, len(s.Brokers))
	for _, g := range goals {
		for b := range over {
			over[b] = over[b] || (all[g].inEffect && s.Brokers[b].receives() && load[g][b] > all[g].trigger[b])
		}
	}
	lists := make([][]int32, len(s.Brokers))
	for b := range lists {
		if over[b] {
			lists[b] = make([]int32, 0, load[PartitionCount][b])
		}
	}
	for i := range int32(s.Len()) {
		b := at[i]
		draining := s.Brokers[b].Draining
		if !(over[b] || draining) || !s.counts(i) {
			continue
		}
		rule := s.sourceRule(i, draining)
		if draining && rule == "" {
			f.drained[b] += s.leastBytes(i)
		}
		if !over[b] {
			continue
		}
		if rule == "" {
			lists[b] = append(lists[b], i)
		}
		if rule != "" || s.brokerCooling[b] {
			for _, g := range goals {
				fixed[g][b] += s.loadOf(g, i)
			}
		}
	}
	for _, g := range goals {
		if !all[g].inEffect {
			continue
		}
		for b := range over {
			if !over[b] || load[g][b] <= all[g].trigger[b] {
				continue
			}
			f.excesses[g] += max(0, fixed[g][b]-all[g].upper[b])
			f.perBroker[g][b] = f.fewestBytes(g, lists[b], load[g][b]-all[g].upper[b])
		}
	}
	return f
}

// leastBytes is what a partition costs to move at least: nothing of a former copy is copied.
func (s *Snapshot) leastBytes(i int32) int64 {
	bytes := s.load[Disk][i]
	for _, c := range s.copiesOf(i) {
		bytes = min(bytes, max(0, s.load[Disk][i]-c.bytes))
	}
	return bytes
}

// fewestBytes is the least that must be copied to take an amount of a goal's load away from a list of partitions that may
// move: of those that cost least for their load as many as it takes. They are found as quickselect finds them, without
// being put in order.
func (f *floors) fewestBytes(g Goal, list []int32, amount int64) int64 {
	s, keys := f.s, f.scratch[:0]
	for _, i := range list {
		if load := s.loadOf(g, i); load > 0 {
			keys = append(keys, rank(float64(s.leastBytes(i))/float64(load), i))
		}
	}
	f.scratch = keys
	bytes := 0.0
	for len(keys) > fewKeys {
		cheap := cheaper(keys)
		load, cost := int64(0), 0.0
		for _, key := range keys[:cheap] {
			load += s.loadOf(g, int32(uint32(key)))
			cost += float64(s.leastBytes(int32(uint32(key))))
		}
		if load >= amount {
			keys = keys[:cheap]
			continue
		}
		keys, amount, bytes = keys[cheap:], amount-load, bytes+cost
	}
	slices.Sort(keys)
	for _, key := range keys {
		i := int32(uint32(key))
		load := s.loadOf(g, i)
		if load >= amount {
			return int64(bytes + float64(s.leastBytes(i))*float64(amount)/float64(load))
		}
		amount -= load
		bytes += float64(s.leastBytes(i))
	}
	return int64(bytes)
}

// fewKeys are put in order at once.
const fewKeys = 24

// cheaper puts the keys below the middle one of three before the others, and says how many they are: one at least, and
// not all. No key is there twice.
func cheaper(keys []uint64) int {
	x, y, z := keys[0], keys[len(keys)/2], keys[len(keys)-1]
	pivot := max(min(x, y), min(max(x, y), z))
	n := 0
	for at, key := range keys {
		if key < pivot {
			keys[n], keys[at] = key, keys[n]
			n++
		}
	}
	return n
}

func compareFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (f *floors) bytes(g Goal) (sum int64) {
	for _, b := range f.perBroker[g] {
		sum += b
	}
	return sum
}

// total is the bytes that must be copied at least for all goals together: of each broker for the goal that asks most.
func (f *floors) total(goals []Goal) (sum int64) {
	for b := range f.drained {
		most := f.drained[b]
		for _, g := range goals {
			most = max(most, f.perBroker[g][b])
		}
		sum += most
	}
	return sum
}
