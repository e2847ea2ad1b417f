package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"portage/internal/faults/faultctl"
	"portage/metastore"
	"portage/workflows/protocol"
)

// fenceArgs let a source that fences itself be promoted over after quickLoss instead of two minutes. The fence stays above the
// agents' heartbeat of 2 s.
var fenceArgs = []string{"--promote-fence", "5s"}

const quickLoss = 10 * time.Second

const promotedGroup = "readers"

// account is what a client was told of the partition: so many records, and a group in the middle of them.
type account struct {
	w       *world
	client  *kgo.Client
	written int
}

func (w *world) openAccount() *account {
	w.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.Bootstrap()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{w.topic: {0: kgo.NewOffset().AtStart()}}))
	w.must(err)
	w.t.Cleanup(c.Close)
	return &account{w: w, client: c}
}

func (a *account) write(n int) {
	a.w.t.Helper()
	for range n {
		r := &kgo.Record{Topic: a.w.topic, Partition: 0, Value: []byte(fmt.Sprint(a.written))}
		a.w.must(a.client.ProduceSync(a.w.ctx, r).FirstErr())
		a.written++
	}
}

func (a *account) commit(offset int64) {
	a.w.t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(a.w.topic, 0, offset, -1)
	_, err := kadm.NewClient(a.client).CommitOffsets(a.w.ctx, promotedGroup, offsets)
	a.w.must(err)
}

// holds fails unless every acknowledged record is there, once and in order, and the group is where it was.
func (a *account) holds(group int64) {
	a.w.t.Helper()
	next := 0
	for next < a.written {
		fetches := a.client.PollFetches(a.w.ctx)
		if err := a.w.ctx.Err(); err != nil {
			a.w.t.Fatalf("%d of %d records were read: %v", next, a.written, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if string(r.Value) != fmt.Sprint(next) || r.Offset != int64(next) {
				a.w.t.Fatalf("offset %d holds %q, want %d", r.Offset, r.Value, next)
			}
			next++
		})
	}
	// A client of its own, which never heard of a broker that is dead now.
	c, err := kgo.NewClient(kgo.SeedBrokers(a.w.Agent("b2").KafkaAddr))
	a.w.must(err)
	defer c.Close()
	// Its own partition only: all a group ever committed is for all owners to say, and the fleet's other topics have theirs.
	asked := kmsg.NewOffsetFetchRequestGroup()
	asked.Group = promotedGroup
	topic := kmsg.NewOffsetFetchRequestGroupTopic()
	topic.Topic, topic.Partitions = a.w.topic, []int32{0}
	asked.Topics = append(asked.Topics, topic)
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Groups = append(req.Groups, asked)
	var found int64
	a.w.await("the group is answered for", func() string {
		resp, err := req.RequestWith(a.w.ctx, c)
		if err != nil {
			return err.Error()
		}
		if code := resp.Groups[0].ErrorCode; code != 0 {
			return kerr.ErrorForCode(code).Error()
		}
		found = resp.Groups[0].Topics[0].Partitions[0].Offset
		return ""
	})
	if found != group {
		a.w.t.Fatalf("the group stood at %d and is found at %d", group, found)
	}
}

// copied starts a move and stops its worker once everything is copied and nothing is frozen yet.
func (w *world) copied(policy string) (client.WorkflowRun, *faultctl.Halt) {
	w.t.Helper()
	stopped := w.faults.Arm("worker1", "cutover.before")
	run := w.start("b2", func(in *protocol.MoveInput) { in.OnSourceLoss, in.PromoteAfter = policy, protocol.Duration(quickLoss) })
	w.must(stopped.Reached(w.ctx))
	return run, stopped
}

