package metastore_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"portage/metastore"
)

// places are topics of two partitions on b1 each, and plans whose moves share the fleet.
type places struct {
	*fixture
	topics  []*metastore.Topic
	decided int64 // limits
}

func newPlaces(t *testing.T, topics int) *places {
	p := &places{fixture: newFixture(t)}
	for i := range topics {
		p.topics = append(p.topics, p.createTopic(fmt.Sprint("topic", i)))
	}
	return p
}

func (p *places) plan(id string, most int) {
	p.t.Helper()
	must(p.t, p.SavePlan(p.t.Context(), metastore.Plan{ID: id, Hash: id, Body: []byte("{}"), MaxInFlight: &most}))
}

func (p *places) limit(id string, l metastore.PlanLimit) {
	p.t.Helper()
	p.decided++
	l.At = time.Unix(1_700_000_000+p.decided, 0)
	must(p.t, p.LimitPlan(p.t.Context(), id, l))
}

// request asks for a partition of a topic of its own; without a plan a person asks.
func (p *places) request(plan string, topic int) metastore.ClaimRequest {
	r := p.claimRequest(fmt.Sprint("m", topic), "b2")
	r.Topic, r.Plan = p.topics[topic].Name, plan
	return r
}

func (p *places) begins(plan string, topic int) {
	p.t.Helper()
	if _, _, err := p.ClaimMove(p.t.Context(), p.request(plan, topic)); err != nil {
		p.t.Errorf("the move of %s is not begun: %v", p.topics[topic].Name, err)
	}
}

func (p *places) waits(plan string, topic int) {
	p.t.Helper()
	p.refused(metastore.CodeFleetBusy, func() error { _, _, err := p.ClaimMove(p.t.Context(), p.request(plan, topic)); return err })
	p.refused(metastore.CodeFleetBusy, func() error { return p.FindPlace(p.t.Context(), plan, 1) })
}

func TestMovesOfAllPlansShareTheFleetsPlaces(t *testing.T) {
	p := newPlaces(t, 8)
	p.plan("a", 2)
	p.plan("b", 3)
	p.begins("a", 0)
	p.begins("", 1) // a person's move counts
	p.waits("a", 2)
	p.begins("b", 2)
	p.waits("b", 3)
	p.begins("", 3) // and waits for nobody

	p.limit("b", metastore.PlanLimit{MaxInFlight: 5})
	p.begins("b", 4)
	p.waits("b", 5)
	p.limit("b", metastore.PlanLimit{MaxInFlight: 2})
	p.begins("b", 4) // a repeat finds its own claim, however few may begin now

	for _, m := range []string{"m0", "m1", "m2", "m3"} {
		if _, err := p.AbortMove(t.Context(), m, "test", ""); err != nil {
			t.Fatal(err)
		}
	}
	must(t, p.FindPlace(t.Context(), "b", 1))
	p.begins("b", 5)
	p.waits("a", 6)
	r := p.request("a", 6)
	r.Again = true // it had begun: its claim was ended by another hand
	if _, _, err := p.ClaimMove(t.Context(), r); err != nil {
		t.Errorf("a move that starts over waits for a place: %v", err)
	}
}

// An attempt that was given up may still be written after a later one.
func TestALimitThatComesLateChangesNothing(t *testing.T) {
	p := newPlaces(t, 1)
	p.plan("a", 8)
	decided := time.Now()
	must(t, p.LimitPlan(t.Context(), "a", metastore.PlanLimit{MaxInFlight: 8, At: decided}))
	must(t, p.LimitPlan(t.Context(), "a", metastore.PlanLimit{MaxInFlight: 8, Held: metastore.CodePlanPaused, At: decided.Add(-time.Second)}))
	p.begins("a", 0)
}

