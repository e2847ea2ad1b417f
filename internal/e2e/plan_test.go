package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"portage/planner"
)

// planOf is what `portage plan --json` says with these arguments.
func (w *world) planOf(args ...string) planner.Plan {
	w.t.Helper()
	out, errs, code := w.bare(append([]string{"plan", "--json"}, args...)...)
	var p planner.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil || code != 0 {
		w.t.Fatalf("portage plan exited with %d: %s%s (%v)", code, out, errs, err)
	}
	return p
}

func TestAPlanOfALiveFleetAndOfItsSavedSnapshotAreTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 3, alone: true})
	load := w.startLoad()
	w.await("b1 and b2 report what they own", func() string {
		for _, id := range []string{"b1", "b2"} {
			broker, err := w.Store.FindBroker(w.ctx, id)
			w.must(err)
			loads, err := w.Store.ReadLoads(w.ctx, id, broker.StorageInstance)
			w.must(err)
			if len(loads) == 0 {
				return id + " has not reported"
			}
		}
		return ""
	})
	saved := filepath.Join(t.TempDir(), "fleet.json")
	live := w.planOf("--dsn", w.DSN(), "--token-file", w.TokenFile(), "--sample", "8s", "--remove-broker", "b1", "--save", saved)
	if live.Moves() != 1 || live.Actions[0].Goal != planner.DrainGoal || live.Actions[0].Legs[0].From != "b1" || live.Actions[0].Legs[0].To != "b3" || live.Actions[0].Legs[0].Version != w.row().Version {
		t.Errorf("b1 gives away what it has, to the empty b3: %+v", live.Actions)
	}
	if again := w.planOf("--snapshot", saved); again.Hash != live.Hash {
		t.Errorf("planned on the saved snapshot: %+v, on the fleet: %+v", again.Actions, live.Actions)
	}
	file, err := os.Open(saved)
	w.must(err)
	defer file.Close()
	s, err := planner.ReadSnapshot(file)
	w.must(err)
	if p := s.Partition(s.Find(w.topic, 0)); p.In == 0 || p.Disk == 0 || len(p.Untrusted) > 0 {
		t.Errorf("the partition that is written to reads %+v", p)
	}
	thaw := w.hold("b3")
	without := w.planOf("--dsn", w.DSN(), "--token-file", w.TokenFile(), "--remove-broker", "b1")
	thaw()
	if without.Brokers[2].State != "dead" || without.Moves() != 1 || without.Actions[0].Legs[0].To != "b2" {
		t.Errorf("b3 does not answer, so b2 takes it: %+v %+v", without.Brokers[2], without.Actions)
	}
	load.finish()
}
