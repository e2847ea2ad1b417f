package e2e

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"portage/metastore"
	"portage/workflows/protocol"
)

// before is what a cancelled or refused move must leave as it was.
type before struct {
	w    *world
	row  *metastore.Assignment
	disk map[string]map[string]int64 // broker → file → bytes
}

// remember takes a picture of ownership and of every disk but b1's log, which grows under load.
func (w *world) remember() before {
	w.t.Helper()
	return before{w: w, row: w.row(), disk: w.disks()}
}

// disks lists what every broker keeps of partitions, its own or others', by file and size.
func (w *world) disks() map[string]map[string]int64 {
	w.t.Helper()
	all := map[string]map[string]int64{}
	for _, id := range w.AgentIDs() {
		files := map[string]int64{}
		for _, folder := range []string{"partitions", "staging", "sessions", "trash", "quarantine"} {
			err := filepath.WalkDir(filepath.Join(w.Agent(id).Data, folder), func(path string, d fs.DirEntry, err error) error {
				if err != nil || path == w.partitionDir("b1") {
					return err
				}
				name, _ := filepath.Rel(w.Agent(id).Data, path)
				if id == "b1" && strings.HasPrefix(path, w.partitionDir("b1")) {
					return nil
				}
				files[name] = 0
				if d.Name() == "retained.json" {
					return nil // written again once the copy is judged, whatever moves meanwhile
				}
				if info, err := d.Info(); err == nil && d.Type().IsRegular() {
					files[name] = info.Size()
				}
				return nil
			})
			w.must(err)
		}
		all[id] = files
	}
	return all
}

// restored fails unless ownership, routing and disks are as they were.
func (b before) restored() {
	b.w.t.Helper()
	b.w.settled(b.row.Owner)
	row := b.w.row()
	if row.Owner != b.row.Owner || row.Epoch != b.row.Epoch || row.OwnerStorage != b.row.OwnerStorage {
		b.w.t.Errorf("the row was %+v and is %+v", b.row, row)
	}
	owner, err := b.w.Store.FindBroker(b.w.ctx, row.Owner)
	b.w.must(err)
	for _, id := range b.w.AgentIDs() {
		if leader, epoch := b.w.leader(id); leader != owner.NodeID || epoch != row.Epoch {
			b.w.t.Errorf("metadata of %s names node %d at epoch %d as the leader, not %d at %d", id, leader, epoch, owner.NodeID, row.Epoch)
		}
	}
	now := b.w.disks()
	for id, files := range b.disk {
		if !maps.Equal(files, now[id]) {
			b.w.t.Errorf("%s kept\n%v\nand now keeps\n%v", id, files, now[id])
		}
	}
}

// leader asks one broker who leads the partition.
func (w *world) leader(broker string) (node, epoch int32) {
	w.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.Agent(broker).KafkaAddr))
	w.must(err)
	defer c.Close()
	req := kmsg.NewMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &w.topic
	req.Topics = append(req.Topics, topic)
	answer, err := c.SeedBrokers()[0].Request(w.ctx, &req)
	w.must(err)
	for _, t := range answer.(*kmsg.MetadataResponse).Topics {
		for _, p := range t.Partitions {
			if p.Partition == 0 {
				return p.Leader, p.LeaderEpoch
			}
		}
	}
	w.t.Fatalf("%s knows no partition 0 of %s", broker, w.topic)
	return -1, -1
}

