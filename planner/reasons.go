package planner

import (
	"cmp"
	"fmt"
	"slices"
)

// actions are the decisions that stand at the end, in the order in which partitions first left their place. Two partitions
// that change places in the end too are one SWAP.
func (st *state) actions() []Action {
	list := make([]Action, 0, len(st.decisions))
	legs := make([]Leg, 0, len(st.decisions))
	order := make([]int32, 0, len(st.decisions))
	for n, i := range st.order {
		if d := st.decisions[i]; d != nil && d.seq == n {
			order = append(order, i)
		}
	}
	told := map[int32]bool{} // the other halves of swaps
	for _, i := range order {
		if told[i] {
			continue
		}
		d := st.decisions[i]
		a := Action{Kind: ActionMove, Goal: d.goal.String(), Effect: d.effect}
		if st.s.Brokers[st.s.owner[i]].Draining { // whatever a goal made of it afterwards
			a.Goal = DrainGoal
		}
		first := len(legs)
		legs = append(legs, st.s.leg(i, st.at[i], st.bytesTo(i, st.at[i])))
		if other := st.swapped(i, d); other != none {
			a.Kind = ActionSwap
			told[other] = true
			legs = append(legs, st.s.leg(other, st.at[other], st.bytesTo(other, st.at[other])))
		}
		a.Legs = legs[first:len(legs):len(legs)]
		a.Reason = st.reason(i, d, a.Kind)
		list = append(list, a)
	}
	return list
}

// swapped is the partition with which this one changes places in the end; none when it does not.
func (st *state) swapped(i int32, d *decision) int32 {
	other := d.swapWith
	if other == none {
		return none
	}
	back := st.decisions[other]
	if back == nil || back.swapWith != i || st.at[other] != st.s.owner[i] || st.at[i] != st.s.owner[other] {
		return none
	}
	return other
}

// reason is one sentence with the figures that decided. It is written piece by piece: a plan has a hundred thousand.
func (st *state) reason(i int32, d *decision, kind string) string {
	from, to, home := st.s.Brokers[d.from].ID, st.s.Brokers[d.to].ID, st.s.Brokers[st.s.owner[i]].ID
	e, g := d.effect, d.goal
	text := make([]byte, 0, 192)
	say := func(words ...string) {
		for _, w := range words {
			text = append(text, w...)
		}
	}
	amount := func(before string, load int64) {
		text = append(text, before...)
		text = appendFigure(text, g, load)
	}
	switch {
	case d.drain:
		say(from, " is draining; of the brokers that have room ", to, " is the least full")
	case st.s.Brokers[st.s.owner[i]].Draining:
		say(home, " is draining; on ", to, " it fits best for ", g.String())
	case d.back && kind == ActionMove:
		say("it made place on ", from, " for a partition of ", to, " that was above its band of ", g.String())
	default:
		say(from)
		amount(" has ", e.FromBefore)
		amount(", its band ends at ", e.FromUpper)
		if kind == ActionSwap {
			amount(", and nothing it has fits elsewhere alone: it gives ", d.load)
			amount(" for ", st.s.loadOf(g, d.swapWith))
			amount(" and comes to ", e.FromAfter)
		} else {
			amount("; with ", d.load)
			amount(" less it comes to ", e.FromAfter)
		}
		say(", ", to)
		amount(" from ", e.ToBefore)
		amount(" to ", e.ToAfter)
		amount(" of at most ", e.ToUpper)
		if from != home {
			say(" (it is on ", home, ", and an earlier step had it on ", from, ")")
		}
	}
	if st.bytesTo(i, d.to) < st.s.load[Disk][i] {
		say("; ", to, " has a former copy of it")
	}
	return string(text)
}

// explainLeft says of each broker that stays above a band what holds it there.
func (st *state) explainLeft(plan *Plan) {
	for n := range plan.Goals {
		r := &plan.Goals[n]
		if r.OverAfter == 0 {
			continue
		}
		for b := range int32(len(st.s.Brokers)) {
			if st.s.Brokers[b].receives() && st.load[r.Goal][b] > st.bands[r.Goal].trigger[b] {
				r.Left = append(r.Left, Left{Broker: st.s.Brokers[b].ID, Load: st.load[r.Goal][b], Upper: st.bands[r.Goal].upper[b], Reason: st.whyLeft(plan, r.Goal, b)})
			}
		}
		slices.SortStableFunc(r.Left, func(x, y Left) int { return cmp.Compare(y.Load-y.Upper, x.Load-x.Upper) })
	}
}

func (st *state) whyLeft(plan *Plan, g Goal, b int32) string {
	switch {
	case plan.Held != nil:
		return plan.Held.Reason
	case st.cut[g][b] && st.settings.MaxActions == 1:
		return "only a swap would help, which moves two partitions, and maxActions is 1"
	case st.full || st.cut[g][b]:
		return "the plan has reached maxActions; the next one goes on"
	case st.s.brokerCooling[b]:
		return "it took part in moves lately and is left alone until its cooldown ends (" + CodeBrokerCooling + ")"
	}
	held := map[string]int{}
	free := 0
	for _, i := range st.owned[b] {
		code := st.s.sourceRule(i, false)
		if code == "" && !st.movable(g, i) {
			code = CodeLoadUntrusted
		}
		if code != "" {
			held[code]++
		} else if st.s.loadOf(g, i) > 0 {
			free++
		}
	}
	text := ""
	for _, code := range []string{CodeAlreadyMoving, CodePartitionCooling, CodeLoadUntrusted, CodeReplicated} {
		if held[code] > 0 {
			text += fmt.Sprintf("%d of its partitions do not move now (%s); ", held[code], code)
		}
	}
	if free == 0 {
		return text + "no other has load"
	}
	return text + fmt.Sprintf("none of the other %d fits on a colder broker within its bands and its room, alone or in a swap", free)
}
