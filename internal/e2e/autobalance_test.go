package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"portage/workflows/protocol"
)

// autobalance is what `portage cluster autobalance --json` says.
func (w *world) autobalance() (s protocol.AutobalanceStatus) {
	w.t.Helper()
	output, code := w.command("cluster", "autobalance", "--json")()
	if code == 0 {
		w.must(json.Unmarshal([]byte(output), &s))
	}
	return s
}

// While it is off, a broker that joins is told of and nothing moves. Once it is on, one that joins while no worker is there to
// notice gets its share without any command.
func TestABrokerThatJoinsGetsItsShareWithoutACommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1, alone: true})
	w.must(w.CreateTopic(w.ctx, w.topic+"-wide", 6, "b1", "b2"))
	_, err := w.Store.SetSetting(w.ctx, "planner", `{"partitionCooldown":"0s","brokerCooldown":"0s"}`, "test", "what was moved may be moved again at once")
	w.must(err)
	everything := func() map[string]int {
		owned := w.ownedOf(w.topic)
		for broker, n := range w.ownedOf(w.topic + "-wide") {
			owned[broker] += n
		}
		return owned
	}

	_, err = w.AddAgent(w.ctx, 3)
	w.must(err)
	w.await("it is told that b3 registered and nothing was begun", func() string {
		s := w.autobalance()
		if s.Mode != "off" || !slices.ContainsFunc(s.Declined, func(line string) bool { return strings.Contains(line, "b3 registered: nothing was begun") }) {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	if s, owned := w.autobalance(), everything(); s.Passes > 0 || s.Running != nil || owned["b3"] > 0 {
		t.Fatalf("while it is off: %+v, %v", s, owned)
	}

	passed := func(why string, shares map[string]int) protocol.AutobalancePass {
		t.Helper()
		var s protocol.AutobalanceStatus
		w.await("the pass because "+why, func() string {
			if s = w.autobalance(); s.Last == nil || s.Last.Why != why {
				return fmt.Sprintf("%+v %+v", s, s.Last)
			}
			return ""
		})
		if owned := everything(); !maps.Equal(owned, shares) || s.Last.Counts.Failed > 0 {
			t.Fatalf("after the pass because %s: %v, %+v", why, owned, s.Last)
		}
		return *s.Last
	}
	_, err = w.Store.SetSetting(w.ctx, "autobalance", "count", "test", "let it balance itself")
	w.must(err)
	passed("it was switched to count", map[string]int{"b1": 3, "b2": 3, "b3": 2})

	w.must(w.KillWorker(0))
	_, err = w.AddAgent(w.ctx, 4)
	w.must(err)
	w.must(w.StartWorker(0))
	pass := passed("b4 registered", map[string]int{"b1": 2, "b2": 2, "b3": 2, "b4": 2})
	if moves, err := w.Store.RebalanceMoves(w.ctx, pass.Rebalance); err != nil || len(moves) != 2 || moves[0].RequestedBy != protocol.ByAutobalance {
		t.Errorf("the moves of the pass are %+v, %v", moves, err)
	}
	w.replays(w.Client.GetWorkflow(w.ctx, protocol.AutobalanceWorkflowID(w.TaskQueue()), ""), "autobalance")
}
