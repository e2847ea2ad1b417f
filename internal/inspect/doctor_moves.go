package inspect

import (
	"context"
	"fmt"

	"portage/metastore"
	"portage/workflows/protocol"
)

// examinedMoves bounds how many moves are looked at one by one.
const examinedMoves = 200

// examineMoves shows what the moves in progress wait for, and claims whose workflow runs no more.
func (d Doctor) examineMoves(ctx context.Context) (c checks) {
	if d.Store == nil {
		return nil
	}
	ask, cancel := context.WithTimeout(ctx, 3*AskFor) // for all of them
	defer cancel()
	moves, err := d.Store.Moves(ask, false, examinedMoves)
	if err != nil {
		c.fail("moves", "bring the metastore back", "%s", oneLine(err))
		return c
	}
	if d.Temporal == nil {
		c.ok("moves", "%d without an end; Temporal would say how they are", len(moves))
		return c
	}
	running := 0
	for _, m := range moves {
		if d.examineMove(ask, &c, m) {
			running++
		}
	}
	c.ok("moves", "%d in progress", running)
	return c
}

// examineMove reports whether the move is in progress.
func (d Doctor) examineMove(ctx context.Context, c *checks, m metastore.Move) bool {
	name := fmt.Sprintf("move %s/%d", m.Topic, m.Partition)
	at := protocol.Place{Partition: fmt.Sprintf("%s/%d", m.Topic, m.Partition), From: m.FromBroker, To: m.ToBroker}
	state, _, err := d.workflowState(ctx, m.WorkflowID, m.RunID)
	if err != nil {
		c.warn(name, protocol.Unblock(CodeTemporalUnreachable, at), "%s: %s", CodeTemporalUnreachable, oneLine(err))
		return true
	}
	if orphaned(state) {
		if m.Ended() != metastore.OutcomeCommitted { // a committed one was carried out; only its last report is missing
			c.warn(name, protocol.Unblock(CodeClaimOrphaned, at), "%s: workflow %s is %s", CodeClaimOrphaned, m.WorkflowID, state)
		}
		return false
	}
	status, err := d.queryStatus(ctx, m.WorkflowID, m.RunID)
	switch {
	case err != nil:
		c.fail(name, protocol.Unblock(CodeNoWorker, at), "%s: nobody answers for workflow %s", CodeNoWorker, m.WorkflowID)
	case status.Blocked != "":
		c.warn(name, status.Unblock, "%s: %s", status.Blocked, status.BlockedReason)
	}
	return true
}
