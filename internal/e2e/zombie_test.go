package e2e

import (
	"testing"
)

// A worker stops in the middle of a cutover for so long that its activity times out, and another worker goes on. Whatever
// the first attempt still asks for when it wakes is refused, while the move is under way and after it.
func TestZombieAttemptIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, wakes string // where the second attempt stands when the first wakes
		asleep      string // where the first attempt stopped
		refusal     string
		agentArgs   []string
	}{
		{"before the freeze, while the second attempt commits", "commit.before", "cutover.before", "a later attempt of move", nil},
		{"frozen, while the second attempt commits", "commit.before", "cutover.frozen", "a later attempt of move", nil},
		{"frozen, after the move", "", "cutover.frozen", "", nil},
		{"before the freeze, after the move", "", "cutover.before", "", nil},
		{"frozen, after the lease took the move back", "", "cutover.frozen", "", shortLease},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: c.agentArgs})
			load := w.startLoad()
			asleep := w.faults.Arm("worker1", c.asleep)
			run := w.start("b2")
			w.must(asleep.Reached(w.ctx))
			var second *halt
			if c.wakes != "" {
				second = w.faults.Arm("worker2", c.wakes)
			}
			_, err := w.AddWorker()
			w.must(err)
			if second != nil {
				w.must(second.Reached(w.ctx))
			} else if _, err := w.end(run); err != nil {
				t.Fatalf("the move ended with %v", err)
			}
			version := w.row().Version

			w.must(asleep.Continue())
			w.logged(w.Worker(0), "Activity error") // the first attempt ended, and not well
			if c.refusal != "" {
				w.logged(w.Worker(0), c.refusal)
			}
			w.must(w.Worker(0).Stop()) // it waits for what the worker still does
			if n := w.faults.passed("worker1", "cutover.after"); n != 0 {
				t.Errorf("the zombie came through its cutover")
			}
			if now := w.row().Version; now != version {
				t.Errorf("the row changed from version %d to %d", version, now)
			}
			if second != nil {
				w.must(second.Continue())
				if _, err := w.end(run); err != nil {
					t.Fatalf("the move ended with %v", err)
				}
			}
			w.settled("b2")
			load.acknowledge(loadPerSecond / 4)
			load.finish()
			w.committedOnce()
		})
	}
}
