package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"portage/internal/faults/faultctl"
	"portage/internal/fleet"
	"portage/workflows/protocol"
)

// Chaos breaks one fleet. It is used by one goroutine at a time.
type Chaos struct {
	Fleet      *fleet.Fleet
	Faults     *faultctl.Ctl
	Topic      string
	Partitions int32
	Log        func(format string, args ...any) // hears of every choice; never nil
	Stats      Stats

	rng *rand.Rand
}

// Stats counts what was done.
type Stats struct {
	Done, Cancelled, Refused  int // how moves ended
	Kills, Stops, Cuts, Lost  int // what was broken
	Attempts, MostInOneMoving int // claims in all, and of the move that took most
}

// New makes a Chaos whose choices follow from the seed.
func New(f *fleet.Fleet, faults *faultctl.Ctl, topic string, partitions int32, seed uint64, log func(string, ...any)) *Chaos {
	return &Chaos{Fleet: f, Faults: faults, Topic: topic, Partitions: partitions, Log: log, rng: rand.New(rand.NewPCG(seed, 0))}
}

// Move moves one partition to another broker and breaks up to most things meanwhile. Everything broken is mended when it
// returns.
func (c *Chaos) Move(ctx context.Context, most int) error {
	partition := c.rng.Int32N(c.Partitions)
	owner, err := c.owner(ctx, partition)
	if err != nil {
		return err
	}
	var others []string
	for _, id := range c.Fleet.AgentIDs() {
		if id != owner {
			others = append(others, id)
		}
	}
	to := others[c.rng.IntN(len(others))]
	breaks := c.rng.IntN(most + 1)
	cancel := c.rng.IntN(8) == 0
	c.Log("move %s/%d from %s to %s, %d faults, cancel %v", c.Topic, partition, owner, to, breaks, cancel)
	first := c.armed(owner, to, breaks)
	run, err := c.start(ctx, partition, to)
	if err != nil {
		return err
	}
	for n := range breaks {
		if n == 0 && first != nil {
			err = c.strikeAt(ctx, first)
		} else {
			err = c.strike(ctx)
		}
		if err != nil {
			return fmt.Errorf("move of %s/%d to %s: %w", c.Topic, partition, to, err)
		}
	}
	if cancel {
		_ = c.Fleet.Client.CancelWorkflow(ctx, run.GetID(), run.GetRunID()) // it may have ended
	}
	return c.judge(ctx, run, partition, to, cancel)
}

// judge waits for the end of a move, across the death of Temporal.
func (c *Chaos) judge(ctx context.Context, run client.WorkflowRun, partition int32, to string, cancelled bool) error {
	for {
		var result protocol.MoveResult
		err := run.Get(ctx, &result)
		var ended *temporal.WorkflowExecutionError
		var refused *temporal.ApplicationError
		switch {
		case err == nil:
			c.Stats.Done++
			c.Stats.Attempts += result.Attempts
			c.Stats.MostInOneMoving = max(c.Stats.MostInOneMoving, result.Attempts)
			return nil
		case ctx.Err() != nil:
			status, _ := c.Fleet.MoveStatus(context.WithoutCancel(ctx), c.Topic, partition)
			return fmt.Errorf("the move of %s/%d to %s did not end: %w; it is %+v", c.Topic, partition, to, err, status)
		case !errors.As(err, &ended): // the question was not answered
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		case temporal.IsCanceledError(err) && cancelled:
			c.Stats.Cancelled++
			return nil
		case errors.As(err, &refused) && refused.Type() == protocol.ErrRefused:
			c.Stats.Refused++ // its destination was dead when it began, or it was reset
			c.Log("refused: %s", refused.Message())
			return nil
		default:
			return fmt.Errorf("the move of %s/%d to %s ended with: %w", c.Topic, partition, to, err)
		}
	}
}

// start starts a move, waiting for a Temporal that was just started again.
func (c *Chaos) start(ctx context.Context, partition int32, to string) (client.WorkflowRun, error) {
	for {
		run, err := c.Fleet.StartMove(ctx, protocol.MoveInput{Topic: c.Topic, Partition: &partition, To: to, By: "chaos"})
		var away *serviceerror.Unavailable
		if err == nil || !errors.As(err, &away) {
			return run, err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// owner reads who owns a partition, waiting for a Postgres that was just started again.
func (c *Chaos) owner(ctx context.Context, partition int32) (string, error) {
	for {
		row, err := c.Fleet.Store.FindAssignment(ctx, c.Topic, partition)
		switch {
		case err == nil && row != nil:
			return row.Owner, nil
		case err == nil:
			return "", fmt.Errorf("there is no %s/%d", c.Topic, partition)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return "", err
		}
	}
}

// Settle waits until nothing moves and every partition is open at its owner and nowhere else.
func (c *Chaos) Settle(ctx context.Context) error {
	for {
		unsettled := c.unsettled(ctx)
		if unsettled == "" {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("the fleet does not settle: %s: %w", unsettled, err)
		}
	}
}

func (c *Chaos) unsettled(ctx context.Context) string {
	owners := map[int32]string{}
	for p := range c.Partitions {
		row, err := c.Fleet.Store.FindAssignment(ctx, c.Topic, p)
		if err != nil || row == nil {
			return fmt.Sprintf("no row of partition %d: %v", p, err)
		}
		if id := row.Moving(); id != "" {
			return fmt.Sprintf("partition %d is claimed by %s", p, id)
		}
		owners[p] = row.Owner
	}
	for _, id := range c.Fleet.AgentIDs() {
		status, err := c.Fleet.Agents.Status(ctx, c.Fleet.Agent(id).ControlURL)
		if err != nil {
			return fmt.Sprintf("%s does not answer: %v", id, err)
		}
		if len(status.Moves) > 0 || status.ReservedBytes != 0 {
			return fmt.Sprintf("%s still has sessions %v and has reserved %d bytes", id, status.Moves, status.ReservedBytes)
		}
		open := map[int32]bool{}
		for _, p := range status.Partitions {
			if p.Topic != c.Topic {
				continue
			}
			if open[p.Partition] = p.State == "open"; !open[p.Partition] && p.State != "elsewhere" {
				return fmt.Sprintf("%s has partition %d %s: %s", id, p.Partition, p.State, p.Reason)
			}
		}
		for partition, owner := range owners {
			if open[partition] != (owner == id) {
				return fmt.Sprintf("partition %d belongs to %s and is open at %s: %v", partition, owner, id, open[partition])
			}
		}
	}
	return ""
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
