package e2e

import "testing"

// A partition under load crosses from one broker to another, back (adopting what it left there) and away again.
func TestPartitionMovesThereAndBackUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1})
	load := w.startLoad()
	load.kcat()
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

// What a broker knows of its partitions after a restart is what it knew before: a move away and back adopts the copy.
func TestPartitionComesBackToARestartedBroker(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1})
	load := w.startLoad()
	w.must(w.RestartAgent(w.ctx, "b1"))
	if status := w.partition("b1"); status.Topic != w.topic {
		t.Errorf("b1 calls the topic %q", status.Topic)
	}
	load.acknowledge(loadPerSecond / 4)
	w.mustMove("b2")
	if result := w.mustMove("b1"); !result.Adopted {
		t.Errorf("the move back adopted nothing: %+v", result)
	}
	load.acknowledge(loadPerSecond / 4)
	load.finish()
	w.settled("b1")
}
