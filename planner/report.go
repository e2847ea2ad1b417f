package planner

import (
	"math"
	"slices"
	"sync"
)

// finish fills in what a plan tells beside its actions. `at` is where each partition counts when they are done.
func finish(plan *Plan, s *Snapshot, settings *Settings, at []int32, goals []Goal) {
	start := make([]int32, s.Len())
	for i := range start {
		start[i] = s.countedAt(int32(i))
	}
	before := s.loadsBy(start)
	after := s.loadsAfter(&before, start, at)
	all := bands(s, settings, &before)
	// The bounds beside the rest: neither writes what the other reads, and together they are half the time of a plan by count.
	var floors *floors
	var bounds sync.WaitGroup
	bounds.Go(func() { floors = newFloors(s, start, &before, &all, goals) })
	plan.Hash = HashOf(s.FleetID, plan.Actions)
	plan.ETA = eta(settings, plan.Actions, len(s.Brokers))
	plan.Brokers = brokerReports(plan, s, settings, start, at, &before, &after, &all)
	bounds.Wait()
	for _, g := range goals {
		plan.Goals = append(plan.Goals, goalReport(s, settings, &all[g], before[g], after[g], floors))
	}
	plan.BytesFloor = floors.total(goals)
}

func brokerReports(plan *Plan, s *Snapshot, settings *Settings, start, at []int32, before, after *[numGoals][]int64, all *[numGoals]band) []BrokerReport {
	reports := make([]BrokerReport, len(s.Brokers))
	scoreBefore, scoreAfter := scores(s, &settings.Score, start, true), scores(s, &settings.Score, at, false)
	room := newRooms(s, 0)
	figures := func(of func(g Goal) int64) Figures { return Figures{of(NWIn), of(NWOut), of(Disk), of(PartitionCount)} }
	for b := range s.Brokers {
		r := &reports[b]
		r.ID, r.State = s.Brokers[b].ID, s.Brokers[b].State()
		r.Before = figures(func(g Goal) int64 { return before[g][b] })
		r.After = figures(func(g Goal) int64 { return after[g][b] })
		r.Upper = figures(func(g Goal) int64 {
			if !all[g].inEffect {
				return 0
			}
			return all[g].upper[b]
		})
		r.Score, r.ScoreAfter = scoreBefore[b], scoreAfter[b].lasting
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
