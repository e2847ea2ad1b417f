package workflows

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// carriedOn runs a rebalance in which everything happens that a later run must know, until it continues as new, and returns
// what it goes on with: a canary is over, orders/1 has failed, orders/2 is skipped, its limits are others and a person has
// paused it.
func carriedOn(t *testing.T) protocol.RebalanceInput {
	t.Helper()
	r := newRebalancing(t, moves(1), moves(280)[1:])
	r.wave = 280 // 250 s on all of them were started
	r.ends = func(in protocol.MoveInput) error {
		if *in.Partition == 1 {
			return temporal.NewNonRetryableApplicationError("the disk is full", protocol.ErrRefused, nil, "disk_full")
		}
		return nil
	}
	two, rate := int32(2), protocol.ByteSize(8<<20)
	hundred, three, four := 100, 3, 4
	r.update(90*time.Second, protocol.UpdateSkip, protocol.Decide{Topic: "orders", Partition: &two, By: "ops", Reason: "hot"})
	r.update(91*time.Second, protocol.UpdateLimits, protocol.Limits{MaxInFlight: &hundred})
	r.update(250*time.Second, protocol.UpdateLimits, protocol.Limits{MaxInFlight: &three, TransfersPerBroker: &four, MoveRate: &rate, BrokerRate: &rate})
	r.update(251*time.Second, protocol.UpdatePause, protocol.Decide{By: "ops", Reason: "peak"}) // the last ones are in flight
	_, err := r.run(protocol.RebalanceInput{Canary: &protocol.Canary{Moves: 1}})
	var more *workflow.ContinueAsNewError
	if !errors.As(err, &more) || len(r.started) != 280 {
		t.Fatalf("the first run ended with %v after %d moves", err, len(r.started))
	}
	return nextInput(t, more)
}

// A rebalance that goes on in a new run has forgotten nothing of what failed, what a person has said, and what was looked at.
func TestRebalanceForgetsNothingInANewRun(t *testing.T) {
	in := carriedOn(t)
	r := newRebalancing(t, moves(20))
	var paused, going protocol.RebalanceStatus
	r.env.RegisterDelayedCallback(func() { paused = r.status() }, time.Hour)
	r.update(2*time.Hour, protocol.UpdateResume, protocol.Decide{By: "ops", Reason: "over"})
	r.env.RegisterDelayedCallback(func() { going = r.status() }, 2*time.Hour+time.Second)
	result := r.mustRun(in)
	started := func(partition int32) bool {
		return slices.ContainsFunc(r.started, func(m protocol.MoveInput) bool { return *m.Partition == partition })
	}
	for name, kept := range map[string]bool{
		"Paused":             paused.Blocked == protocol.CodePaused && paused.Paused != nil && paused.Paused.Reason == "peak" && len(paused.InFlight) == 0,
		"Tried":              !started(1),
		"Skipped":            !started(2),
		"LeftOut":            result.Counts.Skipped == 1,
		"Canary":             len(going.InFlight) > 1,
		"MaxInFlight":        r.most == 3,
		"TransfersPerBroker": going.Limits.TransfersPerBroker == 4,
		"MoveRate":           going.Limits.MoveRate == 8<<20,
		"BrokerRate":         going.Limits.BrokerRate == 8<<20,
		"Counts":             result.Counts.Moved == 278+18 && result.Counts.Failed == 1,
		"Plans":              result.Plans == 4,
		"Troubles":           len(result.Troubles) == 2 && strings.Contains(result.Troubles[0].Reason+result.Troubles[1].Reason, "the disk is full"),
		"ID":                 result.ID == in.Carried.ID,
	} {
		if !kept {
			t.Errorf("%s is not carried on: the new run's report is %+v, paused it was %+v, then %+v", name, result, paused, going)
		}
	}
}

// A new run follows the fleet's pause from its beginning, and says whose plans are in use.
func TestRebalanceFollowsThePauseOfTheFleetInANewRun(t *testing.T) {
	r := newRebalancing(t, moves(20))
	r.watched(30*time.Second, protocol.Pause{Paused: true, Reason: "backup"})
	r.env.RegisterDelayedCallback(func() {
		if s := r.status(); len(r.started) != 8 || s.Blocked != protocol.CodePaused {
			t.Errorf("%d moves were started, it is %+v", len(r.started), s)
		}
		r.env.CancelWorkflow()
	}, time.Hour)
	if _, err := r.run(protocol.RebalanceInput{Carried: &protocol.RebalanceCarried{ID: "the first run", Plans: 3}}); !temporal.IsCanceledError(err) {
		t.Errorf("it ended with %v", err)
	}
	if len(r.watches) != 1 || r.watches[0].Rebalance != "the first run" {
		t.Errorf("watched was with %+v", r.watches)
	}
}