func TestMovesOfAHeldPlanTakeNoPlace(t *testing.T) {
	p := newPlaces(t, 4)
	p.plan("paused", 8)
	p.plan("a", 1)
	p.begins("paused", 0)
	p.begins("paused", 1)
	p.waits("a", 2)
	p.limit("paused", metastore.PlanLimit{MaxInFlight: 8, Held: metastore.CodePlanOutside})
	p.refused(metastore.CodePlanOutside, func() error { _, _, err := p.ClaimMove(t.Context(), p.request("paused", 3)); return err })
	p.begins("a", 2)
	p.limit("paused", metastore.PlanLimit{MaxInFlight: 8})
	p.limit("a", metastore.PlanLimit{MaxInFlight: 3})
	p.waits("a", 3)
}

func TestNoMoveBeginsUnderALimitOfNone(t *testing.T) {
	p := newPlaces(t, 2)
	p.plan("a", 0)
	p.refused(metastore.CodePlanNone, func() error { _, _, err := p.ClaimMove(t.Context(), p.request("a", 0)); return err })
	p.begins("gone", 0) // plans that older binaries made, or that are gone, have no limit
}

func TestNoMoveOfAPlanThatIsOverBegins(t *testing.T) {
	p := newPlaces(t, 2)
	p.plan("a", 8)
	p.begins("a", 0)
	p.limit("a", metastore.PlanLimit{MaxInFlight: 8, Over: true})
	p.refused(metastore.CodePlanOver, func() error { _, _, err := p.ClaimMove(t.Context(), p.request("a", 1)); return err })
	p.begins("a", 0) // a repeat finds its own claim
}

func TestASwapTakesTwoPlacesOrRunsAlone(t *testing.T) {
	p := newPlaces(t, 3)
	p.exec("UPDATE assignments SET owner = 'b2' WHERE partition = 1")
	swap := func(id string, topic int) error {
		name := p.topics[topic].Name
		_, err := p.ClaimSwap(t.Context(), metastore.SwapRequest{SwapID: id, Sides: [2]metastore.Place{{Topic: name}, {Topic: name, Partition: 1}},
			WorkflowID: "w", RunID: "r", ControllerEpoch: p.epoch, Plan: "a"})
		return err
	}
	p.plan("a", 2)
	p.begins("", 0)
	p.refused(metastore.CodeFleetBusy, func() error { return swap("s", 1) })
	p.refused(metastore.CodeFleetBusy, func() error { return p.FindPlace(t.Context(), "a", 2) })
	p.limit("a", metastore.PlanLimit{MaxInFlight: 3})
	for range 2 { // the repeat finds its own claim
		must(t, swap("s", 1))
	}
	p.limit("a", metastore.PlanLimit{MaxInFlight: 4})
	p.refused(metastore.CodeFleetBusy, func() error { return swap("s2", 2) })

	for _, m := range []string{"m0", metastore.SwapSide("s", 0)} {
		if _, err := p.AbortMove(t.Context(), m, "test", ""); err != nil {
			t.Fatal(err)
		}
	}
	p.limit("a", metastore.PlanLimit{MaxInFlight: 1})
	must(t, swap("s2", 2))
}

// Two claims that count at the same moment would both see the last place free.
func TestTheLastPlaceIsTakenOnce(t *testing.T) {
	const claims, most = 16, 5
	p := newPlaces(t, claims)
	p.plan("a", most)
	p.plan("b", most)
	var group sync.WaitGroup
	errs := make([]error, claims)
	for i := range claims {
		group.Go(func() { _, _, errs[i] = p.ClaimMove(t.Context(), p.request([]string{"a", "b"}[i%2], i)) })
	}
	group.Wait()
	begun := 0
	for i, err := range errs {
		switch _, waits := metastore.RefusedWith(err, metastore.CodeFleetBusy); {
		case err == nil:
			begun++
		case !waits:
			t.Errorf("claim %d ended with %v", i, err)
		}
	}
	if begun != most {
		t.Errorf("%d moves have begun, %d may be in flight", begun, most)
	}
}
