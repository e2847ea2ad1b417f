package worker

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"portage/internal/operate"
	"portage/workflows/protocol"
)

// mostListed is the longest list of moves; usuallyListed what is listed when nothing is asked for.
const (
	mostListed    = 10_000
	usuallyListed = 50
)

// MoveStarted is a move or a swap that holds what it moves, or will.
type MoveStarted struct {
	operate.Started
	Status protocol.Status `json:"status"`
}

func parseMove(raw []byte) (protocol.MoveInput, error) {
	in, err := protocol.ParseMoveInput(raw)
	if err == nil && (in.Earlier != nil || in.Plan != "" || in.PlanSeq != 0) {
		err = badRequest(`"earlier", "plan" and "planSeq" are not for callers`)
	}
	return in, err
}

func parseSwap(raw []byte) (protocol.SwapInput, error) {
	in, err := protocol.ParseSwapInput(raw)
	if err == nil && (in.Earlier != nil || in.Plan != "" || in.PlanSeq != 0) {
		err = badRequest(`"earlier", "plan" and "planSeq" are not for callers`)
	}
	return in, err
}

func (a *api) startMove(ctx context.Context, r *http.Request, in protocol.MoveInput) (reply, error) {
	started, err := a.fleet.StartMove(ctx, in, repeatOf(r))
	return a.claimed(ctx, started, err)
}

func (a *api) startSwap(ctx context.Context, r *http.Request, in protocol.SwapInput) (reply, error) {
	started, err := a.fleet.StartSwap(ctx, in, repeatOf(r))
	return a.claimed(ctx, started, err)
}

func (a *api) claimed(ctx context.Context, started operate.Started, err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	status, err := begun(ctx, func(ctx context.Context) (protocol.Status, error) { return a.fleet.Claimed(ctx, started) })
	return startedWith(started, MoveStarted{started, status}), err
}

func (a *api) moves(ctx context.Context, r *http.Request) (reply, error) {
	all, limit := false, usuallyListed
	var err error
	if text := r.URL.Query().Get("all"); text != "" {
		if all, err = strconv.ParseBool(text); err != nil {
			return reply{}, badRequest("all is %q, neither true nor false", text)
		}
	}
	if text := r.URL.Query().Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mostListed {
			return reply{}, badRequest("limit is %q, no number within 1 to %d", text, mostListed)
		}
	}
	moves, err := a.fleet.Moves(ctx, all, limit)
	return reply{http.StatusOK, moves}, err
}

// partitionOf reads the partition that a path names.
func partitionOf(r *http.Request) (operate.MoveRef, error) {
	n, err := strconv.ParseInt(r.PathValue("partition"), 10, 32)
	if err != nil || n < 0 {
		return operate.MoveRef{}, badRequest("%q is not a partition; write /v1/moves/orders/3", r.PathValue("partition"))
	}
	return operate.MoveRef{Topic: r.PathValue("topic"), Partition: int32(n)}, nil
}

func (a *api) move(ctx context.Context, r *http.Request) (reply, error) {
	ref, err := partitionOf(r)
	if err != nil {
		return reply{}, err
	}
	view, err := a.fleet.MoveStatus(ctx, ref)
	return reply{http.StatusOK, view}, err
}

func (a *api) tuneMove(ctx context.Context, r *http.Request, in protocol.Tune) (reply, error) {
	ref, err := partitionOf(r)
	if err != nil {
		return reply{}, err
	}
	if in.Limit == nil && in.Force == nil {
		return reply{}, badRequest(`nothing to change: give {"limit":"64MiB"} or {"force":true}`)
	}
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	return reply{http.StatusOK, Done{Message: fmt.Sprintf("%s goes on with the new settings", ref)}}, a.fleet.TuneMove(ctx, ref, in)
}

func (a *api) cancelMove(ctx context.Context, r *http.Request, in Signed) (reply, error) {
	ref, err := partitionOf(r)
	if err != nil {
		return reply{}, err
	}
	workflow, err := a.fleet.CancelMove(ctx, ref, in.By, in.Reason)
	if err != nil {
		return reply{}, err
	}
	return cancelled(ctx, func(ctx context.Context) error { return a.fleet.MoveCancelled(ctx, ref, workflow) }, fmt.Sprintf("%s stays where it was; everything is restored", ref))
}
