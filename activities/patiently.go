package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"portage/brokeragent/control"
	"portage/workflows/protocol"
)

const (
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
	beatEvery  = time.Second
	// tellAfter keeps short hiccups out of the history.
	tellAfter = 3 * time.Second
)

// patiently repeats a step until it succeeds, is refused for good, or the activity is cancelled. It heartbeats all the
// while, so that a cancel arrives and a dead worker is noticed, and it tells the workflow what blocks it once that has
// lasted. silent is the code for an answer that did not come.
func patiently[R any](ctx context.Context, m *Moves, silent string, step func(context.Context) (R, error)) (R, error) {
	stop := beat(ctx)
	defer stop()
	teller := newTeller(m, ctx)
	defer teller.clear(ctx)
	began := time.Now()
	for pause := firstPause; ; pause = min(pause*2, maxPause) {
		result, err := step(ctx)
		if err == nil {
			return result, nil
		}
		if ctx.Err() != nil {
			return result, ctx.Err()
		}
		var decided *temporal.ApplicationError
		if errors.As(err, &decided) {
			return result, err
		}
		code, final := blocked(err, silent)
		if final != nil {
			return result, final
		}
		if time.Since(began) > tellAfter {
			teller.block(ctx, code, err.Error())
		}
		select {
		case <-ctx.Done():
			return result, ctx.Err()
		case <-activity.GetWorkerStopChannel(ctx):
			return result, errWorkerStopping()
		case <-time.After(pause):
		}
	}
}

// errWorkerStopping hands the step of a worker that is going away to the next one at once.
func errWorkerStopping() error {
	return temporal.NewApplicationErrorWithOptions("the worker is stopping", "WorkerStopping",
		temporal.ApplicationErrorOptions{NextRetryDelay: 10 * time.Millisecond, Category: temporal.ApplicationErrorCategoryBenign})
}

// beat heartbeats until stop is called.
func beat(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(beatEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-ticker.C:
				activity.RecordHeartbeat(ctx, lastProgress(ctx))
			}
		}
	}()
	return func() { close(done); <-ended }
}

// teller sends the workflow what people should see, sparsely: each signal costs history events.
type teller struct {
	moves     *Moves
	key       activityKey
	moveID    string
	blocked   string
	reason    string
	lastTenth int64
	lastTold  time.Time
	waiting   time.Time
}

func newTeller(m *Moves, ctx context.Context) *teller {
	moveID, _ := ctx.Value(tellingKey{}).(string)
	return &teller{moves: m, key: keyOf(ctx), moveID: moveID, lastTold: time.Now()}
}

type tellingKey struct{}

// telling names the move whose progress is told from here on: a swap has two at once.
func telling(ctx context.Context, moveID string) context.Context {
	return context.WithValue(ctx, tellingKey{}, moveID)
}

// tell reports a copy's progress: the heartbeat each time, the workflow when a tenth was passed or the blocking changed.
func (t *teller) tell(ctx context.Context, s control.SessionStatus) {
	p := protocol.Progress{MoveID: t.moveID, BytesDone: s.BytesDone, BytesTotal: s.BytesTotal, BytesPerSec: s.BytesPerSec, Blocked: s.Blocked, BlockedReason: s.BlockedReason}
	setProgress(t.key, p)
	if s.Blocked != "" && s.Blocked != t.blocked {
		if t.waiting.IsZero() {
			t.waiting = time.Now()
		}
		if time.Since(t.waiting) > tellAfter {
			t.send(ctx, p)
		}
		return
	}
	if s.Blocked == "" {
		t.waiting = time.Time{}
	}
	var tenth int64
	if s.BytesTotal > 0 {
		tenth = s.BytesDone * 10 / s.BytesTotal
	}
	if s.Blocked != t.blocked || (tenth != t.lastTenth && time.Since(t.lastTold) > 5*time.Second) {
		t.lastTenth = tenth
		t.send(ctx, p)
	}
}

func (t *teller) block(ctx context.Context, code, reason string) {
	if code != t.blocked {
		t.send(ctx, protocol.Progress{Blocked: code, BlockedReason: reason})
	}
}

// clear takes back what blocks once the step ended, and forgets its progress.
func (t *teller) clear(ctx context.Context) {
	if t.blocked != "" && ctx.Err() == nil {
		t.send(ctx, protocol.Progress{})
	}
	forgetProgress(t.key)
}

// send is best effort: what people see must not hold up a move.
func (t *teller) send(ctx context.Context, p protocol.Progress) {
	t.blocked, t.reason, t.lastTold = p.Blocked, p.BlockedReason, time.Now()
	p.MoveID = t.moveID
	if t.moves.Temporal == nil {
		return
	}
	info := activity.GetInfo(ctx)
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = t.moves.Temporal.SignalWorkflow(short, info.WorkflowExecution.ID, info.WorkflowExecution.RunID, protocol.SignalProgress, p)
}
