package main

import (
	"context"
	"fmt"

	"portage/internal/operate"
	"portage/planner"
	"portage/workflows/protocol"
)

type swapCmd struct {
	A        partitionArg      `arg:"" help:"One partition, as orders/3."`
	B        partitionArg      `arg:"" help:"The other, as payments/1; it must be on another broker."`
	Wait     bool              `help:"Watch the swap until it ends."`
	DryRun   bool              `help:"Check only; needs --dsn and --token-file."`
	Reason   reasonText        `help:"Why, for the audit; required unless it is a dry run."`
	Limit    protocol.ByteSize `help:"Bytes a second of each of both copies; 0 is no limit." default:"0"`
	Force    bool              `help:"Accept an expected freeze longer than the limit."`
	TwoMoves bool              `help:"Where there is too little room for both at once, move one after the other."`

	dryRunFlags
	temporalFlags
	outputFlags
}

// Run starts the swap, and returns once it holds both partitions or is refused.
func (c *swapCmd) Run(ctx context.Context) error {
	in := protocol.SwapInput{A: protocol.SwapPartition{Topic: c.A.topic, Partition: &c.A.number}, B: protocol.SwapPartition{Topic: c.B.topic, Partition: &c.B.number},
		By: whoami(), Reason: c.Reason.String(), Limit: c.Limit, Force: c.Force, TwoMoves: c.TwoMoves}
	if c.DryRun {
		return c.dryRun(ctx, in)
	}
	if err := c.Reason.mustSay(); err != nil {
		return err
	}
	fleet, stop, err := c.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	what := fmt.Sprintf("%s and %s", c.A, c.B)
	started, err := fleet.StartSwap(ctx, in, operate.Repeat{})
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
	fmt.Printf("%s change places under workflow %s\nwatch it: portage move status --workflow %s --wait\n", what, started.WorkflowID, started.WorkflowID)
	return nil
}

func (c *swapCmd) dryRun(ctx context.Context, in protocol.SwapInput) error {
	fleet, err := c.asking(ctx)
	if err != nil {
		return err
	}
	defer fleet.Store.Close()
	facts, against, err := fleet.SwapFacts(ctx, in)
	if err != nil {
		return err
	}
	how := protocol.SwapFull
	if planner.OnlyRoom(against) && c.TwoMoves {
		how = protocol.SwapTwoMoves
	}
	if c.JSON {
		sides := make([]map[string]any, len(facts))
		for i, f := range facts {
			sides[i] = map[string]any{"partition": in.Sides()[i].String(), "from": f.Owner, "to": f.To, "bytes": f.PartitionBytes, "room": f.TargetRoomBytes}
		}
		if err := printJSON(map[string]any{"sides": sides, "how": how, "objections": against}); err != nil {
			return err
		}
	}
	if how == protocol.SwapFull {
		if err := operate.Objected(against); err != nil {
			return err
		}
	}
	if !c.JSON {
		for i, f := range facts {
			fmt.Printf("%s would go from %s to %s: %s to copy, room for %s there\n", in.Sides()[i], f.Owner, f.To, protocol.ByteSize(max(0, f.PartitionBytes)), protocol.ByteSize(max(0, f.TargetRoomBytes)))
		}
		if how == protocol.SwapTwoMoves {
			fmt.Println("there is too little room for both at once, so one would go after the other")
		}
		fmt.Println("nothing was changed")
	}
	return nil
}
