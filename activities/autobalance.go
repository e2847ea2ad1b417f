package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"

	"portage/metastore"
	"portage/workflows/protocol"
)

// Autobalance are the activities of the workflow of that name.
type Autobalance struct {
	Store        *metastore.Store
	Temporal     client.Client
	ControllerID string
	Logger       *slog.Logger
	// Look and Settle are lookEvery and settleFor when 0.
	Look, Settle time.Duration
}

const (
	// lookEvery is how soon a reason for a pass is noticed.
	lookEvery = time.Second
	// settleFor is how long no other broker may have changed before a pass begins: of a fleet that boots, one pass is made.
	settleFor = 5 * time.Second
	// settleWithin bounds that: brokers that come and go all the time do not keep a pass from beginning.
	settleWithin = time.Minute
)

// WatchFleet returns once the settings, or what keeps a pass from beginning, are not as the caller knows them, or there is
// reason for a pass and nothing keeps it. It changes nothing: the worker dies in it, or the reply is lost, and it looks
// again. The metastore or Temporal does not answer: it goes on looking, for what it waits for is a row.
func (a *Autobalance) WatchFleet(ctx context.Context, known protocol.WatchFleetArgs) (protocol.FleetNews, error) {
	defer beat(ctx)()
	settling := settling{still: orElse(a.Settle, settleFor)}
	silent := false
	for {
		news, err := a.look(ctx, known, &settling)
		switch {
		case ctx.Err() != nil:
			return protocol.FleetNews{}, ctx.Err()
		case err != nil && !silent:
			a.Logger.Warn("the autobalance can not look at the fleet; looking again", "error", err)
		case err == nil && news != nil:
			return *news, nil
		}
		silent = err != nil
		select {
		case <-ctx.Done():
			return protocol.FleetNews{}, ctx.Err()
		case <-activity.GetWorkerStopChannel(ctx):
			return protocol.FleetNews{}, errWorkerStopping()
		case <-time.After(orElse(a.Look, lookEvery)):
		}
	}
}

// look is one look at the fleet; nil: there is nothing new.
func (a *Autobalance) look(ctx context.Context, known protocol.WatchFleetArgs, settling *settling) (*protocol.FleetNews, error) {
	set, err := a.Store.Autobalance(ctx)
	if err != nil {
		return nil, err
	}
	news := &protocol.FleetNews{Mode: set.Mode, Every: protocol.Duration(set.Every)}
	if news.Mode != known.Mode || news.Every != known.Every {
		return news, nil
	}
	changes, err := a.Store.FleetChanges(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	settled := settling.over(changes, now)
	reason := settled && len(changes) > 0
	for _, c := range changes {
		news.Changes = append(news.Changes, protocol.FleetChange(c))
	}
	if set.Mode == metastore.AutobalanceOff {
		if !reason {
			return nil, nil
		}
		return news, nil
	}
	news.Due = known.Due != nil && !now.Before(*known.Due)
	switch {
	case !settled, known.NotBefore != nil && now.Before(*known.NotBefore):
		return nil, nil
	case !reason && !news.Due && known.Blocked == "":
		return nil, nil
	case !reason && !news.Due:
		return news, nil // what there was reason for is gone, and with it what kept it
	}
	if news.Blocked, news.BlockedReason, err = a.blocked(ctx); err != nil {
		return nil, err
	}
	if news.Blocked != "" && news.Blocked == known.Blocked {
		return nil, nil
	}
	return news, nil
}

// blocked is what keeps a pass from beginning now.
func (a *Autobalance) blocked(ctx context.Context) (code, reason string, err error) {
	pause, err := a.Store.Paused(ctx)
	if err != nil {
		return "", "", err
	}
	if pause.Paused {
		return protocol.CodePaused, fmt.Sprintf("%s has paused the fleet's rebalances: %s", pause.By, pause.Reason), nil
	}
	_, holder, err := a.Store.Controller(ctx)
	if err != nil {
		return "", "", err
	}
	if holder != a.ControllerID {
		return metastore.CodeStaleController, fmt.Sprintf("the worker deployment %q took over", holder), nil
	}
	running, err := a.running(ctx, protocol.RebalanceWorkflowID(activity.GetInfo(ctx).TaskQueue))
	if err != nil {
		return "", "", err
	}
	if running {
		return protocol.CodeRebalanceRunning, "a rebalance of the fleet runs; a pass follows it", nil
	}
	brokers, err := a.Store.Brokers(ctx)
	if err != nil {
		return "", "", err
	}
	for _, b := range brokers {
		if !b.Draining || b.Removed {
			continue
		}
		// A decommission empties its broker by a rebalance of its own; one that waits for something keeps nothing from beginning.
		if running, err = a.running(ctx, protocol.ShedWorkflowID(b.ID)); err != nil {
			return "", "", err
		}
		if running {
			return protocol.CodeRebalanceRunning, fmt.Sprintf("the decommission of %s moves its partitions away; a pass follows it", b.ID), nil
		}
	}
	return "", "", nil
}

func (a *Autobalance) running(ctx context.Context, workflow string) (bool, error) {
	described, err := a.Temporal.DescribeWorkflow(ctx, workflow, "")
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &missing):
		return false, nil
	case err != nil:
		return false, err
	}
	return described.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING, nil
}

// MarkBalanced keeps what a pass has seen of brokers, so that it is no reason for another.
func (a *Autobalance) MarkBalanced(ctx context.Context, changes []protocol.FleetChange) error {
	seen := make([]metastore.FleetChange, len(changes))
	for i, c := range changes {
		seen[i] = metastore.FleetChange(c)
	}
	plans := &Plans{Store: a.Store, Logger: a.Logger}
	_, err := patientPlan(ctx, plans, func(ctx context.Context) (struct{}, error) { return struct{}{}, a.Store.MarkBalanced(ctx, seen) })
	return err
}

// settling waits until what has changed stands still.
type settling struct {
	still time.Duration
	last  []metastore.FleetChange
	first time.Time // when anything had changed first
	since time.Time // when it was as it is now first
}

func (s *settling) over(changes []metastore.FleetChange, now time.Time) bool {
	if len(changes) == 0 {
		s.last = nil
		return true
	}
	if len(s.last) == 0 {
		s.first = now
	}
	if !slices.Equal(s.last, changes) {
		s.last, s.since = changes, now
	}
	return now.Sub(s.since) >= s.still || now.Sub(s.first) >= settleWithin
}

func orElse(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}
