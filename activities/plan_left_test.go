package activities_test

import (
	"fmt"
	"testing"

	"portage/activities"
	"portage/planner"
	"portage/workflows/protocol"
)

// A plan of nothing is no proof that nothing is wrong: who stays above a band is told with it, and how many more there are.
func TestASummaryNamesTheBrokersThatStayAboveABand(t *testing.T) {
	plan := &planner.Plan{Goals: []planner.GoalReport{{Goal: planner.Disk, Left: []planner.Left{{Broker: "b0", Reason: "it cools"}}}, {Goal: planner.PartitionCount}}}
	for n := range protocol.MostShown + 2 {
		plan.Goals[1].Left = append(plan.Goals[1].Left, planner.Left{Broker: fmt.Sprint("b", n+1), Reason: "none fits"})
	}
	s := activities.SummaryOf("p", plan, "hash", planner.Settings{}, 1)
	if s.LeftCount != protocol.MostShown+3 || len(s.Left) != protocol.MostShown {
		t.Fatalf("it names %d of %d", len(s.Left), s.LeftCount)
	}
	if want := fmt.Sprintf("b0 stays above its band of %s: it cools", planner.Disk); s.Left[0] != want {
		t.Errorf("it says %q, not %q", s.Left[0], want)
	}
}
