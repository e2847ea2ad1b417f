package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"portage/internal/chaos"
)

// schedules is how many random schedules the full suite runs; the default run takes a few.
const schedules = 100

const fewSchedules = 4

// mostFaults bounds what breaks during one move of a schedule, movesEach its moves.
const (
	mostFaults = 3
	movesEach  = 2
)

// Moves back and forth while processes are killed and stopped, links cut, replies lost and moves cancelled at random. Each
// schedule follows from its seed, which is printed; PORTAGE_SEED runs that one alone.
func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	var seeds []uint64
	if text := os.Getenv("PORTAGE_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("PORTAGE_SEED=%q is no seed", text)
		}
		seeds = []uint64{seed}
	} else {
		n := fewSchedules
		if all {
			n = schedules
		}
		for range n {
			seeds = append(seeds, rand.Uint64())
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease})
			load := w.startLoad()
			c := chaos.New(w.Fleet, w.faults, w.topic, 2, seed, t.Logf)
			for range movesEach {
				if err := c.Move(w.ctx, mostFaults); err != nil {
					t.Fatalf("PORTAGE_SEED=%d: %v", seed, err)
				}
			}
			w.faults.Disarm()
			w.must(c.Settle(w.ctx))
			load.acknowledge(loadPerSecond / 4)
			load.finish()
			for _, m := range w.moves() {
				if m.Ended() == "" {
					t.Errorf("move %s has no outcome", m.ID)
				}
			}
			t.Logf("seed %d: %+v, %s", seed, c.Stats, load.verdict)
			if t.Failed() {
				t.Logf("run it again with PORTAGE_SEED=%d", seed)
			}
		})
	}
}
