package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.temporal.io/sdk/client"

	"portage/internal/fleetview"
	"portage/internal/ledger"
	"portage/workflows/protocol"
)

// bySize plans with sizes and the number of partitions; what a test writes a second is too little to plan with. The margin is far wider than
// what sizes change while the test looks; of the samples the largest counts, since what is written only grows.
const bySize = `{"goals":{"NW_IN":false,"NW_OUT":false,"DISK":{"detectThreshold":65536,"trustedOnly":false}},"margin":0.1,"percentile":1,"partitionCooldown":"0s","brokerCooldown":"0s"}`

// byTraffic plans with what is produced and consumed a second too; a load is the median of few samples.
const byTraffic = `{"goals":{"NW_IN":{"detectThreshold":1024},"NW_OUT":{"detectThreshold":1024},"DISK":{"detectThreshold":65536}},"margin":0.1,"percentile":0.5,"partitionCooldown":"0s","brokerCooldown":"0s"}`

// owners are how many partitions of a topic each broker owns.
func (w *world) ownedOf(topic string) map[string]int {
	w.t.Helper()
	snapshot, err := w.Store.ReadSnapshot(w.ctx)
	w.must(err)
	owned := map[string]int{}
	for _, a := range snapshot.Assignments {
		if a.Topic == topic {
			owned[a.Owner]++
		}
	}
	return owned
}

func (w *world) sampleLoads() {
	w.t.Helper()
	_, err := w.Store.SampleLoads(w.ctx, 0, fleetview.KeptSamples)
	w.must(err)
}

// placement is who owns each partition of a topic.
func (w *world) placement(topic string) map[int32]string {
	w.t.Helper()
	snapshot, err := w.Store.ReadSnapshot(w.ctx)
	w.must(err)
	at := map[int32]string{}
	for _, a := range snapshot.Assignments {
		if a.Topic == topic {
			at[a.Partition] = a.Owner
		}
	}
	return at
}

func (w *world) rebalance(args ...string) (result protocol.RebalanceResult) {
	w.t.Helper()
	output, code := w.command(append([]string{"rebalance", "--wait", "--json", "--reason", "test"}, args...)...)()
	if code != 0 {
		w.t.Fatalf("portage rebalance %v: exit code %d\n%s", args, code, output)
	}
	if err := json.Unmarshal(jsonIn(output), &result); err != nil {
		w.t.Fatalf("%v in %s", err, output)
	}
	return result
}

// jsonIn is the JSON that follows what was told while it was waited for.
func jsonIn(output string) []byte {
	return []byte(output[max(0, strings.Index(output, "{\n")):])
}

