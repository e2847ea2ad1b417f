package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"portage/brokeragent/control"
	"portage/internal/operate"
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

func (p partitionArg) String() string { return fmt.Sprintf("%s/%d", p.topic, p.number) }

type moveStartCmd struct {
	Partition partitionArg      `arg:"" help:"The partition, as orders/3."`
	To        string            `help:"Destination broker." required:""`
	Wait      bool              `help:"Watch the move until it ends."`
	DryRun    bool              `help:"Check only; needs --dsn and --token-file."`
	Reason    reasonText        `help:"Why, for the audit."`
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
func (f dryRunFlags) asking(ctx context.Context) (*operate.Fleet, error) {
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
	return &operate.Fleet{Store: store, Agents: control.NewClient(token)}, nil
}

// Run starts the move, and returns once it holds its partition or is refused.
func (c *moveStartCmd) Run(ctx context.Context) error {
	if c.DryRun {
		return c.dryRun(ctx)
	}
	fleet, stop, err := c.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	in := protocol.MoveInput{Topic: c.Partition.topic, Partition: &c.Partition.number, To: c.To, By: whoami(), Reason: c.Reason.String(), Limit: c.Limit, Force: c.Force,
		OnSourceLoss: c.OnSourceLoss, PromoteAfter: protocol.Duration(c.PromoteAfter)}
	started, err := fleet.StartMove(ctx, in, operate.Repeat{})
	if err != nil {
		return err
	}
	if c.Wait {
		return watch(ctx, fleet, started.WorkflowID, started.RunID, c.JSON)
	}
	status, err := fleet.Claimed(ctx, started)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(map[string]any{"workflowId": started.WorkflowID, "runId": started.RunID, "status": status})
	}
	fmt.Printf("moving %s to %s under workflow %s\nwatch it: portage move status %s --wait\n", c.Partition, c.To, started.WorkflowID, c.Partition)
	return nil
}

func (c *moveStartCmd) dryRun(ctx context.Context) error {
	fleet, err := c.asking(ctx)
	if err != nil {
		return err
	}
	defer fleet.Store.Close()
	facts, against, err := fleet.MoveFacts(ctx, c.Partition.topic, c.Partition.number, c.To)
	if err != nil {
		return err
	}
	if c.JSON {
		if err := printJSON(map[string]any{"partition": c.Partition.String(), "from": facts.Owner, "to": c.To, "bytes": facts.PartitionBytes, "objections": against}); err != nil {
			return err
		}
	}
	if err := operate.Objected(against); err != nil {
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

// ref is what was named.
func (r moveRef) ref() operate.MoveRef {
	return operate.MoveRef{Topic: r.Partition.topic, Partition: r.Partition.number, Workflow: r.Workflow}
}

type moveStatusCmd struct {
	moveRef
	Wait bool `help:"Watch the move until it ends."`
	temporalFlags
	outputFlags
}

// Run shows a move.
func (c *moveStatusCmd) Run(ctx context.Context) error {
	fleet, stop, err := c.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if c.Wait {
		return watch(ctx, fleet, fleet.WorkflowOf(ctx, c.ref()), "", c.JSON)
	}
	view, err := fleet.MoveStatus(ctx, c.ref())
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(view)
	}
	fmt.Println(line(view))
	return nil
}

type moveTuneCmd struct {
	moveRef
	Limit  *protocol.ByteSize `help:"Bytes a second of the copy; 0 lifts the limit."`
	Force  bool               `help:"Accept a freeze longer than the limit."`
	Reason reasonText         `help:"Why; it stands in the move's history."`
	temporalFlags
}

// Run changes a running move.
func (c *moveTuneCmd) Run(ctx context.Context) error {
	change := protocol.Tune{Limit: c.Limit, By: whoami(), Reason: c.Reason.String()}
	if c.Force {
		change.Force = &c.Force
	}
	if change.Limit == nil && change.Force == nil {
		return &exitError{exitUsage, errors.New("nothing to change: give --limit or --force")}
	}
	fleet, stop, err := c.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := fleet.TuneMove(ctx, c.ref(), change); err != nil {
		return err
	}
	fmt.Println(c.ref(), "goes on with the new settings")
	return nil
}

type moveCancelCmd struct {
	moveRef
	Wait   bool       `help:"Wait until everything is restored." default:"true" negatable:""`
	Reason reasonText `help:"Why; it stands in the move's history."`
	temporalFlags
}

// Run asks the move to cancel and, unless told not to, waits for the answer: restored, or too late.
func (c *moveCancelCmd) Run(ctx context.Context) error {
	fleet, stop, err := c.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	workflow, err := fleet.CancelMove(ctx, c.ref(), whoami(), c.Reason.String())
	if err != nil {
		return err
	}
	if !c.Wait {
		fmt.Println("asked to cancel")
		return nil
	}
	if err := fleet.MoveCancelled(ctx, c.ref(), workflow); err != nil {
		return err
	}
	fmt.Println(c.ref(), "stays where it was; everything is restored")
	return nil
}

func whoami() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("user %d", os.Getuid())
}
