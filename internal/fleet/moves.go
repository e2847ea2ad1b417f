package fleet

import (
	"context"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"portage/workflows/protocol"
)

// StartMove starts a move under the partition's workflow id.
func (f *Fleet) StartMove(ctx context.Context, in protocol.MoveInput) (client.WorkflowRun, error) {
	return f.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: protocol.PartitionWorkflowID(in.Topic, *in.Partition), TaskQueue: f.options.TaskQueue,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL, WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary: fmt.Sprintf("move %s/%d to %s", in.Topic, *in.Partition, in.To)}, protocol.WorkflowMove, in)
}

// StartSwap starts a swap under the workflow id of its two partitions.
func (f *Fleet) StartSwap(ctx context.Context, in protocol.SwapInput) (client.WorkflowRun, error) {
	return f.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: protocol.SwapWorkflowID(in.A, in.B), TaskQueue: f.options.TaskQueue,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL, WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary: fmt.Sprintf("swap %s and %s", in.A, in.B)}, protocol.WorkflowSwap, in)
}

// Move moves one partition and waits for the end.
func (f *Fleet) Move(ctx context.Context, topic string, partition int32, to string) (protocol.MoveResult, error) {
	var result protocol.MoveResult
	run, err := f.StartMove(ctx, protocol.MoveInput{Topic: topic, Partition: &partition, To: to, By: "fleet"})
	if err == nil {
		err = run.Get(ctx, &result)
	}
	if err != nil {
		return result, fmt.Errorf("move %s/%d to %s: %w", topic, partition, to, err)
	}
	return result, nil
}

// MoveStatus asks a move where it is.
func (f *Fleet) MoveStatus(ctx context.Context, topic string, partition int32) (protocol.Status, error) {
	var status protocol.Status
	value, err := f.Client.QueryWorkflow(ctx, protocol.PartitionWorkflowID(topic, partition), "", protocol.QueryStatus)
	if err == nil {
		err = value.Get(&status)
	}
	return status, err
}
