package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"portage/brokeragent/control"
	"portage/metastore"
	"portage/workflows/protocol"
)

// testBound ends a test that hangs; nothing is measured by it.
const testBound = 8 * time.Minute

// world is one topic of one fleet for one test: brokers b1, b2, ..., workers worker1, ..., and the topic's partition 0 on
// b1, 1 on b2.
type world struct {
	*rig
	t     testing.TB
	ctx   context.Context
	topic string
	id    uuid.UUID // of the topic
}

var worlds atomic.Int64

func newWorld(t testing.TB, s setup) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testBound)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, topic: fmt.Sprintf("orders-%d", worlds.Add(1))}
	var err error
	if w.rig, err = rigs.take(ctx, s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			w.showLogs()
			t.Logf("points and replies seen:\n%s", w.faults.Report())
		}
		if err := rigs.giveBack(w.rig, t.Failed()); err != nil {
			t.Error(err)
		}
	})
	w.must(w.CreateTopic(ctx, w.topic, 2, "b1", "b2"))
	w.id = w.row().TopicID
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

const shownLogBytes = 6 << 10

// showLogs prints the end of every process's log, and where each goroutine of an agent stands that does not answer.
func (w *world) showLogs() {
	w.faults.Mend()
	for _, id := range w.AgentIDs() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		if _, err := w.Agents.Status(ctx, w.Agent(id).ControlURL); err != nil && w.Agent(id).Process.Running() {
			from, _ := os.Stat(w.Agent(id).Process.LogFile())
			_ = w.Agent(id).Process.Signal(syscall.SIGQUIT)
			select {
			case <-w.Agent(id).Process.Exited():
			case <-time.After(3 * time.Second): // it is stopped, and dies with the fleet
			}
			if log, err := os.ReadFile(w.Agent(id).Process.LogFile()); err == nil && from != nil {
				w.t.Logf("%s did not answer (%v) and stood here:\n%s", id, ctx.Err(), log[from.Size():])
			}
		}
		cancel()
	}
	show := func(name, file string) {
		if log, err := os.ReadFile(file); err == nil {
			w.t.Logf("the end of %s's log:\n%s", name, log[max(0, len(log)-shownLogBytes):])
		}
	}
	for _, id := range w.AgentIDs() {
		show(id, w.Agent(id).Process.LogFile())
	}
	for n := range w.Workers() {
		show(w.Worker(n).Name(), w.Worker(n).LogFile())
	}
}

