package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"

	"portage/workflows"
	"portage/workflows/protocol"
)

type overheadResult struct {
	Bench            string    `json:"bench"`
	Partitions       int       `json:"partitions"`
	Rounds           int       `json:"rounds"`
	Events           int64     `json:"events"` // of the longest history
	MovesPerS        float64   `json:"moves_per_s"`
	EmptyActivities  float64   `json:"empty_activities_per_s"` // workflows of the same shape with empty activities, a second
	Ratio            float64   `json:"ratio"`                  // median over the rounds
	Ratios           []float64 `json:"ratios"`
	P50              float64   `json:"p50_ms"`       // one move alone
	EmptyP50         float64   `json:"empty_p50_ms"` // one workflow with empty activities alone
	ActivitiesAMove  int       `json:"activities_per_move"`
	NotInOneAttempt  int       `json:"not_in_one_attempt"`
	HistoryEventsMax int64     `json:"events_limit"`
}

const (
	overheadTopic = "overhead"
	emptyQueue    = "empty"
	// eventsLimit is what a move without trouble is to stay within.
	eventsLimit = 70
)

// moveOverhead moves empty partitions back and forth, many at once and one alone, and runs as many workflows of the same
// code with activities that do nothing in between. Limits of the agents are lifted.
func moveOverhead(ctx context.Context, b *bench) error {
	r := overheadResult{Bench: "move_overhead", Partitions: 48, Rounds: 5, ActivitiesAMove: len(emptyActivities), HistoryEventsMax: eventsLimit}
	alone := 21
	if b.quick {
		r.Partitions, r.Rounds, alone = 16, 2, 7
	}
	owners := make([]string, r.Partitions)
	for i := range owners {
		owners[i] = "b1"
	}
	if err := b.fleet.CreateTopic(ctx, overheadTopic, int32(r.Partitions), owners...); err != nil {
		return err
	}
	empty := sdk.New(b.fleet.Client, emptyQueue, sdk.Options{MaxConcurrentActivityExecutionSize: 200, DisableRegistrationAliasing: true})
	empty.RegisterWorkflowWithOptions(workflows.Move, workflow.RegisterOptions{Name: protocol.WorkflowMove})
	for name, f := range emptyActivities {
		empty.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
	}
	if err := empty.Start(); err != nil {
		return err
	}
	defer empty.Stop()

	here, there := "b1", "b2"
	var moves, empties []float64
	for n := range r.Rounds + 1 {
		var took, emptyTook time.Duration
		turns := []func() error{
			func() (err error) {
				took, err = b.together(ctx, r.Partitions, there, b.fleet.TaskQueue(), &r)
				return err
			},
			func() (err error) {
				emptyTook, err = b.together(ctx, r.Partitions, there, emptyQueue, nil)
				return err
			},
		}
		if n%2 == 1 { // what a turn leaves behind is not always the other's burden
			slices.Reverse(turns)
		}
		for _, turn := range turns {
			if err := turn(); err != nil {
				return err
			}
		}
		here, there = there, here
		if n == 0 {
			continue // caches, connections, the first segments
		}
		moves = append(moves, float64(r.Partitions)/took.Seconds())
		empties = append(empties, float64(r.Partitions)/emptyTook.Seconds())
		r.Ratios = append(r.Ratios, round(emptyTook.Seconds()/took.Seconds()))
	}
	r.MovesPerS, r.EmptyActivities, r.Ratio = quantile(moves, 0.5), quantile(empties, 0.5), quantile(r.Ratios, 0.5)

	var oneMove, oneEmpty []float64
	for range alone {
		took, err := b.single(ctx, 0, there, b.fleet.TaskQueue(), &r)
		if err != nil {
			return err
		}
		oneMove = append(oneMove, milliseconds(took))
		if took, err = b.single(ctx, 0, there, emptyQueue, nil); err != nil {
			return err
		}
		oneEmpty = append(oneEmpty, milliseconds(took))
		here, there = there, here
	}
	r.P50, r.EmptyP50 = quantile(oneMove, 0.5), quantile(oneEmpty, 0.5)
	return emit(r)
}

// together starts one workflow a partition at once and returns when the last has ended.
func (b *bench) together(ctx context.Context, partitions int, to, queue string, r *overheadResult) (time.Duration, error) {
	began := time.Now()
	runs := make([]client.WorkflowRun, partitions)
	attempts := make([]int, partitions)
	var group errgroup.Group
	for i := range partitions {
		group.Go(func() (err error) {
			runs[i], attempts[i], err = b.toEnd(ctx, int32(i), to, queue)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return took, b.look(ctx, runs, attempts, r)
}

func (b *bench) single(ctx context.Context, partition int32, to, queue string, r *overheadResult) (time.Duration, error) {
	began := time.Now()
	run, attempts, err := b.toEnd(ctx, partition, to, queue)
	if err != nil {
		return 0, err
	}
	took := time.Since(began)
	return took, b.look(ctx, []client.WorkflowRun{run}, []int{attempts}, r)
}

func (b *bench) toEnd(ctx context.Context, partition int32, to, queue string) (client.WorkflowRun, int, error) {
	in := protocol.MoveInput{Topic: overheadTopic, Partition: &partition, To: to, By: "bench"}
	run, err := b.fleet.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: fmt.Sprintf("%s:%s:%d", queue, overheadTopic, partition), TaskQueue: queue}, protocol.WorkflowMove, in)
	if err != nil {
		return nil, 0, err
	}
	var result protocol.MoveResult
	err = run.Get(ctx, &result)
	return run, result.Attempts, err
}

// look notes the longest history; nil notes nothing.
func (b *bench) look(ctx context.Context, runs []client.WorkflowRun, attempts []int, r *overheadResult) error {
	if r == nil {
		return nil
	}
	var lengths []int64
	for i, run := range runs {
		described, err := b.fleet.Client.DescribeWorkflow(ctx, run.GetID(), run.GetRunID())
		if err != nil {
			return err
		}
		lengths = append(lengths, described.RawResponse.GetWorkflowExecutionInfo().GetHistoryLength())
		if attempts[i] != 1 {
			r.NotInOneAttempt++
		}
	}
	r.Events = max(r.Events, slices.Max(lengths))
	return nil
}

// emptyActivities are the steps of a move that do nothing and answer what a move of an empty partition answers.
var emptyActivities = map[string]any{
	protocol.ActivityClaim: func(_ context.Context, a protocol.ClaimArgs) (protocol.Claim, error) {
		return protocol.Claim{MoveID: a.MoveID, TopicID: uuid.New(), Topic: a.Input.Topic, Partition: *a.Input.Partition, From: "b1", To: a.Input.To, Epoch: 1, Version: 1,
			ControllerEpoch: 1, ControllerID: "bench"}, nil
	},
	protocol.ActivityEnsure: func(context.Context, protocol.StepArgs) (protocol.CopyResult, error) {
		return protocol.CopyResult{}, nil
	},
	protocol.ActivityCopy: func(context.Context, protocol.StepArgs) (protocol.CopyResult, error) {
		return protocol.CopyResult{Converged: true}, nil
	},
	protocol.ActivityCutover: func(context.Context, protocol.CutoverArgs) (protocol.Evidence, error) {
		return protocol.Evidence{Version: 1, InstalledVersion: 1, Storage: uuid.New()}, nil
	},
	protocol.ActivityCommit: func(context.Context, protocol.CommitArgs) (int32, error) { return 2, nil },
	protocol.ActivityFinish: func(context.Context, protocol.FinishArgs) (protocol.FinishResult, error) {
		return protocol.FinishResult{}, nil
	},
}
