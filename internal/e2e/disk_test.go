package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.temporal.io/sdk/client"

	"portage/brokeragent/control"
	"portage/internal/durable/durabletest"
	"portage/internal/ledger"
	"portage/workflows/protocol"
)

// smallDisk gives the next broker a data folder of that size, and returns the folder.
func (w *world) smallDisk(broker, size string) string {
	w.t.Helper()
	data := filepath.Join(filepath.Dir(w.Agent("b1").Data), broker)
	durabletest.SmallDisk(w.t, data, size)
	return data
}

// blocked waits until the move says that it waits for something, and returns the sentence.
func (w *world) blocked(run client.WorkflowRun, code string) string {
	w.t.Helper()
	var status protocol.Status
	w.await("the move is blocked by "+code, func() string {
		value, err := w.Client.QueryWorkflow(w.ctx, run.GetID(), run.GetRunID(), protocol.QueryStatus)
		if err == nil {
			err = value.Get(&status)
		}
		if err != nil {
			return err.Error()
		}
		if status.Blocked != code {
			return fmt.Sprintf("it is in phase %s, blocked by %q: %s", status.Phase, status.Blocked, status.BlockedReason)
		}
		return ""
	})
	return status.BlockedReason
}

func slowly(in *protocol.MoveInput) { in.Limit = 4 << 20 }

// tune changes a running move as `portage move tune` does.
func (w *world) tune(run client.WorkflowRun, change protocol.Tune) {
	w.t.Helper()
	handle, err := w.Client.UpdateWorkflow(w.ctx, client.UpdateWorkflowOptions{WorkflowID: run.GetID(), RunID: run.GetRunID(), UpdateName: protocol.UpdateTune,
		Args: []any{change}, WaitForStage: client.WorkflowUpdateStageCompleted})
	w.must(err)
	w.must(handle.Get(w.ctx, nil))
}

var fullSpeed = protocol.ByteSize(0)

// A destination whose disk fills up during the copy: the copy pauses above the floor, says so, and goes on when there is
// room.
func TestAFullDestinationPausesTheCopy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: []string{"--disk-floor", "8MiB"}, alone: true})
	disk := w.smallDisk("b3", "64m")
	_, err := w.AddAgent(w.ctx, 3)
	w.must(err)
	load := w.startLoad()
	load.fill(32)
	run := w.start("b3", slowly)
	w.phase(run, protocol.PhaseCopy)
	room := durabletest.Fill(t, disk, 4<<20)
	if sentence := w.blocked(run, control.CodeDiskFull); !strings.Contains(sentence, "b3 has") || !strings.Contains(sentence, "free space") {
		t.Errorf("the move says %q", sentence)
	}
	load.acknowledge(loadPerSecond / 4) // the partition serves on where it is
	room()
	w.tune(run, protocol.Tune{Limit: &fullSpeed})
	result, err := w.end(run)
	if err != nil || result.Attempts != 1 {
		t.Fatalf("the move ended as %+v, %v", result, err)
	}
	w.settled("b3")
	load.finish()
	w.committedOnce()
}

// An owner whose disk is full refuses writes with an error that clients try again, serves reads, freezes nothing it can
// not record, and goes on by itself when there is room.
func TestAFullOwnerGoesOnWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: []string{"--disk-floor", "8MiB"}, alone: true})
	disk := w.smallDisk("b3", "64m")
	_, err := w.AddAgent(w.ctx, 3)
	w.must(err)
	load := w.startLoad()
	w.mustMove("b3")
	room := durabletest.Fill(t, disk, 0)
	run := w.start("b1")
	w.blocked(run, control.CodeStorage)
	if state := w.partition("b3").State; state != "open" {
		t.Errorf("the partition is %s at its full owner", state)
	}
	room()
	result, err := w.end(run)
	if err != nil {
		t.Fatalf("the move ended as %+v, %v", result, err)
	}
	w.settled("b1")
	load.acknowledge(loadPerSecond / 4)
	load.finish()
}

