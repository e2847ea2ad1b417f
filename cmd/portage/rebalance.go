package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"portage/activities"
	"portage/internal/operate"
	"portage/metastore"
	"portage/workflows/protocol"
)

type rebalanceCmd struct {
	Start  rebalanceStartCmd  `cmd:"" default:"withargs" help:"Plan what should move, and move it."`
	Status rebalanceStatusCmd `cmd:"" help:"Show the plan, what is in flight and what blocks."`
	Tune   rebalanceTuneCmd   `cmd:"" help:"Change the limits of the running rebalance."`
	Pause  rebalancePauseCmd  `cmd:"" help:"Hold the running rebalance: copies stop, nothing more begins."`
	Resume rebalanceResumeCmd `cmd:"" help:"Let a paused rebalance go on."`
	Skip   rebalanceSkipCmd   `cmd:"" help:"Leave one partition out of the running rebalance."`
	Cancel rebalanceCancelCmd `cmd:"" help:"Cancel the rebalance with its moves that have not committed."`
}

// limitFlags are the limits of a rebalance; what is not given stays as it is.
type limitFlags struct {
	MaxInFlight        *int               `help:"Moves in flight in the fleet, whoever started them, below which it begins another; 0 starts none."`
	TransfersPerBroker *int               `help:"Copies a broker gives, and takes, at once."`
	MoveRate           *protocol.ByteSize `help:"Bytes a second of one move; 0 is no limit."`
	BrokerRate         *protocol.ByteSize `help:"Bytes a second of all copies of a broker in one direction; 0 is no limit."`
}

func (f limitFlags) limits() protocol.Limits {
	return protocol.Limits{MaxInFlight: f.MaxInFlight, TransfersPerBroker: f.TransfersPerBroker, MoveRate: f.MoveRate, BrokerRate: f.BrokerRate}
}

type rebalanceStartCmd struct {
	DryRun   bool       `help:"Only plan; prints the plan and its hash." xor:"how"`
	Approve  string     `help:"Carry out the plan of this hash as it was shown, or approve the running rebalance that waits for it." placeholder:"HASH" xor:"how"`
	Ask      bool       `help:"Show the plan and ask before anything moves." xor:"how"`
	Undo     string     `help:"Move back what the rebalance of this id has moved." placeholder:"ID" xor:"how"`
	Wait     bool       `help:"Watch until it ends."`
	Deadline *time.Time `help:"Start no move after this moment (RFC 3339)."`
	Reason   reasonText `help:"Why, for the audit; required unless it is a dry run."`

	CountOnly bool `help:"Plan by the number of partitions alone, with the fewest moves."`

	Canary *int           `help:"Carry out so many moves first, and the rest only when none failed and no write waited for long." placeholder:"N"`
	Soak   *time.Duration `help:"How long to wait after the canary's moves; 5m when not given."`
	Lag    *int64         `help:"How many records further behind a consumer group may be after the canary's soak than before its moves; not looked at when not given." placeholder:"N" name:"canary-lag"`

	Window     string         `help:"Move only while this window is open: when it opens, as a cron expression (\"0 1 * * *\"). Needs --window-for." placeholder:"CRON"`
	WindowFor  *time.Duration `help:"How long the window stays open, by the clock on the wall of its zone: 1m to 168h." placeholder:"4h"`
	WindowZone string         `help:"The zone whose clock the window goes by, as Europe/Berlin; UTC when not given."`

	limitFlags
	steerFlags
	outputFlags
}

// soakDefault is how long is waited after a canary when nobody says.
const soakDefault = 5 * time.Minute

// window is the window that the flags name; nil when they name none.
func (c *rebalanceStartCmd) window() (*protocol.Window, error) {
	switch {
	case c.Window == "" && c.WindowFor == nil && c.WindowZone == "":
		return nil, nil
	case c.Window == "" || c.WindowFor == nil:
		return nil, errors.New("a window needs both --window, when it opens, and --window-for, how long")
	}
	w := &protocol.Window{Cron: c.Window, For: protocol.Duration(*c.WindowFor), Zone: c.WindowZone}
	if w.Zone == "" {
		w.Zone = "UTC"
	}
	_, err := activities.CheckWindow(*w)
	return w, err
}

