package metastore

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"portage/internal/faults"
)

// CopyPromotion is a person's decision to give a partition whose owner or its disk is gone to a copy that is left (R18).
type CopyPromotion struct {
	ID        string // of this decision; a repeat after a lost reply names the same
	TopicID   uuid.UUID
	Partition int32
	Owner     string // the row as it was read: owner, epoch and version
	Epoch     int32
	Version   int64
	Broker    string // who is to own it
	// Copy is the copy's id at Broker, ending at CopyEnd; empty when no copy is left anywhere and an empty log begins where the
	// lost one ended.
	Copy    string
	CopyEnd int64
	// Heartbeat is the owner's counter, seen standing still. Closed, when set instead, is the owner's process whose agent says
	// that it can not open the partition.
	Heartbeat  int64
	Closed     *uuid.UUID
	By, Reason string
}

// CopyEvidence is kept with the decision; the broker acts on it when it sees the row.
type CopyEvidence struct {
	Copy     string `json:"copy"` // empty: an empty log
	CopyEnd  int64  `json:"copyEnd"`
	KnownEnd int64  `json:"knownEnd"` // the log goes on here: no offset below it is given out again
	Lost     int64  `json:"lost"`     // offsets between the two
	From     string `json:"from"`
}

// PromoteCopy gives a partition to a copy, accepting the loss of what only its owner had. Never automatic. The log's end is
// never below the last known one (where it opened, what was reported, what was frozen), so no offset is given out twice; the
// offsets in between are lost, and told. It is refused while the owner is alive, unless its agent says that it can not open.
//
// Everyone dies just before: nothing happened. Just after: the broker finds the decision when it reads the row, puts the copy in
// place and opens by OpenOwner; a copy that is not there keeps the partition closed with the reason, and another decision can
// be made. The reply is lost: repeated under the same id. The old owner comes back: it sees the row, and what it has beyond the
// copy's end is quarantined (R29).
func (s *Store) PromoteCopy(ctx context.Context, p CopyPromotion) (*Assignment, *CopyEvidence, error) {
	var after *Assignment
	var evidence CopyEvidence
	err := s.guarded(ctx, "PromoteCopy", func(ctx context.Context, tx pgx.Tx) error {
		row, err := lockAssignment(ctx, tx, p.TopicID, p.Partition)
		if err != nil {
			return err
		}
		known, err := lockMove(ctx, tx, p.ID)
		if err != nil {
			return err
		}
		if known != nil {
			after = row
			return json.Unmarshal(known.Evidence, &evidence)
		}
		if refused := refuseCopy(p, row); refused != nil {
			refused.Row = row
			return refused
		}
		owner, err := lockBrokerShared(ctx, tx, p.Owner)
		if err != nil {
			return err
		}
		alive := owner != nil && (p.Closed == nil && owner.Heartbeat != p.Heartbeat || p.Closed != nil && owner.ProcessInstance != *p.Closed)
		if alive && faults.Enforced("R18") {
			return &Refused{Code: CodeSourceAlive, Row: row, Reason: fmt.Sprintf("%s is alive, so nothing is promoted over it; stop its agent if its data is lost for good", p.Owner)}
		}
		target, err := lockBrokerShared(ctx, tx, p.Broker)
		if err != nil {
			return err
		}
		if target == nil || target.Removed {
			return &Refused{Code: CodeUnknownBroker, Row: row, Reason: fmt.Sprintf("there is no broker %q; `portage cluster members` lists them", p.Broker)}
		}
		end, err := lastKnownEnd(ctx, tx, row)
		if err != nil {
			return err
		}
		var frozen int64
		if err := tx.QueryRow(ctx, "SELECT COALESCE(max(frozen_end), 0) FROM moves WHERE topic_id = $1 AND partition = $2 AND outcome = 'committed'", p.TopicID, p.Partition).Scan(&frozen); err != nil {
			return err
		}
		evidence = CopyEvidence{Copy: p.Copy, CopyEnd: p.CopyEnd, KnownEnd: max(end, frozen, p.CopyEnd), From: p.Owner}
		if !faults.Enforced("R18") {
			evidence.KnownEnd = p.CopyEnd // goes on where the copy happens to end
		}
		evidence.Lost = evidence.KnownEnd - p.CopyEnd
		after, err = change(ctx, tx, row, auditEntry{action: "promote_copy", actor: p.By, moveID: p.ID, reason: p.Reason},
			"owner = $3, owner_storage = $4, epoch = a.epoch + 1, state = 'opened', last_move = $5", target.ID, target.StorageInstance, p.ID)
		if err != nil {
			return err
		}
		kept, err := json.Marshal(evidence)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO moves (id, kind, topic_id, topic, partition, from_broker, to_broker, workflow_id, run_id, requested_by, reason, claim_version, phase,
			outcome, outcome_by, outcome_reason, commit_epoch, frozen_end, promoted, evidence, ended_at, finished_at)
			VALUES ($1, 'promote', $2, $3, $4, $5, $6, '', '', $7, $8, $9, 'committed', 'committed', $7, $8, $10, $11, true, $12, now(), now())`,
			p.ID, row.TopicID, row.Topic, row.Partition, p.Owner, p.Broker, p.By, p.Reason, row.Version, after.Epoch, evidence.KnownEnd, kept)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return after, &evidence, nil
}

func refuseCopy(p CopyPromotion, row *Assignment) *Refused {
	if row == nil {
		return &Refused{Code: CodeUnknownPartition, Reason: "the metastore knows no such partition"}
	}
	if refused := refuseLineage(row, Held{}); refused != nil {
		return refused
	}
	switch {
	case row.Moving() != "":
		return &Refused{Code: CodeAlreadyMoving, Reason: fmt.Sprintf("%s is claimed by move %s; end it with `portage move abandon` first", row.Name(), row.Moving())}
	case row.PendingRecovery != nil:
		return &Refused{Code: CodeRecoveryPending, Reason: fmt.Sprintf("%s is being recovered", row.Name())}
	case row.Owner != p.Owner, row.Epoch != p.Epoch, row.Version != p.Version:
		return &Refused{Code: CodeRowMoved, Reason: fmt.Sprintf("%s changed since it was looked at (row version %d, then %d): look again", row.Name(), row.Version, p.Version)}
	}
	return nil
}

// FindCommit reads the move or decision that gave a partition its epoch; nil when none did.
func (s *Store) FindCommit(ctx context.Context, topicID uuid.UUID, partition, epoch int32) (*Move, error) {
	rows, err := s.q.Query(ctx, "SELECT "+moveColumns+" FROM moves WHERE topic_id = $1 AND partition = $2 AND commit_epoch = $3 AND outcome = 'committed'", topicID, partition, epoch)
	if err != nil {
		return nil, err
	}
	return oneOrNil[Move](rows)
}
