package operate

import (
	"context"

	"portage/workflows/protocol"
)

// AutobalanceStatus asks the fleet's Autobalance.
func (f *Fleet) AutobalanceStatus(ctx context.Context) (protocol.AutobalanceStatus, error) {
	status, err := query[protocol.AutobalanceStatus](ctx, f, protocol.AutobalanceWorkflowID(f.TaskQueue), "")
	if missing(err) {
		return status, because(err, NotFound, "", "the fleet's autobalance was never started; start a worker, which starts it")
	}
	return status, err
}
