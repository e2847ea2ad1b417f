package operate_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"portage/brokeragent/agenttest"
	"portage/internal/operate"
	"portage/internal/services"
	"portage/workflows/protocol"
)

// temporalAddress is the one Temporal of these tests; each has a task queue of its own.
var temporalAddress string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		server, err := services.OpenTemporal(context.Background(), services.TemporalOptions{Progress: os.Stderr})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Close()
		temporalAddress = server.Address()
		return m.Run()
	}())
}

// fleetOf is a fleet of its own task queue on a real Temporal, without any worker.
func fleetOf(t *testing.T) *operate.Fleet {
	t.Helper()
	c, err := client.DialContext(t.Context(), client.Options{HostPort: temporalAddress, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &operate.Fleet{Temporal: c, Namespace: "default", TaskQueue: "operate-" + agenttest.ID()}
}

// work lets a worker of a fleet carry out one workflow; kill ends it.
func work(t *testing.T, f *operate.Fleet, name string, do any) (kill func()) {
	t.Helper()
	w := worker.New(f.Temporal, f.TaskQueue, worker.Options{WorkerStopTimeout: time.Second})
	w.RegisterWorkflowWithOptions(do, workflow.RegisterOptions{Name: name})
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	kill = func() { once.Do(w.Stop) }
	t.Cleanup(kill)
	return kill
}

// rebalancing is a Rebalance that is moving until it is cancelled.
func rebalancing(ctx workflow.Context, in protocol.RebalanceInput) (*protocol.RebalanceResult, error) {
	status := protocol.RebalanceStatus{ID: "r", Phase: protocol.PhaseMoving, InFlight: []string{"orders/1 b1 → b2"}}
	err := errors.Join(
		workflow.SetQueryHandler(ctx, protocol.QueryStatus, func() (protocol.RebalanceStatus, error) { return status, nil }),
		workflow.SetUpdateHandler(ctx, protocol.UpdatePause, func(_ workflow.Context, d protocol.Decide) (protocol.RebalanceStatus, error) {
			status.Paused = &protocol.Pause{Paused: true, By: d.By, Reason: d.Reason}
			return status, nil
		}),
		workflow.SetUpdateHandler(ctx, protocol.UpdateLimits, func(workflow.Context, protocol.Limits) (protocol.RebalanceStatus, error) { return status, nil }))
	if err != nil {
		return nil, err
	}
	if in.Undo != "" {
		status.Phase = protocol.PhasePlanning
		return nil, temporal.NewNonRetryableApplicationError("nothing was moved by it", protocol.ErrRefused, nil, "unknown_plan")
	}
	return nil, workflow.Await(ctx, func() bool { return false })
}

// coded insists on the code of an error, and on words of its sentence.
func coded(t *testing.T, err error, code string, words ...string) {
	t.Helper()
	var e *operate.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("the error is %v, want the code %s", err, code)
	}
	for _, word := range words {
		if !strings.Contains(e.Message, word) {
			t.Errorf("%q does not say %q", e.Message, word)
		}
	}
}

var start = protocol.RebalanceInput{By: "ops", Reason: "why"}

func TestWithoutAWorkerEveryOrderSaysSoAndWhatIsLeftQueued(t *testing.T) {
	for name, order := range map[string]func(context.Context, *testing.T, *operate.Fleet){
		"a dry run is withdrawn": func(ctx context.Context, t *testing.T, f *operate.Fleet) {
			started, err := f.StartRebalance(ctx, protocol.RebalanceInput{DryRun: true}, operate.Repeat{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.Planned(ctx, started)
			coded(t, err, operate.CodeNoWorker, "nothing stays queued", "portage worker")
			if running, err := f.Running(ctx, started); err != nil || running {
				t.Errorf("it is still queued (%v)", err)
			}
		},
		"a dry run of a decommission is withdrawn": func(ctx context.Context, t *testing.T, f *operate.Fleet) {
			started, err := f.StartDecommission(ctx, protocol.DecommissionInput{Broker: f.TaskQueue, DryRun: true}, operate.Repeat{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.Checked(ctx, started, f.TaskQueue)
			coded(t, err, operate.CodeNoWorker, "nothing stays queued")
		},
		"a rebalance stays queued": func(ctx context.Context, t *testing.T, f *operate.Fleet) {
			started, err := f.StartRebalance(ctx, start, operate.Repeat{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.RebalanceBegun(ctx, started)
			coded(t, err, operate.CodeNoWorker, "stays queued", started.WorkflowID, "cancel it")
			if running, err := f.Running(ctx, started); err != nil || !running {
				t.Errorf("it is not queued (%v)", err)
			}
		},
		"a decommission stays queued": func(ctx context.Context, t *testing.T, f *operate.Fleet) {
			started, err := f.StartDecommission(ctx, protocol.DecommissionInput{Broker: f.TaskQueue, By: "ops", Reason: "why"}, operate.Repeat{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.Begun(ctx, started, f.TaskQueue)
			coded(t, err, operate.CodeNoWorker, "stays queued")
		},
		"a status is not known": func(ctx context.Context, t *testing.T, f *operate.Fleet) {
			if _, err := f.StartRebalance(ctx, start, operate.Repeat{}); err != nil {
				t.Fatal(err)
			}
			_, err := f.RebalanceStatus(ctx)
			coded(t, err, operate.CodeNoWorker)
		},
		"nothing is steered": func(ctx context.Context, t *testing.T, f *operate.Fleet) {
			started, err := f.StartRebalance(ctx, start, operate.Repeat{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.PauseRebalance(ctx, "ops", "peak")
			coded(t, err, operate.CodeNoWorker, "nothing was changed")
			// A worker that comes back finds no such order.
			work(t, f, protocol.WorkflowRebalance, rebalancing)
			if status, err := f.StatusOf(ctx, started); err != nil || status.Paused != nil {
				t.Errorf("the status is %+v (%v)", status, err)
			}
		},
		"a cancel is kept": func(ctx context.Context, t *testing.T, f *operate.Fleet) {
			if _, err := f.StartRebalance(ctx, start, operate.Repeat{}); err != nil {
				t.Fatal(err)
			}
			started, err := f.CancelRebalance(ctx, "ops", "enough")
			if err != nil {
				t.Fatal(err)
			}
			coded(t, f.RebalanceCancelled(ctx, started), operate.CodeNoWorker, "is cancelled once")
			work(t, f, protocol.WorkflowRebalance, rebalancing)
			if err := f.RebalanceCancelled(ctx, started); err != nil {
				t.Errorf("with a worker: %v", err)
			}
		},
		"one that goes away in the middle": func(ctx context.Context, t *testing.T, f *operate.Fleet) {
			kill := work(t, f, protocol.WorkflowRebalance, rebalancing)
			started, err := f.StartRebalance(ctx, start, operate.Repeat{})
			if err != nil {
				t.Fatal(err)
			}
			if status, err := f.RebalanceBegun(ctx, started); err != nil || status.Phase != protocol.PhaseMoving {
				t.Fatalf("it began as %+v (%v)", status, err)
			}
			kill()
			_, err = f.PauseRebalance(ctx, "ops", "peak")
			coded(t, err, operate.CodeNoWorker)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			order(ctx, t, fleetOf(t))
		})
	}
}

func TestARebalanceThatDidNotEndByItselfIsNotToldAsRunning(t *testing.T) {
	for name, c := range map[string]struct {
		in       protocol.RebalanceInput
		end      func(context.Context, *operate.Fleet, operate.Started) error
		phase    string
		ended    []string
		deadline bool
	}{
		"failed": {protocol.RebalanceInput{Undo: "nothing", By: "ops", Reason: "why"}, nil, protocol.PhaseFailed, []string{"nothing was moved by it"}, false},
		"terminated": {start, func(ctx context.Context, f *operate.Fleet, s operate.Started) error {
			return f.Temporal.TerminateWorkflow(ctx, s.WorkflowID, s.RunID, "it was in the way")
		}, protocol.PhaseTerminated, []string{"was terminated", "it was in the way"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fleetOf(t)
			work(t, f, protocol.WorkflowRebalance, rebalancing)
			if c.deadline {
				at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
				c.in.Deadline = &at
			}
			started, err := f.StartRebalance(t.Context(), c.in, operate.Repeat{})
			if err != nil {
				t.Fatal(err)
			}
			_, begin := f.RebalanceBegun(t.Context(), started)
			if c.end == nil {
				coded(t, begin, "unknown_plan")
			} else if err := errors.Join(begin, c.end(t.Context(), f, started)); err != nil {
				t.Fatal(err)
			}
			status, err := f.RebalanceStatus(t.Context())
			if err != nil || status.Phase != c.phase || len(status.InFlight) > 0 {
				t.Fatalf("the status is %+v (%v)", status, err)
			}
			for _, words := range c.ended {
				if !strings.Contains(status.Ended, words) {
					t.Errorf("it ended with %q, which does not say %q", status.Ended, words)
				}
			}
			if c.deadline != (status.Deadline != nil) {
				t.Errorf("its deadline is %v", status.Deadline)
			}
		})
	}
}

func TestACancelOfNothingIsNotTheEndOfSomethingEarlier(t *testing.T) {
	f := fleetOf(t)
	work(t, f, protocol.WorkflowRebalance, rebalancing)
	started, err := f.StartRebalance(t.Context(), start, operate.Repeat{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := f.CancelRebalance(t.Context(), "ops", "enough")
	if err != nil || first.RunID != started.RunID {
		t.Fatalf("cancelled is %+v (%v)", first, err)
	}
	if err := f.RebalanceCancelled(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	_, err = f.CancelRebalance(t.Context(), "ops", "again")
	coded(t, err, operate.CodeNoRebalance)
	_, err = f.PauseRebalance(t.Context(), "ops", "again")
	coded(t, err, operate.CodeNoRebalance)
	_, err = f.CancelDecommission(t.Context(), f.TaskQueue, "ops", "again")
	coded(t, err, operate.CodeNoDecommission)
	// Who cancelled and why stands in its history.
	history := f.Temporal.GetWorkflowHistory(t.Context(), started.WorkflowID, started.RunID, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	var cause string
	for history.HasNext() {
		event, err := history.Next()
		if err != nil {
			t.Fatal(err)
		}
		if asked := event.GetWorkflowExecutionCancelRequestedEventAttributes(); asked != nil {
			cause = asked.GetCause()
		}
	}
	if cause != "ops: enough" {
		t.Errorf("the history says %q", cause)
	}
}

func TestLimitsOfAPausedRebalanceHoldOnceItIsResumed(t *testing.T) {
	f := fleetOf(t)
	work(t, f, protocol.WorkflowRebalance, rebalancing)
	if _, err := f.StartRebalance(t.Context(), start, operate.Repeat{}); err != nil {
		t.Fatal(err)
	}
	one := 1
	change := operate.LimitsChange{Limits: protocol.Limits{MaxInFlight: &one}, By: "ops", Reason: "peak"}
	for _, want := range []string{"goes on with the new limits", "will go on with the new limits once it is resumed"} {
		status, err := f.LimitRebalance(t.Context(), change)
		if err != nil || !strings.Contains(operate.LimitsTaken(status), want) {
			t.Errorf("the answer is %q (%v), not %q", operate.LimitsTaken(status), err, want)
		}
		if _, err := f.PauseRebalance(t.Context(), "ops", "peak"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhoGivesUpWaitingIsNotToldThatTemporalIsAway(t *testing.T) {
	f := fleetOf(t)
	work(t, f, protocol.WorkflowRebalance, rebalancing)
	started, err := f.StartRebalance(t.Context(), start, operate.Repeat{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	if _, err := f.RebalanceResult(ctx, started); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "Temporal does not answer") {
		t.Errorf("interrupted, it says %v", err)
	}
	if _, err := f.RebalanceStatus(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted, the status says %v", err)
	}
}

func TestADeadlineThatHasPassedIsRefusedUnlessTheOrderRunsAlready(t *testing.T) {
	f := fleetOf(t)
	soon := time.Now().Add(5 * time.Second)
	in := protocol.RebalanceInput{Deadline: &soon, By: "ops", Reason: "why"}
	started, err := f.StartRebalance(t.Context(), in, operate.Repeat{Join: true})
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(soon) + time.Millisecond)
	if again, err := f.StartRebalance(t.Context(), in, operate.Repeat{Join: true}); err != nil || again.RunID != started.RunID {
		t.Errorf("the same order again is %+v (%v)", again, err)
	}
	_, err = f.StartRebalance(t.Context(), in, operate.Repeat{})
	coded(t, err, operate.CodeInvalidInput, "deadline")
}

func TestWhatChangesSomethingSaysWhoAndWhy(t *testing.T) {
	f := &operate.Fleet{} // nothing is asked before that
	for name, order := range map[string]func(by, reason string) error{
		"rebalance": func(by, reason string) error {
			_, err := f.StartRebalance(t.Context(), protocol.RebalanceInput{By: by, Reason: reason}, operate.Repeat{})
			return err
		},
		"decommission": func(by, reason string) error {
			_, err := f.StartDecommission(t.Context(), protocol.DecommissionInput{Broker: "b1", By: by, Reason: reason}, operate.Repeat{})
			return err
		},
		"pause":  func(by, reason string) error { _, err := f.PauseRebalance(t.Context(), by, reason); return err },
		"cancel": func(by, reason string) error { _, err := f.CancelRebalance(t.Context(), by, reason); return err },
		"drain":  func(by, reason string) error { return f.Drain(t.Context(), "b1", true, by, reason) },
		"hold":   func(by, reason string) error { return f.SetPaused(t.Context(), true, by, reason) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, blank := range []string{"", " \t\n"} {
				coded(t, order("ops", blank), operate.CodeReasonMissing)
				coded(t, order(blank, "why"), operate.CodeByMissing)
			}
		})
	}
}
