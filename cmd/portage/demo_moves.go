package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/client"

	"portage/internal/fleet"
	"portage/internal/operate"
	"portage/workflows/protocol"
)

// mover carries partitions of the demo and shows how they come along.
type mover struct {
	fleet  *fleet.Fleet
	screen *screen
	within time.Duration // a move that takes longer has failed

	mu      sync.Mutex // guards all below
	active  []*shownMove
	results []protocol.MoveResult
	failed  int
}

// shownMove is a move on the screen.
type shownMove struct {
	run   client.WorkflowRun
	view  operate.MoveView
	seen  bool
	phase string    // of the last plain line
	at    time.Time // of the last plain line
}

const (
	lookEvery  = 250 * time.Millisecond
	plainEvery = 2 * time.Second
)

// move carries one partition and waits for the end. A failure is told and counted; the error is only the context's.
func (m *mover) move(ctx context.Context, in protocol.MoveInput, watching ...func(operate.MoveView)) error {
	began, parent := time.Now(), ctx
	ctx, cancel := context.WithTimeout(ctx, m.within)
	defer cancel()
	in.By = "demo"
	run, err := m.fleet.StartMove(ctx, in)
	if err != nil {
		return m.end(parent, in, fmt.Errorf("the move was not taken by Temporal: %w", err))
	}
	shown := &shownMove{run: run, at: time.Now()}
	m.mu.Lock()
	m.active = append(m.active, shown)
	m.mu.Unlock()

	watch, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { m.watch(watch, shown, watching) })
	var result protocol.MoveResult
	err = run.Get(ctx, &result)
	stop()
	watcher.Wait()
	m.mu.Lock()
	for i, other := range m.active {
		if other == shown {
			m.active = append(m.active[:i], m.active[i+1:]...)
			break
		}
	}
	m.mu.Unlock()
	if err != nil {
		return m.end(parent, in, operate.MoveOutcome(err))
	}
	m.mu.Lock()
	m.results = append(m.results, result)
	m.mu.Unlock()
	how := "copied"
	if result.Adopted {
		how = "of new records added to the copy kept there"
	}
	held := "no write had to wait"
	if result.Parked > 0 {
		held = fmt.Sprintf("writes held for %.0f ms", result.FrozenMS)
	}
	m.screen.say("      %s/%d is on %s: %s %s, %v from start to end, %s", result.Topic, result.Partition, result.To,
		protocol.ByteSize(result.Bytes), how, time.Since(began).Round(100*time.Millisecond), held)
	return nil
}

func (m *mover) end(ctx context.Context, in protocol.MoveInput, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.mu.Lock()
	m.failed++
	m.mu.Unlock()
	m.screen.say("      %s/%d was NOT moved to %s: %v", in.Topic, *in.Partition, in.To, err)
	return nil
}

func (m *mover) watch(ctx context.Context, shown *shownMove, watching []func(operate.MoveView)) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		view, err := (&operate.Fleet{Temporal: m.fleet.Client}).Look(ctx, shown.run.GetID(), shown.run.GetRunID())
		if err != nil {
			continue // the next look may succeed; the end is told in any case
		}
		m.mu.Lock()
		shown.view, shown.seen = view, true
		var lines []string
		for _, other := range m.active {
			if other.seen {
				lines = append(lines, "      "+bar(other.view))
			}
		}
		plain := !m.screen.terminal && view.Running && (view.Status.Phase != shown.phase || time.Since(shown.at) > plainEvery)
		if plain {
			shown.phase, shown.at = view.Status.Phase, time.Now()
		}
		m.mu.Unlock()
		m.screen.show(lines...)
		if plain {
			m.screen.say("      %s", line(view))
		}
		for _, f := range watching {
			f(view)
		}
	}
}

// longestFrozen is the longest time that writes were held, as the agents measured it.
func (m *mover) longestFrozen() (ms float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.results {
		ms = max(ms, r.FrozenMS)
	}
	return ms
}
