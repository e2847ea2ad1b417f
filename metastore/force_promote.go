package metastore

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"portage/internal/faults"
)

// Promotion is the evidence ForcePromote needs: who was seen silent, and what the destination installed.
type Promotion struct {
	MoveID    string
	TopicID   uuid.UUID
	Partition int32
	From, To  string
	Epoch     int32
	Version   int64     // the row version the copy was installed for; a source that opened since has raised it
	ToStorage uuid.UUID // the storage that holds the installed copy (R5)
	// Heartbeat is the source's counter, seen unchanged for the move's promoteAfter by the observer's monotonic clock (R21).
	Heartbeat     int64
	StagedEnd     int64 // where the installed copy ends
	HighWatermark int64 // the highest the destination's session ever saw at the source
	// Decided: a person saw the warning and decided. Without it the move's own "auto" is at work, which needs a source that is
	// known to fence itself (R2).
	Decided    bool
	By, Reason string
	Evidence   any // kept as JSON with the move
}

// ForcePromote makes the destination of a move the owner although its source froze nothing: the source is gone. It is the
// point of no return of a promotion, refused when the source's heartbeat counter has moved (R2), when the copy ends before
// anything that is known of the source's log, and for a move that is never to be promoted.
//
// Everyone dies just before: the row is the source's, which opens when it comes back. Just after: the row is the
// destination's, which holds the installed copy and opens by itself. The reply is lost: repeated; the move's own row says
// whether it was done (R6). The source comes back at the same moment: its heartbeat and this write take the lock of the
// broker's row one after the other; the second sees the first.
func (s *Store) ForcePromote(ctx context.Context, p Promotion) (*Assignment, error) {
	evidence, err := json.Marshal(p.Evidence)
	if err != nil {
		return nil, err
	}
	var after *Assignment
	err = s.guarded(ctx, "ForcePromote", func(ctx context.Context, tx pgx.Tx) error {
		row, err := lockAssignment(ctx, tx, p.TopicID, p.Partition)
		if err != nil {
			return err
		}
		move, err := lockMove(ctx, tx, p.MoveID)
		if err != nil {
			return err
		}
		if move != nil && move.Ended() == OutcomeCommitted {
			after = row
			return nil
		}
		if row != nil {
			if refused := refuseLineage(row, Held{}); refused != nil {
				refused.Move = move
				return refused
			}
		}
		if refused := refusePromotion(p, row, move); refused != nil {
			refused.Row, refused.Move = row, move
			return refused
		}
		if refused, err := refuseBrokers(ctx, tx, p, row, move); err != nil {
			return err
		} else if refused != nil {
			refused.Row, refused.Move = row, move
			return refused
		}
		after, err = change(ctx, tx, row, auditEntry{action: "force_promote", actor: p.By, moveID: p.MoveID, reason: p.Reason},
			"owner = a.target, owner_storage = a.target_storage, target = NULL, target_storage = NULL, epoch = a.epoch + 1, move_id = NULL, promote_fence = NULL, last_move = $3", p.MoveID)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE moves SET outcome = 'committed', outcome_by = $2, outcome_reason = $3, phase = 'committed', commit_epoch = $4, frozen_end = $5, promoted = true,
			evidence = $6, ended_at = now() WHERE id = $1`, p.MoveID, p.By, p.Reason, after.Epoch, p.StagedEnd, evidence)
		return err
	})
	return after, err
}

// rowQuerier is a pool or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func refusePromotion(p Promotion, row *Assignment, move *Move) *Refused {
	switch {
	case move == nil:
		return &Refused{Code: CodeUnknownMove, Reason: fmt.Sprintf("there is no move %s", p.MoveID)}
	case move.Ended() == OutcomeAborted:
		return &Refused{Code: CodeMoveEnded, Reason: fmt.Sprintf("move %s was aborted by %s: %s", p.MoveID, value(move.OutcomeBy), value(move.OutcomeReason))}
	case move.Swap != nil && faults.Enforced("R32"):
		return &Refused{Code: CodePartOfSwap, Reason: fmt.Sprintf("move %s is one side of a swap, which never promotes; abandon the swap and promote a copy by hand", p.MoveID)}
	case move.OnSourceLoss == LossNever:
		return &Refused{Code: CodeNoFence, Reason: fmt.Sprintf("move %s was started with \"onSourceLoss\":\"never\"; abandon it and promote a copy by hand", p.MoveID)}
	case row == nil:
		return &Refused{Code: CodeUnknownPartition, Reason: fmt.Sprintf("%s/%d was deleted while it moved", move.Topic, p.Partition)}
	case row.Moving() != p.MoveID, row.Owner != p.From, value(row.Target) != p.To, row.Epoch != p.Epoch, row.Version != p.Version:
		return &Refused{Code: CodeRowMoved, Reason: fmt.Sprintf("%s is no longer claimed as it was when the copy was installed (row version %d, installed at %d)", row.Name(), row.Version, p.Version)}
	case row.PendingRecovery != nil:
		return &Refused{Code: CodeRecoveryPending, Reason: fmt.Sprintf("%s is being recovered", row.Name())}
	}
	return nil
}

// refuseBrokers checks what only the brokers' rows and reports tell: the source's counter, the destination's storage, and
// the highest end the source was ever known to have.
func refuseBrokers(ctx context.Context, tx pgx.Tx, p Promotion, row *Assignment, move *Move) (*Refused, error) {
	source, err := lockBrokerShared(ctx, tx, p.From)
	if err != nil {
		return nil, err
	}
	if faults.Enforced("R2") {
		switch {
		case source == nil || source.Heartbeat != p.Heartbeat:
			return &Refused{Code: CodeSourceAlive, Reason: fmt.Sprintf("%s has read the metastore since it was taken for lost: it is alive, nothing is promoted over it", p.From)}, nil
		case move.OnSourceLoss == LossAuto && !p.Decided && (row.FencedFor() != p.MoveID || source.Fence() == 0 || move.PromoteAfterMS < 2*source.PromoteFenceMS):
			return &Refused{Code: CodeNoFence, Reason: fmt.Sprintf("the process of %s that was seen last does not fence itself in time, so a person must decide", p.From)}, nil
		}
	}
	target, err := lockBrokerShared(ctx, tx, p.To)
	if err != nil {
		return nil, err
	}
	if target == nil || target.StorageInstance != p.ToStorage || !sameStorage(row.TargetStorage, p.ToStorage) {
		return &Refused{Code: CodeStorageChanged, Reason: fmt.Sprintf("the storage of %s was replaced since the copy was installed there", p.To)}, nil
	}
	known, err := lastKnownEnd(ctx, tx, row)
	if err != nil {
		return nil, err
	}
	if known = max(known, p.HighWatermark); p.StagedEnd < known {
		return &Refused{Code: CodeCopyBehind,
			Reason: fmt.Sprintf("the copy on %s ends at %d, %s had %d: promoting it would lose what is known to be confirmed", p.To, p.StagedEnd, p.From, known)}, nil
	}
	return nil, nil
}

// LastKnownEnd is the highest end the row's owner is known to have had, for whoever weighs a promotion; the guarded writes
// read it again under the row's lock.
func (s *Store) LastKnownEnd(ctx context.Context, row *Assignment) (int64, error) {
	return lastKnownEnd(ctx, s.q, row)
}

// lastKnownEnd is the highest end the owner's log is known to have had at the row's epoch: where it opened, and what it
// reported since.
func lastKnownEnd(ctx context.Context, tx rowQuerier, row *Assignment) (int64, error) {
	var reported int64
	err := tx.QueryRow(ctx, "SELECT COALESCE(max(log_end), 0) FROM load_reports WHERE broker = $1 AND storage_instance = $2 AND topic_id = $3 AND partition = $4 AND epoch = $5",
		row.Owner, row.OwnerStorage, row.TopicID, row.Partition, row.Epoch).Scan(&reported)
	return max(row.OpenedEnd, reported), err
}