// cancelAt are the phases of a move before its point of no return: each brings a move there and returns what lets it go
// on once the cancel was asked for.
var cancelAt = []struct {
	phase string
	bring func(w *world, l *load) (run client.WorkflowRun, release func())
}{
	{"claim, before the write", haltedAt("worker1", "ClaimMove.before")},
	{"claim, after the write", haltedAt("worker1", "ClaimMove.after")},
	{"ensure", func(w *world, _ *load) (client.WorkflowRun, func()) {
		claimed := w.faults.Arm("worker1", "ClaimMove.after")
		run := w.start("b2")
		w.must(claimed.Reached(w.ctx))
		thaw := w.hold("b2") // the destination hears of nothing while the move asks it to make room
		w.must(claimed.Continue())
		w.phase(run, protocol.PhaseEnsure)
		return run, func() { w.released(); thaw() }
	}},
	{"copy", func(w *world, l *load) (client.WorkflowRun, func()) {
		l.fill(8)
		run := w.start("b2", func(in *protocol.MoveInput) { in.Limit = 1 << 20 })
		w.phase(run, protocol.PhaseCopy)
		w.await("bytes are staged", func() string {
			if staged := w.stagedBytes("b2"); staged == 0 {
				return "none is"
			}
			return ""
		})
		return run, func() {}
	}},
	{"cutover, asking to freeze", haltedAt("worker1", "cutover.before")},
	{"cutover, frozen", haltedAt("worker1", "cutover.frozen")},
	{"cutover, draining", func(w *world, _ *load) (client.WorkflowRun, func()) {
		draining := w.faults.Arm("b2", "drain.before")
		run := w.start("b2")
		w.must(draining.Reached(w.ctx))
		return run, func() {
			w.released() // the cancel does not wait for the destination
			w.must(draining.Continue())
		}
	}},
	{"cutover, installed", haltedAt("worker1", "cutover.after")},
}

func haltedAt(process, point string) func(*world, *load) (client.WorkflowRun, func()) {
	return func(w *world, _ *load) (client.WorkflowRun, func()) {
		halt := w.faults.Arm(process, point)
		run := w.start("b2")
		w.must(halt.Reached(w.ctx))
		return run, func() { w.must(halt.Continue()) }
	}
}

// released waits until the row carries no move.
func (w *world) released() {
	w.t.Helper()
	w.await("the claim is taken back", func() string {
		if id := w.row().Moving(); id != "" {
			return "it is held by " + id
		}
		return ""
	})
}

func (w *world) stagedBytes(broker string) int64 {
	var total int64
	_ = filepath.WalkDir(filepath.Join(w.Agent(broker).Data, "staging"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				total += info.Size()
			}
		}
		return nil
	})
	return total
}

func TestCancelAtEveryPhase(t *testing.T) {
	t.Parallel()
	for _, c := range cancelAt {
		t.Run(c.phase, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{brokers: 2, workers: 1})
			load := w.startLoad()
			picture := w.remember()
			run, release := c.bring(w, load)
			w.cancel(run)
			release()
			if _, err := w.end(run); !temporal.IsCanceledError(err) {
				t.Fatalf("the cancelled move ended with %v", err)
			}
			picture.restored()
			load.acknowledge(loadPerSecond / 4)
			w.mustMove("b2")
			load.acknowledge(loadPerSecond / 4)
			load.finish()
			w.settled("b2")
			w.committedOnce()
		})
	}
}

// After the commit a cancel is answered "too late", by the workflow and by the command line, and the move is done.
func TestCancelAfterTheCommitIsTooLate(t *testing.T) {
	t.Parallel()
	for _, at := range []struct{ process, point string }{{"worker1", "commit.before"}, {"worker1", "CommitOwner.after"}, {"b2", "open.before"}} {
		t.Run(at.point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{brokers: 2, workers: 1})
			load := w.startLoad()
			halt := w.faults.Arm(at.process, at.point)
			run := w.start("b2")
			w.must(halt.Reached(w.ctx))
			command := w.command("move", "cancel", w.topic+"/0")
			w.await("the cancel has arrived", func() string { return w.lacksEvent(run, enums.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED) })
			w.must(halt.Continue())
			result, err := w.end(run)
			if err != nil {
				t.Fatalf("the move ended with %v", err)
			}
			if !strings.Contains(result.TooLate, "too late") {
				t.Errorf("the result does not say that the cancel was too late: %+v", result)
			}
			if out, code := command(); code != 1 || !strings.Contains(out, "too late") {
				t.Errorf("portage move cancel said %q and exited with %d", out, code)
			}
			w.settled("b2")
			load.finish()
			w.committedOnce()
		})
	}
}

// lacksEvent says so when a workflow's history holds no event of a kind.
func (w *world) lacksEvent(run client.WorkflowRun, kind enums.EventType) string {
	events := w.Client.GetWorkflowHistory(w.ctx, run.GetID(), run.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return err.Error()
		}
		if event.GetEventType() == kind {
			return ""
		}
	}
	return fmt.Sprintf("the history holds no %s", kind)
}