// canary is the canary that the flags name; nil when they name none.
func (c *rebalanceStartCmd) canary() (*protocol.Canary, error) {
	switch {
	case c.Canary == nil && (c.Soak != nil || c.Lag != nil):
		return nil, errors.New("--soak and --canary-lag are of the canary; say with --canary how many moves that has")
	case c.Canary == nil:
		return nil, nil
	case *c.Canary < 1:
		return nil, fmt.Errorf("--canary %d is no canary: it has at least one move; leave it out for none", *c.Canary)
	}
	canary := &protocol.Canary{Moves: *c.Canary, Soak: protocol.Duration(soakDefault), Lag: c.Lag}
	if c.Soak != nil {
		canary.Soak = protocol.Duration(*c.Soak)
	}
	return canary, nil
}

// input is what the flags ask for, or what is wrong with them.
func (c *rebalanceStartCmd) input(now time.Time) (in protocol.RebalanceInput, err error) {
	in = protocol.RebalanceInput{DryRun: c.DryRun, Approve: c.Ask, Hash: c.Approve, Undo: c.Undo, CountOnly: c.CountOnly, Limits: c.limits(), Deadline: c.Deadline, By: whoami(), Reason: c.Reason.String()}
	if in.Window, err = c.window(); err != nil {
		return in, err
	}
	if in.Canary, err = c.canary(); err != nil {
		return in, err
	}
	if c.Deadline != nil && !c.Deadline.After(now) {
		return in, fmt.Errorf("the deadline %s has passed, so nothing would be moved", c.Deadline.Format(time.RFC3339))
	}
	if !c.DryRun {
		if err := c.Reason.mustSay(); err != nil {
			return in, err
		}
	}
	raw, err := json.Marshal(in)
	if err != nil {
		return in, err
	}
	_, err = protocol.ParseRebalanceInput(raw)
	return in, err
}

// unused are the flags that an approval of a rebalance which waits can not take: that goes on as it was started.
func (c *rebalanceStartCmd) unused() (names []string) {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"--deadline", c.Deadline != nil}, {"--canary", c.Canary != nil}, {"--soak", c.Soak != nil}, {"--canary-lag", c.Lag != nil},
		{"--window", c.Window != ""}, {"--window-for", c.WindowFor != nil}, {"--window-zone", c.WindowZone != ""},
		{"--max-in-flight", c.MaxInFlight != nil}, {"--transfers-per-broker", c.TransfersPerBroker != nil}, {"--move-rate", c.MoveRate != nil}, {"--broker-rate", c.BrokerRate != nil},
	} {
		if f.given {
			names = append(names, f.name)
		}
	}
	return names
}

// order is what the audit keeps of it.
func (c *rebalanceStartCmd) order(in protocol.RebalanceInput) metastore.Order {
	action := "rebalance_start"
	switch {
	case c.DryRun:
		action = "rebalance_plan"
	case c.Undo != "":
		action = "rebalance_undo"
	case c.Approve != "":
		action = "rebalance_approve"
	}
	return metastore.Order{Action: action, Reason: c.Reason.String(), What: in}
}

// Run starts the fleet's rebalance, or approves the one that waits for it.
func (c *rebalanceStartCmd) Run(ctx context.Context) error {
	in, err := c.input(time.Now())
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if c.Approve != "" {
		if done, err := c.approveWaiting(ctx, in); done || err != nil {
			return err
		}
	}
	fleet, stop, err := c.fleet(ctx, c.order(in))
	if err != nil {
		return err
	}
	defer stop()
	started, err := fleet.StartRebalance(ctx, in, operate.Repeat{})
	if err != nil {
		return err
	}
	switch {
	case c.DryRun:
		return c.shown(ctx, fleet, started)
	case c.Ask:
		if err := c.ask(ctx, fleet, started); err != nil {
			return err
		}
	}
	return c.follow(ctx, fleet, started)
}

