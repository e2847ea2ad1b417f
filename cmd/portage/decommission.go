package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"portage/brokeragent/control"
	"portage/internal/fleetview"
	"portage/metastore"
	"portage/planner"
	"portage/workflows/protocol"
)

type decommissionCmd struct {
	Broker     string `arg:"" help:"The broker id."`
	DryRun     bool   `help:"Only say what would move, how many bytes, for how long, and what would block." xor:"how"`
	Cancel     bool   `help:"Stop the moves that have not committed, and let the broker take partitions again." xor:"how"`
	Wait       bool   `help:"Watch until the broker is safe to remove."`
	MinBrokers int    `help:"Refuse to leave fewer brokers that take partitions." default:"3"`
	Reason     string `help:"Why, for the audit."`
	limitFlags
	temporalFlags
	outputFlags
}

// Run empties a broker and takes it out of the fleet. With --wait exit code 0 says that its machine may go.
func (c *decommissionCmd) Run(ctx context.Context) error {
	t, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer t.Close()
	id := protocol.DecommissionWorkflowID(c.Broker)
	if c.Cancel {
		err := t.CancelWorkflow(ctx, id, "")
		var missing *serviceerror.NotFound
		if errors.As(err, &missing) {
			return fmt.Errorf("no decommission of %s is running; `portage broker drain %s --cancel` lets it take partitions again", c.Broker, c.Broker)
		} else if err != nil {
			return unreachable(err)
		}
		if err = t.GetWorkflow(ctx, id, "").Get(ctx, nil); temporal.IsCanceledError(err) {
			fmt.Printf("broker %s takes partitions again; what was moved stays where it is\n", c.Broker)
			return nil
		} else if err == nil {
			return fmt.Errorf("too late: broker %s is out of the fleet", c.Broker)
		}
		return rebalanceOutcome(err)
	}
	in := protocol.DecommissionInput{Broker: c.Broker, DryRun: c.DryRun, MinBrokers: &c.MinBrokers, Limits: c.limits(), By: whoami(), Reason: c.Reason}
	if c.DryRun {
		id += ":plan"
	}
	// One that is running already is joined, so that a deployment script may be run again.
	run, err := t.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: c.TaskQueue, WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, StaticSummary: "decommission " + c.Broker}, protocol.WorkflowDecommission, in)
	if err != nil {
		return unreachable(fmt.Errorf("the decommission was not taken by Temporal: %w", err))
	}
	if !c.Wait && !c.DryRun {
		// A refusal comes before any side effect, so it is waited for.
		if err := c.begun(ctx, t.GetWorkflow(ctx, id, run.GetRunID()).Get, func() (s protocol.DecommissionStatus, err error) {
			value, err := t.QueryWorkflow(ctx, id, run.GetRunID(), protocol.QueryStatus)
			if err == nil {
				err = value.Get(&s)
			}
			return s, err
		}); err != nil {
			return err
		}
		fmt.Printf("decommissioning %s under workflow %s\nwait for it: portage cluster decommission %s --wait, or temporal workflow result --workflow-id %s\n", c.Broker, id, c.Broker, id)
		return nil
	}
	var result protocol.DecommissionResult
	err = run.Get(ctx, &result)
	var failure *temporal.ApplicationError
	switch {
	case temporal.IsCanceledError(err):
		return &exitError{exitCancelled, fmt.Errorf("the decommission was cancelled; broker %s takes partitions again", c.Broker)}
	case errors.As(err, &failure):
		return errors.New(failure.Message())
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

// begun waits until the guards have let the decommission begin, or it has ended.
func (c *decommissionCmd) begun(ctx context.Context, end func(context.Context, any) error, status func() (protocol.DecommissionStatus, error)) error {
	ended := make(chan error, 1)
	go func() { ended <- end(ctx, nil) }()
	for {
		if s, err := status(); err == nil && s.Phase != "" && s.Phase != protocol.PhaseChecking {
			return nil
		}
		select {
		case err := <-ended:
			return rebalanceOutcome(err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func printCheck(broker string, check protocol.DrainCheck) {
	for _, line := range check.Text {
		fmt.Println(line)
	}
	for _, w := range check.Waits {
		fmt.Printf("would wait (%s): %s\n", w.Code, w.Reason)
	}
	fmt.Printf("broker %s owns %d partitions: %d would move, %s to copy, at least %s\n", broker, check.Owned, check.Moves, protocol.ByteSize(check.Bytes), time.Duration(check.ETA).Round(time.Second))
}

type clusterPauseCmd struct {
	Reason string `help:"Why, for the audit." required:""`
	storeFlags
}

// Run pauses every rebalance of the fleet.
func (c *clusterPauseCmd) Run(ctx context.Context) error {
	return c.change(ctx, func(store *metastore.Store) (string, error) {
		_, err := store.SetSetting(ctx, metastore.SettingPaused, "true", whoami(), c.Reason)
		return "rebalances are paused: copies stand still within seconds, nothing more begins; `portage cluster resume` ends it", err
	})
}

type clusterResumeCmd struct {
	Reason string `help:"Why, for the audit." required:""`
	storeFlags
}

// Run lets the fleet's rebalances go on.
func (c *clusterResumeCmd) Run(ctx context.Context) error {
	return c.change(ctx, func(store *metastore.Store) (string, error) {
		_, err := store.SetSetting(ctx, metastore.SettingPaused, "false", whoami(), c.Reason)
		return "rebalances go on", err
	})
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
	store, err := c.read(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	settings, err := fleetview.Settings(ctx, store, nil)
	if err != nil {
		return err
	}
	snapshot, err := fleetview.Read(ctx, store, control.NewClient(token), settings)
	if err != nil {
		return unreachable(err)
	}
	type row struct {
		Broker string `json:"broker"`
		planner.BrokerScore
	}
	rows := []row{}
	for i, s := range planner.Scores(snapshot, settings) {
		rows = append(rows, row{snapshot.Brokers[i].ID, s})
	}
	if c.JSON {
		return printJSON(rows)
	}
	w := table()
	fmt.Fprintln(w, "BROKER\tSCORE\tOWNED\tFOLLOWED\tHISTORY\tTRAFFIC\tSYNC")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\n", r.Broker, r.Total, r.Owned, r.Followed, r.History, r.Traffic, r.Sync)
	}
	return w.Flush()
}
