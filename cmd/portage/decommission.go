package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"portage/brokeragent/control"
	"portage/internal/operate"
	"portage/metastore"
	"portage/planner"
	"portage/workflows/protocol"
)

type decommissionCmd struct {
	Broker     string     `arg:"" help:"The broker id."`
	DryRun     bool       `help:"Only say what would move, how many bytes, for how long, and what would block." xor:"how"`
	Cancel     bool       `help:"Stop the moves that have not committed, and let the broker take partitions again." xor:"how"`
	Wait       bool       `help:"Watch until the broker is safe to remove."`
	MinBrokers int        `help:"Refuse to leave fewer brokers that take partitions." default:"3"`
	Reason     reasonText `help:"Why, for the audit; required unless it is a dry run."`
	limitFlags
	steerFlags
	outputFlags
}

// Run empties a broker and takes it out of the fleet. With --wait exit code 0 says that its machine may go.
func (c *decommissionCmd) Run(ctx context.Context) error {
	in := protocol.DecommissionInput{Broker: c.Broker, DryRun: c.DryRun, MinBrokers: &c.MinBrokers, Limits: c.limits(), By: whoami(), Reason: c.Reason.String()}
	if err := c.wrong(in); err != nil {
		return &exitError{exitUsage, err}
	}
	if c.Cancel {
		return c.cancel(ctx)
	}
	fleet, stop, err := c.fleet(ctx, metastore.Order{Action: "decommission_start", Reason: in.Reason, What: in})
	if err != nil {
		return err
	}
	defer stop()
	started, err := fleet.StartDecommission(ctx, in, operate.Repeat{})
	if err != nil {
		return err
	}
	if !c.Wait && !c.DryRun {
		// A refusal comes before any side effect, so it is waited for.
		if _, err := fleet.Begun(ctx, started, c.Broker); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(map[string]string{"workflowId": started.WorkflowID, "runId": started.RunID})
		}
		fmt.Printf("decommissioning %s under workflow %s\nwait for it: portage cluster decommission %s --wait, or temporal workflow result --workflow-id %s\n", c.Broker, started.WorkflowID, c.Broker, started.WorkflowID)
		return nil
	}
	result, err := c.result(ctx, fleet, started)
	switch {
	case err != nil:
		return err
	case c.JSON:
		if err := printJSON(result); err != nil {
			return err
		}
	case c.DryRun:
		printCheck(c.Broker, result.Check)
	default:
		fmt.Printf("broker %s: %s; %d partitions were moved (%s)\n", c.Broker, result.Verdict, result.Counts.Moved, protocol.ByteSize(result.Counts.Bytes))
	}
	if c.DryRun && len(result.Check.Refused) > 0 {
		sentences := make([]string, len(result.Check.Refused))
		for i, o := range result.Check.Refused {
			sentences[i] = fmt.Sprintf("%s (%s)", o.Reason, o.Code)
		}
		return errors.New("it would be refused: " + strings.Join(sentences, "; "))
	}
	return nil
}

// wrong is what is wrong with the flags.
func (c *decommissionCmd) wrong(in protocol.DecommissionInput) error {
	if !c.DryRun {
		if err := c.Reason.mustSay(); err != nil {
			return err
		}
	}
	raw, err := json.Marshal(in)
	if err == nil {
		_, err = protocol.ParseDecommissionInput(raw)
	}
	return err
}

// cancel cancels the decommission that runs. With the metastore, the broker's row must say that it takes partitions again.
func (c *decommissionCmd) cancel(ctx context.Context) error {
	order := metastore.Order{Action: "decommission_cancel", Reason: c.Reason.String(), What: map[string]string{"broker": c.Broker}}
	return c.steer(ctx, order, func(fleet *operate.Fleet) (string, error) {
		started, err := fleet.CancelDecommission(ctx, c.Broker, whoami(), c.Reason.String())
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("broker %s takes partitions again; what was moved stays where it is", c.Broker), fleet.DecommissionCancelled(ctx, started, c.Broker)
	})
}

// result waits for a dry run, or watches the decommission until its verdict.
func (c *decommissionCmd) result(ctx context.Context, fleet *operate.Fleet, started operate.Started) (result protocol.DecommissionResult, err error) {
	if c.DryRun {
		return fleet.Checked(ctx, started, c.Broker)
	}
	err = follow(ctx, func(ctx context.Context) (err error) {
		result, err = fleet.DecommissionResult(ctx, started, c.Broker)
		return err
	},
		func(ctx context.Context) (string, error) {
			status, shed, err := fleet.DecommissionProgress(ctx, started)
			return decommissionLine(status, shed), err
		})
	if operate.NoWorker(err) {
		err = operate.Queued(err, "the decommission of "+c.Broker, started)
	}
	return result, err
}

func printCheck(broker string, check protocol.DrainCheck) {
	for _, line := range check.Text {
		fmt.Println(line)
	}
	for _, w := range check.Waits {
		what := broker
		if w.Topic != "" {
			what = fmt.Sprintf("%s/%d", w.Topic, w.Partition)
		}
		fmt.Printf("%s would wait: %s (%s)\n", what, w.Reason, w.Code)
	}
	if check.Inbound > 0 {
		fmt.Printf("%d partitions are on their way to it: it would wait for them to arrive and leave again\n", check.Inbound)
	}
	if slices.ContainsFunc(check.Refused, func(o planner.Objection) bool { return o.Code == metastore.CodeUnknownBroker }) {
		return // there is nothing to tell of it
	}
	fmt.Printf("broker %s owns %d partitions: %d would move, %s to copy, at least %s\n", broker, check.Owned, check.Moves, protocol.ByteSize(check.Bytes), time.Duration(check.ETA).Round(time.Second))
}

type clusterPauseCmd struct {
	Reason reasonText `help:"Why, for the audit." required:""`
	storeFlags
}

// Run pauses every rebalance of the fleet.
func (c *clusterPauseCmd) Run(ctx context.Context) error {
	return c.pause(ctx, true, c.Reason.String(), "rebalances are paused: copies stand still within seconds, nothing more begins; `portage cluster resume` ends it")
}

func (f storeFlags) pause(ctx context.Context, paused bool, reason, done string) error {
	fleet, stop, err := f.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := fleet.SetPaused(ctx, paused, whoami(), reason); err != nil {
		return err
	}
	fmt.Println(done)
	return nil
}

type clusterResumeCmd struct {
	Reason reasonText `help:"Why, for the audit." required:""`
	storeFlags
}

// Run lets the fleet's rebalances go on.
func (c *clusterResumeCmd) Run(ctx context.Context) error {
	return c.pause(ctx, false, c.Reason.String(), "rebalances go on")
}

type scoreCmd struct {
	storeFlags
	tokenFlags
	outputFlags
}

// Run shows how loaded each broker is, part by part.
func (c *scoreCmd) Run(ctx context.Context) error {
	token, err := c.token()
	if err != nil {
		return err
	}
	fleet, stop, err := c.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	fleet.Agents = control.NewClient(token)
	rows, err := fleet.Scores(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(rows)
	}
	w := table()
	fmt.Fprintln(w, "BROKER\tSTATE\tSCORE\tOWNED\tFOLLOWED\tHISTORY\tTRAFFIC\tSYNC")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\n", r.Broker, r.State, r.Total, r.Owned, r.Followed, r.History, r.Traffic, r.Sync)
	}
	return w.Flush()
}
