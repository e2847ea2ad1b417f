package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"portage/metastore"
)

// changedAt are the places of a move at which its topic is changed under it.
var changedAt = []step{
	{point: "ClaimMove.before", by: worker},
	{point: "ClaimMove.after", by: worker},
	{point: "ensure.after", by: destination},
	{point: "segment.half", by: destination, fill: 1},
	{point: "freeze.before", by: source},
	{point: "cutover.frozen", by: worker},
	{point: "install.before", by: destination},
	{point: "drain.after", by: destination},
	{point: "commit.before", by: worker},
	{point: "CommitOwner.after", by: worker},
	{point: "open.before", by: destination},
	{point: "finish.opened", by: worker},
}

// The topic is deleted, deleted and created again under its name, or gets more partitions while a partition of it moves.
func TestTopicChangedInMidMove(t *testing.T) {
	t.Parallel()
	const deleted, recreated, grown = "deleted", "deleted and recreated", "partitions added"
	cells := matrix.table("what happened to the topic at which step, and how the move ended:", []string{deleted, recreated, grown},
		"segment.half/"+deleted, "drain.after/"+recreated, "CommitOwner.after/"+recreated, "cutover.frozen/"+grown)
	for _, at := range changedAt {
		cells.run(t, at.name(), deleted, func(t *testing.T) string { return topicDeleted(t, at, false) })
		cells.run(t, at.name(), recreated, func(t *testing.T) string { return topicDeleted(t, at, true) })
		cells.run(t, at.name(), grown, func(t *testing.T) string {
			w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease})
			load := w.startLoad()
			if at.fill > 0 {
				load.fill(at.fill)
			}
			stopped := w.arm(at)
			run := w.start("b2")
			w.must(stopped.Reached(w.ctx))
			before := w.row()
			w.addPartitions(2, at.by)
			// A lease that ended meanwhile has changed the row, too, and taken the claim with it.
			if now := w.row(); now.Version != before.Version && now.Moving() == before.Moving() && !committedBy(at.point) {
				t.Errorf("adding partitions changed the row from version %d to %d", before.Version, now.Version)
			}
			w.must(stopped.Continue())
			result := w.mustEnd(run)
			said := w.movedTo("b2", load, result)
			w.must(w.WaitTopic(w.ctx, w.topic))
			w.writeTo(w.topic, 2, 3)
			return said
		})
	}
}

// topicDeleted deletes the topic of a move that stands at a step. The move ends, nothing of it is left but former copies,
// and a topic by the same name is another topic.
func topicDeleted(t *testing.T, at step, again bool) string {
	w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease})
	w.writeTo(w.topic, 0)
	if at.fill > 0 {
		load := w.startLoad()
		load.fill(at.fill)
		w.must(load.ledger.Close(w.ctx)) // what a client says of a topic that is deleted under it is not the move's matter
	}
	stopped := w.arm(at)
	run := w.start("b2")
	w.must(stopped.Reached(w.ctx))
	w.deleteTopic(at.by)
	old := w.id
	if again {
		// Not waited for: the broker that stands still is to open one of its partitions.
		_, err := w.Store.CreateTopic(w.ctx, metastore.NewTopic{Name: w.topic, Partitions: 2, Placement: map[int32]string{0: "b1", 1: "b2"}, By: "test"})
		w.must(err)
		w.id = w.row().TopicID
	}
	w.must(stopped.Continue())
	result, err := w.end(run)
	ended := "ended with a reason"
	if err == nil {
		ended = fmt.Sprintf("done in %d", result.Attempts)
	}
	w.await("nothing of the deleted topic is left", func() string { return w.leftOf(old) })
	every, err := w.Store.Moves(w.ctx, true, 1000)
	w.must(err)
	for _, m := range every {
		if m.TopicID == old && m.Ended() == "" {
			t.Errorf("move %s of the deleted topic has no outcome", m.ID)
		}
	}
	if !again {
		return ended + ", nothing left"
	}
	w.must(w.WaitTopic(w.ctx, w.topic))
	// The new topic is empty, wherever a move that started over has brought it, and takes what is written to it.
	row := w.row()
	w.settled(row.Owner)
	if end := w.partition(row.Owner).DurableEnd; end != 0 {
		t.Errorf("the new topic's partition begins with %d records", end)
	}
	load := w.startLoad()
	to := map[string]string{"b1": "b2", "b2": "b1"}[row.Owner]
	w.mustMove(to)
	w.settled(to)
	load.acknowledge(loadPerSecond / 4)
	load.finish()
	return ended + ", the new one " + load.verdict
}

// leftOf says what the brokers still have of a topic besides former copies.
func (w *world) leftOf(topic uuid.UUID) string {
	for _, id := range w.AgentIDs() {
		status, err := w.Agents.Status(w.ctx, w.Agent(id).ControlURL)
		if err != nil {
			return err.Error()
		}
		if len(status.Moves) > 0 || status.ReservedBytes > 0 {
			return fmt.Sprintf("%s has the sessions %v", id, status.Moves)
		}
		for _, p := range status.Partitions {
			if p.TopicID == topic {
				return fmt.Sprintf("%s has %s/%d %s", id, p.Topic, p.Partition, p.State)
			}
		}
	}
	snapshot, err := w.Store.ReadSnapshot(w.ctx)
	if err != nil {
		return err.Error()
	}
	for _, a := range snapshot.Assignments {
		if a.TopicID == topic {
			return fmt.Sprintf("the row of %s/%d, moving %q", a.Topic, a.Partition, a.Moving())
		}
	}
	return ""
}

// addPartitions adds partitions as a client does, and where the source stands still, which clients would ask, as it would.
func (w *world) addPartitions(more int, standing string) {
	w.t.Helper()
	if standing == source {
		_, err := w.Store.AddPartitions(w.ctx, metastore.MorePartitions{Topic: w.topic, Total: 2 + int32(more), Candidates: w.AgentIDs(), By: "test"})
		w.must(err)
		return
	}
	answers, err := w.admin().CreatePartitions(w.ctx, more, w.topic)
	w.must(err)
	w.must(answers.Error())
}

// deleteTopic deletes the topic in the same way.
func (w *world) deleteTopic(standing string) {
	w.t.Helper()
	if standing == source {
		w.must(w.Store.DeleteTopic(w.ctx, w.topic, uuid.Nil, "test"))
		return
	}
	_, err := w.admin().DeleteTopic(w.ctx, w.topic)
	w.must(err)
}

// admin is an administrator's client.
func (w *world) admin() *kadm.Client {
	w.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.Bootstrap()...))
	w.must(err)
	w.t.Cleanup(c.Close)
	admin := kadm.NewClient(c)
	admin.SetTimeoutMillis(int32((30 * time.Second).Milliseconds()))
	return admin
}

// writeTo writes one record to each of the partitions.
func (w *world) writeTo(topic string, partitions ...int32) {
	w.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.Bootstrap()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	w.must(err)
	defer c.Close()
	for _, p := range partitions {
		w.must(c.ProduceSync(w.ctx, &kgo.Record{Topic: topic, Partition: p, Value: []byte("word")}).FirstErr())
	}
}
