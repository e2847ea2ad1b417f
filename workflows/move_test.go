package workflows

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/mock"
	"go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// world stands for the activities: each does what a move without trouble meets, unless a test says otherwise. It keeps what
// was called with what.
type world struct {
	t   *testing.T
	env *testsuite.TestWorkflowEnvironment

	mu     sync.Mutex // guards everything below
	calls  []string
	claims []protocol.ClaimArgs
	copies []protocol.StepArgs
	aborts []protocol.AbortArgs
	commit protocol.CommitArgs
	before map[string]func(call int) error // what an activity does first; an error ends it
	done   map[string]int
	shown  []string           // phases and blocks, as the search attributes show them
	waits  []protocol.Waiting // what the rebalance of a move is told
}

var evidence = protocol.Evidence{Version: 7, FrozenEnd: 100, InstalledEnd: 100, InstalledVersion: 7, Storage: uuid.New(), TailBytes: 11}

func newWorld(t *testing.T) *world {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	w := &world{t: t, env: suite.NewTestWorkflowEnvironment(), before: map[string]func(int) error{}, done: map[string]int{}}
	register := func(name string, f any) {
		w.env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
	}
	register(protocol.ActivityClaim, func(_ context.Context, a protocol.ClaimArgs) (protocol.Claim, error) {
		err := w.enter(protocol.ActivityClaim, func() { w.claims = append(w.claims, a) })
		return protocol.Claim{MoveID: a.MoveID, Topic: a.Input.Topic, Partition: *a.Input.Partition, From: "b1", To: a.Input.To, Version: 5}, err
	})
	register(protocol.ActivityEnsure, func(_ context.Context, a protocol.StepArgs) (protocol.CopyResult, error) {
		return protocol.CopyResult{BytesTotal: 1000, Adopted: true}, w.enter(protocol.ActivityEnsure, nil)
	})
	register(protocol.ActivityCopy, func(_ context.Context, a protocol.StepArgs) (protocol.CopyResult, error) {
		err := w.enter(protocol.ActivityCopy, func() { w.copies = append(w.copies, a) })
		return protocol.CopyResult{BytesTotal: 1000, BytesCopied: 900, Converged: true, ExpectedFreeze: time.Second}, err
	})
	register(protocol.ActivityCutover, func(_ context.Context, a protocol.CutoverArgs) (protocol.Evidence, error) {
		if a.ExpectedFreeze != time.Second {
			w.t.Errorf("the cutover is told of an expected freeze of %s", a.ExpectedFreeze)
		}
		return evidence, w.enter(protocol.ActivityCutover, nil)
	})
	register(protocol.ActivityCommit, func(_ context.Context, a protocol.CommitArgs) (int32, error) {
		return 4, w.enter(protocol.ActivityCommit, func() { w.commit = a })
	})
	register(protocol.ActivityFinish, func(_ context.Context, a protocol.FinishArgs) (protocol.FinishResult, error) {
		return protocol.FinishResult{FrozenMS: 12, TotalMS: 34, Parked: 2}, w.enter(protocol.ActivityFinish, nil)
	})
	register(protocol.ActivityAbort, func(_ context.Context, a protocol.AbortArgs) (protocol.AbortResult, error) {
		return protocol.AbortResult{}, w.enter(protocol.ActivityAbort, func() { w.aborts = append(w.aborts, a) })
	})
	w.env.RegisterWorkflowWithOptions(Move, workflow.RegisterOptions{Name: protocol.WorkflowMove})
	w.env.RegisterWorkflowWithOptions(Swap, workflow.RegisterOptions{Name: protocol.WorkflowSwap})
	w.env.RegisterWorkflowWithOptions(w.rebalance, workflow.RegisterOptions{Name: protocol.WorkflowRebalance})
	w.env.OnUpsertTypedSearchAttributes(mock.Anything).Run(func(args mock.Arguments) {
		attributes := args.Get(0).(temporal.SearchAttributes)
		w.mu.Lock()
		defer w.mu.Unlock()
		if phase, ok := attributes.GetKeyword(phaseKey); ok {
			w.shown = append(w.shown, phase)
		} else if blocked, ok := attributes.GetKeyword(blockedKey); ok && blocked != notBlocked {
			w.shown = append(w.shown, "blocked:"+blocked)
		}
	}).Return(nil)
	return w
}

