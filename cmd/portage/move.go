package main

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"portage/activities"
	"portage/brokeragent/control"
	"portage/planner"
	"portage/workflows/protocol"
)

type moveCmd struct {
	Start  moveStartCmd  `cmd:"" help:"Move one partition to another broker."`
	Status moveStatusCmd `cmd:"" help:"Show where a move is and what blocks it."`
	Tune   moveTuneCmd   `cmd:"" help:"Change the pace of a running move, or force its cutover."`
	Cancel moveCancelCmd `cmd:"" help:"Cancel a move; before its commit everything is restored."`

	Promote movePromoteCmd `cmd:"" help:"Let the copy of a move whose source is gone become the partition."`
	Abandon moveAbandonCmd `cmd:"" help:"Give a move up, also one whose workflow is gone; what was copied is kept in trash."`
}

// partitionArg is a partition as people write it: orders/3.
type partitionArg struct {
	topic  string
	number int32
}

// UnmarshalText reads "topic/number".
func (p *partitionArg) UnmarshalText(text []byte) error {
	i := strings.LastIndexByte(string(text), '/')
	if i <= 0 {
		return fmt.Errorf("%q is not a partition; write topic/number, as orders/3", text)
	}
	n, err := strconv.ParseInt(string(text[i+1:]), 10, 32)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is not a partition; write topic/number, as orders/3", text)
	}
	p.topic, p.number = string(text[:i]), int32(n)
	return nil
}

func (p partitionArg) String() string     { return fmt.Sprintf("%s/%d", p.topic, p.number) }
func (p partitionArg) workflowID() string { return protocol.PartitionWorkflowID(p.topic, p.number) }

type moveStartCmd struct {
	Partition partitionArg      `arg:"" help:"The partition, as orders/3."`
	To        string            `help:"Destination broker." required:""`
	Wait      bool              `help:"Watch the move until it ends."`
	DryRun    bool              `help:"Check only; needs --dsn and --token-file."`
	Reason    string            `help:"Why, for the audit."`
	Limit     protocol.ByteSize `help:"Bytes a second of the copy; 0 is no limit." default:"0"`
	Force     bool              `help:"Accept a freeze longer than the limit."`

	OnSourceLoss string        `help:"When the source is gone: ask a person, promote the copy by itself (auto), or never." enum:"ask,auto,never" default:"ask"`
	PromoteAfter time.Duration `help:"How long the source must be silent before it is taken for gone; with auto at least twice its --promote-fence." default:"2m"`

	dryRunFlags
	temporalFlags
	outputFlags
}

// dryRunFlags are what a dry run asks.
type dryRunFlags struct {
	DSN       string `help:"The metastore, for --dry-run." name:"dsn"`
	TokenFile string `help:"The fleet's secret, for --dry-run." type:"path"`
}

// asking gives what can be asked about a move without moving anything; its store is the caller's to close.
func (f dryRunFlags) asking(ctx context.Context) (*activities.Moves, error) {
	if f.DSN == "" || f.TokenFile == "" {
		return nil, &exitError{exitUsage, errors.New("--dry-run needs --dsn and --token-file, since it asks the metastore and the agents")}
	}
	token, err := tokenFlags{f.TokenFile}.token()
	if err != nil {
		return nil, err
	}
	store, err := storeFlags{DSN: f.DSN}.read(ctx)
	if err != nil {
		return nil, err
	}
	return &activities.Moves{Store: store, Agents: control.NewClient(token)}, nil
}

// objected puts all that stands against something into one error, nil for nothing.
func objected(against []planner.Objection) error {
	if len(against) == 0 {
		return nil
	}
	sentences := make([]string, len(against))
	for i, o := range against {
		sentences[i] = o.Reason
	}
	return errors.New(strings.Join(sentences, "; "))
}

