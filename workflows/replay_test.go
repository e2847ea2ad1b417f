package workflows

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// recordedPaths are the ways a move and a swap can go, the Supervisor's, and those of a fleet, of which at least one recording is kept.
var recordedPaths = []string{"done", "refused", "rolled-back", "cancelled", "cancelled-too-late", "started-over", "blocked", "promoted", "abandoned", "supervisor",
	"swap-done", "swap-refused", "swap-cancelled", "swap-started-over", "swap-abandoned",
	"rebalance", "rebalance-swap", "decommission", "autobalance"}

func recordings(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func replay(file string, move, swap, supervisor, rebalance, decommission, autobalance any) error {
	replayer := worker.NewWorkflowReplayer()
	replayer.RegisterWorkflowWithOptions(move, workflow.RegisterOptions{Name: protocol.WorkflowMove})
	replayer.RegisterWorkflowWithOptions(swap, workflow.RegisterOptions{Name: protocol.WorkflowSwap})
	replayer.RegisterWorkflowWithOptions(rebalance, workflow.RegisterOptions{Name: protocol.WorkflowRebalance})
	replayer.RegisterWorkflowWithOptions(decommission, workflow.RegisterOptions{Name: protocol.WorkflowDecommission})
	replayer.RegisterWorkflowWithOptions(supervisor, workflow.RegisterOptions{Name: protocol.WorkflowSupervisor})
	replayer.RegisterWorkflowWithOptions(autobalance, workflow.RegisterOptions{Name: protocol.WorkflowAutobalance})
	return replayer.ReplayWorkflowHistoryFromJSONFile(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), file)
}

// Workflows that began under an earlier release go on under this one: what they have recorded replays.
func TestRecordedHistoriesReplay(t *testing.T) {
	files := recordings(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			if err := replay(file, Move, Swap, Supervisor, Rebalance, Decommission, Autobalance); err != nil {
				t.Errorf("a running move would not go on under this code; see docs/replay.md: %v", err)
			}
		})
	}
	for _, path := range recordedPaths {
		if !slices.ContainsFunc(files, func(file string) bool { return strings.HasSuffix(file, "-"+path+".json") }) {
			t.Errorf("there is no recording of the path %q: ./task record-histories makes one", path)
		}
	}
}

// A workflow that does something else does not replay: the recordings would tell.
func TestRecordedHistoriesTellAChange(t *testing.T) {
	for _, file := range recordings(t) {
		other := func(ctx workflow.Context, _ any) error {
			return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 1}), protocol.ActivityEnsure).Get(ctx, nil)
		}
		if err := replay(file, other, other, other, other, other, other); err == nil {
			t.Errorf("%s replays under a workflow that does something else", file)
		}
	}
}