// A disk that reports an error when something is to be made durable. At the destination the copy starts again from what
// is surely on disk; at the owner the partition closes and its next process reads what the disk really holds.
func TestAFailedFsync(t *testing.T) {
	t.Parallel()
	t.Run("destination", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, setup{brokers: 2, workers: 1, alone: true}) // a failed fsync closes what else is synced meanwhile
		load := w.startLoad()
		load.fill(8)
		w.faults.Fail("b2", "fdatasync", "EIO")
		run := w.start("b2")
		w.blocked(run, control.CodeStorage)
		load.acknowledge(loadPerSecond / 4)
		w.faults.Fail("b2", "fdatasync", "")
		result, err := w.end(run)
		if err != nil || result.Attempts != 1 {
			t.Fatalf("the move ended as %+v, %v", result, err)
		}
		w.settled("b2")
		load.finish()
		w.committedOnce()
	})
	t.Run("owner", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, setup{brokers: 2, workers: 1, alone: true}) // a failed fsync closes what else is synced meanwhile
		load := w.startLoad()
		load.fill(8)
		run := w.start("b2", slowly)
		w.phase(run, protocol.PhaseCopy)
		w.faults.Fail("b1", "fdatasync", "EIO")
		w.await("the partition is closed", func() string {
			if p := w.partition("b1"); p.State != "closed" || !strings.Contains(p.Reason, "restart this agent") {
				return fmt.Sprintf("it is %s: %s", p.State, p.Reason)
			}
			return ""
		})
		w.blocked(run, control.CodeNotOpen)
		w.faults.Fail("b1", "fdatasync", "")
		if state := w.partition("b1").State; state != "closed" {
			t.Errorf("a failed log is %s again in the same process", state)
		}
		w.tune(run, protocol.Tune{Limit: &fullSpeed})
		w.must(w.RestartAgent(w.ctx, "b1"))
		if result, err := w.end(run); err != nil {
			t.Fatalf("the move ended as %+v, %v", result, err)
		}
		w.settled("b2")
		load.acknowledge(loadPerSecond / 4)
		load.finish()
		w.committedOnce()
	})
}

// One bit of a sealed segment flips on the source's disk. The copy takes over nothing of it and says where it is; the
// partition serves on; with the bit as it was the move goes on.
func TestAFlippedBitDoesNotSpread(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: []string{"--segment-size", "4MiB"}})
	load := w.startLoad()
	load.fill(16)
	segments, err := filepath.Glob(filepath.Join(w.partitionDir("b1"), "*.log"))
	w.must(err)
	if len(segments) < 3 {
		t.Fatalf("the log has the segments %v", segments)
	}
	slices.Sort(segments)
	const at = 2<<20 + 12345
	flip := func() {
		file, err := os.OpenFile(segments[1], os.O_RDWR, 0)
		w.must(err)
		defer file.Close()
		var b [1]byte
		_, err = file.ReadAt(b[:], at)
		w.must(err)
		b[0] ^= 0x10
		_, err = file.WriteAt(b[:], at)
		w.must(err)
	}
	flip()
	run := w.start("b2")
	if sentence := w.blocked(run, control.CodeSourceCorrupt); !strings.Contains(sentence, "on b1") || !strings.Contains(sentence, "is damaged at byte") {
		t.Errorf("the move says %q", sentence)
	}
	load.acknowledge(loadPerSecond / 4)
	if row := w.row(); row.Owner != "b1" {
		t.Errorf("the row's owner is %s", row.Owner)
	}
	flip()
	result, err := w.end(run)
	if err != nil || result.Attempts != 1 {
		t.Fatalf("the move ended as %+v, %v", result, err)
	}
	w.settled("b2")
	load.finish()
	w.committedOnce()
}

// A write rate above the copy rate never lets the copy reach the tail. The move then cuts over as it is when the expected
// freeze is within the limit, and says that it had not converged; above the limit it waits with the figure, until forced.
// The drain itself is not paced.
func TestAWriteRateAboveTheCopyRate(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	outpaced := func(w *world) *load {
		load := w.startLoad()
		load.fill(4)
		_, err := load.ledger.StartWriter(ledger.WriterOptions{ID: "fast", Bootstrap: w.Bootstrap(), ValueBytes: 16 << 10, Rate: 256, Client: append(toMovingPartition(),
			kgo.ProducerBatchCompression(kgo.NoCompression()))})
		w.must(err)
		return load
	}
	t.Run("within the limit", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, setup{brokers: 2, workers: 1})
		load := outpaced(w)
		result, err := w.end(w.start("b2", func(in *protocol.MoveInput) { in.Limit, in.Lag, in.MaxPasses = 2*mib, mib/4, 3 }))
		if err != nil || result.Converged || result.Attempts != 1 {
			t.Fatalf("the move ended as %+v, %v", result, err)
		}
		w.settled("b2")
		load.finish()
		w.committedOnce()
	})
	t.Run("above the limit", func(t *testing.T) {
		t.Parallel()
		// The source's own pace bounds the copy, so that the estimate can not tell the drain to be faster.
		w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: []string{"--limit-out", "1MiB", "--max-freeze", "2s"}})
		load := outpaced(w)
		run := w.start("b2", func(in *protocol.MoveInput) { in.Lag, in.MaxPasses = mib/4, 2 })
		sentence := w.blocked(run, control.CodeFreezeTooLong)
		if !regexp.MustCompile(`would take about \S+, more than the limit of 2s`).MatchString(sentence) {
			t.Errorf("the move says %q", sentence)
		}
		if out := w.shows(control.CodeFreezeTooLong).Unblock; !strings.Contains(out, "portage move tune "+w.topic+"/0 --force") {
			t.Errorf("the way out is %q", out)
		}
		w.leads("portage move tune orders/3 --force")
		result, err := w.end(run)
		if err != nil || result.Converged {
			t.Fatalf("the move ended as %+v, %v", result, err)
		}
		w.settled("b2")
		load.finish()
		w.committedOnce()
	})
}
