package activities

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"portage/metastore"
	"portage/planner"
)

// A partition that was moved twice goes back to where it was before the first; one that was moved elsewhere since, is moving, or is back already, is
// left alone.
func TestUndoGoesBackToTheRecordedPlacement(t *testing.T) {
	topic := uuid.New()
	b := planner.NewBuilder(5)
	b.TakenAt = time.Now()
	for _, id := range []string{"b1", "b2", "b3"} {
		if err := b.AddBroker(planner.Broker{ID: id, Alive: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.AddTopic(planner.Topic{Name: "t", ID: topic.String()}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []planner.Partition{{Partition: 0, Owner: "b3", Version: 9, Disk: 100, Copies: []planner.Copy{{Broker: "b1", Bytes: 60}}}, {Partition: 1, Owner: "b1"},
		{Partition: 2, Owner: "b2", Target: "b3"}, {Partition: 3, Owner: "b1"}} {
		p.Topic = "t"
		if err := b.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	s, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	move := func(n int32, from, to string) metastore.Move {
		return metastore.Move{TopicID: topic, Topic: "t", Partition: n, FromBroker: from, ToBroker: to}
	}
	plan := undoOf(s, []metastore.Move{move(0, "b2", "b3"), move(0, "b1", "b2"), move(1, "b1", "b2"), move(2, "b1", "b2"), move(3, "b2", "b1"), move(3, "b1", "b2"),
		{TopicID: topic, Topic: "gone", Partition: 7}}, true)
	if len(plan.Actions) != 1 || plan.BytesMoved != 40 || plan.Hash == "" {
		t.Fatalf("the plan is %+v", plan)
	}
	if leg := plan.Actions[0].Legs[0]; leg.Partition != 0 || leg.From != "b3" || leg.To != "b1" || leg.Version != 9 {
		t.Errorf("the way back is %+v", leg)
	}
}

// Two partitions that changed places go back as one swap; where either has gone on since, the other goes back by itself.
func TestUndoOfASwapIsASwapBack(t *testing.T) {
	topic, swap := uuid.New(), "s1"
	owners := []string{"b2", "b1", "b2", "b3"} // 0 and 1 as the swap left them; 2 as well, 3 was moved on
	b := planner.NewBuilder(5)
	for _, id := range []string{"b1", "b2", "b3"} {
		if err := b.AddBroker(planner.Broker{ID: id, Alive: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.AddTopic(planner.Topic{Name: "t", ID: topic.String()}); err != nil {
		t.Fatal(err)
	}
	for n, owner := range owners {
		if err := b.Add(planner.Partition{Topic: "t", Partition: int32(n), Owner: owner, Version: int64(n + 5)}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	side := func(n int32, from, to, swap string) metastore.Move {
		return metastore.Move{TopicID: topic, Topic: "t", Partition: n, FromBroker: from, ToBroker: to, Swap: &swap}
	}
	moves := []metastore.Move{side(2, "b1", "b2", "s2"), side(3, "b2", "b1", "s2"), side(0, "b1", "b2", swap), side(1, "b2", "b1", swap)}
	plan := undoOf(s, moves, true)
	if len(plan.Actions) != 2 || plan.Moves() != 3 {
		t.Fatalf("the plan is %+v", plan.Actions)
	}
	if alone := plan.Actions[0]; alone.Kind != planner.ActionMove || alone.Legs[0].Partition != 2 || alone.Legs[0].To != "b1" {
		t.Errorf("the one whose other has gone on goes back by %+v", alone)
	}
	back := plan.Actions[1]
	if back.Kind != planner.ActionSwap || back.Legs[0].Partition != 0 || back.Legs[0].To != "b1" || back.Legs[1].Partition != 1 || back.Legs[1].To != "b2" || back.Legs[1].Version != 6 {
		t.Errorf("the way back is %+v", back)
	}
	if without := undoOf(s, moves, false); len(without.Actions) != 3 || without.Hash == plan.Hash {
		t.Errorf("without swaps it is %+v", without.Actions)
	}
}

// The plan that was not used for longest makes room for another.
func TestParsedPlansAreBounded(t *testing.T) {
	var p parsedPlans
	has := func(want string) {
		t.Helper()
		got := ""
		for _, plan := range p.kept {
			got += plan.id
		}
		if got != want {
			t.Errorf("there are %q, not %q", got, want)
		}
	}
	add := func(id string, n int) { p.add(parsedPlan{id: id, hash: "h", actions: make([]planner.Action, n)}) }
	add("a", mostParsed/2)
	add("b", mostParsed/2)
	if _, ok := p.find("a", "h"); !ok {
		t.Error("a is not found")
	}
	if _, ok := p.find("a", "other"); ok {
		t.Error("a is found under another hash")
	}
	has("ab")
	add("a", mostParsed/2)
	has("ab")
	add("c", 1)
	has("ca")
	add("d", 2*mostParsed)
	has("d")
	add("e", 1)
	has("e")
}
