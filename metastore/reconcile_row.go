package metastore

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Reconciled is what a partition's row is to become after the metastore went back in time, with the evidence for it.
type Reconciled struct {
	Topic *Topic // made anew with its id when the metastore lacks it
	// Row carries owner, storage, epoch, state, opening, last move and copies. Its version is above every one that any
	// agent has seen. A claim is not carried: what was frozen or installed for it is void, and the move starts over.
	Row Assignment
	// Expect is the row the decision was made on; the write is refused when it has changed since. nil: there was none.
	Expect *Held
	// Proofs are the commits that agents have seen. A move of this partition without an outcome is recorded committed when
	// it is among them, else aborted.
	Proofs     []CommitProof
	By, Reason string
}

// CommitProof is a row, held by some agent, that a committed move left behind: an aborted move leaves its id behind, too,
// but not its destination as the owner.
type CommitProof struct {
	MoveID string
	Owner  string
	Epoch  int32
	// Unopened: nobody had opened the epoch yet, so the move is the one that began it.
	Unopened bool
}

// ReconcileRow advances one row to the highest state that any agent holds and stamps it with the present lineage (R1).
// After it guarded writes go on. It gives the partition to nobody who was not its owner by a committed write: whoever
// holds the highest row has read it from a primary.
//
// Everyone dies before it: nothing opens, what is open serves on, `portage reconcile` is run again. After it: agents read
// the higher row and act on it. The reply is lost: repeated, which finds it done.
func (s *Store) ReconcileRow(ctx context.Context, r Reconciled) (*Assignment, error) {
	var after *Assignment
	err := s.guarded(ctx, "ReconcileRow", func(ctx context.Context, tx pgx.Tx) error {
		row, err := lockAssignment(ctx, tx, r.Row.TopicID, r.Row.Partition)
		if err != nil {
			return err
		}
		if row != nil && !row.Restored && row.Version == r.Row.Version && row.Epoch == r.Row.Epoch && row.Owner == r.Row.Owner {
			after = row
			return nil
		}
		if (row == nil) != (r.Expect == nil) || (row != nil && HeldOf(row) != *r.Expect) {
			return &Refused{Code: CodeRowMoved, Row: row, Reason: fmt.Sprintf("%s/%d changed since it was looked at; run `portage reconcile` again", r.Row.Topic, r.Row.Partition)}
		}
		if err := s.reconcilable(ctx, tx, r); err != nil {
			return err
		}
		if row == nil {
			if err := recreate(ctx, tx, r); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `UPDATE assignments SET owner = $3, owner_storage = $4, epoch = $5, version = $6, state = $7, opened_epoch = $8, opened_process = $9, opened_end = $10,
			last_move = $11, target = NULL, target_storage = NULL, move_id = NULL, promote_fence = NULL, pending_recovery = NULL, write_copies = $12, seal_copies = $13,
			timeline = portage_timeline(), system_id = portage_system(), changed_at = now() WHERE topic_id = $1 AND partition = $2`,
			r.Row.TopicID, r.Row.Partition, r.Row.Owner, r.Row.OwnerStorage, r.Row.Epoch, r.Row.Version, r.Row.State, r.Row.OpenedEpoch, r.Row.OpenedProcess, r.Row.OpenedEnd,
			r.Row.LastMove, r.Row.WriteCopies, r.Row.SealCopies)
		if err != nil {
			return err
		}
		if after, err = lockAssignment(ctx, tx, r.Row.TopicID, r.Row.Partition); err != nil {
			return err
		}
		if err := endMoves(ctx, tx, r); err != nil {
			return err
		}
		entry := auditEntry{action: "reconcile_row", actor: r.By, topicID: &r.Row.TopicID, topic: r.Row.Topic, partition: &r.Row.Partition, reason: r.Reason, after: after}
		if row != nil {
			entry.before = row
		}
		return entry.write(ctx, tx)
	})
	return after, err
}

// reconcilable refuses what the metastore can not hold: an owner it does not know, a topic that was deleted after all.
func (s *Store) reconcilable(ctx context.Context, tx pgx.Tx, r Reconciled) error {
	owner, err := lockBrokerShared(ctx, tx, r.Row.Owner)
	if err != nil {
		return err
	}
	if owner == nil {
		return &Refused{Code: CodeUnknownBroker, Reason: fmt.Sprintf("%s/%d belongs to broker %q, which this metastore does not know: start its agent, which registers it, and run `portage reconcile` again", r.Row.Topic, r.Row.Partition, r.Row.Owner)}
	}
	var buried bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM deleted_topics WHERE topic_id = $1)", r.Row.TopicID).Scan(&buried); err != nil {
		return err
	}
	if buried {
		return &Refused{Code: CodeUnknownTopic, Reason: fmt.Sprintf("topic %q was deleted; its agents put the data away by themselves", r.Row.Topic)}
	}
	return nil
}

