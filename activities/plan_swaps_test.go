package activities_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
	"portage/metastore"
	"portage/planner"
	"portage/workflows/protocol"
)

// byDisk plans with nothing but bytes on disk, and in narrow bands: b1 has 3 and 3 of ten, so moving one would only turn it around.
func byDisk(swaps bool) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"swaps":%v,"percentile":1,"goals":{"NW_IN":false,"NW_OUT":false,"PARTITION_COUNT":false,"DISK":{"detectThreshold":"1B","deviation":0.1}}}`, swaps))
}

// Where no single move fits, the plan of a rebalance has a swap, unless the settings or who asks know none.
func TestThePlanOfARebalanceSwapsWhereNoMoveFits(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	unit := strings.Repeat("x", 100<<10)
	for _, of := range []struct {
		topic string
		on    *agenttest.Agent
		units int
	}{{"orders", b1, 3}, {"payments", b2, 2}} {
		topic := f.CreateTopic(of.topic, 2, of.on)
		for p := range int32(2) {
			for range of.units {
				of.on.Write(topic, p, unit)
			}
		}
	}
	l := newLeaver(t, f)
	plans := 0
	plan := func(swaps bool, settings json.RawMessage) (s protocol.PlanSummary) {
		t.Helper()
		plans++
		value, err := l.env.ExecuteActivity(protocol.ActivityPlan, protocol.PlanArgs{ID: fmt.Sprint("p", plans), Rebalance: "r", Swaps: swaps, Settings: settings})
		if err == nil {
			err = value.Get(&s)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var s protocol.PlanSummary
	agenttest.Eventually(t, "the loads are reported, and the plan is a swap", func() bool {
		f.Exec("UPDATE load_samples SET at = at - interval '1 minute'") // so that each plan takes a sample
		s = plan(true, byDisk(true))
		return s.Actions == 1 && s.Moves == 2
	})
	page, err := l.actions(s.ID, 0, 10)
	if err != nil || len(page) != 1 || page[0].Kind != planner.ActionSwap || len(page[0].Legs) != 2 || page[0].Legs[0].Topic != "orders" || page[0].Legs[1].To != "b1" || page[0].Legs[1].Version == 0 {
		t.Errorf("its action is %+v (%v)", page, err)
	}
	for name, without := range map[string]protocol.PlanSummary{"the settings know none": plan(true, byDisk(false)), "who asks knows none": plan(false, byDisk(true))} {
		if without.Actions != 0 {
			t.Errorf("where %s the plan is %+v", name, without)
		}
	}
	if kept, err := f.Store.FindPlanByHash(t.Context(), s.Hash); err != nil || kept == nil || kept.ID != s.ID {
		t.Errorf("kept is %+v (%v)", kept, err)
	}
	// Carried out by its hash, it is the plan of the rebalance that does so.
	taken := protocol.PlanArgs{ID: "other.1", Rebalance: "other", Hash: s.Hash[:12], Swaps: true}
	if _, err := l.env.ExecuteActivity(protocol.ActivityPlan, taken); err != nil {
		t.Fatal(err)
	}
	var mine []metastore.Plan
	if mine, err = f.Store.Plans(t.Context(), "other", 10); err != nil || len(mine) != 1 || mine[0].Hash != s.Hash || mine[0].Actions != 1 {
		t.Errorf("the rebalance that carries it out has the plans %+v (%v)", mine, err)
	}
}
