package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// BalanceCounts plans by the number of partitions alone: exactly, and with the fewest moves (N21–N23).
//
// A partition counts where it is going, else where it is; internal topics and partitions at brokers that do not answer do
// not count. Every broker in service gets its share rounded down, or up where more is there already, so that not one move
// is made to even out what can not be even. Each broker sheds exactly what is above that, a draining one everything, the
// lowest partitions first, to the broker that lacks most; of those that lack equally to the one to which least must be
// copied (a retained copy wins ties, F26), then to the lower. Anti-affinity goes before that (N23).
//
// A broker that cools down sheds nothing, and gets only what leaves draining brokers, which waits for no cooldown. Since
// nothing else may go there, what leaves a draining broker goes to such brokers first, as far as they lack any.
//
// Why this is minimal: whatever the final counts are, a broker that ends with fewer than it has must shed the difference,
// and each move sheds one from one broker. Among the evenest final counts those are chosen that leave most where it is.
// Partitions that may not move (in flight, cooling, replicated) are a floor under their broker's count, and so is all that
// a cooling broker has. The state that the plan leads to is itself the evenest, whether its moves are over or in flight:
// planned again it gives nothing.
func BalanceCounts(s *Snapshot, settings Settings) (*Plan, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	plan := &Plan{FleetID: s.FleetID, TakenAt: s.TakenAt, Actions: []Action{}}
	surveyed := startSurvey(s, &settings, []Goal{PartitionCount})
	c := newCounting(s, &settings)
	if s.Recoveries > 0 {
		plan.Held = recoveryHolds(s.Recoveries)
	} else {
		c.plan(plan)
	}
	surveyed().finish(plan, c.at)
	return plan, nil
}

func recoveryHolds(n int) *Objection {
	return &Objection{Code: CodeRecoveryPending, Reason: fmt.Sprintf("%d partitions wait for the recovery of their owner, which goes before balance; plan again when it is over", n)}
}

// counting is the state of one BalanceCounts.
type counting struct {
	s        *Snapshot
	settings *Settings
	at       []int32 // where each partition counts
	load     []int   // partitions that count at each broker
	fixed    []int   // those among them that may not move
	limit    []int   // what each broker ends with at most
	room     rooms
}

func newCounting(s *Snapshot, settings *Settings) *counting {
	c := &counting{s: s, settings: settings, at: make([]int32, s.Len()), load: make([]int, len(s.Brokers)), fixed: make([]int, len(s.Brokers)), room: newRooms(s, settings.RoomMargin)}
	for i := range int32(s.Len()) {
		b := s.countedAt(i)
		c.at[i] = b
		if !s.counts(i) {
			continue
		}
		c.load[b]++
		if s.sourceRule(i, s.Brokers[b].Draining) != "" {
			c.fixed[b]++
		}
	}
	return c
}

// plan sheds every surplus.
func (c *counting) plan(plan *Plan) {
	s := c.s
	var open, cooling []int32 // brokers that take anything, and those that take only what leaves a draining one
	leaving := 0              // what can not leave a draining broker now is nobody's share yet
	for b := range int32(len(s.Brokers)) {
		switch {
		case s.brokerRule(b, false) == "":
			open = append(open, b)
		case s.brokerRule(b, true) == "":
			cooling = append(cooling, b)
			c.fixed[b] = c.load[b]
		case s.Brokers[b].Alive && s.Brokers[b].Draining:
			leaving += c.load[b] - c.fixed[b]
		}
	}
	if len(open)+len(cooling) == 0 {
		return
	}
	c.limits(open, cooling, leaving)
	c.shed(plan, open, cooling)
}

// limits are the evenest counts that can be reached, those among them that leave most where it is. Brokers that are no
// receivers keep what they have, draining ones nothing.
func (c *counting) limits(open, cooling []int32, leaving int) {
	c.limit = slices.Clone(c.load)
	for b := range c.s.Brokers {
		if c.s.Brokers[b].Alive && c.s.Brokers[b].Draining {
			c.limit[b] = 0
		}
	}
	c.spread(slices.Concat(open, cooling), leaving)
	come := 0
	for _, b := range cooling {
		come += c.limit[b] - c.load[b]
	}
	// That is more than may come: then all that leaves draining brokers is theirs, and the others even out what they have.
	if come > leaving {
		c.spread(cooling, leaving)
		c.spread(open, 0)
	}
}

