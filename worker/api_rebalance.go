package worker

import (
	"context"
	"net/http"
	"strconv"

	"portage/internal/operate"
	"portage/workflows/protocol"
)

// Signed is an order that needs nothing but who gives it and why.
type Signed struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
}

// Skip leaves one partition out of the running rebalance.
type Skip struct {
	Topic     string `json:"topic"`
	Partition *int32 `json:"partition"`
	Signed
}

// Approve lets the plan of a hash be carried out.
type Approve struct {
	Hash string `json:"hash"` // at least 8 characters of it
	Signed
}

// Done says what an order did.
type Done struct {
	Message string `json:"message"`
	// Pending: it was asked for and has not come to its end yet; look at the status.
	Pending bool `json:"pending,omitempty"`
}

// RebalanceStarted is a rebalance that runs.
type RebalanceStarted struct {
	operate.Started
	Status protocol.RebalanceStatus `json:"status"`
}

// Planned is a dry run. Its plan is kept, to be carried out by its hash; it is absent while Pending.
type Planned struct {
	operate.Started
	Pending bool                  `json:"pending,omitempty"`
	Plan    *protocol.PlanSummary `json:"plan,omitempty"`
}

func parseRebalance(raw []byte) (protocol.RebalanceInput, error) {
	in, err := protocol.ParseRebalanceInput(raw)
	switch {
	case err != nil:
		return in, err
	case in.Carried != nil:
		return in, badRequest(`"carried" is not for callers`)
	case in.DryRun:
		return in, badRequest(`"dryRun" is a call of its own: POST /v1/rebalance/plan`)
	}
	return in, nil
}

func parseUndo(raw []byte) (protocol.RebalanceInput, error) {
	in, err := parseRebalance(raw)
	if err == nil && in.Undo == "" {
		err = badRequest(`name the rebalance to be undone: {"undo":"..."}; its status and its report have its id`)
	}
	return in, err
}

func parseApprove(raw []byte) (Approve, error) {
	in, err := strictly[Approve](raw)
	if err == nil && len(in.Hash) < 8 {
		err = badRequest(`name the plan that was looked at: {"hash":"..."}, at least 8 characters of it`)
	}
	return in, err
}

func (a *api) plan(ctx context.Context, r *http.Request) (reply, error) {
	options := operate.PlanOptions{MaxActions: -1}
	var err error
	if text := r.URL.Query().Get("countOnly"); text != "" {
		if options.CountOnly, err = strconv.ParseBool(text); err != nil {
			return reply{}, badRequest("countOnly is %q, neither true nor false", text)
		}
	}
	if text := r.URL.Query().Get("maxActions"); text != "" {
		if options.MaxActions, err = strconv.Atoi(text); err != nil || options.MaxActions < 0 {
			return reply{}, badRequest("maxActions is %q, no number from 0", text)
		}
	}
	plan, err := a.fleet.Plan(ctx, options)
	return reply{http.StatusOK, plan}, err
}

// planRebalance waits for the plan; one that takes long is joined by the same order, given again.
func (a *api) planRebalance(ctx context.Context, r *http.Request, in protocol.RebalanceInput) (reply, error) {
	in.DryRun = true
	started, err := a.fleet.StartRebalance(ctx, in, repeatOf(r))
	if err != nil {
		return reply{}, err
	}
	waiting, cancel := context.WithTimeout(ctx, planBound)
	defer cancel()
	plan, err := a.fleet.Planned(waiting, started)
	if err != nil && waiting.Err() != nil {
		return reply{http.StatusAccepted, Planned{Started: started, Pending: true}}, nil
	}
	return reply{http.StatusOK, Planned{Started: started, Plan: plan}}, err
}

// startedWith is 202, and 200 for an order that was given before.
func startedWith(s operate.Started, body any) reply {
	if s.Joined {
		return reply{http.StatusOK, body}
	}
	return reply{http.StatusAccepted, body}
}

// begun waits until a start can no more be refused. One that is not decided within the bound goes on.
func begun[S any](ctx context.Context, wait func(context.Context) (S, error)) (S, error) {
	waiting, cancel := context.WithTimeout(ctx, beginBound)
	defer cancel()
	status, err := wait(waiting)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		err = nil
	}
	return status, err
}

func (a *api) startRebalance(ctx context.Context, r *http.Request, in protocol.RebalanceInput) (reply, error) {
	started, err := a.fleet.StartRebalance(ctx, in, repeatOf(r))
	if err != nil {
		return reply{}, err
	}
	status, err := begun(ctx, func(ctx context.Context) (protocol.RebalanceStatus, error) {
		return a.fleet.RebalanceBegun(ctx, started)
	})
	return startedWith(started, RebalanceStarted{started, status}), err
}

func (a *api) rebalance(ctx context.Context, _ *http.Request) (reply, error) {
	status, err := a.fleet.RebalanceStatus(ctx)
	return reply{http.StatusOK, status}, err
}

// updated is the answer to an update that the running rebalance has taken.
func updated(done string, err error) (reply, error) {
	return reply{http.StatusOK, Done{Message: done}}, err
}

func (a *api) approve(ctx context.Context, _ *http.Request, in Approve) (reply, error) {
	_, err := a.fleet.ApproveRebalance(ctx, in.Hash, in.By, in.Reason)
	return updated("the plan is carried out as it was shown", err)
}

func (a *api) limits(ctx context.Context, _ *http.Request, in operate.LimitsChange) (reply, error) {
	status, err := a.fleet.LimitRebalance(ctx, in)
	return updated(operate.LimitsTaken(status), err)
}

func (a *api) pauseRebalance(ctx context.Context, _ *http.Request, in Signed) (reply, error) {
	_, err := a.fleet.PauseRebalance(ctx, in.By, in.Reason)
	return updated("the rebalance is paused: copies stand still, nothing more begins", err)
}

func (a *api) resumeRebalance(ctx context.Context, _ *http.Request, in Signed) (reply, error) {
	_, err := a.fleet.ResumeRebalance(ctx, in.By, in.Reason)
	return updated("the rebalance goes on", err)
}

func (a *api) skip(ctx context.Context, _ *http.Request, in Skip) (reply, error) {
	_, err := a.fleet.SkipPartition(ctx, in.Topic, in.Partition, in.By, in.Reason)
	return updated("the partition is left out", err)
}

func (a *api) cancelRebalance(ctx context.Context, _ *http.Request, in Signed) (reply, error) {
	started, err := a.fleet.CancelRebalance(ctx, in.By, in.Reason)
	if err != nil {
		return reply{}, err
	}
	return cancelled(ctx, func(ctx context.Context) error { return a.fleet.RebalanceCancelled(ctx, started) }, "the rebalance has ended; what had not committed is as it was")
}

// cancelled waits a while for the end of what was asked to cancel.
func cancelled(ctx context.Context, wait func(context.Context) error, done string) (reply, error) {
	waiting, stop := context.WithTimeout(ctx, beginBound)
	defer stop()
	err := wait(waiting)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return reply{http.StatusAccepted, Done{Message: "it was asked to cancel and restores what is not committed; look at its status", Pending: true}}, nil
	}
	return reply{http.StatusOK, Done{Message: done}}, err
}
