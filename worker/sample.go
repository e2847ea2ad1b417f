package worker

import (
	"context"
	"log/slog"
	"time"

	"portage/internal/fleetview"
	"portage/metastore"
)

// sampleInBackground keeps the loads that plans are made with up to date until stop is called. Every worker does; the
// metastore takes one sample at a time, whoever asks.
func sampleInBackground(ctx context.Context, store *metastore.Store, logger *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(fleetview.EachSample)
		defer ticker.Stop()
		for {
			if _, err := store.SampleLoads(ctx, fleetview.EachSample, fleetview.KeptSamples); err != nil && ctx.Err() == nil {
				logger.Warn("a sample of the loads is missing", "error", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	return func() { cancel(); <-ended }
}