// Run starts the move, and returns once it holds its partition or is refused.
func (c *moveStartCmd) Run(ctx context.Context) error {
	if c.DryRun {
		return c.dryRun(ctx)
	}
	temporal, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer temporal.Close()
	in := protocol.MoveInput{Topic: c.Partition.topic, Partition: &c.Partition.number, To: c.To, By: whoami(), Reason: c.Reason, Limit: c.Limit, Force: c.Force,
		OnSourceLoss: c.OnSourceLoss, PromoteAfter: protocol.Duration(c.PromoteAfter)}
	run, err := startMove(ctx, temporal, c.TaskQueue, in)
	if err != nil {
		return err
	}
	if c.Wait {
		return watch(ctx, temporal, run.GetID(), run.GetRunID(), c.JSON)
	}
	status, err := claimed(ctx, temporal, run)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(map[string]any{"workflowId": run.GetID(), "runId": run.GetRunID(), "status": status})
	}
	fmt.Printf("moving %s to %s under workflow %s\nwatch it: portage move status %s --wait\n", c.Partition, c.To, run.GetID(), c.Partition)
	return nil
}

// startMove starts the workflow under the partition's id. A second one is an error, not a silent join.
func startMove(ctx context.Context, t client.Client, queue string, in protocol.MoveInput) (client.WorkflowRun, error) {
	name := fmt.Sprintf("%s/%d", in.Topic, *in.Partition)
	return startWorkflow(ctx, t, queue, protocol.PartitionWorkflowID(in.Topic, *in.Partition), name+" is", fmt.Sprintf("move %s to %s", name, in.To), protocol.WorkflowMove, in)
}

// startWorkflow starts a workflow that moves partitions; what says of them that they are, as "orders/3 is".
func startWorkflow(ctx context.Context, t client.Client, queue, id, what, summary, workflow string, in any) (client.WorkflowRun, error) {
	run, err := t.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: queue,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL, WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true, StaticSummary: summary}, workflow, in)
	if temporal.IsWorkflowExecutionAlreadyStartedError(err) {
		return nil, fmt.Errorf("%s already moving under workflow %q; wait for it or cancel it", what, id)
	}
	if err != nil {
		return nil, unreachable(fmt.Errorf("the move was not taken by Temporal: %w", err))
	}
	return run, nil
}

