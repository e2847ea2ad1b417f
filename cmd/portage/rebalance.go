package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"portage/activities"
	"portage/internal/operate"
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
	MaxInFlight        *int               `help:"Moves at once in the fleet; 0 starts none."`
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
	Reason   string     `help:"Why, for the audit."`

	CountOnly bool `help:"Plan by the number of partitions alone, with the fewest moves."`

	Canary int           `help:"Carry out so many moves first, and the rest only when none failed and no write waited for long." placeholder:"N"`
	Soak   time.Duration `help:"How long to wait after the canary's moves." default:"5m"`
	Lag    *int64        `help:"How many records further behind a consumer group may be after the canary's soak than before its moves; not looked at when not given." placeholder:"N" name:"canary-lag"`

	Window     string        `help:"Move only while this window is open: when it opens, as a cron expression (\"0 1 * * *\"). Needs --window-for." placeholder:"CRON"`
	WindowFor  time.Duration `help:"How long the window stays open, by the clock on the wall of its zone: 1m to 168h." placeholder:"4h"`
	WindowZone string        `help:"The zone whose clock the window goes by, as Europe/Berlin." default:"UTC"`

	limitFlags
	temporalFlags
	outputFlags
}

// window is the window that the flags name; nil when they name none.
func (c *rebalanceStartCmd) window() (*protocol.Window, error) {
	switch {
	case c.Window == "" && c.WindowFor == 0:
		return nil, nil
	case c.Window == "" || c.WindowFor == 0:
		return nil, &exitError{exitUsage, errors.New("a window needs both --window, when it opens, and --window-for, how long")}
	}
	w := &protocol.Window{Cron: c.Window, For: protocol.Duration(c.WindowFor), Zone: c.WindowZone}
	if _, err := activities.CheckWindow(*w); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return w, nil
}

// Run starts the fleet's rebalance, or approves the one that waits for it.
func (c *rebalanceStartCmd) Run(ctx context.Context) error {
	if c.Lag != nil && c.Canary == 0 {
		return &exitError{exitUsage, errors.New("--canary-lag is a check of the canary; say with --canary how many moves that has")}
	}
	window, err := c.window()
	if err != nil {
		return err
	}
	fleet, stop, err := c.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if c.Approve != "" {
		if status, err := fleet.RebalanceStatus(ctx); err == nil && status.Phase == protocol.PhaseApproval {
			if err := c.approve(ctx, fleet, c.Approve); err != nil {
				return err
			}
			return c.follow(ctx, fleet, operate.Started{WorkflowID: protocol.RebalanceWorkflowID(c.TaskQueue)})
		}
	}
	in := protocol.RebalanceInput{DryRun: c.DryRun, Approve: c.Ask, Hash: c.Approve, Undo: c.Undo, CountOnly: c.CountOnly, Limits: c.limits(), Window: window, Deadline: c.Deadline, By: whoami(), Reason: c.Reason}
	if c.Canary > 0 {
		in.Canary = &protocol.Canary{Moves: c.Canary, Soak: protocol.Duration(c.Soak), Lag: c.Lag}
	}
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

func (c *rebalanceStartCmd) follow(ctx context.Context, fleet *operate.Fleet, started operate.Started) error {
	if !c.Wait {
		if c.JSON {
			return printJSON(map[string]string{"workflowId": started.WorkflowID, "runId": started.RunID})
		}
		fmt.Printf("rebalancing under workflow %s\nwatch it: portage rebalance status\n", started.WorkflowID)
		return nil
	}
	result, err := fleet.RebalanceResult(ctx, started)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(result)
	}
	printReport(result)
	if result.Counts.Failed+result.Counts.Held > 0 {
		return fmt.Errorf("%d moves failed and %d were held; the reasons are above", result.Counts.Failed, result.Counts.Held)
	}
	return nil
}

func printReport(r protocol.RebalanceResult) {
	for _, trouble := range r.Troubles {
		fmt.Println(trouble)
	}
	for _, b := range r.Blocked {
		fmt.Printf("%s/%d can not leave %s: %s\n", b.Topic, b.Partition, b.Owner, b.Reason)
	}
	fmt.Printf("%s: %d moved (%s), %d failed, %d held, %d skipped, in %d plans\nundo: portage rebalance --undo %s\n",
		r.Ended, r.Counts.Moved, protocol.ByteSize(r.Counts.Bytes), r.Counts.Failed, r.Counts.Held, r.Counts.Skipped, r.Plans, r.ID)
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
		fmt.Printf("nothing was changed; to carry out exactly this: portage rebalance --approve %.12s\n", plan.Hash)
	}
	return nil
}

func printPlan(p *protocol.PlanSummary) {
	if p == nil {
		return
	}
	for _, line := range p.Text {
		fmt.Println(line)
	}
	if p.Held != nil {
		fmt.Println("held:", p.Held.Reason)
	}
	for _, b := range p.Blocked {
		fmt.Printf("%s/%d can not leave %s: %s\n", b.Topic, b.Partition, b.Owner, b.Reason)
	}
	fmt.Printf("plan %s: %d moves, %s to copy, at least %s\nhash %s\n", p.ID, p.Moves, protocol.ByteSize(p.Bytes), time.Duration(p.ETA).Round(time.Second), p.Hash)
}

