package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.temporal.io/sdk/log"
)

// What ended because it was cancelled is no error in the log; everything else is.
func TestTheLogCallsNoCancelAnError(t *testing.T) {
	var out bytes.Buffer
	l := log.With(newTemporalLog(slog.New(slog.NewTextHandler(&out, nil))), "WorkflowID", "w1")
	l.Error("Activity error.", "Error", fmt.Errorf("it watched: %w", context.Canceled))
	if out.Len() > 0 {
		t.Errorf("a cancel is logged: %s", out.String())
	}
	l.Error("Activity error.", "Error", errors.New("Postgres is away"))
	if s := out.String(); !strings.Contains(s, "level=ERROR") || !strings.Contains(s, "Postgres is away") || !strings.Contains(s, "WorkflowID=w1") {
		t.Errorf("an error is logged as %q", s)
	}
}
