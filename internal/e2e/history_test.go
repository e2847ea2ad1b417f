package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"portage/workflows"
	"portage/workflows/protocol"
)

// recordAs names the release under which the histories are kept; empty: they are replayed and not kept.
var recordAs = os.Getenv("PORTAGE_RECORD")

const histories = "../../workflows/testdata"

// paths are the ways a move can go, each with what brings it there. All begin with the partition on b1 and start one move.
var paths = []struct {
	name string
	take func(w *world, l *load) client.WorkflowRun
}{
	{"done", func(w *world, _ *load) client.WorkflowRun { return w.start("b2") }},
	{"refused", func(w *world, _ *load) client.WorkflowRun { return w.start("b9") }},
	{"rolled-back", func(w *world, _ *load) client.WorkflowRun { // refused after its claim: something is in the place
		w.must(os.MkdirAll(w.partitionDir("b2"), 0o755))
		w.must(os.WriteFile(filepath.Join(w.partitionDir("b2"), "precious.txt"), []byte("not a log"), 0o644))
		return w.start("b2")
	}},
	{"cancelled", func(w *world, _ *load) client.WorkflowRun {
		frozen := w.faults.Arm("worker1", "cutover.frozen")
		run := w.start("b2")
		w.must(frozen.Reached(w.ctx))
		w.cancel(run)
		w.must(frozen.Continue())
		return run
	}},
	{"cancelled-too-late", func(w *world, _ *load) client.WorkflowRun { // committed, and the answer comes late
		commit := w.faults.Arm("worker1", "commit.before")
		run := w.start("b2")
		w.must(commit.Reached(w.ctx))
		w.cancel(run)
		w.await("the cancel has arrived", func() string { return w.lacksEvent(run, enums.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED) })
		w.must(commit.Continue())
		return run
	}},
	{"started-over", func(w *world, _ *load) client.WorkflowRun { // the freeze's lease ends
		frozen := w.faults.Arm("worker1", "cutover.frozen")
		run := w.start("b2")
		w.must(frozen.Reached(w.ctx))
		w.released()
		w.must(frozen.Continue())
		return run
	}},
	{"blocked", func(w *world, l *load) client.WorkflowRun { // the source is away for a while
		l.fill(8)
		run := w.start("b2", func(in *protocol.MoveInput) { in.Limit = 1 << 20 })
		w.phase(run, protocol.PhaseCopy)
		w.must(w.KillAgent("b1"))
		w.await("the move says that it is blocked", func() string {
			if status, err := w.MoveStatus(w.ctx, w.topic, 0); err != nil || status.Blocked == "" {
				return "it is not"
			}
			return ""
		})
		w.must(w.StartAgent("b1"))
		w.tune(run, protocol.Tune{Limit: &fullSpeed})
		return run
	}},
	{"promoted", func(w *world, l *load) client.WorkflowRun { return w.decided(l, protocol.DecisionPromote) }},
	{"abandoned", func(w *world, l *load) client.WorkflowRun { return w.decided(l, protocol.DecisionAbandon) }},
	{"swap-done", func(w *world, _ *load) client.WorkflowRun { return w.startSwap() }},
	{"swap-refused", func(w *world, _ *load) client.WorkflowRun {
		return w.startSwap(func(in *protocol.SwapInput) { in.B.Topic = "nowhere" })
	}},
	{"swap-cancelled", func(w *world, _ *load) client.WorkflowRun {
		frozen := w.faults.Arm("worker1", "swap.frozen")
		run := w.startSwap()
		w.must(frozen.Reached(w.ctx))
		w.cancel(run)
		w.must(frozen.Continue())
		return run
	}},
	{"swap-started-over", func(w *world, _ *load) client.WorkflowRun { // a freeze's lease ends
		frozen := w.faults.Arm("worker1", "swap.frozen")
		run := w.startSwap()
		w.must(frozen.Reached(w.ctx))
		w.released()
		w.must(frozen.Continue())
		return run
	}},
	{"swap-abandoned", func(w *world, _ *load) client.WorkflowRun {
		cutover := w.faults.Arm("worker1", "swap.before")
		run := w.startSwap()
		w.must(cutover.Reached(w.ctx))
		w.must(w.Client.SignalWorkflow(w.ctx, run.GetID(), run.GetRunID(), protocol.DecisionAbandon, protocol.Decision{By: "test", Reason: "no use"}))
		w.must(cutover.Continue())
		return run
	}},
}