func (w *world) enter(name string, keep func()) error {
	w.mu.Lock()
	w.calls = append(w.calls, name)
	w.done[name]++
	call, before := w.done[name], w.before[name]
	if keep != nil {
		keep()
	}
	w.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(call)
}

// run executes the move orders/3 to b2.
func (w *world) run() (*protocol.MoveResult, error) {
	partition := int32(3)
	return w.runWith(protocol.MoveInput{Topic: "orders", Partition: &partition, To: "b2"})
}

func (w *world) runWith(input any) (*protocol.MoveResult, error) {
	w.t.Helper()
	w.env.SetTestTimeout(20 * time.Second)
	w.env.ExecuteWorkflow(protocol.WorkflowMove, input)
	if !w.env.IsWorkflowCompleted() {
		w.t.Fatal("the workflow does not end")
	}
	if err := w.env.GetWorkflowError(); err != nil {
		return nil, err
	}
	var result protocol.MoveResult
	if err := w.env.GetWorkflowResult(&result); err != nil {
		w.t.Fatal(err)
	}
	return &result, nil
}

func (w *world) expect(calls ...string) {
	w.t.Helper()
	if !slices.Equal(w.calls, calls) {
		w.t.Errorf("called were %q, want %q", w.calls, calls)
	}
}

func (w *world) status() protocol.Status {
	w.t.Helper()
	var status protocol.Status
	value, err := w.env.QueryWorkflow(protocol.QueryStatus)
	if err == nil {
		err = value.Get(&status)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return status
}

func once(err error) func(int) error {
	return func(call int) error {
		if call == 1 {
			return err
		}
		return nil
	}
}

func failure(kind, message string) error {
	return temporal.NewNonRetryableApplicationError(message, kind, nil)
}

var whole = []string{protocol.ActivityClaim, protocol.ActivityEnsure, protocol.ActivityCopy, protocol.ActivityCutover, protocol.ActivityCommit, protocol.ActivityFinish}

func TestMoveTakesItsStepsInOrder(t *testing.T) {
	w := newWorld(t)
	result, err := w.run()
	if err != nil {
		t.Fatal(err)
	}
	w.expect(whole...)
	want := protocol.MoveResult{MoveID: w.claims[0].MoveID, Topic: "orders", Partition: 3, From: "b1", To: "b2", Epoch: 4, End: 100, Bytes: 911, Converged: true, Adopted: true,
		FrozenMS: 12, TotalMS: 34, Parked: 2, Attempts: 1}
	if *result != want {
		t.Errorf("the result is %+v, want %+v", *result, want)
	}
	if w.commit.Evidence != evidence || w.commit.Claim.MoveID != result.MoveID || w.commit.Claim.Version != 5 {
		t.Errorf("the commit was given %+v", w.commit)
	}
	if s := w.status(); s.Phase != protocol.PhaseDone || !s.Committed || s.From != "b1" || s.BytesDone != 1000 || s.FrozenMS != 12 {
		t.Errorf("the status is %+v", s)
	}
	phases := []string{protocol.PhaseClaim, protocol.PhaseEnsure, protocol.PhaseCopy, protocol.PhaseCutover, protocol.PhaseConfirm, protocol.PhaseDone}
	if !slices.Equal(w.shown, phases) {
		t.Errorf("the search attributes showed %q, want %q", w.shown, phases)
	}
}

func TestMoveRefusesABadInputBeforeAnything(t *testing.T) {
	for _, input := range []any{map[string]any{}, map[string]any{"topic": "orders", "partition": 3, "to": "b2", "partion": 4}, "orders", nil} {
		w := newWorld(t)
		_, err := w.runWith(input)
		var bad *temporal.ApplicationError
		if !errors.As(err, &bad) || bad.Type() != protocol.ErrInvalidInput || !bad.NonRetryable() {
			t.Errorf("%v ended with %v", input, err)
		}
		w.expect()
	}
}

func TestMoveWhoseClaimIsRefusedChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.before[protocol.ActivityClaim] = once(failure(protocol.ErrRefused, `there is no broker "b2"`))
	_, err := w.run()
	var refused *temporal.ApplicationError
	if !errors.As(err, &refused) || refused.Type() != protocol.ErrRefused || !strings.Contains(err.Error(), `there is no broker "b2"`) {
		t.Errorf("it ended with %v", err)
	}
	w.expect(protocol.ActivityClaim)
	if s := w.status(); s.Phase != protocol.PhaseRolledBack || s.LastFailure != `there is no broker "b2"` {
		t.Errorf("the status is %+v", s)
	}
}

