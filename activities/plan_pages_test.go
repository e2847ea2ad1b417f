package activities_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/testsuite"

	"portage/activities"
	"portage/brokeragent/agenttest"
	"portage/metastore"
	"portage/planner"
	"portage/workflows/protocol"
)

// keepPlan keeps a plan of n actions that do nothing.
func keepPlan(t *testing.T, f *agenttest.Fleet, id string, n int) {
	t.Helper()
	plan := planner.Plan{Actions: make([]planner.Action, n)}
	for i := range plan.Actions {
		plan.Actions[i] = planner.Action{Kind: planner.ActionMove, Goal: "DISK", Reason: fmt.Sprintf("%s: b1 has too much, its band ends before partition %d, and b2 comes from little to a little more of at most twice as much", id, i),
			Legs: []planner.Leg{{Topic: "orders", TopicID: uuid.NewString(), Partition: int32(i), From: "b1", To: "b2", Version: int64(i), Bytes: 1 << 30}}}
	}
	plan.Hash = planner.HashOf("fleet", plan.Actions)
	body, err := json.Marshal(plan)
	if err == nil {
		err = f.Store.SavePlan(t.Context(), metastore.Plan{ID: id, Hash: plan.Hash, Actions: n, Body: body})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (l *leaver) actions(plan string, from, most int) (page []protocol.PlannedAction, err error) {
	value, err := l.env.ExecuteActivity(protocol.ActivityActions, protocol.ActionsArgs{Plan: plan, From: from, Most: most})
	if err == nil {
		err = value.Get(&page)
	}
	return page, err
}

// A plan is read once however many pages are asked for, and not longer than it is kept.
func TestAPlanIsReadOnceForAllItsPages(t *testing.T) {
	f := agenttest.New(t)
	l := newLeaver(t, f)
	keepPlan(t, f, "p1", 250)
	read := func(from, want int) {
		t.Helper()
		page, err := l.actions("p1", from, 100)
		if err != nil || len(page) != want {
			t.Fatalf("from %d on there are %d actions (%v)", from, len(page), err)
		}
		for i, a := range page {
			if a.Seq != from+i || a.Legs[0].Partition != int32(from+i) || !strings.HasPrefix(a.Reason, "p1:") {
				t.Errorf("action %d is %+v", from+i, a)
			}
		}
	}
	read(0, 100)
	f.Exec("UPDATE plans SET body = '' WHERE id = 'p1'") // nobody reads it any more
	read(100, 100)
	read(200, 50)
	read(250, 0)
	f.Exec("DELETE FROM plans WHERE id = 'p1'")
	if _, err := l.actions("p1", 0, 100); err == nil || !strings.Contains(err.Error(), "not kept any more") {
		t.Errorf("a plan that is not kept any more is answered with %v", err)
	}
}

// A rebalance that runs keeps its plans in use: as long as it watches the fleet's pause, and when it reads one.
func TestARunningRebalanceKeepsItsPlansInUse(t *testing.T) {
	f := agenttest.New(t)
	l := newLeaver(t, f)
	keepPlan(t, f, "p1", 2)
	keepPlan(t, f, "p2", 2)
	f.Exec("UPDATE plans SET rebalance = 'r1' WHERE id = 'p1'")
	forget := func() { f.Exec("UPDATE plans SET used_at = now() - interval '1 day'") }
	used := func() (ids []string) {
		rows, err := f.SQL.Query(t.Context(), "SELECT id FROM plans WHERE used_at > now() - interval '1 hour' ORDER BY id")
		if err == nil {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			t.Error(err)
		}
		return ids
	}
	forget()
	if _, err := l.actions("p2", 0, 100); err != nil || !slices.Equal(used(), []string{"p2"}) {
		t.Errorf("when p2 was read, in use are %q (%v)", used(), err)
	}

	forget()
	plans := &activities.Plans{Store: f.Store, Agents: f.Peers, Logger: slog.New(slog.DiscardHandler)}
	activities.MarkUsedEvery(plans, 100*time.Millisecond)
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(plans)
	watched := make(chan error)
	go func() {
		_, err := env.ExecuteActivity(protocol.ActivityWatchPause, protocol.PauseWatchArgs{Rebalance: "r1"})
		watched <- err
	}()
	for range 2 { // again and again
		for since := time.Now(); !slices.Equal(used(), []string{"p1"}); time.Sleep(20 * time.Millisecond) {
			if time.Since(since) > 20*time.Second {
				t.Fatalf("in use are %q", used())
			}
		}
		forget()
	}
	if _, err := f.Store.SetSetting(t.Context(), metastore.SettingPaused, "true", "test", "it ends then"); err != nil {
		t.Error(err)
	}
	if err := <-watched; err != nil {
		t.Error(err)
	}
}

// Both partitions of a swap cool down, and both brokers; a swap that moved nothing cools nothing.
func TestASwapCoolsBothPartitionsAndBothBrokers(t *testing.T) {
	f := agenttest.New(t)
	l := newLeaver(t, f)
	keepPlan(t, f, "p1", 2)
	topic, other := uuid.New(), uuid.New()
	end := func(seq int, state string, from string) protocol.ActionEnd {
		return protocol.ActionEnd{Seq: seq, Topic: "orders", TopicID: topic.String(), Partition: int32(seq), From: from, To: "b2", State: state,
			With: &protocol.EndedWith{Topic: "payments", TopicID: other.String(), Partition: 7}}
	}
	args := protocol.RecordArgs{Plan: "p1", Cool: true, Ends: []protocol.ActionEnd{end(0, protocol.ActionMoved, "b1"), end(1, protocol.ActionHeld, "b3")}}
	if _, err := l.env.ExecuteActivity(protocol.ActivityRecordActions, args); err != nil {
		t.Fatal(err)
	}
	fleet, err := f.Store.ReadFleet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var cooling []string
	for _, c := range fleet.Cooldowns {
		cooling = append(cooling, c.Subject)
	}
	want := []string{metastore.PartitionSubject(topic, 0), metastore.PartitionSubject(other, 7), metastore.BrokerSubject("b1"), metastore.BrokerSubject("b2")}
	slices.Sort(cooling)
	slices.Sort(want)
	if !slices.Equal(cooling, want) {
		t.Errorf("cooling are %q, not %q", cooling, want)
	}
}
