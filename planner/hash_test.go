package planner

import "testing"

// What an action does is in the hash, field by field; what it says is not.
func TestAHashIsOfEverythingThatAnActionDoes(t *testing.T) {
	actions := func(change func(a *Action, l *Leg)) []Action {
		all := []Action{{Kind: ActionSwap, Goal: "DISK", Reason: "it is so", Legs: []Leg{{Topic: "t", TopicID: "id", Partition: 1, From: "b1", To: "b2", Version: 7, Bytes: 5},
			{Topic: "u", TopicID: "id2", Partition: 2, From: "b2", To: "b1", Version: 8, Bytes: 6}}}}
		change(&all[0], &all[0].Legs[0])
		return all
	}
	same := func(*Action, *Leg) {}
	hashes := map[string]string{HashOf("f", actions(same)): "nothing"}
	for name, hash := range map[string]string{
		"the fleet":       HashOf("g", actions(same)),
		"the kind":        HashOf("f", actions(func(a *Action, _ *Leg) { a.Kind = ActionMove })),
		"the topic":       HashOf("f", actions(func(_ *Action, l *Leg) { l.Topic = "v" })),
		"the topic id":    HashOf("f", actions(func(_ *Action, l *Leg) { l.TopicID = "made anew" })),
		"the partition":   HashOf("f", actions(func(_ *Action, l *Leg) { l.Partition++ })),
		"from":            HashOf("f", actions(func(_ *Action, l *Leg) { l.From = "b3" })),
		"to":              HashOf("f", actions(func(_ *Action, l *Leg) { l.To = "b3" })),
		"the version":     HashOf("f", actions(func(_ *Action, l *Leg) { l.Version++ })),
		"where texts end": HashOf("f", actions(func(_ *Action, l *Leg) { l.Topic, l.TopicID = "ti", "d" })),
	} {
		if other := hashes[hash]; other != "" {
			t.Errorf("the hash is the same whether %s or %s changes", other, name)
		}
		hashes[hash] = name
	}
	if hashes[HashOf("f", actions(func(a *Action, l *Leg) { a.Goal, a.Reason, l.Bytes = "NW_IN", "it is otherwise", 9 }))] != "nothing" {
		t.Error("what is said of an action changes the hash")
	}
}
