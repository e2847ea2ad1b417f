package worker

import (
	"context"
	"log/slog"
	"time"

	"portage/metastore"
)

const (
	retainEvery = time.Hour
	// retainFirst is waited at first: when no worker ran for longer than plans are kept, the rebalances that go on with this one
	// mark theirs as used before they are looked at.
	retainFirst = time.Minute
	// retainBatch rows are deleted at once, with a pause in between: nobody waits for it, and nobody is to wait because of it.
	retainBatch = 1000
	retainPause = 200 * time.Millisecond
)

// retainInBackground deletes what is older than the settings until stop is called. Every worker does; they do not get in
// each other's way.
func retainInBackground(ctx context.Context, store *metastore.Store, logger *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for wait := retainFirst; ; wait = retainEvery {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			if err := retain(ctx, store, logger); err != nil && ctx.Err() == nil {
				logger.Warn("old moves and audit lines are kept for now", "error", err)
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// retain deletes batch after batch until one is not full.
func retain(ctx context.Context, store *metastore.Store, logger *slog.Logger) error {
	var total metastore.Retained
	for {
		done, err := store.Retain(ctx, retainBatch)
		if err != nil {
			return err
		}
		total.Moves, total.Audit, total.Plans = total.Moves+done.Moves, total.Audit+done.Audit, total.Plans+done.Plans
		if done.Moves < retainBatch && done.Audit < retainBatch && done.Plans < retainBatch {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retainPause):
		}
	}
	if total.Moves+total.Audit+total.Plans > 0 {
		logger.Info("old rows were deleted, as the settings say", "moves", total.Moves, "audit", total.Audit, "plans", total.Plans)
	}
	return nil
}