// The source dies for good while it is copied, and its copy becomes the partition with everything a client was told. Whoever
// else dies at the worst moment, it is done once; and a source that is back in time stays the owner.
func TestR2ADeadSourcesCopyIsPromoted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		meanwhile func(w *world) // after the source died
		back      bool           // the source is back before the promotion
	}{
		{"nobody else dies", func(*world) {}, false},
		{"the destination dies before it installs", func(w *world) { w.dieAt("b2", "promote.before", func() { w.must(w.RestartAgent(w.ctx, "b2")) }) }, false},
		{"the destination dies after it installed", func(w *world) { w.dieAt("b2", "promote.after", func() { w.must(w.RestartAgent(w.ctx, "b2")) }) }, false},
		{"the destination dies before the promotion", func(w *world) {
			stopped := w.faults.Arm("worker1", "promotion.installed")
			w.must(stopped.Reached(w.ctx))
			w.must(w.RestartAgent(w.ctx, "b2"))
			w.must(stopped.Continue())
		}, false},
		{"the worker dies before the promotion", func(w *world) { w.dieAt("worker1", "promotion.before", func() { w.must(w.RestartWorker(0)) }) }, false},
		{"the worker dies after the promotion", func(w *world) { w.dieAt("worker1", "ForcePromote.after", func() { w.must(w.RestartWorker(0)) }) }, false},
		{"the worker dies before it tells", func(w *world) { w.dieAt("worker1", "promotion.after", func() { w.must(w.RestartWorker(0)) }) }, false},
		{"the install's answer is lost", func(w *world) { w.must(w.faults.LoseReply("worker1", "Promote").Lost(w.ctx)) }, false},
		{"the promotion's reply is lost", func(w *world) { w.must(w.faults.LoseReply("worker1", "ForcePromote").Lost(w.ctx)) }, false},
		{"the source is back just before the promotion", func(w *world) {
			stopped := w.faults.Arm("worker1", "ForcePromote.before")
			w.must(stopped.Reached(w.ctx))
			w.must(w.StartAgent("b1"))
			w.must(w.WaitReady(w.ctx, "b1"))
			w.must(stopped.Continue())
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: fenceArgs})
			a := w.openAccount()
			a.write(50)
			a.commit(20)
			run, stopped := w.copied(protocol.LossAuto)
			w.must(w.KillAgent("b1"))
			w.must(stopped.Continue())
			c.meanwhile(w)
			result, err := w.end(run)
			if err != nil {
				t.Fatalf("the move ended with %v", err)
			}
			if result.Promoted == c.back || (!c.back && (result.Promotion == nil || result.End != 50)) {
				t.Errorf("the result is %+v", result)
			}
			a.write(10)
			a.holds(20)
			if !c.back {
				w.must(w.StartAgent("b1"))
			}
			w.settled("b2")
			if m := w.committedOnce(); m.Promoted == c.back || (!c.back && len(m.Evidence) == 0) {
				t.Errorf("the move is %+v", m)
			}
		})
	}
}

// dieAt kills a process where it stops and brings it back.
func (w *world) dieAt(process, point string, restart func()) {
	w.t.Helper()
	w.must(w.faults.Arm(process, point).Reached(w.ctx))
	restart()
}

// A person decides, by the command line: what would be missing and the warning are shown, nothing is done without --yes, and the
// source that comes back later sends its clients on.
func TestR3AMoveWhoseSourceIsGoneAsks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1})
	a := w.openAccount()
	a.write(30)
	a.commit(7)
	run, stopped := w.copied(protocol.LossAsk)
	w.must(w.KillAgent("b1"))
	w.must(stopped.Continue())
	w.await("the move asks", func() string {
		status, err := w.MoveStatus(w.ctx, w.topic, 0)
		if err != nil || status.Blocked != protocol.CodePromotionNeedsDecision {
			return fmt.Sprintf("it is %+v (%v)", status, err)
		}
		return ""
	})
	promote := func(more ...string) (string, int) {
		return w.command(append([]string{"move", "promote", w.topic + "/0", "--reason", "b1 burnt down", "--dsn", w.DSN()}, more...)...)()
	}
	out, code := promote()
	if code != 1 || !strings.Contains(out, "may still be acknowledging") || !strings.Contains(out, "ends at 30") || w.row().Owner != "b1" {
		t.Fatalf("without --yes it said (%d):\n%s", code, out)
	}
	if out, code = promote("--yes"); code != 0 || !strings.Contains(out, "is on b2") {
		t.Fatalf("with --yes it said (%d):\n%s", code, out)
	}
	result, err := w.end(run)
	if err != nil || !result.Promoted {
		t.Fatalf("the move ended as %+v (%v)", result, err)
	}
	a.write(5)
	a.holds(7)
	w.must(w.StartAgent("b1"))
	w.settled("b2")
	if m := w.committedOnce(); m.OutcomeReason == nil || !strings.Contains(*m.OutcomeReason, "burnt down") {
		t.Errorf("the move is %+v", m)
	}
}