// spread sets the limits of some brokers: the evenest for what they have and what comes.
func (c *counting) spread(receivers []int32, come int) {
	limit, total := c.limit, come
	for _, b := range receivers {
		total += c.load[b]
	}
	share := func(b int32, level float64) int { return max(c.fixed[b], int(level*c.s.Brokers[b].weight())) }
	sum := func(level float64) (n int) {
		for _, b := range receivers {
			n += share(b, level)
		}
		return n
	}
	low, high := 0.0, float64(total+1)
	for _, b := range receivers {
		high = max(high, float64(total+1)/c.s.Brokers[b].weight())
	}
	// The highest level that gives no more than there is. Between 0 and the smallest step of any broker doubles suffice.
	for range 200 {
		middle := low + (high-low)/2
		if middle == low || middle == high {
			break
		}
		if sum(middle) <= total {
			low = middle
		} else {
			high = middle
		}
	}
	rest := total
	for _, b := range receivers {
		limit[b] = share(b, low)
		rest -= limit[b]
	}
	// What is left over is one each for those that are next; they are given to whoever has them already, so that they stay.
	next := slices.DeleteFunc(slices.Clone(receivers), func(b int32) bool { return share(b, high) == limit[b] })
	slices.SortFunc(next, func(x, y int32) int {
		return cmp.Or(cmp.Compare(c.load[y]-limit[y], c.load[x]-limit[x]), cmp.Compare(x, y))
	})
	for _, b := range next[:min(max(rest, 0), len(next))] {
		limit[b]++
	}
}

// shed moves the lowest partitions off every broker that has more than its limit.
func (c *counting) shed(plan *Plan, open, cooling []int32) {
	s := c.s
	from, to := c.sentences()
	var takeAny, takeDrained hungry
	longest := 0 // of the second halves of reasons
	push := func(h *hungry, receivers []int32) {
		for _, b := range receivers {
			if lack := c.limit[b] - c.load[b]; lack > 0 {
				h.push(b, lack)
				longest = max(longest, len(to[b]))
			}
		}
	}
	push(&takeAny, open)
	push(&takeDrained, cooling)
	surplus := make([]int, len(s.Brokers))
	moves, length := 0, 0
	for b := range s.Brokers {
		if surplus[b] = max(0, c.load[b]-c.limit[b]); s.Brokers[b].Alive {
			moves += surplus[b]
			length += surplus[b] * (len(from[b]) + longest)
		}
	}
	// One piece of memory for all legs, and one for all reasons: a plan has tens of thousands.
	actions, legs, n := make([]Action, moves), make([]Leg, moves), 0
	defer func() { plan.Actions = actions[:n] }()
	var reasons strings.Builder
	reasons.Grow(length)
	for i := range int32(s.Len()) {
		b := s.countedAt(i)
		if surplus[b] == 0 || !s.counts(i) || s.sourceRule(i, s.Brokers[b].Draining) != "" {
			continue
		}
		if c.settings.MaxActions > 0 && n == c.settings.MaxActions {
			plan.Capped = true
			return
		}
		chosen := none
		if s.Brokers[b].Draining {
			chosen = c.receiver(&takeDrained, i)
		}
		if chosen == none {
			chosen = c.receiver(&takeAny, i)
		}
		if chosen == none {
			continue
		}
		surplus[b]--
		begin := reasons.Len()
		reasons.WriteString(from[b])
		reasons.WriteString(to[chosen])
		a := &actions[n]
		a.Kind, a.Goal, a.Reason, a.Legs = ActionMove, PartitionCount.String(), reasons.String()[begin:], legs[n:n+1:n+1]
		if s.Brokers[b].Draining {
			a.Goal = DrainGoal
		}
		a.Effect = Effect{FromBefore: int64(c.load[b]), FromAfter: int64(c.load[b] - 1), FromUpper: int64(c.limit[b]),
			ToBefore: int64(c.load[chosen]), ToAfter: int64(c.load[chosen] + 1), ToUpper: int64(c.limit[chosen])}
		bytes := s.bytesTo(i, chosen)
		legs[n] = s.leg(i, chosen, bytes)
		n++
		c.load[b]--
		c.load[chosen]++
		c.at[i] = chosen
		c.room.free[chosen] -= bytes
	}
}

