package services

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

const (
	probeTimeout = 5 * time.Second
	probePause   = 50 * time.Millisecond
)

// untilReady asks a started service until it answers, the process ends, ctx ends, or startTimeout
// is over. An error carries the last answer and the end of the log.
func untilReady(ctx context.Context, process *Process, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var last error
	for {
		err := askWhileRunning(ctx, process, ask)
		if err == nil && process.Running() {
			return nil
		}
		// The end of ctx is no answer of the service.
		if err != nil && ctx.Err() == nil {
			last = err
		}
		select {
		case <-process.Exited():
			if portWasTaken(process.LogFile()) {
				return fmt.Errorf("%w%s", errPortTaken, endOfLog(process.LogFile()))
			}
			return fmt.Errorf("%s ended at once: %w%s", process.Name(), errors.Join(process.Wait(), last), endOfLog(process.LogFile()))
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w%s", process.Name(), errors.Join(context.Cause(ctx), last), endOfLog(process.LogFile()))
		case <-time.After(probePause):
		}
	}
}

// askWhileRunning asks once. The end of the process ends the asking: whoever holds its port instead may
// never answer.
func askWhileRunning(ctx context.Context, process *Process, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	answer := make(chan error, 1)
	go func() { answer <- ask(ctx) }()
	select {
	case err := <-answer:
		cancel()
		return err
	case <-process.Exited():
		cancel()
		return <-answer
	}
}

// randomText names things that nobody else may have named the same.
func randomText() string { return rand.Text()[:16] }
