package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"portage/workflows/protocol"
)

type clusterCmd struct {
	Members membersCmd `cmd:"" help:"List the brokers with what they own."`
	Moves   movesCmd   `cmd:"" help:"List moves in progress, or the last ones with --all."`

	Score        scoreCmd         `cmd:"" help:"Show how loaded each broker is, part by part; 1 is the fleet's average."`
	Pause        clusterPauseCmd  `cmd:"" help:"Hold every rebalance of the fleet: copies stop, nothing more begins."`
	Resume       clusterResumeCmd `cmd:"" help:"Let the fleet's rebalances go on."`
	Autobalance  autobalanceCmd   `cmd:"" help:"Show whether the fleet balances itself, what the last pass did, and when and why the next begins."`
	Decommission decommissionCmd  `cmd:"" help:"Empty a broker and take it out of the fleet, when every guard allows it."`
}

type outputFlags struct {
	JSON bool `help:"Print JSON." name:"json"`
}

func printJSON(v any) error {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

func table() *tabwriter.Writer { return tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0) }

type membersCmd struct {
	storeFlags
	outputFlags
}

// Run lists the fleet's brokers.
func (c *membersCmd) Run(ctx context.Context) error {
	fleet, stop, err := c.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	members, err := fleet.Members(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(members)
	}
	w := table()
	fmt.Fprintln(w, "BROKER\tNODE\tCLIENTS\tRACK\tOWNED\tOUT\tIN\tFREE\tOF\tSTATE\tSET\tLAST HEARTBEAT")
	for _, m := range members {
		state := "in service"
		if m.Draining {
			state = "draining"
		}
		fmt.Fprintf(w, "%s\t%d\t%s:%d\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s ago\n", m.ID, m.NodeID, m.ClientHost, m.ClientPort, m.Rack, m.Owned, m.Outbound, m.Inbound,
			protocol.ByteSize(m.DiskFreeBytes), protocol.ByteSize(m.DiskTotalBytes), state, dash(capacityText(m.Capacity)), time.Since(m.HeartbeatAt).Round(time.Second))
	}
	return w.Flush()
}

type movesCmd struct {
	All   bool `help:"Ended ones too."`
	Limit int  `help:"How many at the most." default:"50"`
	storeFlags
	outputFlags
}

// Run lists moves.
func (c *movesCmd) Run(ctx context.Context) error {
	fleet, stop, err := c.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	moves, err := fleet.Moves(ctx, c.All, c.Limit)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(moves)
	}
	if len(moves) == 0 {
		fmt.Println("no moves in progress; `portage cluster moves --all` lists the ended ones")
		return nil
	}
	w := table()
	fmt.Fprintln(w, "PARTITION\tFROM\tTO\tPHASE\tCOPIED\tFROZEN\tSTARTED\tWORKFLOW\tREASON")
	for _, m := range moves {
		copied, frozen := "-", "-" // the row has how much once that is over; `portage move status` follows it
		if m.EndedAt != nil || m.BytesCopied > 0 {
			copied = protocol.ByteSize(m.BytesCopied).String()
		}
		if m.FrozenMS != nil {
			frozen = fmt.Sprintf("%.0f ms", *m.FrozenMS)
		}
		reason := m.Reason
		if m.OutcomeReason != nil {
			reason = *m.OutcomeReason
		}
		fmt.Fprintf(w, "%s/%d\t%s\t%s\t%s\t%s\t%s\t%s ago\t%s\t%s\n", m.Topic, m.Partition, m.FromBroker, m.ToBroker, m.Phase, copied, frozen,
			time.Since(m.StartedAt).Round(time.Second), m.WorkflowID, reason)
	}
	return w.Flush()
}
