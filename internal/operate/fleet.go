package operate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"portage/brokeragent/control"
	"portage/metastore"
)

// Fleet is what orders are given to. What an order does not need may be nil: moves, swaps, rebalances and decommissions are
// Temporal's; members, scores and pauses are the metastore's.
type Fleet struct {
	Temporal  client.Client
	Namespace string
	TaskQueue string
	Store     *metastore.Store
	Agents    *control.Client
}

// Repeat says what a start does that finds its workflow running, or ended under the same key. The zero value refuses a second.
type Repeat struct {
	// Join takes a running workflow that was asked for with the same input, word for word, for this start's own.
	Join bool
	// Key names the order: the newest workflow that was started under it is taken for this start's own, even once it has ended.
	Key string
}

// Started names the workflow of an order.
type Started struct {
	WorkflowID string `json:"workflowId"`
	RunID      string `json:"runId"`
	// Joined: it was started before, by the same order.
	Joined bool `json:"joined,omitempty"`
}

// Memos of every workflow that is started here.
const (
	memoInput = "order" // fingerprint of its input
	memoKey   = "orderKey"
)

// order is one workflow to be started under an id that only one holds at a time.
type order struct {
	id, workflow, summary string
	in                    any
	busy                  string // the sentence for one that is running and is another order's
	joinAny               bool   // whatever a running one was asked for
	repeat                Repeat
	against               error // why it does not start any more; one that it has started is joined all the same
}

// start starts a workflow. The reply is lost: the same order joins it, a person is told that it is running.
func (f *Fleet) start(ctx context.Context, o order) (Started, error) {
	input, err := json.Marshal(o.in)
	if err != nil {
		return Started{}, errorf(Invalid, CodeInvalidInput, "the input can not be written: %v", err)
	}
	sum := sha256.Sum256(input)
	print := hex.EncodeToString(sum[:16])
	if o.repeat.Key != "" {
		if s, err := f.underKey(ctx, o.id, o.repeat.Key, print); err != nil || s.RunID != "" {
			return s, err
		}
	}
	if o.against != nil {
		return f.again(ctx, o, print)
	}
	run, err := f.Temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: o.id, TaskQueue: f.TaskQueue,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL, WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true, StaticSummary: o.summary, Memo: map[string]any{memoInput: print, memoKey: o.repeat.Key}}, o.workflow, o.in)
	var running *serviceerror.WorkflowExecutionAlreadyStarted
	switch {
	case err == nil:
		return Started{WorkflowID: run.GetID(), RunID: run.GetRunID()}, nil
	case !errors.As(err, &running):
		return Started{}, ofTemporal(err)
	case o.joinAny:
		return Started{WorkflowID: o.id, RunID: running.RunId, Joined: true}, nil
	case o.repeat.Join:
		described, err := f.Temporal.DescribeWorkflow(ctx, o.id, running.RunId)
		if err != nil {
			return Started{}, ofTemporal(err)
		}
		if memoOf(described, memoInput) == print {
			return Started{WorkflowID: o.id, RunID: running.RunId, Joined: true}, nil
		}
	}
	return Started{}, errorf(Refused, CodeAlreadyRunning, "%s", o.busy)
}

// again joins what an order has started that may not start any more, or says why it may not.
func (f *Fleet) again(ctx context.Context, o order, print string) (Started, error) {
	described, err := f.Temporal.DescribeWorkflow(ctx, o.id, "")
	switch {
	case err != nil && !missing(err):
		return Started{}, ofTemporal(err)
	case err == nil && o.repeat.Join && described.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING && memoOf(described, memoInput) == print:
		return Started{WorkflowID: o.id, RunID: described.WorkflowExecution.RunID, Joined: true}, nil
	}
	return Started{}, o.against
}

// underKey finds the newest workflow of an id when it was started under a key; nothing when it was not.
func (f *Fleet) underKey(ctx context.Context, id, key, print string) (Started, error) {
	described, err := f.Temporal.DescribeWorkflow(ctx, id, "")
	switch {
	case missing(err):
		return Started{}, nil
	case err != nil:
		return Started{}, ofTemporal(err)
	case memoOf(described, memoKey) != key:
		return Started{}, nil
	case memoOf(described, memoInput) != print:
		return Started{}, errorf(Refused, CodeKeyReused, "the idempotency key %q was used for another order; give each order a key of its own", key)
	}
	return Started{WorkflowID: id, RunID: described.WorkflowExecution.RunID, Joined: true}, nil
}

func memoOf(d *client.WorkflowExecutionDescription, name string) (value string) {
	if p, ok := d.Memo.GetFields()[name]; ok {
		_ = converter.GetDefaultDataConverter().FromPayload(p, &value) // another writer's memo is no match
	}
	return value
}

// cancel asks a workflow to cancel; by and reason stand in its history.
func (f *Fleet) cancel(ctx context.Context, id, by, reason string) error {
	if by != "" || reason != "" {
		reason = by + ": " + reason
	}
	_, err := f.Temporal.WorkflowService().RequestCancelWorkflowExecution(ctx, &workflowservice.RequestCancelWorkflowExecutionRequest{Namespace: f.Namespace,
		WorkflowExecution: &common.WorkflowExecution{WorkflowId: id}, Reason: reason})
	return err
}

// running reports whether a workflow runs; false also when Temporal does not know it (any more).
func (f *Fleet) running(ctx context.Context, id, run string) (bool, error) {
	described, err := f.Temporal.DescribeWorkflow(ctx, id, run)
	switch {
	case missing(err):
		return false, nil
	case err != nil:
		return false, ofTemporal(err)
	}
	return described.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING, nil
}

// begun looks at a workflow until it is over what may still refuse it, or has ended; then its end is the error. One that no worker takes up
// is left as it is: it stays queued.
func begun[S any](ctx context.Context, f *Fleet, s Started, look func() (S, error), over func(S) bool, end func() error) (S, error) {
	last := time.Now()
	for {
		status, err := look()
		switch {
		case err == nil:
			last = time.Now()
		case NoWorker(err) && time.Since(last) >= answerBound:
			return status, err
		case ctx.Err() != nil:
			return status, ctx.Err()
		}
		if err == nil && over(status) {
			return status, nil
		}
		running, err := f.running(ctx, s.WorkflowID, s.RunID)
		if err != nil {
			return status, err
		}
		if !running {
			return status, end()
		}
		if err := pause(ctx, pollEvery); err != nil {
			return status, err
		}
	}
}

// pollEvery is how often a workflow is asked that has no event to wait for.
const pollEvery = 100 * time.Millisecond

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