// ask shows the plan of a rebalance that waits, and approves it when the person says so.
func (c *rebalanceStartCmd) ask(ctx context.Context, fleet *operate.Fleet, started operate.Started) error {
	for {
		status, err := fleet.StatusOf(ctx, started)
		if err == nil && status.Phase == protocol.PhaseApproval {
			printPlan(status.Plan)
			fmt.Print("carry this out? [y/N] ")
			answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
			if strings.ToLower(strings.TrimSpace(answer)) != "y" {
				if err := fleet.CancelStarted(ctx, started); err != nil {
					return err
				}
				return &exitError{exitCancelled, errors.New("not approved; nothing was moved")}
			}
			return c.approve(ctx, fleet, status.Plan.Hash)
		}
		if running, err := fleet.Running(ctx, started); err == nil && !running {
			return nil // there was nothing to approve
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (c *rebalanceStartCmd) approve(ctx context.Context, fleet *operate.Fleet, hash string) error {
	return fleet.UpdateRebalance(ctx, protocol.UpdateApprove, protocol.Decide{Hash: hash, By: whoami(), Reason: c.Reason})
}

type rebalanceStatusCmd struct {
	temporalFlags
	outputFlags
}

// Run shows the fleet's rebalance.
func (c *rebalanceStatusCmd) Run(ctx context.Context) error {
	fleet, stop, err := c.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	s, err := fleet.RebalanceStatus(ctx)
	if err != nil || c.JSON {
		if err == nil {
			err = printJSON(s)
		}
		return err
	}
	fmt.Printf("%s since %s: %d moved (%s), %d failed, %d held, %d skipped, %d in flight\nid %s\n", s.Phase, s.Since.Format(time.RFC3339), s.Counts.Moved, protocol.ByteSize(s.Counts.Bytes),
		s.Counts.Failed, s.Counts.Held, s.Counts.Skipped, len(s.InFlight), s.ID)
	for _, line := range s.InFlight {
		fmt.Println("in flight:", line)
	}
	for _, trouble := range s.Troubles {
		fmt.Println(trouble)
	}
	if s.Blocked != "" {
		fmt.Printf("blocked (%s): %s\n%s\n", s.Blocked, s.BlockedReason, s.Unblock)
	}
	if s.Window != nil && s.Window.Open {
		fmt.Println("its window closes at", s.Window.Until.Format(time.RFC3339))
	}
	if s.Late != "" {
		fmt.Println("late:", s.Late)
	}
	return nil
}

type rebalanceTuneCmd struct {
	limitFlags
	temporalFlags
}

// Run changes the limits of the running rebalance.
func (c *rebalanceTuneCmd) Run(ctx context.Context) error {
	if c.limits().Empty() {
		return &exitError{exitUsage, errors.New("nothing to change: give --max-in-flight, --transfers-per-broker, --move-rate or --broker-rate")}
	}
	return c.update(ctx, protocol.UpdateLimits, c.limits(), "the rebalance goes on with the new limits")
}

// update sends an update of one command and prints what it did.
func (f temporalFlags) update(ctx context.Context, name string, arg any, done string) error {
	fleet, stop, err := f.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := fleet.UpdateRebalance(ctx, name, arg); err != nil {
		return err
	}
	fmt.Println(done)
	return nil
}

type rebalancePauseCmd struct {
	Reason string `help:"Why, for the audit." required:""`
	temporalFlags
}

// Run pauses the running rebalance.
func (c *rebalancePauseCmd) Run(ctx context.Context) error {
	return c.update(ctx, protocol.UpdatePause, protocol.Decide{By: whoami(), Reason: c.Reason}, "the rebalance is paused: copies stand still, nothing more begins")
}

type rebalanceResumeCmd struct {
	Reason string `help:"Why, for the audit." required:""`
	temporalFlags
}

// Run resumes the running rebalance.
func (c *rebalanceResumeCmd) Run(ctx context.Context) error {
	return c.update(ctx, protocol.UpdateResume, protocol.Decide{By: whoami(), Reason: c.Reason}, "the rebalance goes on")
}

type rebalanceSkipCmd struct {
	Partition partitionArg `arg:"" help:"The partition, as orders/3."`
	Reason    string       `help:"Why, for the audit." required:""`
	temporalFlags
}

// Run leaves a partition out of the running rebalance.
func (c *rebalanceSkipCmd) Run(ctx context.Context) error {
	d := protocol.Decide{Topic: c.Partition.topic, Partition: &c.Partition.number, By: whoami(), Reason: c.Reason}
	return c.update(ctx, protocol.UpdateSkip, d, c.Partition.String()+" is left out")
}

type rebalanceCancelCmd struct {
	Wait bool `help:"Wait until its moves have ended." default:"true" negatable:""`
	temporalFlags
}

// Run cancels the running rebalance.
func (c *rebalanceCancelCmd) Run(ctx context.Context) error {
	fleet, stop, err := c.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := fleet.CancelRebalance(ctx, "", ""); err != nil {
		return err
	}
	if !c.Wait {
		fmt.Println("asked to cancel")
		return nil
	}
	if err := fleet.RebalanceCancelled(ctx); err != nil {
		return err
	}
	fmt.Println("the rebalance has ended; what had not committed is as it was")
	return nil
}