// A refusal later on is not the claim's: what was claimed is given back.
func TestMoveThatIsRefusedAfterItsClaimIsRolledBack(t *testing.T) {
	for i, step := range whole[1:4] {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			w.before[step] = once(failure(protocol.ErrRefused, "too little room"))
			if _, err := w.run(); err == nil || !strings.Contains(err.Error(), "too little room") {
				t.Errorf("it ended with %v", err)
			}
			w.expect(append(slices.Clone(whole[:i+2]), protocol.ActivityAbort)...)
			if a := w.aborts[0]; a.KeepStaging || a.Reason != "too little room" || a.Claim.MoveID != w.claims[0].MoveID {
				t.Errorf("the rollback was given %+v", a)
			}
		})
	}
}

func TestMoveCancelledBeforeItsCommitIsRolledBack(t *testing.T) {
	for i, step := range whole[:4] {
		for _, how := range []string{"and the step ends well", "and the step is cancelled"} {
			t.Run(step+" "+how, func(t *testing.T) {
				w := newWorld(t)
				w.before[step] = func(int) error {
					w.env.CancelWorkflow()
					if how == "and the step is cancelled" {
						return temporal.NewCanceledError()
					}
					return nil
				}
				_, err := w.run()
				if !temporal.IsCanceledError(err) {
					t.Errorf("it ended with %v", err)
				}
				w.expect(append(slices.Clone(whole[:i+1]), protocol.ActivityAbort)...)
				if len(w.aborts) == 1 && (w.aborts[0].KeepStaging || w.aborts[0].Claim.MoveID != w.claims[0].MoveID) {
					t.Errorf("the rollback was given %+v", w.aborts[0])
				}
				if s := w.status(); s.Phase != protocol.PhaseCancelled || s.Committed || s.ShouldBeOn != s.IsOn {
					t.Errorf("the status is %+v", s)
				}
			})
		}
	}
}

func TestMoveCancelledAfterItsCommitIsNotCompensated(t *testing.T) {
	for _, step := range whole[4:] {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			w.before[step] = func(int) error { w.env.CancelWorkflow(); return nil }
			result, err := w.run()
			if err != nil {
				t.Fatal(err)
			}
			w.expect(whole...)
			if result.Epoch != 4 || !strings.Contains(result.TooLate, "too late") {
				t.Errorf("the result is %+v", result)
			}
			if s := w.status(); s.Phase != protocol.PhaseDone || s.TooLate == "" {
				t.Errorf("the status is %+v", s)
			}
		})
	}
}

func TestMoveThatLosesItsClaimStartsOverUnderANewID(t *testing.T) {
	for i, step := range whole[:5] {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			w.before[step] = once(failure(protocol.ErrMoveLost, "the lease ended"))
			result, err := w.run()
			if err != nil {
				t.Fatal(err)
			}
			w.expect(append(append(slices.Clone(whole[:i+1]), protocol.ActivityAbort), whole...)...)
			if first, second := w.claims[0].MoveID, w.claims[1].MoveID; first == second || w.aborts[0].Claim.MoveID != first || result.MoveID != second || w.commit.Claim.MoveID != second {
				t.Errorf("claimed as %s and %s, aborted %s, committed %s", first, second, w.aborts[0].Claim.MoveID, w.commit.Claim.MoveID)
			}
			if !w.aborts[0].KeepStaging {
				t.Error("what was copied is not kept for the next claim")
			}
			if result.Attempts != 2 || !slices.Contains(w.shown, "blocked:starting_over") {
				t.Errorf("attempts %d, shown were %q", result.Attempts, w.shown)
			}
		})
	}
}

