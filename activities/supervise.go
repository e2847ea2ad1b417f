package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"

	"portage/internal/faults"
	"portage/metastore"
	"portage/workflows/protocol"
)

// mostRunning bounds one pass; what is beyond it is looked at once these have ended.
const mostRunning = 10_000

// Supervise is one pass over the moves that have not ended: it takes back the claim of every move whose workflow run is
// closed, for nobody else would (R17), and closes the books of a committed one.
//
// The worker dies anywhere in it: the next pass does the rest. Temporal can not be asked about a run: its claim stands, for
// unknown is not closed. A deployment that another one has superseded touches nothing.
func (m *Moves) Supervise(ctx context.Context) (protocol.SupervisorPass, error) {
	var pass protocol.SupervisorPass
	_, holder, err := m.Store.Controller(ctx)
	if err != nil {
		return pass, err
	}
	if holder != m.ControllerID {
		pass.Superseded = holder
		return pass, nil
	}
	moves, err := m.Store.Moves(ctx, false, mostRunning)
	if err != nil {
		return pass, err
	}
	for i := range moves {
		move := &moves[i]
		if ctx.Err() != nil {
			return pass, ctx.Err()
		}
		activity.RecordHeartbeat(ctx, i)
		pass.Running++
		released, err := m.releaseOrphan(ctx, move)
		switch {
		case err != nil:
			pass.Unknown++
			m.Logger.Warn("the workflow run of a move could not be asked about; its claim stands", "move", move.ID, "error", err)
		case released:
			pass.Released = append(pass.Released, fmt.Sprintf("%s/%d: move %s of workflow %s", move.Topic, move.Partition, move.ID, move.WorkflowID))
		}
	}
	return pass, nil
}

// releaseOrphan ends a move whose workflow run is closed (terminated, reset, or its server's data lost): its claim is aborted,
// or, when it was committed, its books are closed.
func (m *Moves) releaseOrphan(ctx context.Context, holder *metastore.Move) (bool, error) {
	closed, err := m.runClosed(ctx, holder)
	if err != nil || !closed || !faults.Enforced("R17") {
		return false, err
	}
	_, err = m.Store.AbortMove(ctx, holder.ID, m.ControllerID, "its workflow run is closed")
	if _, committed := metastore.RefusedWith(err, metastore.CodeMoveCommitted); committed {
		return true, m.Store.ReportMove(ctx, metastore.MoveProgress{MoveID: holder.ID, Phase: "done", Finished: true})
	}
	return err == nil, err
}

// runClosed asks Temporal for exactly the run that made the claim: a later run of the same workflow id says nothing of it.
func (m *Moves) runClosed(ctx context.Context, holder *metastore.Move) (bool, error) {
	described, err := m.Temporal.DescribeWorkflow(ctx, holder.WorkflowID, holder.RunID)
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &missing):
		return true, nil
	case err != nil:
		return false, &metastore.Unknown{Write: "asking Temporal for the holder of the claim", Cause: err}
	}
	return described.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING, nil
}
