package metastore

import (
	"context"
	"errors"
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
	// Held is the newest row the agent has seen; the write is refused when the metastore's is older (R1).
	Held Held
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
		if row == nil {
			return &Refused{Code: CodeUnknownPartition, Reason: "the metastore knows no such partition"}
		}
		if refused := refuseLineage(row, o.Held); refused != nil {
			return refused
		}
		current, err := currentProcess(ctx, tx, o.Broker)
		if err != nil {
			return err
		}
		switch {
		case row.Owner != o.Broker || row.Epoch != o.Epoch:
			return &Refused{Code: CodeNotOwner, Row: row, Reason: fmt.Sprintf("%s belongs to %s at epoch %d", row.Name(), row.Owner, row.Epoch)}
		case row.OwnerStorage != o.Storage && faults.Enforced("R5"):
			return &Refused{Code: CodeStorageChanged, Row: row,
				Reason: fmt.Sprintf("%s was last kept on other storage of %s: mount the right volume, or promote another copy", row.Name(), o.Broker)}
		case current != o.Process:
			return &Refused{Code: CodeSuperseded, Row: row, Reason: fmt.Sprintf("another process has registered as broker %q", o.Broker)}
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

// currentProcess is the process that registered last as a broker. It is read under the row's lock: a later process that
// has opened the partition is seen, so that an earlier one never opens after it.
func currentProcess(ctx context.Context, tx pgx.Tx, broker string) (process uuid.UUID, err error) {
	err = tx.QueryRow(ctx, "SELECT process_instance FROM brokers WHERE id = $1", broker).Scan(&process)
	if errors.Is(err, pgx.ErrNoRows) {
		return uuid.Nil, nil
	}
	return process, err
}