// A move is given up: while its source is gone, and when its workflow is.
func TestAMoveIsAbandoned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1})
	a := w.openAccount()
	a.write(20)
	a.commit(3)
	_, stopped := w.copied(protocol.LossNever)
	w.must(w.KillAgent("b1"))
	w.must(stopped.Continue())
	w.await("the move waits for its source", func() string {
		status, err := w.MoveStatus(w.ctx, w.topic, 0)
		if err != nil || status.Blocked != protocol.CodeSourceLost {
			return fmt.Sprintf("it is %+v (%v)", status, err)
		}
		return ""
	})
	abandon := func() (string, int) {
		return w.command("move", "abandon", w.topic+"/0", "--reason", "no use", "--dsn", w.DSN(), "--single-node-metastore")()
	}
	if out, code := abandon(); code != 0 || !strings.Contains(out, "stays on b1") {
		t.Fatalf("it said (%d):\n%s", code, out)
	}
	w.must(w.StartAgent("b1"))
	w.settled("b1")
	// The copy is kept, and the next move takes it over.
	run, stopped := w.copied("")
	if m := w.moves()[0]; m.Ended() != "" {
		t.Fatalf("the second move is %+v", m)
	}
	w.must(w.Client.TerminateWorkflow(w.ctx, run.GetID(), run.GetRunID(), "by hand"))
	w.must(stopped.Continue())
	w.await("the claim of the terminated run is taken back", func() string {
		if m := w.moves()[0]; m.Ended() == metastore.OutcomeAborted {
			return ""
		}
		_, _ = abandon()
		return "it stands"
	})
	w.settled("b1")
	if result := w.mustMove("b2"); !result.Adopted {
		t.Errorf("the copy was made anew: %+v", result)
	}
	a.holds(3)
}

// A workflow is terminated while it holds its claim: the Supervisor takes it back without anybody asking, and the next move works.
func TestR17TheClaimOfATerminatedMoveIsTakenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1})
	load := w.startLoad()
	run, stopped := w.copied("")
	w.must(w.Client.TerminateWorkflow(w.ctx, run.GetID(), run.GetRunID(), "by hand"))
	w.must(stopped.Continue())
	w.settled("b1")
	details := ""
	w.await("the Supervisor says what it did", func() string {
		described, err := w.Client.DescribeWorkflow(w.ctx, protocol.SupervisorWorkflowID(w.TaskQueue()), "")
		if err != nil {
			return err.Error()
		}
		value, err := w.Client.QueryWorkflow(w.ctx, described.WorkflowExecution.ID, "", "__temporal_workflow_metadata")
		if err == nil {
			var metadata sdkpb.WorkflowMetadata
			if err = value.Get(&metadata); err == nil {
				details = metadata.CurrentDetails
			}
		}
		if !strings.Contains(details, run.GetID()) {
			return fmt.Sprintf("it says %q (%v)", details, err)
		}
		return ""
	})
	w.mustMove("b2")
	load.finish()
	w.committedOnce()
}