// A fifth broker joins a fleet of four under load: a rebalance spreads partitions of uneven sizes over it while its worker and Temporal are
// killed, every broker is within its bands then, and a second one has nothing to do; a decommission is cancelled half-way, and another broker is
// decommissioned and removed. Every acknowledged record is there once, in order, and every partition at one owner.
func TestAFleetIsSpreadAndABrokerLeavesUnderLoad(t *testing.T) {
	t.Parallel()
	const filled, fillBytes = 400, 16 << 10
	partitions, rate, settings := int32(15), 150, bySize
	if all {
		partitions, rate, settings = 200, 400, byTraffic // with fewer, one partition's traffic is more than a band is wide
	}
	w := newWorld(t, setup{brokers: 4, workers: 1, alone: true})
	topic := w.topic + "-wide"
	owners := make([]string, partitions)
	for n := range owners {
		owners[n] = []string{"b1", "b1", "b2", "b3", "b4"}[n%5] // b1 has twice as many
	}
	w.must(w.CreateTopic(w.ctx, topic, partitions, owners...))
	_, err := w.Store.SetSetting(w.ctx, "planner", settings, "test", "small loads")
	w.must(err)
	book, err := ledger.New(t.TempDir(), topic)
	w.must(err)
	_, err = book.StartWriter(ledger.WriterOptions{ID: "steady", Bootstrap: w.Bootstrap(), Rate: rate})
	w.must(err)
	// Sizes differ: a second writer fills the first partitions alone.
	fill, err := book.StartWriter(ledger.WriterOptions{ID: "fill", Bootstrap: w.Bootstrap(), Keys: 5, ValueBytes: fillBytes, Count: filled,
		Client: []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())}})
	w.must(err)
	w.must(fill.Wait(w.ctx))
	w.await("the owners have reported what was filled in", func() string {
		view, err := w.Store.ReadFleet(w.ctx)
		if err != nil {
			return err.Error()
		}
		var reported int64
		for _, bytes := range view.Disk {
			reported += bytes
		}
		if reported < filled*fillBytes {
			return fmt.Sprintf("they have reported %d bytes", reported)
		}
		return ""
	})
	consumer, err := book.StartConsumer(ledger.ConsumerOptions{Bootstrap: w.Bootstrap(), Partitions: partitions, Group: topic, Every: 200 * time.Millisecond, MaxWait: fetchWait})
	w.must(err)
	w.sampleLoads()
	if all {
		w.await("the consumer has caught up", func() string {
			if records, _ := consumer.Counts(); records < book.Acknowledged()-int64(rate) {
				return fmt.Sprintf("it has read %d of %d", records, book.Acknowledged())
			}
			return ""
		})
		for range 4 { // three rates, whatever the worker samples besides
			w.sampleLoads()
			until := book.Acknowledged() + 10*int64(rate)
			w.await("ten seconds of records are written", func() string {
				if n := book.Acknowledged(); n < until {
					return fmt.Sprintf("%d of %d", n, until)
				}
				return ""
			})
		}
	}

	before := w.placement(topic)
	_, err = w.AddAgent(w.ctx, 5)
	w.must(err)
	wait := w.command("rebalance", "--wait", "--json", "--reason", "b5 is new", "--max-in-flight", "3")
	w.await("some partitions are on b5", func() string {
		if n := w.ownedOf(topic)["b5"]; n == 0 {
			return "b5 owns none"
		}
		return ""
	})
	w.must(w.Temporal.Kill())
	w.must(w.KillWorker(0))
	w.must(w.Temporal.Restart(w.ctx))
	w.must(w.StartWorker(0))
	output, code := wait()
	var first protocol.RebalanceResult
	if err := json.Unmarshal(jsonIn(output), &first); err != nil || code != 0 || first.Counts.Moved == 0 || first.Counts.Failed > 0 {
		t.Fatalf("the rebalance ended with %d: %s", code, output)
	}
	w.replays(w.Client.GetWorkflow(w.ctx, protocol.RebalanceWorkflowID(w.TaskQueue()), first.ID), "rebalance")
	snapshotOf := w.ownedOf(topic)
	share := (int(partitions) + 2) / 5 // the world's own topic has two partitions
	for n := 1; n <= 5; n++ {          // the band of a count ends 20 % above the mean, and the margin is 10 % of it
		if have := snapshotOf[fmt.Sprint("b", n)]; have > share+share*3/10+2 {
			t.Errorf("after the rebalance b%d owns %d of %d: %v", n, have, partitions, snapshotOf)
		}
	}
	if all {
		w.sampleLoads()
	}
	balanced := w.planOf("--dsn", w.DSN(), "--token-file", w.TokenFile())
	for _, g := range balanced.Goals {
		if all && !g.InEffect {
			t.Errorf("%s is not in effect: %s", g.Goal, g.WhyNot)
		}
		// A partition that alone is larger than a band leaves its broker above it wherever it is.
		if g.InEffect && g.ExcessBefore > g.ExcessSingle {
			t.Errorf("after the rebalance %d brokers are above their band of %s: %+v", g.OverBefore, g.Goal, g)
		}
	}
	if second := w.rebalance(); second.Counts.Moved != 0 {
		t.Errorf("a second rebalance moved %+v", second.Counts)
	}

	if undone := w.rebalance("--undo", first.ID); undone.Counts.Moved == 0 || !maps.Equal(w.placement(topic), before) {
		t.Errorf("undone were %+v of %+v, the placement is %v, was %v", undone.Counts, first.Counts, w.placement(topic), before)
	}
	// Another decommission is cancelled half-way. In the short run it has too few partitions to be met between two of them: its moves do not begin.
	inFlight := "0"
	if all {
		inFlight = "1"
	}
	had := w.ownedOf(topic)["b3"]
	if output, code := w.command("cluster", "decommission", "b3", "--reason", "old machine", "--max-in-flight", inFlight)(); code != 0 {
		t.Fatalf("the decommission answers %d: %s", code, output)
	}
	draining := func(want bool) func() string {
		return func() string {
			if b, err := w.Store.FindBroker(w.ctx, "b3"); err != nil || b.Draining != want {
				return fmt.Sprintf("b3 is %+v (%v)", b, err)
			}
			return ""
		}
	}
	w.await("b3 drains", draining(true))
	if all {
		w.await("three partitions have left b3", func() string {
			if n := w.ownedOf(topic)["b3"]; n > had-3 {
				return fmt.Sprintf("it has %d of %d", n, had)
			}
			return ""
		})
	}
	if output, code := w.command("cluster", "decommission", "b3", "--cancel", "--reason", "no hurry")(); code != 0 || draining(false)() != "" {
		t.Errorf("cancelled, the decommission answers %d: %s; %s", code, output, draining(false)())
	}
	if left := w.ownedOf(topic)["b3"]; left == 0 || (all && left == had) {
		t.Errorf("after the cancelled decommission b3 owns %d of %d", left, had)
	}
	if output, code := w.command("cluster", "decommission", "b2", "--dry-run", "--min-brokers", "5")(); code != 1 || !strings.Contains(output, "too_few_brokers") {
		t.Errorf("a decommission that leaves too few answers %d: %s", code, output)
	}
	output, code = w.command("cluster", "decommission", "b2", "--wait", "--reason", "old machine")()
	if code != 0 || !strings.Contains(output, protocol.VerdictSafe) {
		t.Fatalf("the decommission ended with %d: %s", code, output)
	}
	w.replays(w.Client.GetWorkflow(w.ctx, protocol.DecommissionWorkflowID("b2"), ""), "decommission")
	if broker, err := w.Store.FindBroker(w.ctx, "b2"); err != nil || !broker.Removed || w.ownedOf(topic)["b2"] != 0 {
		t.Errorf("b2 is %+v (%v), it owns %d", broker, err, w.ownedOf(topic)["b2"])
	}
	if output, code := w.command("cluster", "decommission", "b2", "--wait", "--reason", "old machine")(); code != 0 {
		t.Errorf("repeated, the decommission answers %d: %s", code, output)
	}

	w.must(book.CloseWriters(w.ctx))
	if err := consumer.WaitEnd(w.ctx); err != nil {
		t.Error(err)
	}
	verdict, err := book.Check(w.ctx, w.Bootstrap())
	w.must(err)
	if !verdict.Whole() || verdict.Unacknowledged > 0 {
		t.Errorf("the ledger says: %s\n%v", verdict, verdict.Examples)
	}
	w.nobodyIsStranded(topic)
}

