package planner

import (
	"fmt"
	"slices"
)

// MakePlan plans for all goals.
//
// First every draining broker gives away all it can. Then the goals take their turns by priority, each with MOVEs of single
// partitions, and SWAPs where no MOVE fits; and all again until nothing changes, because what a later goal moves may make
// room for an earlier one. A partition that is moved more than once in this goes, in the plan, from where it is to where it
// ends.
//
// Why this ends: a goal's action takes load from a broker above its band to one that stays within its, so the sum of what
// brokers have above this goal's bands shrinks, and that of no earlier goal grows. Loads are whole numbers, so there
// are only so many steps. Why a plan of the state it leads to is empty: it ended with a round in which nothing could be
// done, that round looked only at the state, and the former copies and rows of moves in flight that come with the real
// state allow nothing that was not looked at.
func MakePlan(s *Snapshot, settings Settings) (*Plan, error) { return makePlan(s, settings, none) }

// MakeDrain plans nothing but what empties draining brokers: one of them alone, or all that drain when broker is "".
func MakeDrain(s *Snapshot, settings Settings, broker string) (*Plan, error) {
	b := none
	if broker != "" {
		if b = s.broker(broker); b == none {
			return nil, fmt.Errorf("there is no broker %q", broker)
		}
	}
	for g := range settings.Goals {
		settings.Goals[g].Enabled = false
	}
	return makePlan(s, settings, b)
}

// makePlan plans; only is the one broker that is drained, none for all that drain.
func makePlan(s *Snapshot, settings Settings, only int32) (*Plan, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	plan := &Plan{FleetID: s.FleetID, TakenAt: s.TakenAt, Actions: []Action{}}
	goals := settings.byPriority()
	surveyed := startSurvey(s, &settings, goals)
	st := newState(s, &settings)
	st.drains = only
	if s.Recoveries > 0 {
		plan.Held = recoveryHolds(s.Recoveries)
	} else {
		st.plan(goals)
		plan.Blocked = st.blocked()
	}
	plan.Actions, plan.Capped = st.actions(), st.capped
	surveyed().finish(plan, st.at)
	st.explainLeft(plan)
	return plan, nil
}

// plan repeats the goals until nothing changes or the cap is reached.
func (st *state) plan(goals []Goal) {
	for changed := true; changed && !st.full; {
		changed = st.drain()
		st.beginRound()
		for i, g := range goals {
			if !st.bands[g].inEffect || st.full {
				continue
			}
			earlier, later := st.inEffect(goals[:i]), st.inEffect(goals[i+1:])
			if st.move(g, earlier, later) {
				changed = true
			}
			if st.settings.Swaps && g != PartitionCount && !st.full && st.swap(g, earlier) {
				changed = true
			}
		}
	}
}

func (st *state) inEffect(goals []Goal) []Goal {
	return slices.DeleteFunc(slices.Clone(goals), func(g Goal) bool { return !st.bands[g].inEffect })
}