// await waits until met says nothing is missing, for what no event tells. It looks often and has the test's bound.
func (w *world) await(what string, met func() (missing string)) {
	w.t.Helper()
	var missing string
	for {
		now := met()
		if now == "" {
			return
		}
		if missing == "" || w.ctx.Err() == nil {
			missing = now // what is said once the time is over is only that it is over
		}
		select {
		case <-w.ctx.Done():
			w.t.Fatalf("waiting until %s: %s", what, missing)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// row is the partition's row as it stands.
func (w *world) row() *metastore.Assignment {
	w.t.Helper()
	row, err := w.Store.FindAssignment(w.ctx, w.topic, 0)
	if err != nil || row == nil {
		w.t.Fatalf("read the row of %s/0: %v, %v", w.topic, row, err)
	}
	return row
}

// moves are the partition's moves, newest first.
func (w *world) moves() []metastore.Move {
	w.t.Helper()
	every, err := w.Store.Moves(w.ctx, true, 1000)
	w.must(err)
	var mine []metastore.Move
	for _, m := range every {
		if m.TopicID == w.id && m.Partition == 0 {
			mine = append(mine, m)
		}
	}
	return mine
}

// partition is one agent's view of the partition; the zero value when the agent knows nothing of it.
func (w *world) partition(broker string) control.PartitionStatus {
	w.t.Helper()
	status, err := w.Agents.Partition(w.ctx, w.Agent(broker).ControlURL, w.id, 0)
	if control.CodeOf(err) == control.CodeNotFound {
		return control.PartitionStatus{}
	}
	if err != nil {
		w.t.Fatalf("ask %s for %s/0: %v", broker, w.topic, err)
	}
	return status
}

func (w *world) input(to string) protocol.MoveInput {
	var partition int32
	return protocol.MoveInput{Topic: w.topic, Partition: &partition, To: to, By: "test"}
}

// start starts the move of the partition to a broker, with an input changed as wanted.
func (w *world) start(to string, change ...func(*protocol.MoveInput)) client.WorkflowRun {
	w.t.Helper()
	in := w.input(to)
	for _, c := range change {
		c(&in)
	}
	run, err := w.StartMove(w.ctx, in)
	w.must(err)
	return run
}

// end waits for the end of a move, also across the death of Temporal, whose answer is asked for again.
func (w *world) end(run client.WorkflowRun) (protocol.MoveResult, error) {
	w.t.Helper()
	return endOf[protocol.MoveResult](w, run)
}

func endOf[R any](w *world, run client.WorkflowRun) (R, error) {
	w.t.Helper()
	for {
		var result R
		err := run.Get(w.ctx, &result)
		var ended *temporal.WorkflowExecutionError
		if w.ctx.Err() != nil {
			value, _ := w.Client.QueryWorkflow(context.Background(), run.GetID(), run.GetRunID(), protocol.QueryStatus)
			var status protocol.Status
			if value != nil {
				_ = value.Get(&status)
			}
			w.t.Fatalf("the move did not end: %v; it is %+v", err, status)
		}
		if err == nil || errors.As(err, &ended) {
			return result, err
		}
		select {
		case <-w.ctx.Done():
			w.t.Fatalf("the move did not end: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// mustMove moves the partition and fails the test unless it is done.
func (w *world) mustMove(to string) protocol.MoveResult {
	w.t.Helper()
	result, err := w.Move(w.ctx, w.topic, 0, to)
	w.must(err)
	return result
}

// phase waits until the move is in a phase.
func (w *world) phase(run client.WorkflowRun, phase string) protocol.Status {
	w.t.Helper()
	var status protocol.Status
	w.await("the move is in phase "+phase, func() string {
		value, err := w.Client.QueryWorkflow(w.ctx, run.GetID(), run.GetRunID(), protocol.QueryStatus)
		if err == nil {
			err = value.Get(&status)
		}
		if err != nil {
			return err.Error()
		}
		if status.Phase != phase {
			return "it is in phase " + status.Phase
		}
		return ""
	})
	return status
}

// partitionDir is where a broker keeps the partition.
func (w *world) partitionDir(broker string) string {
	return filepath.Join(w.Agent(broker).Data, "partitions", w.id.String(), "0")
}

// settled holds what must be true once nothing moves any more, however the last move ended: one owner, open, by itself;
// no claim, nothing frozen, nothing parked, nothing left of a copy, no room promised.
func (w *world) settled(owner string) {
	w.t.Helper()
	w.await(owner+" alone has the partition and nothing is left of any move", func() string { return w.unsettled(owner) })
}

func (w *world) unsettled(owner string) string { return w.unsettledAt(0, owner) }

func (w *world) unsettledAt(partition int32, owner string) string {
	row, err := w.Store.FindAssignment(w.ctx, w.topic, partition)
	switch {
	case err != nil:
		return err.Error()
	case row.Owner != owner:
		return fmt.Sprintf("the row's owner is %s", row.Owner)
	case row.MoveID != nil || row.Target != nil:
		return fmt.Sprintf("the row is claimed by %s", row.Moving())
	}
	for _, id := range w.AgentIDs() {
		status, err := w.Agents.Status(w.ctx, w.Agent(id).ControlURL)
		if err != nil {
			return fmt.Sprintf("%s does not answer: %v", id, err)
		}
		if len(status.Moves) > 0 || status.ReservedBytes != 0 {
			return fmt.Sprintf("%s still has sessions %v and has reserved %d bytes", id, status.Moves, status.ReservedBytes)
		}
		for _, folder := range []string{"staging", "sessions"} {
			if left, err := os.ReadDir(filepath.Join(w.Agent(id).Data, folder)); err != nil || len(left) > 0 {
				return fmt.Sprintf("%s has %v in %s (%v)", id, left, folder, err)
			}
		}
		for _, p := range status.Partitions {
			if p.TopicID != w.id || p.Partition != partition {
				continue
			}
			switch {
			case id == owner && (p.State != "open" || p.Epoch != row.Epoch || p.Parked != 0):
				return fmt.Sprintf("%s has it %s at epoch %d with %d parked: %s", id, p.State, p.Epoch, p.Parked, p.Reason)
			case id != owner && p.State != "elsewhere":
				return fmt.Sprintf("%s has it %s", id, p.State)
			}
		}
		if _, err := os.Stat(filepath.Join(w.Agent(id).Data, "partitions", w.id.String(), strconv.Itoa(int(partition)))); (err == nil) != (id == owner) {
			return fmt.Sprintf("the partition's folder at %s: %v", id, err)
		}
	}
	return ""
}

// committedOnce reports how the partition's moves ended and fails unless exactly one of them is committed and none is open.
func (w *world) committedOnce() metastore.Move {
	w.t.Helper()
	var done []metastore.Move
	for _, m := range w.moves() {
		switch m.Ended() {
		case metastore.OutcomeCommitted:
			done = append(done, m)
		case "":
			w.t.Errorf("move %s has no outcome", m.ID)
		}
	}
	if len(done) != 1 {
		w.t.Fatalf("%d moves are committed: %+v", len(done), w.moves())
	}
	return done[0]
}