func TestMoveThatLosesItsClaimAgainAndAgainPausesLonger(t *testing.T) {
	w := newWorld(t)
	w.before[protocol.ActivityCutover] = func(call int) error {
		if call <= 10 {
			return failure(protocol.ErrMoveLost, "the lease ended")
		}
		return nil
	}
	var pauses []time.Duration
	w.env.SetOnTimerScheduledListener(func(_ string, d time.Duration) { pauses = append(pauses, d) })
	if _, err := w.run(); err != nil {
		t.Fatal(err)
	}
	want := []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, 64 * time.Second, 128 * time.Second, 256 * time.Second, 5 * time.Minute, 5 * time.Minute}
	if !slices.Equal(pauses, want) {
		t.Errorf("paused for %v, want %v", pauses, want)
	}
}

func TestMoveWhoseFreezeWouldBeTooLongGoesBackToCopying(t *testing.T) {
	w := newWorld(t)
	w.before[protocol.ActivityCutover] = func(call int) error {
		if call <= 2 {
			return failure(protocol.ErrFreezeTooLong, "about 40 s, more than the limit of 30 s")
		}
		return nil
	}
	result, err := w.run()
	if err != nil {
		t.Fatal(err)
	}
	w.expect(protocol.ActivityClaim, protocol.ActivityEnsure, protocol.ActivityCopy, protocol.ActivityCutover, protocol.ActivityCopy, protocol.ActivityCutover,
		protocol.ActivityCopy, protocol.ActivityCutover, protocol.ActivityCommit, protocol.ActivityFinish)
	for i, c := range w.copies {
		if c.Round != int32(max(0, 2*i-1)) { // its cutover has a round of its own
			t.Errorf("copy %d is of round %d: its orders would be older than those of the cutover before", i, c.Round)
		}
	}
	if result.Attempts != 1 || !result.Adopted || !slices.Contains(w.shown, "blocked:freeze_too_long") {
		t.Errorf("result %+v, shown were %q", result, w.shown)
	}
}

func TestMoveCancelledWhileItWaitsToCopyAgain(t *testing.T) {
	w := newWorld(t)
	w.before[protocol.ActivityCutover] = func(int) error { return failure(protocol.ErrFreezeTooLong, "too long") }
	w.env.RegisterDelayedCallback(w.env.CancelWorkflow, 5*time.Second)
	if _, err := w.run(); !temporal.IsCanceledError(err) {
		t.Errorf("it ended with %v", err)
	}
	w.expect(protocol.ActivityClaim, protocol.ActivityEnsure, protocol.ActivityCopy, protocol.ActivityCutover, protocol.ActivityAbort)
}

// Only a run that was reset meets this: its earlier self had committed.
func TestMoveThatFindsItselfCommittedRollsNothingBack(t *testing.T) {
	w := newWorld(t)
	w.before[protocol.ActivityEnsure] = once(failure(protocol.ErrRefused, "destination not empty"))
	w.env.OnActivity(protocol.ActivityAbort, mock.Anything, mock.Anything).Return(protocol.AbortResult{Committed: true}, nil)
	_, err := w.run()
	if err == nil || !strings.Contains(err.Error(), "nothing is rolled back") {
		t.Errorf("it ended with %v", err)
	}
	if s := w.status(); !s.Committed {
		t.Errorf("the status is %+v", s)
	}
}