// receiver takes from the hungry the first that may have a partition, or one that lacks as much and has a copy of it, and
// leaves it there with one less to lack.
func (c *counting) receiver(h *hungry, i int32) int32 {
	avoid, avoided := c.avoid(i), none
	for h.len() > 0 {
		b := h.first()
		switch {
		case !c.takes(b, i):
		case b == avoid:
			avoided = b
		case c.s.flags[i]&hasCopies != 0:
			h.takeBack(none)
			b = c.cheapest(b, i, avoid)
			h.feed(b)
			return b
		default:
			h.feedFirst()
			h.takeBack(none)
			return b
		}
		h.setAside()
	}
	h.takeBack(avoided)
	return avoided // anti-affinity never blocks a move (N23)
}

// takes reports whether no hard rule of room and copies speaks against a broker taking a partition.
func (c *counting) takes(b, i int32) bool {
	return c.room.fits(b, c.s.bytesTo(i, b)) && c.s.copyRule(i, b) == ""
}

// cheapest is, of the brokers that lack as much as the first that takes a partition, the one to which least of it must be
// copied. Only those that have a copy of it can be that instead of the first: to all others all of it is copied. Who lacks
// nothing is no receiver, and those that cool down are never asked together with those that do not.
func (c *counting) cheapest(first, i, avoid int32) int32 {
	best, bytes := first, c.s.bytesTo(i, first)
	cools := c.s.brokerCooling[first]
	for _, copied := range c.s.copiesOf(i) {
		b := copied.broker
		if c.s.brokerCooling[b] != cools || b == avoid || c.limit[b]-c.load[b] != c.limit[first]-c.load[first] || !c.takes(b, i) {
			continue
		}
		if less := c.s.bytesTo(i, b); less < bytes {
			best, bytes = b, less
		}
	}
	return best
}

// sentences are the two halves of every reason: what the source has too much, and what the destination lacks.
func (c *counting) sentences() (from, to []string) {
	from, to = make([]string, len(c.load)), make([]string, len(c.load))
	for b, load := range c.load {
		id, limit := c.s.Brokers[b].ID, c.limit[b]
		switch {
		case c.s.Brokers[b].Draining:
			from[b] = fmt.Sprintf("%s is draining and has %d partitions to give away", id, load)
		case load > limit:
			from[b] = fmt.Sprintf("%s has %d partitions, %d above its share of %d", id, load, load-limit, limit)
		case load < limit:
			to[b] = fmt.Sprintf("; %s has %d, %d below its share of %d", id, load, limit-load, limit)
		}
	}
	return from, to
}

// avoid is the broker that has, or will have, the partition this one keeps away from; none when it keeps from nobody.
func (c *counting) avoid(i int32) int32 {
	p := c.s.parentOf(i)
	if p == none {
		return none
	}
	return c.at[p]
}

// parentOf is the partition that this one keeps away from; none when there is none.
func (s *Snapshot) parentOf(i int32) int32 {
	parent := s.parent[s.topic[i]]
	if parent == none {
		return none
	}
	return s.at(parent, s.number[i])
}

func (s *Snapshot) leg(i, to int32, bytes int64) Leg {
	topic := &s.Topics[s.topic[i]]
	return Leg{Topic: topic.Name, TopicID: topic.ID, Partition: s.number[i], From: s.Brokers[s.owner[i]].ID, To: s.Brokers[to].ID, Version: s.version[i], Bytes: bytes,
		from: s.owner[i], to: to}
}
