package planner

import (
	"cmp"
	"slices"
)

// drain gives away everything of every draining broker: it is a receiver of capacity zero. The largest partitions go
// first, each to the least full broker that stays within all its bands, else to the least full that has room: leaving comes
// before balance. Cooldowns are not waited for, and trust in loads is not asked.
func (st *state) drain() (changed bool) {
	var receivers []int32
	for b := range int32(len(st.s.Brokers)) {
		if st.s.brokerRule(b, true) == "" {
			receivers = append(receivers, b)
		}
	}
	fullness := make([]float64, len(st.s.Brokers))
	for _, b := range receivers {
		fullness[b] = st.fullness(b)
	}
	fuller := func(x, y int32) int { return cmp.Or(compareFloat(fullness[x], fullness[y]), cmp.Compare(x, y)) }
	slices.SortFunc(receivers, fuller)
	goals := st.inEffect([]Goal{NWIn, NWOut, Disk, PartitionCount})
	for b := range int32(len(st.s.Brokers)) {
		if !st.s.Brokers[b].Alive || !st.isDrained(b) {
			continue
		}
		for _, i := range st.leaving(b) {
			at := st.forDrained(i, receivers, goals)
			if at < 0 {
				continue
			}
			if !st.mayLeave(i) {
				return changed
			}
			changed = true
			to := receivers[at]
			st.put(i, to, decision{goal: PartitionCount, drain: true, swapWith: none, effect: st.effect(PartitionCount, b, to, 1)})
			fullness[to] = st.fullness(to)
			for at+1 < len(receivers) && fuller(receivers[at], receivers[at+1]) > 0 {
				receivers[at], receivers[at+1] = receivers[at+1], receivers[at]
				at++
			}
		}
	}
	return changed
}

// isDrained reports whether this plan empties a broker.
func (st *state) isDrained(b int32) bool {
	return st.s.Brokers[b].Draining && (st.drains == none || st.drains == b)
}

// leaving are the partitions that a draining broker can give away, the largest first.
func (st *state) leaving(b int32) []int32 {
	var list []int32
	for _, i := range st.owned[b] {
		if st.s.sourceRule(i, true) == "" {
			list = append(list, i)
		}
	}
	disk := st.s.load[Disk]
	slices.SortFunc(list, func(x, y int32) int { return cmp.Or(cmp.Compare(disk[y], disk[x]), cmp.Compare(x, y)) })
	return list
}

// fullness is how far a broker is up its fullest band.
func (st *state) fullness(b int32) float64 {
	most := float64(st.load[PartitionCount][b]) / st.s.Brokers[b].weight() / float64(len(st.s.topic)+1) // orders empty fleets
	for g := range Goal(numGoals) {
		if st.bands[g].inEffect && st.bands[g].upper[b] > 0 {
			most = max(most, float64(st.load[g][b])/float64(st.bands[g].upper[b]))
		}
	}
	return most
}

// forDrained is the place among receivers of the one that takes a partition; -1 when nobody has room.
func (st *state) forDrained(i int32, receivers []int32, goals []Goal) int {
	best, rank := -1, 0
	for at, b := range receivers {
		if !st.allowed(i, b) {
			continue
		}
		r := 1
		if st.within(goals, i, b) {
			r += 4
			if st.bytesTo(i, b) < st.s.load[Disk][i] { // a former copy there
				r += 2
			}
		}
		if !st.avoids(i, b) {
			r++
		}
		if r > rank {
			best, rank = at, r
		}
		if rank >= 6 && st.s.flags[i]&hasCopies == 0 {
			break
		}
	}
	return best
}

// blocked are the partitions that should leave a draining broker and do not.
func (st *state) blocked() []Blocked {
	var all []Blocked
	for i := range int32(st.s.Len()) {
		b := st.at[i]
		if !st.isDrained(b) || st.full {
			continue
		}
		code := st.s.sourceRule(i, true)
		if code == "" {
			code = CodeTooLittleRoom
			for to := range int32(len(st.s.Brokers)) {
				if st.s.brokerRule(to, true) == "" && st.room.fits(to, st.bytesTo(i, to)) {
					code = cmp.Or(st.s.copyRule(i, to), code)
				}
			}
		}
		all = append(all, Blocked{Topic: st.s.Topics[st.s.topic[i]].Name, Partition: st.s.number[i], Owner: st.s.Brokers[st.s.owner[i]].ID,
			Objection: Objection{Code: code, Reason: ruleSentence(code)}})
	}
	return all
}

// effect is what taking an amount of a goal's load from one broker to another does.
func (st *state) effect(g Goal, from, to int32, amount int64) Effect {
	return Effect{FromBefore: st.load[g][from], FromAfter: st.load[g][from] - amount, FromUpper: st.bands[g].upper[from],
		ToBefore: st.load[g][to], ToAfter: st.load[g][to] + amount, ToUpper: st.bands[g].upper[to]}
}