func TestMoveShowsWhatItDoesAndWhatBlocksIt(t *testing.T) {
	w := newWorld(t)
	var during protocol.Status
	var details string
	w.before[protocol.ActivityCopy] = func(int) error {
		w.env.SignalWorkflow(protocol.SignalProgress, protocol.Progress{BytesDone: 512 << 20, BytesTotal: 1 << 30, BytesPerSec: 64 << 20, Blocked: "source_unreachable", BlockedReason: "the source does not answer"})
		return nil
	}
	w.before[protocol.ActivityCutover] = func(int) error { return nil }
	w.env.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
		if info.ActivityType.Name != protocol.ActivityCopy {
			return
		}
		during = w.status()
		var metadata sdk.WorkflowMetadata
		if value, err := w.env.QueryWorkflow("__temporal_workflow_metadata"); err != nil {
			t.Error(err)
		} else if err := value.Get(&metadata); err != nil {
			t.Error(err)
		}
		details = metadata.GetCurrentDetails()
	})
	if _, err := w.run(); err != nil {
		t.Fatal(err)
	}
	if during.Phase != protocol.PhaseCopy || during.BytesDone != 512<<20 || during.Blocked != "source_unreachable" || during.BlockedSince == nil || during.Unblock == "" || during.IsOn != "b1" || during.ShouldBeOn != "b2" {
		t.Errorf("while it copies the status is %+v", during)
	}
	if eta, ok := during.ETA(); !ok || eta != 8*time.Second {
		t.Errorf("left are %s (%v)", eta, ok)
	}
	for _, want := range []string{"orders/3", "b1 → **b2**", "phase **copy**", "512.0 MiB of 1.0 GiB at 64.0 MiB/s", "about 8s left", "blocked: `source_unreachable`", "the source does not answer",
		"to unblock it: Start the agent of b1", "it is on **b1** and should be on **b2**", during.MoveID} {
		if !strings.Contains(details, want) {
			t.Errorf("the current details do not say %q:\n%s", want, details)
		}
	}
	if s := w.status(); s.Blocked != "" || s.BlockedSince != nil || s.Unblock != "" || s.IsOn != "b2" {
		t.Errorf("at the end it is blocked still: %+v", s)
	}
	if !slices.Contains(w.shown, "blocked:source_unreachable") {
		t.Errorf("the search attributes showed %q", w.shown)
	}
}

// The worker dies or an activity fails in any other way: the step is repeated under the same claim.
func TestMoveRepeatsAStepThatFailed(t *testing.T) {
	for _, step := range whole {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			w.before[step] = func(call int) error {
				if call <= 3 {
					return fmt.Errorf("failure %d", call)
				}
				return nil
			}
			result, err := w.run()
			if err != nil {
				t.Fatal(err)
			}
			if w.done[step] != 4 || len(w.aborts) != 0 || result.Attempts != 1 {
				t.Errorf("called were %q, attempts %d", w.calls, result.Attempts)
			}
		})
	}
}

// A later decision than the move's own gave the partition to another broker, because the destination was lost after the flip.
func TestMoveSaysWhereItsPartitionWentFromALostDestination(t *testing.T) {
	w := newWorld(t)
	w.env.OnActivity(protocol.ActivityFinish, mock.Anything, mock.Anything).Return(protocol.FinishResult{WentOn: "it went on to b3", Owner: "b3"}, nil)
	result, err := w.run()
	if err != nil || result.WentOn != "it went on to b3" {
		t.Errorf("the result is %+v (%v)", result, err)
	}
	if s := w.status(); s.Phase != protocol.PhaseDone || s.IsOn != "b3" || s.WentOn == "" {
		t.Errorf("the status is %+v", s)
	}
}

func TestMoveWhoseFreezeWouldBeTooLongPausesLongerUntilItIsTuned(t *testing.T) {
	w := newWorld(t)
	w.before[protocol.ActivityCutover] = func(call int) error {
		if call <= 7 {
			return failure(protocol.ErrFreezeTooLong, "about 40 s, more than the limit of 30 s")
		}
		return nil
	}
	w.env.RegisterActivityWithOptions(func(context.Context, protocol.PaceArgs) error { return nil }, activity.RegisterOptions{Name: protocol.ActivityPace})
	var pauses []time.Duration
	w.env.SetOnTimerScheduledListener(func(_ string, d time.Duration) { pauses = append(pauses, d) })
	var began time.Time
	w.env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
		if info.ActivityType.Name == protocol.ActivityCutover && len(pauses) == 6 {
			began = w.env.Now()
			w.env.RegisterDelayedCallback(func() {
				lifted := protocol.ByteSize(0)
				w.env.UpdateWorkflow(protocol.UpdateTune, "tune", &updates{rejected: new(error)}, protocol.Tune{Limit: &lifted})
			}, time.Second)
		}
	})
	if _, err := w.run(); err != nil {
		t.Fatal(err)
	}
	want := []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute}
	if !slices.Equal(pauses, want) {
		t.Errorf("paused for %v, want %v", pauses, want)
	}
	if took := w.env.Now().Sub(began); took > time.Minute {
		t.Errorf("a tuned move went on after %s", took)
	}
}

