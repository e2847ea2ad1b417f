package planner

import (
	"cmp"
	"slices"
)

// state is a plan in the making: where every partition is by now, and what follows from it.
type state struct {
	s        *Snapshot
	settings *Settings
	at       []int32           // where each partition counts
	load     [numGoals][]int64 // of each broker
	bands    [numGoals]band
	room     rooms
	owned    [][]int32 // the partitions that count at each broker, unordered
	place    []int32   // of each partition in owned

	// Of this round, from its beginning on.
	score     []float64        // of each broker; equal loads are ordered by it
	known     [numGoals][]bool // brokers of whose loads enough is trusted to give them more
	decisions map[int32]*decision
	order     []int32          // partitions in the order in which they first left their place; some may be back there
	net       int              // partitions that are not where they were
	full      bool             // the cap allows not one more of them, and one more was wanted
	capped    bool             // the cap has kept something from being done, be it only a swap that there was no room for any more
	cut       [numGoals][]bool // brokers that such a swap would have helped
	drains    int32            // the one broker that is drained; none: all that are to be
}

// decision is why a partition is where it is now.
type decision struct {
	goal     Goal
	drain    bool
	swapWith int32 // none: a move
	back     bool  // of a swap, the half that makes place
	effect   Effect
	from, to int32
	load     int64 // the partition's
	seq      int
}

func newState(s *Snapshot, settings *Settings) *state {
	st := &state{s: s, settings: settings, at: make([]int32, s.Len()), place: make([]int32, s.Len()), room: newRooms(s, settings.RoomMargin), decisions: map[int32]*decision{}, drains: none}
	counts := make([]int32, len(s.Brokers))
	for i := range st.at {
		st.at[i] = s.countedAt(int32(i))
		if s.counts(int32(i)) {
			counts[st.at[i]]++
		}
	}
	all := make([]int32, s.Len())
	st.owned = make([][]int32, len(s.Brokers))
	for b, n := range counts {
		st.owned[b], all = all[:0:n], all[n:]
	}
	for i, b := range st.at {
		if s.counts(int32(i)) {
			st.place[i] = int32(len(st.owned[b]))
			st.owned[b] = append(st.owned[b], int32(i))
		}
	}
	st.load = s.loadsBy(st.at)
	st.bands = bands(s, settings, &st.load)
	return st
}

// beginRound works out what the order of equals rests on.
func (st *state) beginRound() {
	st.score = make([]float64, len(st.s.Brokers))
	for b, score := range scores(st.s, &st.settings.Score, st.at, false) {
		st.score[b] = score.Total
	}
	st.capped = st.full
	for g := range Goal(numGoals) {
		st.cut[g] = make([]bool, len(st.s.Brokers))
		st.known[g] = make([]bool, len(st.s.Brokers))
		for b, owned := range st.owned {
			trusted := 0
			for _, i := range owned {
				if st.s.flags[i].trusts(g) {
					trusted++
				}
			}
			// A broker that has stopped reporting looks idle: it is given nothing until it reports again.
			st.known[g][b] = !st.settings.Goals[g].TrustedOnly || 2*trusted >= len(owned)
		}
	}
}

// movable reports whether a partition may move for a goal.
func (st *state) movable(g Goal, i int32) bool {
	return st.s.sourceRule(i, false) == "" && (!st.settings.Goals[g].TrustedOnly || st.s.flags[i].trusts(g))
}

// share is a broker's load in terms of its mean.
func (st *state) share(g Goal, b int32) float64 { return float64(st.load[g][b]) / st.bands[g].mean[b] }

// overloaded are the brokers above a goal's band by more than the margin that may shed, the hottest first.
func (st *state) overloaded(g Goal) []int32 {
	var over []int32
	for b := range int32(len(st.s.Brokers)) {
		if st.s.brokerRule(b, false) == "" && st.load[g][b] > st.bands[g].trigger[b] {
			over = append(over, b)
		}
	}
	slices.SortFunc(over, func(x, y int32) int {
		return cmp.Or(compareFloat(st.share(g, y), st.share(g, x)), compareFloat(st.score[y], st.score[x]), cmp.Compare(x, y))
	})
	return over
}

// receivers are the brokers below a goal's mean that may take more, the coldest first.
func (st *state) receivers(g Goal) []int32 {
	var cold []int32
	for b := range int32(len(st.s.Brokers)) {
		if st.s.brokerRule(b, false) == "" && st.known[g][b] && float64(st.load[g][b]) < st.bands[g].mean[b] {
			cold = append(cold, b)
		}
	}
	slices.SortFunc(cold, func(x, y int32) int { return st.colder(g, x, y) })
	return cold
}

// colder orders receivers.
func (st *state) colder(g Goal, x, y int32) int {
	return cmp.Or(compareFloat(st.share(g, x), st.share(g, y)), compareFloat(st.score[x], st.score[y]), cmp.Compare(x, y))
}

// bytesTo is what of a partition must be copied to a broker, whatever the plan has decided about it so far.
func (st *state) bytesTo(i, b int32) int64 { return st.s.bytesTo(i, b) }

// allowed reports whether no hard rule speaks against a broker that receives taking this partition.
func (st *state) allowed(i, b int32) bool {
	return st.room.fits(b, st.bytesTo(i, b)) && st.s.copyRule(i, b) == ""
}

// within reports whether a broker that takes a partition stays within the bands of all these goals.
func (st *state) within(goals []Goal, i, b int32) bool {
	for _, g := range goals {
		if load := st.s.loadOf(g, i); load > 0 && st.load[g][b]+load > st.bands[g].upper[b] {
			return false
		}
	}
	return true
}

// avoids reports whether a partition keeps away from a broker.
func (st *state) avoids(i, b int32) bool {
	p := st.s.parentOf(i)
	return p != none && st.at[p] == b
}

// mayLeave reports whether the cap allows these partitions to leave their place too, and remembers that it did not. Where it
// does not allow the two of a swap it may still allow one: then the plan goes on with what fits.
func (st *state) mayLeave(partitions ...int32) bool {
	n := 0
	for _, i := range partitions {
		if st.at[i] == st.s.countedAt(i) {
			n++
		}
	}
	if st.settings.MaxActions > 0 && st.net+n > st.settings.MaxActions {
		st.capped, st.full = true, st.net >= st.settings.MaxActions
		return false
	}
	return true
}

// put takes a partition from where it is to a broker, with the reason.
func (st *state) put(i, to int32, why decision) {
	from, home := st.at[i], st.s.countedAt(i)
	why.from, why.to, why.load = from, to, st.s.loadOf(why.goal, i)
	for g := range Goal(numGoals) {
		load := st.s.loadOf(g, i)
		st.load[g][from] -= load
		st.load[g][to] += load
	}
	if from != home {
		st.room.free[from] += st.bytesTo(i, from)
	}
	if to != home {
		st.room.free[to] -= st.bytesTo(i, to)
	}
	last := len(st.owned[from]) - 1
	moved := st.owned[from][last]
	st.owned[from][st.place[i]] = moved
	st.place[moved] = st.place[i]
	st.owned[from] = st.owned[from][:last]
	st.place[i] = int32(len(st.owned[to]))
	st.owned[to] = append(st.owned[to], i)
	st.at[i] = to

	switch {
	case to == home:
		st.net--
		delete(st.decisions, i)
		return
	case from == home:
		st.net++
		why.seq = len(st.order)
		st.order = append(st.order, i)
	default:
		why.seq = st.decisions[i].seq
	}
	st.decisions[i] = &why
}
