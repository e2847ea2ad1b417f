package worker

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"portage/internal/operate"
	"portage/workflows/protocol"
)

// DecommissionStarted is a decommission that its guards have let begin.
type DecommissionStarted struct {
	operate.Started
	Status protocol.DecommissionStatus `json:"status"`
}

func parseDecommission(raw []byte) (protocol.DecommissionInput, error) {
	in, err := protocol.ParseDecommissionInput(raw)
	switch {
	case err == nil && in.Carried != nil:
		err = badRequest(`"carried" is not for callers`)
	case err == nil && in.DryRun:
		err = badRequest(`"dryRun" is a call of its own: GET /v1/decommissions/%s/check`, in.Broker)
	}
	return in, err
}

func (a *api) members(ctx context.Context, _ *http.Request) (reply, error) {
	members, err := a.fleet.Members(ctx)
	return reply{http.StatusOK, members}, err
}

func (a *api) scores(ctx context.Context, _ *http.Request) (reply, error) {
	scores, err := a.fleet.Scores(ctx)
	return reply{http.StatusOK, scores}, err
}

func (a *api) paused(ctx context.Context, _ *http.Request) (reply, error) {
	paused, err := a.fleet.Paused(ctx)
	return reply{http.StatusOK, paused}, err
}

func (a *api) pauseFleet(ctx context.Context, _ *http.Request, in Signed) (reply, error) {
	return reply{http.StatusOK, Done{Message: "rebalances are paused: copies stand still within seconds, nothing more begins"}}, a.fleet.SetPaused(ctx, true, in.By, in.Reason)
}

func (a *api) resumeFleet(ctx context.Context, _ *http.Request, in Signed) (reply, error) {
	return reply{http.StatusOK, Done{Message: "rebalances go on"}}, a.fleet.SetPaused(ctx, false, in.By, in.Reason)
}

func (a *api) startDecommission(ctx context.Context, r *http.Request, in protocol.DecommissionInput) (reply, error) {
	started, err := a.fleet.StartDecommission(ctx, in, repeatOf(r))
	if err != nil {
		return reply{}, err
	}
	status, err := begun(ctx, func(ctx context.Context) (protocol.DecommissionStatus, error) {
		return a.fleet.Begun(ctx, started, in.Broker)
	})
	return startedWith(started, DecommissionStarted{started, status}), err
}

func (a *api) decommission(ctx context.Context, r *http.Request) (reply, error) {
	status, err := a.fleet.DecommissionStatus(ctx, r.PathValue("broker"))
	return reply{http.StatusOK, status}, err
}

func (a *api) checkDecommission(ctx context.Context, r *http.Request) (reply, error) {
	args := protocol.DrainArgs{Broker: r.PathValue("broker"), MinBrokers: protocol.MinBrokersDefault}
	if text := r.URL.Query().Get("minBrokers"); text != "" {
		var err error
		if args.MinBrokers, err = strconv.Atoi(text); err != nil || args.MinBrokers < 1 {
			return reply{}, badRequest("minBrokers is %q, no number from 1", text)
		}
	}
	check, err := a.fleet.CheckDecommission(ctx, args)
	return reply{http.StatusOK, check}, err
}

func (a *api) cancelDecommission(ctx context.Context, r *http.Request, in Signed) (reply, error) {
	broker := r.PathValue("broker")
	started, err := a.fleet.CancelDecommission(ctx, broker, in.By, in.Reason)
	if err != nil {
		return reply{}, err
	}
	return cancelled(ctx, func(ctx context.Context) error { return a.fleet.DecommissionCancelled(ctx, started, broker) },
		fmt.Sprintf("broker %s takes partitions again; what was moved stays where it is", broker))
}

// verdict is what a deployment script waits for: 200 safe to remove, 202 not yet and why, 409 refused or cancelled.
func (a *api) verdict(ctx context.Context, r *http.Request) (reply, error) {
	var wait time.Duration
	if text := r.URL.Query().Get("wait"); text != "" {
		var err error
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 || wait > MostWait {
			return reply{}, badRequest("wait is %q, no time from 0s to %s; ask again for longer", text, MostWait)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, wait+callBound)
	defer cancel()
	v, err := a.fleet.VerdictOn(ctx, r.PathValue("broker"), wait)
	if v.Safe {
		return reply{http.StatusOK, v}, err
	}
	return reply{http.StatusAccepted, v}, err
}