// decided starts a move whose source dies before the cutover, and lets a person decide.
func (w *world) decided(l *load, decision string) client.WorkflowRun {
	w.t.Helper()
	l.finish() // so that the copy has all there is
	cutover := w.faults.Arm("worker1", "cutover.before")
	run := w.start("b2", func(in *protocol.MoveInput) { in.PromoteAfter = protocol.Duration(5 * time.Second) })
	w.must(cutover.Reached(w.ctx))
	w.must(w.KillAgent("b1"))
	w.must(cutover.Continue())
	w.blocked(run, protocol.CodePromotionNeedsDecision)
	_, err := w.Client.UpdateWorkflow(w.ctx, client.UpdateWorkflowOptions{WorkflowID: run.GetID(), RunID: run.GetRunID(), UpdateName: decision,
		Args: []any{protocol.Decision{By: "test", Reason: "the disk burnt down"}}, WaitForStage: client.WorkflowUpdateStageAccepted})
	w.must(err)
	return run
}

// Each path's history, from real services, replays against the workflow code. With PORTAGE_RECORD=RELEASE the histories are
// kept in workflows/testdata, where every later run replays them.
func TestHistoriesOfEachPathReplay(t *testing.T) {
	t.Parallel()
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease})
			run := path.take(w, w.startLoad())
			_, _ = w.end(run) // how it ends is the path's own business
			w.replays(run, path.name)
		})
	}
	t.Run("supervisor", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, setup{brokers: 2, workers: 1, workerArgs: []string{"--supervise-every", "200ms"}})
		run := w.Client.GetWorkflow(w.ctx, protocol.SupervisorWorkflowID(w.TaskQueue()), "")
		w.await("the Supervisor has made a few passes", func() string {
			described, err := w.Client.DescribeWorkflow(w.ctx, run.GetID(), "")
			if err != nil {
				return err.Error()
			}
			if n := described.RawResponse.GetWorkflowExecutionInfo().GetHistoryLength(); n < 40 {
				return fmt.Sprintf("its history has %d events", n)
			}
			return ""
		})
		w.must(w.Client.TerminateWorkflow(w.ctx, run.GetID(), "", "its history is wanted"))
		w.replays(run, "supervisor")
	})
}

// replays replays a run's history against today's code, and keeps it when that is asked for.
func (w *world) replays(run client.WorkflowRun, name string) {
	w.t.Helper()
	h := w.history(run)
	if recordAs != "" {
		encoded, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(h)
		w.must(err)
		w.must(os.WriteFile(filepath.Join(histories, recordAs+"-"+name+".json"), append(encoded, '\n'), 0o644))
	}
	replayer := sdk.NewWorkflowReplayer()
	replayer.RegisterWorkflowWithOptions(workflows.Move, workflow.RegisterOptions{Name: protocol.WorkflowMove})
	replayer.RegisterWorkflowWithOptions(workflows.Swap, workflow.RegisterOptions{Name: protocol.WorkflowSwap})
	replayer.RegisterWorkflowWithOptions(workflows.Rebalance, workflow.RegisterOptions{Name: protocol.WorkflowRebalance})
	replayer.RegisterWorkflowWithOptions(workflows.Decommission, workflow.RegisterOptions{Name: protocol.WorkflowDecommission})
	replayer.RegisterWorkflowWithOptions(workflows.Supervisor, workflow.RegisterOptions{Name: protocol.WorkflowSupervisor})
	replayer.RegisterWorkflowWithOptions(workflows.Autobalance, workflow.RegisterOptions{Name: protocol.WorkflowAutobalance})
	if err := replayer.ReplayWorkflowHistory(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), h); err != nil {
		w.t.Error(err)
	}
}

// history is everything that Temporal has written of a run.
func (w *world) history(run client.WorkflowRun) *history.History {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
	defer cancel()
	h := &history.History{}
	for events := w.Client.GetWorkflowHistory(ctx, run.GetID(), run.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		event, err := events.Next()
		w.must(err)
		h.Events = append(h.Events, event)
	}
	return h
}
