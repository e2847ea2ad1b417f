package activities

import (
	"context"
	"sync"

	"go.temporal.io/sdk/activity"

	"portage/workflows/protocol"
)

// activityKey names one running activity of this process.
type activityKey struct{ run, id string }

func keyOf(ctx context.Context) activityKey {
	info := activity.GetInfo(ctx)
	return activityKey{info.WorkflowExecution.RunID, info.ActivityID}
}

// progressOf is the latest progress of the activities running in this process: the heartbeat carries it, so that
// `portage move status` and the UI's pending activity show bytes and rate without history events.
var progressOf sync.Map // activityKey → protocol.Progress

func setProgress(k activityKey, p protocol.Progress) { progressOf.Store(k, p) }

func forgetProgress(k activityKey) { progressOf.Delete(k) }

func lastProgress(ctx context.Context) protocol.Progress {
	if p, ok := progressOf.Load(keyOf(ctx)); ok {
		return p.(protocol.Progress)
	}
	return protocol.Progress{}
}