// The owner's disk is gone and a former copy is promoted by the command line: real clients read over the gap and write on behind it.
func TestR18APromotedCopyServesClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1})
	a := w.openAccount()
	a.write(20)
	w.mustMove("b2")
	a.write(10) // only b2 has these
	w.await("b2 has reported its end", func() string {
		if end, err := w.Store.LastKnownEnd(w.ctx, w.row()); err != nil || end != 30 {
			return fmt.Sprintf("%d (%v)", end, err)
		}
		return ""
	})
	promote := func(more ...string) (string, int) {
		return w.run(append([]string{"promote", w.topic + "/0", "--dsn", w.DSN(), "--single-node-metastore", "--token-file", w.TokenFile()}, more...)...)
	}
	if out, code := promote("--from", "b1", "--accept-loss"); code != 1 || !strings.Contains(out, "alive") {
		t.Fatalf("over a living owner it said (%d):\n%s", code, out)
	}
	w.must(w.KillAgent("b2"))
	if out, code := promote(); code != 1 || !strings.Contains(out, "moved away") || !strings.Contains(out, "b2") || !strings.Contains(out, "may still be acknowledging") {
		t.Fatalf("without --from it said (%d):\n%s", code, out)
	}
	if out, code := promote("--from", "b1", "--accept-loss", "--reason", "b2 burnt down"); code != 0 || !strings.Contains(out, "10 offsets are lost") {
		t.Fatalf("it said (%d):\n%s", code, out)
	}
	w.await("b1 has it open", func() string {
		if p := w.partition("b1"); p.State != "open" {
			return fmt.Sprintf("it is %s: %s", p.State, p.Reason)
		}
		return ""
	})
	// A client that never heard of b2 writes behind the gap and reads over it.
	c, err := kgo.NewClient(kgo.SeedBrokers(w.Agent("b1").KafkaAddr), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{w.topic: {0: kgo.NewOffset().AtStart()}}))
	w.must(err)
	defer c.Close()
	r := &kgo.Record{Topic: w.topic, Partition: 0, Value: []byte("behind")}
	w.must(c.ProduceSync(w.ctx, r).FirstErr())
	if r.Offset != 30 {
		t.Errorf("the next record is at %d", r.Offset)
	}
	var read []int64
	for len(read) < 21 && w.ctx.Err() == nil {
		c.PollFetches(w.ctx).EachRecord(func(r *kgo.Record) { read = append(read, r.Offset) })
	}
	if len(read) != 21 || read[19] != 19 || read[20] != 30 {
		t.Errorf("read were %v", read)
	}
	out, err := exec.CommandContext(w.ctx, "kcat", "-b", w.Agent("b1").KafkaAddr, "-C", "-t", w.topic, "-p", "0", "-o", "22", "-e", "-q", "-f", "%o ").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "30" {
		t.Errorf("kcat read %q from within the gap (%v)", out, err)
	}
	// The former owner comes back with what only it has.
	w.must(w.StartAgent("b2"))
	var copyID string // other tests' topics may have been on this broker
	w.await("what only b2 has is in quarantine", func() string {
		kept, err := w.Agents.Retained(w.ctx, w.Agent("b2").ControlURL)
		for _, c := range kept.Copies {
			if c.TopicID == w.id && c.Quarantined && c.Records == 10 {
				copyID = c.ID
				return ""
			}
		}
		return fmt.Sprintf("%+v (%v)", kept, err)
	})
	export := func() (string, int) {
		return w.run("quarantine", "export", copyID, "--dsn", w.DSN(), "--token-file", w.TokenFile())
	}
	if out, code := export(); code != 0 || strings.Count(out, "\n") != 10 || !strings.Contains(out, `"offset":20,`) {
		t.Errorf("the export said (%d):\n%s", code, out)
	}
}

// A move is cancelled before it came to its claim: its id ends all the same, so that a claim on its way would be refused.
func TestAMoveCancelledBeforeItsClaimEndsItsID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1})
	w.must(w.KillWorker(0))
	run := w.start("b2")
	w.cancel(run)
	lost := w.faults.LoseReply("worker1", "BuryMove")
	w.must(w.StartWorker(0))
	w.must(lost.Lost(w.ctx))
	if _, err := w.end(run); !temporal.IsCanceledError(err) {
		t.Fatalf("the cancelled move ended with %v", err)
	}
	w.settled("b1")
	if all := w.moves(); len(all) != 1 || all[0].Kind != metastore.KindBuried || all[0].Ended() != metastore.OutcomeAborted {
		t.Errorf("recorded are %+v", all)
	}
	w.mustMove("b2")
}
