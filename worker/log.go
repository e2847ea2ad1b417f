package worker

import (
	"context"
	"errors"
	"log/slog"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
)

// temporalLog is what Temporal's SDK logs to. The SDK calls it an error that an activity ended because it was cancelled, as those
// that watch something are whenever their workflow ends; that is no news.
type temporalLog struct{ log.Logger }

func newTemporalLog(logger *slog.Logger) log.Logger {
	return temporalLog{log.NewStructuredLogger(logger)}
}

// Error implements log.Logger.
func (l temporalLog) Error(message string, keyvals ...any) {
	for _, v := range keyvals {
		if err, ok := v.(error); ok && (errors.Is(err, context.Canceled) || temporal.IsCanceledError(err)) {
			l.Debug(message, keyvals...)
			return
		}
	}
	l.Logger.Error(message, keyvals...)
}

// With implements log.WithLogger.
func (l temporalLog) With(keyvals ...any) log.Logger {
	return temporalLog{log.With(l.Logger, keyvals...)}
}
