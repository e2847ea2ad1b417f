package worker

import (
	"context"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"portage/workflows/protocol"
)

// ensureEvery is how often a worker sees to it that the fleet's Supervisor runs: one that was terminated, or whose server's
// data was lost, is started again.
const ensureEvery = 30 * time.Second

// superviseFrom keeps the fleet's one Supervisor running, whichever worker started it, until stop is called.
func superviseFrom(ctx context.Context, cfg Config) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			_, err := cfg.Temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: protocol.SupervisorWorkflowID(cfg.TaskQueue), TaskQueue: cfg.TaskQueue,
				WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING, StaticSummary: "takes back the claims of moves whose workflow is gone"},
				protocol.WorkflowSupervisor, protocol.SupervisorInput{Every: protocol.Duration(cfg.SuperviseEvery)})
			if err != nil && ctx.Err() == nil {
				cfg.Logger.Warn("the Supervisor was not started; trying again", "error", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(ensureEvery):
			}
		}
	}()
	return func() { cancel(); <-ended }
}
