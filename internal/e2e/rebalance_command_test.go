package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/client"

	"portage/internal/operate"
	"portage/metastore"
	"portage/workflows/protocol"
)

// heard is what a process has said so far.
type heard struct {
	mu   sync.Mutex
	said bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.said.Write(p)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.said.String()
}

// interrupted runs a command, interrupts it once it has said something on stderr, and gives how it exits with all it has said.
func (w *world) interrupted(once string, args ...string) (stdout, stderr string, code int) {
	w.t.Helper()
	cmd := exec.CommandContext(w.ctx, binary, append(args, "--temporal-address", w.Temporal.Address(), "--task-queue", w.TaskQueue())...)
	var out, errs heard
	cmd.Stdout, cmd.Stderr = &out, &errs
	w.must(cmd.Start())
	w.await("the command says that it waits", func() string {
		if said := errs.String(); !strings.Contains(said, once) {
			return fmt.Sprintf("it says %q", said)
		}
		return ""
	})
	w.must(cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // its exit code says it
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// What a person can type against a rebalance, while one waits, moves, has ended, and without any worker.
func TestARebalanceFromTheCommandLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 3, workers: 1, alone: true})
	const partitions = 9
	w.must(w.CreateTopic(w.ctx, w.topic+"-wide", partitions, slices.Repeat([]string{"b1"}, partitions)...))
	expect := func(what string, code int, says string, args ...string) string {
		t.Helper()
		out, got := w.command(args...)()
		if got != code || !strings.Contains(out, says) {
			t.Errorf("%s: exit code %d, want %d, with %q:\n%s", what, got, code, says, out)
		}
		return out
	}
	reason := []string{"--reason", "test"}
	with := func(args ...string) []string { return append(args, reason...) }

	// Nothing runs.
	expect("a cancel of nothing", 1, "("+operate.CodeNoRebalance+")", with("rebalance", "cancel")...)
	expect("a pause of nothing", 1, "("+operate.CodeNoRebalance+")", with("rebalance", "pause")...)
	expect("a decommission's cancel", 1, "("+operate.CodeNoDecommission+")", with("cluster", "decommission", "b2", "--cancel")...)
	expect("the same with the metastore", 1, "("+operate.CodeNoDecommission+")", with("cluster", "decommission", "b2", "--cancel", "--dsn", w.DSN())...)
	expect("a hash that nobody knows", 1, "("+metastore.CodeUnknownPlan+")", with("rebalance", "--approve", "0123456789")...)
	expect("an id that nobody knows", 1, "("+metastore.CodeUnknownPlan+")", with("rebalance", "--undo", "nope")...)
	expect("its status", 0, "failed since", "rebalance", "status")
	expect("a cancel after it", 1, "("+operate.CodeNoRebalance+")", with("rebalance", "cancel")...)

	// One waits for its approval.
	_, err := w.Client.ExecuteWorkflow(w.ctx, client.StartWorkflowOptions{ID: protocol.RebalanceWorkflowID(w.TaskQueue()), TaskQueue: w.TaskQueue()}, protocol.WorkflowRebalance, protocol.RebalanceInput{Approve: true})
	w.must(err)
	var hash string
	w.await("a plan waits", func() string {
		s, err := w.rebalanceStatus()
		if err != nil || s.Phase != protocol.PhaseApproval {
			return s.Phase
		}
		hash = s.Plan.Hash
		return ""
	})
	out := expect("an approval that would change it", 2, "--max-in-flight", with("rebalance", "--approve", hash, "--canary", "1", "--max-in-flight", "1")...)
	if !strings.Contains(out, "--canary") {
		t.Errorf("the refusal does not name the canary: %s", out)
	}
	if s, err := w.rebalanceStatus(); err != nil || s.Phase != protocol.PhaseApproval {
		t.Errorf("after it, the rebalance is %s (%v)", s.Phase, err)
	}
	expect("limits, so that nothing begins", 0, "goes on", with("rebalance", "tune", "--max-in-flight", "0")...)
	expect("a pause", 0, "is paused", with("rebalance", "pause", "--dsn", w.DSN())...)
	expect("limits while it is paused", 0, "once it is resumed", with("rebalance", "tune", "--move-rate", "1MiB")...)
	expect("the status of a pause", 0, "paused by", "rebalance", "status")
	expect("it goes on", 0, "goes on", with("rebalance", "resume")...)
	expect("a partition that is none", 1, "("+metastore.CodeUnknownPartition+")", with("rebalance", "skip", "nope/7", "--dsn", w.DSN())...)
	expect("the approval", 0, "rebalancing under", with("rebalance", "--approve", hash)...)
	expect("the limits in force", 0, "limits: 0 moves in flight", "rebalance", "status")
	expect("a second", 1, "("+operate.CodeAlreadyRunning+")", with("rebalance", "--undo", "nope", "--wait")...)
	expect("it is cancelled", 0, "has ended", with("rebalance", "cancel")...)

	// One is waited for, and the person gives up.
	stdout, stderr, code := w.interrupted("moving: 0 moved", with("rebalance", "--wait", "--max-in-flight", "0")...)
	if code != 130 || stdout != "" || strings.Contains(stderr, "Temporal does not answer") {
		t.Errorf("interrupted: %d %q %q", code, stdout, stderr)
	}
	// Nobody is there to take anything up.
	w.must(w.KillWorker(0))
	expect("a pause without a worker", 3, "nothing was changed", with("rebalance", "pause")...)
	expect("the status without a worker", 3, "("+operate.CodeNoWorker+")", "rebalance", "status")
	expect("a dry run without a worker", 3, "nothing stays queued", "rebalance", "--dry-run")
	expect("a decommission without a worker", 3, "stays queued", with("cluster", "decommission", "b3", "--wait")...)
	expect("a move without a worker", 3, "stays queued", "move", "start", w.topic+"/0", "--to", "b2", "--wait")
	out = expect("a cancel without a worker", 3, "is cancelled once", with("rebalance", "cancel", "--dsn", w.DSN())...)
	if strings.Contains(out, "Temporal") {
		t.Errorf("Temporal is blamed: %s", out)
	}
	// The audit has who steered it and why, where it was at hand.
	db, err := pgx.Connect(w.ctx, w.DSN())
	w.must(err)
	defer db.Close(w.ctx)
	for _, action := range []string{"cli_rebalance_pause", "cli_rebalance_skip", "cli_rebalance_cancel", "cli_decommission_cancel"} {
		var n int
		w.must(db.QueryRow(w.ctx, "SELECT count(*) FROM audit WHERE action = $1 AND actor <> '' AND reason = 'test'", action).Scan(&n))
		if n != 1 {
			t.Errorf("the audit has %d lines of %s", n, action)
		}
	}
}
