package worker

import (
	"context"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"portage/workflows/protocol"
)

// ensureEvery is how often a worker sees to it that the fleet's standing workflows run: one that was terminated, or whose
// server's data was lost, is started again.
const ensureEvery = 30 * time.Second

// standing are the workflows of which a fleet always has one.
func standing(cfg Config) []standingWorkflow {
	return []standingWorkflow{
		{protocol.WorkflowSupervisor, protocol.SupervisorWorkflowID(cfg.TaskQueue), "takes back the claims of moves whose workflow is gone",
			protocol.SupervisorInput{Every: protocol.Duration(cfg.SuperviseEvery)}},
		{protocol.WorkflowAutobalance, protocol.AutobalanceWorkflowID(cfg.TaskQueue), "balances the fleet by itself, when the setting autobalance says so", protocol.AutobalanceInput{}},
	}
}

type standingWorkflow struct {
	name, id, summary string
	input             any
}

// superviseFrom keeps the fleet's standing workflows running, whichever worker started them, until stop is called.
func superviseFrom(ctx context.Context, cfg Config) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			for _, w := range standing(cfg) {
				_, err := cfg.Temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: w.id, TaskQueue: cfg.TaskQueue,
					WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING, StaticSummary: w.summary}, w.name, w.input)
				if err != nil && ctx.Err() == nil {
					cfg.Logger.Warn("a workflow that the fleet always has was not started; trying again", "workflow", w.name, "error", err)
				}
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
