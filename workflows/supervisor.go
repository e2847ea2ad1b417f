package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

const (
	// passesARun bounds the history of one run: a pass is about a dozen events.
	passesARun = 200
	// keptReleases bounds what is shown.
	keptReleases = 20
)

// Supervisor watches over one fleet for ever: in each pass one activity takes back the claims whose workflow run is closed
// (R17). It continues as new, so that it needs no end. Its current details say what it did.
func Supervisor(ctx workflow.Context, in protocol.SupervisorInput) error {
	every := time.Duration(in.Every)
	if every == 0 {
		every = protocol.DefaultSuperviseEvery
	}
	options := workflow.ActivityOptions{StartToCloseTimeout: 5 * time.Minute, HeartbeatTimeout: 30 * time.Second, Summary: "release the claims of closed runs",
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second}}
	for range passesARun {
		var pass protocol.SupervisorPass
		if err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), protocol.ActivitySupervise).Get(ctx, &pass); err != nil {
			return err
		}
		in.Passes++
		in.Released += int64(len(pass.Released))
		in.Last = append(in.Last, pass.Released...)
		in.Last = in.Last[max(0, len(in.Last)-keptReleases):]
		workflow.SetCurrentDetails(ctx, supervised(workflow.Now(ctx), in, pass))
		if err := workflow.Sleep(ctx, every); err != nil {
			return err
		}
	}
	return workflow.NewContinueAsNewError(ctx, protocol.WorkflowSupervisor, in)
}

// supervised says what the Supervisor did.
func supervised(now time.Time, in protocol.SupervisorInput, pass protocol.SupervisorPass) string {
	var b strings.Builder
	fmt.Fprintf(&b, "last pass at %s: %d moves in progress", now.UTC().Format(time.RFC3339), pass.Running)
	if pass.Unknown > 0 {
		fmt.Fprintf(&b, ", %d of which could not be asked about", pass.Unknown)
	}
	if pass.Superseded != "" {
		fmt.Fprintf(&b, "; nothing was touched, because the worker deployment %q took over", pass.Superseded)
	}
	fmt.Fprintf(&b, "\n\n%d passes, %d orphaned claims released\n\n", in.Passes, in.Released)
	for _, line := range in.Last {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	return b.String()
}
