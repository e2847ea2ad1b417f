package metastore

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"portage/internal/faults"
)

// Commit is the evidence CommitOwner needs: what the source acknowledged in its freeze and what the destination
// installed.
type Commit struct {
	MoveID           string
	TopicID          uuid.UUID
	Partition        int32
	From, To         string
	Epoch            int32
	Version          int64     // the row version the source acknowledged in its freeze, never a fresher one (R7)
	ToStorage        uuid.UUID // the storage that holds the installed copy (R5)
	FrozenEnd        int64     // the source's durable end under the freeze
	InstalledEnd     int64     // the end of the installed copy
	InstalledVersion int64     // the version the copy was installed for
}

// CommitOwner makes the destination the owner: the point of no return of a move. Before it everything rolls back, after
// it everything rolls forward.
//
// Everyone dies just before: the row is the source's, whose lease ends in AbortMove. Just after: the row is the
// destination's, which holds the installed copy and opens by itself. Reply lost: repeated; the move's own row says
// whether it was done, also after later moves of the same partition (R6).
func (s *Store) CommitOwner(ctx context.Context, c Commit) (*Assignment, error) {
	var after *Assignment
	err := s.guarded(ctx, "CommitOwner", func(ctx context.Context, tx pgx.Tx) error {
		row, err := lockAssignment(ctx, tx, c.TopicID, c.Partition)
		if err != nil {
			return err
		}
		move, err := lockMove(ctx, tx, c.MoveID)
		if err != nil {
			return err
		}
		if committedBefore(c, row, move) {
			after = row
			return nil
		}
		if move != nil && move.Swap != nil && faults.Enforced("R32") {
			return &Refused{Code: CodePartOfSwap, Row: row, Move: move, Reason: fmt.Sprintf("move %s is one side of a swap, which is committed as a whole", c.MoveID)}
		}
		if err := committable(ctx, tx, c, row, move); err != nil {
			return err
		}
		after, err = commitLocked(ctx, tx, c, row, move)
		return err
	})
	return after, err
}

// committedBefore reports that an earlier attempt of the same commit was done: the move's own row is the proof (R6).
func committedBefore(c Commit, row *Assignment, move *Move) bool {
	if !faults.Enforced("R6") { // the row's last move for the proof
		return row != nil && value(row.LastMove) == c.MoveID
	}
	return move != nil && move.Ended() == OutcomeCommitted
}

// committable refuses evidence that is not of the row as it stands. The locks of row and move are held.
func committable(ctx context.Context, tx pgx.Tx, c Commit, row *Assignment, move *Move) error {
	if row != nil {
		if refused := refuseLineage(row, Held{}); refused != nil {
			refused.Move = move
			return refused
		}
	}
	if refused := refuseCommit(c, row, move); refused != nil {
		refused.Row, refused.Move = row, move
		return refused
	}
	// The storage is compared with the row's claim and with what the broker runs on now: a disk replaced since the
	// claim holds no copy (R5).
	target, err := lockBrokerShared(ctx, tx, c.To)
	if err != nil {
		return err
	}
	if faults.Enforced("R5") && (target == nil || target.StorageInstance != c.ToStorage || !sameStorage(row.TargetStorage, c.ToStorage)) {
		return &Refused{Code: CodeStorageChanged, Row: row, Move: move, Reason: fmt.Sprintf("the storage of %s was replaced since the copy was installed there", c.To)}
	}
	return nil
}

// commitLocked flips one row and gives its move its outcome.
func commitLocked(ctx context.Context, tx pgx.Tx, c Commit, row *Assignment, move *Move) (*Assignment, error) {
	after, err := change(ctx, tx, row, auditEntry{action: "commit_owner", actor: move.WorkflowID, moveID: c.MoveID, reason: move.Reason},
		"owner = a.target, owner_storage = a.target_storage, target = NULL, target_storage = NULL, epoch = a.epoch + 1, move_id = NULL, promote_fence = NULL, last_move = $3", c.MoveID)
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, `UPDATE moves SET outcome = 'committed', outcome_by = $2, phase = 'committed', commit_epoch = $3, frozen_end = $4, ended_at = now() WHERE id = $1`,
		c.MoveID, move.WorkflowID, after.Epoch, c.FrozenEnd)
	return after, err
}

func refuseCommit(c Commit, row *Assignment, move *Move) *Refused {
	switch {
	case move == nil:
		return &Refused{Code: CodeUnknownMove, Reason: fmt.Sprintf("there is no move %s", c.MoveID)}
	case move.Ended() == OutcomeAborted && faults.Enforced("R7"):
		return &Refused{Code: CodeMoveEnded, Reason: fmt.Sprintf("move %s was aborted by %s: %s", c.MoveID, value(move.OutcomeBy), value(move.OutcomeReason))}
	case row == nil:
		return &Refused{Code: CodeUnknownPartition, Reason: fmt.Sprintf("%s/%d was deleted while it moved", move.Topic, c.Partition)}
	case row.Moving() != c.MoveID, row.Owner != c.From, value(row.Target) != c.To, row.Epoch != c.Epoch:
		return &Refused{Code: CodeRowMoved, Reason: fmt.Sprintf("%s is no longer claimed by this move as it was frozen", row.Name())}
	case row.PendingRecovery != nil:
		return &Refused{Code: CodeRecoveryPending, Reason: fmt.Sprintf("%s is being recovered", row.Name())}
	}
	if !faults.Enforced("R7") {
		return nil
	}
	switch {
	case row.Version != c.Version:
		return &Refused{Code: CodeRowMoved, Reason: fmt.Sprintf("%s changed since its freeze (row version %d, frozen at %d): freeze and drain again", row.Name(), row.Version, c.Version)}
	case c.InstalledVersion != c.Version, c.InstalledEnd != c.FrozenEnd:
		return &Refused{Code: CodeEndsDiffer, Reason: fmt.Sprintf("the installed copy (end %d, version %d) is not the frozen log (end %d, version %d): drain again",
			c.InstalledEnd, c.InstalledVersion, c.FrozenEnd, c.Version)}
	}
	return nil
}
