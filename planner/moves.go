package planner

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"
)

// candidate is a partition that an overloaded broker could shed.
type candidate struct {
	partition int32
	load      int64
	cost      float64 // bytes to copy at least, and what a move costs whatever its size
	taken     bool
}

// move sheds load of one goal from overloaded brokers by moving single partitions. It reports whether anything moved.
//
// The partitions that bring most load for their cost go first; what then still is above the band is taken by the cheapest
// that suffices.
func (st *state) move(g Goal, earlier, later []Goal) bool {
	over := st.overloaded(g)
	if len(over) == 0 {
		return false
	}
	m := &mover{state: st, goal: g, earlier: earlier, later: later, receivers: st.receivers(g)}
	changed := false
	for _, b := range over {
		candidates := st.candidates(g, b)
		if st.full {
			break
		}
		changed = m.shed(b, candidates) || changed
	}
	return changed
}

// candidates of a broker, those that bring most for their cost first.
func (st *state) candidates(g Goal, b int32) []candidate {
	fixed := time.Duration(st.settings.MoveOverhead).Seconds() * float64(st.settings.AssumedRate)
	keys := make([]uint64, 0, len(st.owned[b]))
	for _, i := range st.owned[b] {
		if load := st.s.loadOf(g, i); load > 0 && st.movable(g, i) {
			keys = append(keys, rank(-float64(load)/(float64(st.s.leastBytes(i))+fixed), i))
		}
	}
	slices.Sort(keys)
	list := make([]candidate, len(keys))
	for n, key := range keys {
		i := int32(uint32(key))
		list[n] = candidate{partition: i, load: st.s.loadOf(g, i), cost: float64(st.s.leastBytes(i)) + fixed}
	}
	return list
}

// rank is a number that orders partitions by a value, equal ones by their place in the snapshot. Values are told apart to 7
// digits. Sorting such numbers is several times quicker than sorting by a function.
func rank(value float64, i int32) uint64 {
	bits := math.Float32bits(float32(value))
	if bits>>31 == 1 {
		bits = ^bits // of two negative numbers the one with more bits is less
	} else {
		bits |= 1 << 31
	}
	return uint64(bits)<<32 | uint64(uint32(i))
}

// mover moves partitions for one goal.
type mover struct {
	*state
	goal           Goal
	earlier, later []Goal
	receivers      []int32 // coldest first
	refused        []shape
}

// shape is what a partition asks of a broker. While a goal moves partitions, receivers only fill up: what as little as this
// did not fit in anywhere, nothing larger fits in.
type shape [numGoals]int64

// overshoot is how much more than is needed a partition may bring and still be taken among the first.
const overshoot = 1.1

func (m *mover) shed(b int32, candidates []candidate) bool {
	changed := false
	need := func() int64 { return m.load[m.goal][b] - m.bands[m.goal].upper[b] }
	for i := range candidates {
		c := &candidates[i]
		if need() <= 0 || m.full {
			return changed
		}
		if !c.taken && float64(c.load) <= float64(need())*overshoot && m.place(c, b) {
			changed = true
		}
	}
	if need() <= 0 || m.full {
		return changed
	}
	enough := make([]*candidate, 0, len(candidates))
	for i := range candidates {
		if c := &candidates[i]; !c.taken && c.load >= need() {
			enough = append(enough, c)
		}
	}
	slices.SortStableFunc(enough, func(x, y *candidate) int { return cmp.Or(compareFloat(x.cost, y.cost), cmp.Compare(x.load, y.load)) })
	for _, c := range enough {
		if m.full {
			break
		}
		if m.place(c, b) {
			return true
		}
	}
	return changed
}

// place moves a candidate to the best receiver; false when none takes it.
func (m *mover) place(c *candidate, from int32) bool {
	i := c.partition
	plain := m.s.flags[i]&hasCopies == 0 && from == m.s.countedAt(i) && m.s.flags[i]&replicated == 0
	asks := shape{m.s.load[NWIn][i], m.s.load[NWOut][i], m.s.load[Disk][i], 1}
	if plain && m.refusedBefore(asks) {
		return false
	}
	at := m.choose(i, c.load)
	if at < 0 {
		if plain {
			m.refused = append(m.refused, asks)
		}
		return false
	}
	if !m.mayLeave(i) {
		return false
	}
	to := m.receivers[at]
	m.put(i, to, decision{goal: m.goal, swapWith: none, effect: m.effect(m.goal, from, to, c.load)})
	c.taken = true
	// It is less cold now: its place is further on.
	rest := m.receivers[at+1:]
	before := sort.Search(len(rest), func(n int) bool { return m.colder(m.goal, rest[n], to) > 0 })
	copy(m.receivers[at:], rest[:before])
	m.receivers[at+before] = to
	return true
}

func (m *mover) refusedBefore(asks shape) bool {
	for _, r := range m.refused {
		if asks[0] >= r[0] && asks[1] >= r[1] && asks[2] >= r[2] {
			return true
		}
	}
	return false
}

// lookOn is how many receivers are still looked at once one was found that would do, for one that suits the later goals
// and keeps away from whom the partition avoids.
const lookOn = 32

// choose is the place among receivers of the one that takes a partition; -1 when none does. A broker that suits the later
// goals too goes before one that does not, then a former copy there (it wins ties, F26), then one that is not avoided, then
// the coldest.
func (m *mover) choose(i int32, load int64) int {
	g, best, rank, seen := m.goal, -1, 0, 0
	copies := m.s.flags[i]&hasCopies != 0
	parent := m.s.parentOf(i)
	for at, b := range m.receivers {
		if float64(m.load[g][b]) >= m.bands[g].mean[b] {
			break // and so are all after it
		}
		if rank > 0 && !copies {
			if seen++; seen > lookOn {
				break
			}
		}
		if m.load[g][b]+load > m.bands[g].upper[b] {
			if m.bands[g].uniform {
				break // those after it have more
			}
			continue
		}
		if !m.within(m.earlier, i, b) || !m.allowed(i, b) {
			continue
		}
		r := 1
		if m.within(m.later, i, b) {
			r += 8
			if copies && m.bytesTo(i, b) < m.s.load[Disk][i] {
				r += 4
			}
		}
		if parent == none || m.at[parent] != b {
			r += 2
		}
		if r > rank {
			best, rank = at, r
		}
		if rank >= 11 && !copies || rank == 15 {
			break
		}
	}
	return best
}