// approveWaiting approves the rebalance that waits for it; done is false when none waits.
func (c *rebalanceStartCmd) approveWaiting(ctx context.Context, in protocol.RebalanceInput) (done bool, err error) {
	looking, stop, err := c.temporalFlags.fleet(ctx)
	if err != nil {
		return false, err
	}
	defer stop()
	if running, err := looking.Running(ctx, operate.Started{WorkflowID: protocol.RebalanceWorkflowID(c.TaskQueue)}); err != nil || !running {
		return false, err
	}
	if status, err := looking.RebalanceStatus(ctx); err != nil || status.Phase != protocol.PhaseApproval {
		return false, err
	}
	if unused := c.unused(); len(unused) > 0 {
		return false, &exitError{exitUsage, fmt.Errorf("a rebalance waits for this approval and goes on as it was started, so it can not take %s: approve it without, and change its limits with `portage rebalance tune`, or cancel it and start one anew", strings.Join(unused, ", "))}
	}
	fleet, stop, err := c.fleet(ctx, c.order(in))
	if err != nil {
		return false, err
	}
	defer stop()
	if _, err := fleet.ApproveRebalance(ctx, c.Approve, in.By, in.Reason); err != nil {
		return false, err
	}
	return true, c.follow(ctx, fleet, operate.Started{WorkflowID: protocol.RebalanceWorkflowID(c.TaskQueue)})
}

// beginBound is how long is waited for a start that may still be refused.
const beginBound = 20 * time.Second

func (c *rebalanceStartCmd) follow(ctx context.Context, fleet *operate.Fleet, started operate.Started) error {
	if !c.Wait {
		begin, stop := context.WithTimeout(ctx, beginBound)
		defer stop()
		status, err := fleet.RebalanceBegun(begin, started)
		switch {
		case err != nil && (begin.Err() == nil || ctx.Err() != nil):
			return err
		case c.JSON:
			return printJSON(map[string]string{"workflowId": started.WorkflowID, "runId": started.RunID})
		case err != nil:
			fmt.Printf("rebalancing under workflow %s, which has not planned yet\nwatch it: portage rebalance status\n", started.WorkflowID)
		case status.Phase == protocol.PhaseReport:
			fmt.Printf("the rebalance under workflow %s has ended already\nsee how: portage rebalance status\n", started.WorkflowID)
		default:
			fmt.Printf("rebalancing under workflow %s\nwatch it: portage rebalance status\n", started.WorkflowID)
		}
		return nil
	}
	var result protocol.RebalanceResult
	err := follow(ctx, func(ctx context.Context) (err error) { result, err = fleet.RebalanceResult(ctx, started); return err },
		func(ctx context.Context) (string, error) {
			status, err := fleet.StatusOf(ctx, started)
			return rebalanceLine(status), err
		})
	if operate.NoWorker(err) {
		return operate.Queued(err, "the rebalance", started)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		if err := printJSON(result); err != nil {
			return err
		}
	} else {
		printReport(result)
		if status, err := fleet.StatusOf(ctx, started); err == nil {
			printLeft(status.Plan)
		}
	}
	if result.Counts.Failed+result.Counts.Held > 0 {
		return fmt.Errorf("%d moves failed and %d were held; the reasons are above", result.Counts.Failed, result.Counts.Held)
	}
	return nil
}

// shown prints the plan of a dry run.
func (c *rebalanceStartCmd) shown(ctx context.Context, fleet *operate.Fleet, started operate.Started) error {
	plan, err := fleet.Planned(ctx, started)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(plan)
	}
	printPlan(plan)
	if plan != nil && plan.Actions > 0 {
		fmt.Printf("nothing was changed; to carry out exactly this: portage rebalance --approve %.12s --reason TEXT\n", plan.Hash)
	}
	return nil
}

// ask shows the plan of a rebalance that waits, and approves it when the person says so.
func (c *rebalanceStartCmd) ask(ctx context.Context, fleet *operate.Fleet, started operate.Started) error {
	for {
		status, err := fleet.RebalanceBegun(ctx, started)
		switch {
		case err != nil:
			return err
		case status.Phase == protocol.PhaseApproval:
			printPlan(status.Plan)
			fmt.Print("carry this out? [y/N] ")
			answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
			if strings.ToLower(strings.TrimSpace(answer)) != "y" {
				if err := fleet.CancelStarted(ctx, started); err != nil {
					return err
				}
				return &exitError{exitCancelled, errors.New("not approved; nothing was moved")}
			}
			_, err := fleet.ApproveRebalance(ctx, status.Plan.Hash, whoami(), c.Reason.String())
			return err
		case status.Phase == protocol.PhaseReport:
			return nil // there was nothing to approve
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