// recreate makes the missing topic, with its id, and the missing row; what it becomes is written over it.
func recreate(ctx context.Context, tx pgx.Tx, r Reconciled) error {
	var known uuid.UUID
	err := tx.QueryRow(ctx, "SELECT id FROM topics WHERE id = $1", r.Row.TopicID).Scan(&known)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		t := r.Topic
		if t == nil {
			return &Refused{Code: CodeUnknownTopic, Reason: fmt.Sprintf("no agent holds what topic %q was", r.Row.Topic)}
		}
		tag, err := tx.Exec(ctx, `INSERT INTO topics (id, name, partitions, replication_factor, write_policy, produce_policy, internal, config)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (name) DO NOTHING`, t.ID, t.Name, t.Partitions, t.ReplicationFactor, t.WritePolicy, t.ProducePolicy, t.Internal, configOf(t))
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return &Refused{Code: CodeTopicExists, Reason: fmt.Sprintf("another topic was made by the name %q since the metastore went back in time; delete that one, and run `portage reconcile` again", t.Name)}
		}
	case err != nil:
		return err
	case r.Topic != nil: // partitions may have been added after the copy of the metastore was taken
		if _, err := tx.Exec(ctx, "UPDATE topics SET partitions = greatest(partitions, $2) WHERE id = $1", r.Topic.ID, r.Topic.Partitions); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, "INSERT INTO assignments (topic_id, partition, owner, owner_storage) VALUES ($1, $2, $3, $4)", r.Row.TopicID, r.Row.Partition, r.Row.Owner, r.Row.OwnerStorage)
	return err
}

func configOf(t *Topic) map[string]string {
	if t.Config == nil {
		return map[string]string{}
	}
	return t.Config
}

// endMoves gives every move of the partition its outcome, and keeps the proved commits that the metastore does not know: the
// destination opens on a move's own row (R6), and its id is never used again (R7).
func endMoves(ctx context.Context, tx pgx.Tx, r Reconciled) error {
	rows, err := tx.Query(ctx, "SELECT "+moveColumns+" FROM moves WHERE topic_id = $1 AND partition = $2 AND outcome IS NULL FOR UPDATE", r.Row.TopicID, r.Row.Partition)
	if err != nil {
		return err
	}
	running, err := pgx.CollectRows(rows, pgx.RowToStructByName[Move])
	if err != nil {
		return err
	}
	for _, m := range running {
		outcome, epoch := OutcomeAborted, (*int32)(nil)
		for _, p := range r.Proofs {
			if p.MoveID == m.ID && p.Owner == m.ToBroker {
				outcome, epoch = OutcomeCommitted, &p.Epoch
			}
		}
		if _, err := tx.Exec(ctx, "UPDATE moves SET outcome = $2, outcome_by = $3, outcome_reason = $4, phase = $2, commit_epoch = $5, ended_at = now() WHERE id = $1",
			m.ID, outcome, r.By, r.Reason, epoch); err != nil {
			return err
		}
	}
	for _, p := range r.Proofs {
		if !p.Unopened || p.Owner != r.Row.Owner || p.Epoch != r.Row.Epoch {
			continue // only an owner that has not opened the present epoch asks for the move that began it
		}
		if _, err := tx.Exec(ctx, `INSERT INTO moves (id, kind, topic_id, topic, partition, from_broker, to_broker, workflow_id, run_id, claim_version, phase, outcome, outcome_by,
			outcome_reason, commit_epoch, ended_at, finished_at) VALUES ($1, 'move', $2, $3, $4, '', $5, '', '', 0, 'committed', 'committed', $6, $7, $8, now(), now())
			ON CONFLICT (id) DO UPDATE SET kind = 'move', outcome = 'committed', phase = 'committed', outcome_by = $6, outcome_reason = $7, commit_epoch = $8
			WHERE moves.outcome = 'aborted' AND moves.to_broker = $5 -- aborted, or buried, on the copy that had lost the commit`,
			p.MoveID, r.Row.TopicID, r.Row.Topic, r.Row.Partition, p.Owner, r.By, r.Reason, p.Epoch); err != nil {
			return err
		}
	}
	return nil
}

// ReconcileController raises the controller epoch to the highest that an agent has seen: the agents refuse a lower one.
func (s *Store) ReconcileController(ctx context.Context, epoch int64, holder, by string) error {
	return s.guarded(ctx, "ReconcileController", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "UPDATE controller SET epoch = $1, holder = $2 WHERE epoch < $1", epoch, holder)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return auditEntry{action: "reconcile_controller", actor: by, after: map[string]any{"epoch": epoch, "holder": holder}}.write(ctx, tx)
	})
}

// Controller reads who may claim.
func (s *Store) Controller(ctx context.Context) (epoch int64, holder string, err error) {
	err = s.q.QueryRow(ctx, "SELECT epoch, holder FROM controller").Scan(&epoch, &holder)
	return epoch, holder, err
}
