package metastore

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"portage/internal/faults"
)

// OpenRequest is what an agent states when it asks to serve a partition.
type OpenRequest struct {
	TopicID   uuid.UUID
	Partition int32
	Broker    string
	Epoch     int32
	Storage   uuid.UUID
	Process   uuid.UUID
	LogEnd    int64
	// GoneMove, when set, is the move whose freeze the caller lifts; the write is refused while the row still carries it,
	// because only AbortMove may end it (R6).
	GoneMove string
}

// OpenOwner is the only way to start serving a partition: nobody opens on a read (R4). Its acknowledgement proves that
// the change of owner before it is durable too. It raises the version, so that a CommitOwner prepared against an earlier
// process of the same owner is refused: a freeze that died with its process can not be flipped over.
//
// The agent dies before it: it asks again at its next start. After it: the next process asks again with its own
// instance. The reply is lost: repeated, which only raises the version again.
func (s *Store) OpenOwner(ctx context.Context, o OpenRequest) (*Assignment, error) {
	var after *Assignment
	err := s.guarded(ctx, "OpenOwner", func(ctx context.Context, tx pgx.Tx) error {
		row, err := lockAssignment(ctx, tx, o.TopicID, o.Partition)
		if err != nil {
			return err
		}
		switch {
		case row == nil:
			return &Refused{Code: CodeUnknownPartition, Reason: "the topic was deleted"}
		case row.Owner != o.Broker || row.Epoch != o.Epoch:
			return &Refused{Code: CodeNotOwner, Row: row, Reason: fmt.Sprintf("%s belongs to %s at epoch %d", row.Name(), row.Owner, row.Epoch)}
		case row.OwnerStorage != o.Storage && faults.Enforced("R5"):
			return &Refused{Code: CodeStorageChanged, Row: row,
				Reason: fmt.Sprintf("%s was last kept on other storage of %s: mount the right volume, or promote another copy", row.Name(), o.Broker)}
		case o.GoneMove != "" && row.Moving() == o.GoneMove:
			return &Refused{Code: CodeAlreadyMoving, Row: row, Reason: fmt.Sprintf("%s still carries move %s", row.Name(), o.GoneMove)}
		case row.PendingRecovery != nil:
			return &Refused{Code: CodeRecoveryPending, Row: row, Reason: fmt.Sprintf("%s is being recovered", row.Name())}
		}
		after, err = change(ctx, tx, row, auditEntry{action: "open_owner", actor: o.Broker, moveID: value(row.LastMove)},
			"state = 'opened', opened_epoch = a.epoch, opened_process = $3, opened_end = $4", o.Process, o.LogEnd)
		return err
	})
	return after, err
}
