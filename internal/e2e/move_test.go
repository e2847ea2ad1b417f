package e2e

import "testing"

// A partition under load crosses from one broker to another, back (adopting what it left there) and away again.
func TestPartitionMovesThereAndBackUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1})
	load := w.startLoad()
	for i, to := range []string{"b2", "b1", "b2"} {
		load.acknowledge(loadPerSecond / 4)
		result := w.mustMove(to)
		if result.Attempts != 1 || result.To != to || result.Adopted != (i > 0) {
			t.Errorf("the move to %s ended as %+v", to, result)
		}
	}
	load.acknowledge(loadPerSecond / 4)
	load.finish()
	w.settled("b2")
}