// claimed waits until the move holds its partition, or says why it does not.
func claimed(ctx context.Context, t client.Client, run client.WorkflowRun) (protocol.Status, error) {
	for {
		status, err := queryStatus(ctx, t, run.GetID(), run.GetRunID())
		if err == nil && status.Phase != protocol.PhaseClaim {
			if status.Phase == protocol.PhaseRollback || status.Phase == protocol.PhaseRolledBack || status.Phase == protocol.PhaseCancelled {
				return status, outcome(run.Get(ctx, nil))
			}
			return status, nil
		}
		described, describeErr := t.DescribeWorkflow(ctx, run.GetID(), run.GetRunID())
		if describeErr != nil {
			return status, unreachable(describeErr)
		}
		if described.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
			return status, outcome(run.Get(ctx, nil))
		}
		if err != nil {
			return status, unreachable(errors.New("the move is started, but no worker answers; start one with `portage worker`"))
		}
		select {
		case <-ctx.Done():
			return status, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (c *moveStartCmd) dryRun(ctx context.Context) error {
	moves, err := c.asking(ctx)
	if err != nil {
		return err
	}
	defer moves.Store.Close()
	facts, err := moves.Facts(ctx, c.Partition.topic, c.Partition.number, c.To)
	if err != nil {
		return unreachable(err)
	}
	against := planner.CheckMove(facts)
	if c.JSON {
		if err := printJSON(map[string]any{"partition": c.Partition.String(), "from": facts.Owner, "to": c.To, "bytes": facts.PartitionBytes, "objections": against}); err != nil {
			return err
		}
	}
	if err := objected(against); err != nil {
		return err
	}
	if !c.JSON {
		fmt.Printf("%s would move from %s to %s: %s to copy, room for %s there; nothing was changed\n", c.Partition, facts.Owner, c.To,
			protocol.ByteSize(max(0, facts.PartitionBytes)), protocol.ByteSize(facts.TargetRoomBytes))
	}
	return nil
}

// moveRef names a move or a swap that was started.
type moveRef struct {
	Partition partitionArg `arg:"" optional:"" help:"The partition, as orders/3; of a swap either one."`
	Workflow  string       `help:"The workflow id instead, when it was started under one of its own."`
}

// Validate wants one of both.
func (r moveRef) Validate() error {
	if r.Workflow == "" && r.Partition == (partitionArg{}) {
		return errors.New("name the partition, as orders/3, or the workflow with --workflow")
	}
	return nil
}

func (r moveRef) String() string {
	if r.Workflow != "" {
		return "workflow " + r.Workflow
	}
	return r.Partition.String()
}

// id is the workflow that was named or, of a partition that no Move runs for, the Swap that has it. Whatever Temporal can not
// say of swaps is left to the caller's own call.
func (r moveRef) id(ctx context.Context, t client.Client) string {
	if r.Workflow != "" {
		return r.Workflow
	}
	own := r.Partition.workflowID()
	described, err := t.DescribeWorkflow(ctx, own, "")
	if err == nil && described.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return own
	}
	swaps, err := t.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", protocol.WorkflowSwap)})
	if err != nil {
		return own
	}
	for _, swap := range swaps.GetExecutions() {
		if id := swap.GetExecution().GetWorkflowId(); protocol.IsSwapOf(id, r.Partition.topic, r.Partition.number) {
			return id
		}
	}
	return own
}

type moveStatusCmd struct {
	moveRef
	Wait bool `help:"Watch the move until it ends."`
	temporalFlags
	outputFlags
}

// Run shows a move.
func (c *moveStatusCmd) Run(ctx context.Context) error {
	t, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer t.Close()
	if c.Wait {
		return watch(ctx, t, c.id(ctx, t), "", c.JSON)
	}
	view, err := look(ctx, t, c.id(ctx, t), "")
	if err != nil {
		return notFound(err, c.moveRef)
	}
	if c.JSON {
		return printJSON(view)
	}
	fmt.Println(view.line())
	return nil
}

type moveTuneCmd struct {
	moveRef
	Limit *protocol.ByteSize `help:"Bytes a second of the copy; 0 lifts the limit."`
	Force bool               `help:"Accept a freeze longer than the limit."`
	temporalFlags
}

// Run changes a running move.
func (c *moveTuneCmd) Run(ctx context.Context) error {
	change := protocol.Tune{Limit: c.Limit, By: whoami()}
	if c.Force {
		change.Force = &c.Force
	}
	if change.Limit == nil && change.Force == nil {
		return &exitError{exitUsage, errors.New("nothing to change: give --limit or --force")}
	}
	t, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer t.Close()
	handle, err := t.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{WorkflowID: c.id(ctx, t), UpdateName: protocol.UpdateTune, Args: []any{change},
		WaitForStage: client.WorkflowUpdateStageCompleted})
	if err != nil {
		return notFound(err, c.moveRef)
	}
	if err := handle.Get(ctx, nil); err != nil {
		return outcome(err)
	}
	fmt.Println(c.moveRef, "goes on with the new settings")
	return nil
}

type moveCancelCmd struct {
	moveRef
	Wait bool `help:"Wait until everything is restored." default:"true" negatable:""`
	temporalFlags
}

// Run asks the move to cancel and, unless told not to, waits for the answer: restored, or too late.
func (c *moveCancelCmd) Run(ctx context.Context) error {
	t, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer t.Close()
	id := c.id(ctx, t)
	if err := t.CancelWorkflow(ctx, id, ""); err != nil {
		return notFound(err, c.moveRef)
	}
	if !c.Wait {
		fmt.Println("asked to cancel")
		return nil
	}
	err = t.GetWorkflow(ctx, id, "").Get(ctx, nil)
	switch {
	case err == nil:
		return fmt.Errorf("too late: %s is committed and was moved; move it back to undo", c.moveRef)
	case temporal.IsCanceledError(err):
		fmt.Println(c.moveRef, "stays where it was; everything is restored")
		return nil
	}
	return outcome(err)
}

// notFound turns Temporal's answer into a sentence.
func notFound(err error, ref moveRef) error {
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return fmt.Errorf("there is no move of %s in progress, or none that Temporal still knows", ref)
	}
	return unreachable(err)
}

// outcome turns a workflow's end into the error people see.
func outcome(err error) error {
	var failure *temporal.ApplicationError
	switch {
	case err == nil:
		return nil
	case temporal.IsCanceledError(err):
		return &exitError{exitCancelled, errors.New("the move was cancelled; everything is restored")}
	case errors.As(err, &failure):
		return errors.New(failure.Message())
	}
	var terminated *temporal.TerminatedError
	if errors.As(err, &terminated) {
		return errors.New("the move was terminated; its claim is released by the next move of the partition")
	}
	return err
}

func whoami() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}