// A move whose history has become long goes on in a new run, between two claims, and people see it go on.
func TestAMoveWithALongHistoryGoesOnInANewRun(t *testing.T) {
	for kind, step := range map[string]string{protocol.ErrMoveLost: protocol.ActivityCopy, protocol.ErrFreezeTooLong: protocol.ActivityCutover} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			w.before[step] = func(int) error { w.env.SetCurrentHistoryLength(longHistory); return failure(kind, "again") }
			_, err := w.run()
			var next *workflow.ContinueAsNewError
			if !errors.As(err, &next) || next.WorkflowType.Name != protocol.WorkflowMove {
				t.Fatalf("it ended with %v", err)
			}
			if len(w.aborts) != 1 || !w.aborts[0].KeepStaging {
				t.Errorf("aborted were %+v", w.aborts)
			}
			var raw converter.RawValue
			if err := converter.GetDefaultDataConverter().FromPayloads(next.Input, &raw); err != nil {
				t.Fatal(err)
			}
			in, err := protocol.ParseMoveInput(raw.Payload().GetData())
			if err != nil || in.Earlier == nil || in.Earlier.Attempts != 1 || in.Earlier.From != "b1" || !strings.HasPrefix(in.Earlier.LastFailure, "again") {
				t.Fatalf("the next run's input is %+v (%v)", in, err)
			}
			w = newWorld(t)
			result, err := w.runWith(in)
			if err != nil || result.Attempts != 2 || w.claims[0].Attempt != 2 || w.claims[0].Input.Earlier != nil || !strings.HasSuffix(w.claims[0].MoveID, ".2") {
				t.Errorf("the result is %+v (%v), claimed were %+v", result, err, w.claims)
			}
		})
	}
}

// rebalance stands for a Rebalance that has started one move.
func (w *world) rebalance(ctx workflow.Context, move string) error {
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var said protocol.Waiting
			workflow.GetSignalChannel(ctx, protocol.SignalWaits).Receive(ctx, &said)
			w.waits = append(w.waits, said)
		}
	})
	partition := int32(3)
	child := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: move})
	return workflow.ExecuteChildWorkflow(child, protocol.WorkflowMove, protocol.MoveInput{Topic: "orders", Partition: &partition, To: "b2"}).Get(ctx, nil)
}

// A move that waits for a place in the fleet tells the rebalance that started it, and that it has begun also when the step that had
// waited could not say so any more.
func TestAMoveTellsItsRebalanceThatItWaitsForAPlace(t *testing.T) {
	for _, code := range []string{protocol.CodeFleetBusy, protocol.CodeLimitsStartNone, protocol.CodePaused} {
		w := newWorld(t)
		const id = "partition:orders:3"
		w.before[protocol.ActivityClaim] = func(int) error {
			return w.env.SignalWorkflowByID(id, protocol.SignalProgress, protocol.Progress{Blocked: code, BlockedReason: "one is in flight"})
		}
		w.env.ExecuteWorkflow(protocol.WorkflowRebalance, id)
		if err := w.env.GetWorkflowError(); err != nil {
			t.Fatal(err)
		}
		want := []protocol.Waiting{{Workflow: id, Waits: true}, {Workflow: id}}
		if code == protocol.CodePaused {
			want = nil // it waits, but for no place
		}
		if !slices.Equal(w.waits, want) {
			t.Errorf("%s: it told %+v, want %+v", code, w.waits, want)
		}
	}
}
