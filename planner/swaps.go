package planner

import (
	"cmp"
	"slices"
)

// How far a search for a swap looks: at that many of the hot broker's largest partitions, of the coldest brokers, and of
// the partitions there that come nearest. Places are counted, also of partitions that may not move, so that moves in
// flight open no view on others.
const (
	swapPartitions = 64
	swapBrokers    = 64
	swapNeighbours = 4
)

// swap lets a partition of a broker that no move could bring into its band change places with a smaller one of a colder
// broker. It reports whether anything changed.
func (st *state) swap(g Goal, earlier []Goal) bool {
	w := &swapper{state: st, goal: g, earlier: earlier, sorted: map[int32][]int32{}}
	changed := false
	for _, b := range st.overloaded(g) {
		for st.load[g][b] > st.bands[g].upper[b] {
			best := w.best(b)
			if best.gain == 0 {
				break
			}
			if !st.mayLeave(best.out, best.back) {
				st.cut[g][b] = true
				break
			}
			w.carryOut(b, best)
			changed = true
		}
		if st.full {
			break
		}
	}
	return changed
}

type swapper struct {
	*state
	goal    Goal
	earlier []Goal
	sorted  map[int32][]int32 // of a broker, its partitions by load, the smallest first; dropped when they change
}

// exchange is a partition that leaves the hot broker and the one that comes back for it.
type exchange struct {
	out, back, with int32
	gain            int64 // of what is above the band, how much goes
	bytes           int64
}

// best is the first exchange that brings a broker into its band, else the one that gains most.
func (w *swapper) best(b int32) exchange {
	band := &w.bands[w.goal]
	need := w.load[w.goal][b] - band.upper[b]
	// A swap copies twice: one that leaves the broker above its band must be worth it (F27).
	least := max(1, int64(w.settings.Margin*band.mean[b]))
	var best exchange
	hot := w.byLoad(b)
	cold := w.receivers(w.goal)
	for _, c := range cold[:min(len(cold), swapBrokers)] {
		headroom := band.upper[c] - w.load[w.goal][c]
		for at := len(hot) - 1; at >= max(0, len(hot)-swapPartitions); at-- {
			out := hot[at]
			if !w.movable(w.goal, out) {
				continue
			}
			e := w.against(b, c, out, need, headroom)
			if e.gain < need && e.gain < least {
				continue
			}
			if e.gain > best.gain || (e.gain == best.gain && e.bytes < best.bytes) {
				best = e
			}
		}
		if best.gain == need && need > 0 {
			return best
		}
	}
	return best
}

// against finds what could come back from c for a partition of b: the difference of their loads is to be at least the need,
// and little more, and not more than c's headroom.
func (w *swapper) against(b, c, out int32, need, headroom int64) exchange {
	size := w.s.loadOf(w.goal, out)
	list := w.byLoad(c)
	// The largest whose difference still is the need; when c has no headroom for that, the smallest it has headroom for.
	wanted := size - min(need, headroom)
	at, _ := slices.BinarySearchFunc(list, wanted+1, func(i int32, load int64) int { return cmp.Compare(w.s.loadOf(w.goal, i), load) })
	var best exchange
	for n := at - swapNeighbours; n < at+swapNeighbours; n++ {
		if n < 0 || n >= len(list) || !w.movable(w.goal, list[n]) {
			continue
		}
		back := list[n]
		difference := size - w.s.loadOf(w.goal, back)
		if difference <= 0 || difference > headroom || !w.possible(b, c, out, back) {
			continue
		}
		e := exchange{out, back, c, min(difference, need), w.bytesTo(out, c) + w.bytesTo(back, b)}
		if e.gain > best.gain || (e.gain == best.gain && e.bytes < best.bytes) {
			best = e
		}
	}
	return best
}

// possible reports whether the hard rules and the earlier goals allow an exchange. Room is needed for both: neither leaves
// before the other has come.
func (w *swapper) possible(b, c, out, back int32) bool {
	if !w.allowed(out, c) || !w.allowed(back, b) {
		return false
	}
	for _, g := range w.earlier {
		difference := w.s.loadOf(g, out) - w.s.loadOf(g, back)
		after := [2]int64{w.load[g][b] - difference, w.load[g][c] + difference}
		if (difference < 0 && after[0] > w.bands[g].upper[b]) || (difference > 0 && after[1] > w.bands[g].upper[c]) {
			return false
		}
	}
	return true
}

func (w *swapper) carryOut(b int32, e exchange) {
	amount := w.s.loadOf(w.goal, e.out) - w.s.loadOf(w.goal, e.back)
	effect := w.effect(w.goal, b, e.with, amount)
	w.put(e.out, e.with, decision{goal: w.goal, swapWith: e.back, effect: effect})
	w.put(e.back, b, decision{goal: w.goal, swapWith: e.out, back: true, effect: effect})
	delete(w.sorted, b)
	delete(w.sorted, e.with)
}

func (w *swapper) byLoad(b int32) []int32 {
	list, ok := w.sorted[b]
	if !ok {
		list = slices.Clone(w.owned[b])
		slices.SortFunc(list, func(x, y int32) int {
			return cmp.Or(cmp.Compare(w.s.loadOf(w.goal, x), w.s.loadOf(w.goal, y)), cmp.Compare(y, x))
		})
		w.sorted[b] = list
	}
	return list
}
