package workflows

import (
	"testing"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// children sees with which options a workflow starts others.
type children struct {
	interceptor.WorkerInterceptorBase
	started map[string]workflow.ChildWorkflowOptions // by workflow id
}

func childrenOf(env *testsuite.TestWorkflowEnvironment) *children {
	c := &children{started: map[string]workflow.ChildWorkflowOptions{}}
	env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{c}})
	return c
}

func (c *children) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &childrenIn{interceptor.WorkflowInboundInterceptorBase{Next: next}, c}
}

type childrenIn struct {
	interceptor.WorkflowInboundInterceptorBase
	children *children
}

func (i *childrenIn) Init(next interceptor.WorkflowOutboundInterceptor) error {
	return i.Next.Init(&childrenOut{interceptor.WorkflowOutboundInterceptorBase{Next: next}, i.children})
}

type childrenOut struct {
	interceptor.WorkflowOutboundInterceptorBase
	children *children
}

func (o *childrenOut) ExecuteChildWorkflow(ctx workflow.Context, name string, args ...any) workflow.ChildWorkflowFuture {
	options := workflow.GetChildWorkflowOptions(ctx)
	o.children.started[options.WorkflowID] = options
	return o.Next.ExecuteChildWorkflow(ctx, name, args...)
}

// Whatever closes a parent by force, its children are asked to cancel: a move that is terminated with it would leave its claim
// and its freeze behind, one that is abandoned would go on with nobody watching. A parent that is cancelled waits for them.
func TestChildrenAreAskedToCancelWhenTheirParentIsClosed(t *testing.T) {
	var seen []*children
	rebalance := newRebalancing(t, append([]protocol.PlannedAction{swapOf(0, 5, "b1", "b2")}, planned(1, moves(1))...))
	seen = append(seen, childrenOf(rebalance.env))
	rebalance.mustRun(protocol.RebalanceInput{})

	swap := newSwapWorld(t)
	seen = append(seen, childrenOf(swap.env))
	swap.before[protocol.ActivitySwapClaim] = func(int) error { return tooLittleRoom() }
	swap.moved = func(in protocol.MoveInput) (*protocol.MoveResult, error) {
		return &protocol.MoveResult{Topic: in.Topic, Partition: *in.Partition, To: in.To}, nil
	}
	in := swapInput()
	in.TwoMoves = true
	if _, err := swap.swap(in); err != nil {
		t.Fatal(err)
	}

	decommission := newLeaving(t, 1)
	seen = append(seen, childrenOf(decommission.env))
	if _, err := decommission.run(t, protocol.DecommissionInput{}); err != nil {
		t.Fatal(err)
	}

	for n, want := range [][]string{{"partition:orders:0", "swap:orders:5:payments:5"}, {"partition:orders:3", "partition:payments:1"}, {"rebalance:decommission:b4"}} {
		for _, id := range want {
			options, ok := seen[n].started[id]
			if !ok || options.ParentClosePolicy != enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL || !options.WaitForCancellation {
				t.Errorf("%s was started: %v, with %+v", id, ok, options)
			}
		}
		if len(seen[n].started) != len(want) {
			t.Errorf("started were %+v", seen[n].started)
		}
	}
}