// nobodyIsStranded waits until every partition of a topic is open at its owner and held by no move, and no agent has a session.
func (w *world) nobodyIsStranded(topic string) {
	w.t.Helper()
	w.must(w.WaitTopic(w.ctx, topic))
	w.await("nothing is left of any move", func() string {
		if claims := w.inProgress(); len(claims) > 0 {
			return fmt.Sprintf("claimed are %+v", claims)
		}
		snapshot, err := w.Store.ReadSnapshot(w.ctx)
		if err != nil {
			return err.Error()
		}
		for _, a := range snapshot.Assignments {
			if a.MoveID != nil || a.Target != nil {
				return fmt.Sprintf("%s/%d is on its way", a.Topic, a.Partition)
			}
		}
		for _, id := range w.AgentIDs() {
			if !w.Agent(id).Process.Running() {
				continue // a broker that was removed
			}
			status, err := w.Agents.Status(w.ctx, w.Agent(id).ControlURL)
			if err != nil || len(status.Moves) > 0 || status.ReservedBytes > 0 {
				return fmt.Sprintf("%s has %v and %d bytes reserved (%v)", id, status.Moves, status.ReservedBytes, err)
			}
		}
		return ""
	})
}

// The fleet is paused while a copy is on its way: once its destination knows, no byte passes any more, and once it is resumed none of those that were
// there is copied again.
func TestAPausedFleetCopiesNothingAndNothingTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 3, workers: 1, alone: true})
	l := w.startLoad()
	l.fill(24)
	w.must(w.Store.SetDraining(w.ctx, "b1", true, "test", ""))
	run, err := w.Client.ExecuteWorkflow(w.ctx, client.StartWorkflowOptions{ID: protocol.RebalanceWorkflowID(w.TaskQueue()), TaskQueue: w.TaskQueue()}, protocol.WorkflowRebalance,
		protocol.RebalanceInput{Drain: true, Limits: protocol.Limits{MoveRate: ptr(protocol.ByteSize(4 << 20))}})
	w.must(err)
	copied := func() (n int64) {
		row := w.row()
		if row.Target == nil {
			return 0
		}
		session, err := w.Agents.Session(w.ctx, w.Agent(*row.Target).ControlURL, row.Moving(), 0, 0)
		if err != nil {
			return 0
		}
		return session.CopiedBytes
	}
	w.await("4 MiB are copied", func() string {
		if n := copied(); n < 4<<20 {
			return fmt.Sprint(n)
		}
		return ""
	})
	_, err = w.Store.SetSetting(w.ctx, "moves.paused", "true", "test", "peak")
	w.must(err)
	w.await("the destination is told that the copy is held", func() string {
		row := w.row()
		if row.Target == nil {
			return "nothing moves"
		}
		record, err := os.ReadFile(filepath.Join(w.Agent(*row.Target).Data, "sessions", row.Moving()+".json"))
		var session struct{ LimitBytesPerSec float64 }
		if err == nil {
			err = json.Unmarshal(record, &session)
		}
		if err != nil || session.LimitBytesPerSec != 1 {
			return fmt.Sprintf("its pace is %v (%v)", session.LimitBytesPerSec, err)
		}
		return ""
	})
	held := copied()
	l.acknowledge(loadPerSecond) // writes go on, for as long as 4 MiB would take
	if now := copied(); now-held > 64<<10 || now == 0 {
		t.Errorf("in a paused fleet %d bytes were copied, after %d", now-held, held)
	}
	_, err = w.Store.SetSetting(w.ctx, "moves.paused", "false", "test", "over")
	w.must(err)
	var result protocol.RebalanceResult
	w.must(run.Get(w.ctx, &result))
	if result.Counts.Moved != 1 || result.Counts.Bytes > 28<<20 {
		t.Errorf("the rebalance ended as %+v", result)
	}
	l.finish()
}

func ptr[T any](v T) *T { return &v }
