package main

import (
	"context"
	"errors"
	"fmt"

	"portage/internal/operate"
	"portage/metastore"
	"portage/workflows/protocol"
)

type rebalanceTuneCmd struct {
	Reason reasonText `help:"Why, for the audit." required:""`
	limitFlags
	steerFlags
}

// steer gives an order to the running rebalance and prints what it did.
func (f steerFlags) steer(ctx context.Context, order metastore.Order, give func(*operate.Fleet) (done string, err error)) error {
	fleet, stop, err := f.fleet(ctx, order)
	if err != nil {
		return err
	}
	defer stop()
	done, err := give(fleet)
	if err == nil {
		fmt.Println(done)
	}
	return err
}

// Run changes the limits of the running rebalance.
func (c *rebalanceTuneCmd) Run(ctx context.Context) error {
	change := operate.LimitsChange{Limits: c.limits(), By: whoami(), Reason: c.Reason.String()}
	if change.Empty() {
		return &exitError{exitUsage, errors.New("nothing to change: give --max-in-flight, --transfers-per-broker, --move-rate or --broker-rate")}
	}
	return c.steer(ctx, metastore.Order{Action: "rebalance_limits", Reason: change.Reason, What: change.Limits}, func(fleet *operate.Fleet) (string, error) {
		status, err := fleet.LimitRebalance(ctx, change)
		return operate.LimitsTaken(status), err
	})
}

type rebalancePauseCmd struct {
	Reason reasonText `help:"Why, for the audit." required:""`
	steerFlags
}

// Run pauses the running rebalance.
func (c *rebalancePauseCmd) Run(ctx context.Context) error {
	return c.steer(ctx, metastore.Order{Action: "rebalance_pause", Reason: c.Reason.String()}, func(fleet *operate.Fleet) (string, error) {
		_, err := fleet.PauseRebalance(ctx, whoami(), c.Reason.String())
		return "the rebalance is paused: copies stand still, nothing more begins", err
	})
}

type rebalanceResumeCmd struct {
	Reason reasonText `help:"Why, for the audit." required:""`
	steerFlags
}

// Run resumes the running rebalance.
func (c *rebalanceResumeCmd) Run(ctx context.Context) error {
	return c.steer(ctx, metastore.Order{Action: "rebalance_resume", Reason: c.Reason.String()}, func(fleet *operate.Fleet) (string, error) {
		_, err := fleet.ResumeRebalance(ctx, whoami(), c.Reason.String())
		return "the rebalance goes on", err
	})
}

type rebalanceSkipCmd struct {
	Partition partitionArg `arg:"" help:"The partition, as orders/3."`
	Reason    reasonText   `help:"Why, for the audit." required:""`
	steerFlags
}

// Run leaves a partition out of the running rebalance.
func (c *rebalanceSkipCmd) Run(ctx context.Context) error {
	what := protocol.Decide{Topic: c.Partition.topic, Partition: &c.Partition.number}
	return c.steer(ctx, metastore.Order{Action: "rebalance_skip", Reason: c.Reason.String(), What: what}, func(fleet *operate.Fleet) (string, error) {
		_, err := fleet.SkipPartition(ctx, what.Topic, what.Partition, whoami(), c.Reason.String())
		if fleet.Store == nil {
			return c.Partition.String() + " is left out, if a plan names it; with --dsn it is checked that there is one", err
		}
		return c.Partition.String() + " is left out", err
	})
}

type rebalanceCancelCmd struct {
	Wait   bool       `help:"Wait until its moves have ended." default:"true" negatable:""`
	Reason reasonText `help:"Why, for the audit." required:""`
	steerFlags
}

// Run cancels the running rebalance.
func (c *rebalanceCancelCmd) Run(ctx context.Context) error {
	return c.steer(ctx, metastore.Order{Action: "rebalance_cancel", Reason: c.Reason.String()}, func(fleet *operate.Fleet) (string, error) {
		started, err := fleet.CancelRebalance(ctx, whoami(), c.Reason.String())
		if err != nil || !c.Wait {
			return "asked to cancel", err
		}
		return "the rebalance has ended; what had not committed is as it was", fleet.RebalanceCancelled(ctx, started)
	})
}
