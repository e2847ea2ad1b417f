package metastore

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"portage/internal/faults"
)

// guardedWriteTimeout bounds one guarded write, whatever the caller's context says.
const guardedWriteTimeout = 10 * time.Second

const assignmentColumns = `a.topic_id, t.name AS topic, a.partition, a.owner, a.owner_storage, a.target, a.target_storage, a.epoch, a.version,
	a.state, a.opened_epoch, a.opened_process, a.opened_end, a.move_id, a.last_move, a.write_copies, a.seal_copies, a.boundary, a.pending_recovery,
	a.timeline, a.system_id, (a.timeline, a.system_id) <> (SELECT portage_timeline(), portage_system()) AS restored,
	a.promote_fence`

const moveColumns = `id, kind, topic_id, topic, partition, from_broker, to_broker, workflow_id, run_id, requested_by, reason, claim_version, phase,
	outcome, outcome_by, outcome_reason, commit_epoch, frozen_end, bytes_copied, converged, frozen_ms, started_at, ended_at, finished_at,
	on_source_loss, promote_after_ms, promoted, evidence, swap`

const brokerColumns = `id, node_id, control_url, client_host, client_port, rack, storage_instance, process_instance, draining, removed,
	heartbeat, heartbeat_at, disk_total_bytes, disk_free_bytes, promote_fence_ms, promote_fence_process, quarantined_copies, capacity`

// guarded runs one guarded write. The body returns a *Refused to roll back with a refusal; any other error, any failure to
// commit, and a commit that Postgres warns of, is *Unknown: its repeat takes the row lock again and waits for the standby.
//
// Everyone dies just before: nothing happened. Just after the commit: the row and moves hold the outcome, a repeat
// finds it. The reply is lost: the caller sees *Unknown and repeats. The context is detached from the caller's, because
// a cancelled caller would make Postgres cancel the commit's wait for its standby, which leaves it committed locally
// and perhaps nowhere else (R1).
func (s *Store) guarded(ctx context.Context, name string, body func(ctx context.Context, tx pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), guardedWriteTimeout)
	defer cancel()
	faults.Point(name + ".before")
	err := s.transact(ctx, body)
	var refused *Refused
	if errors.As(err, &refused) {
		refused.Write = name
		return refused
	}
	if err != nil {
		return &Unknown{Write: name, Cause: err}
	}
	faults.Point(name + ".after")
	if faults.LoseReply(name) {
		return &Unknown{Write: name, Cause: errors.New("the reply was lost")}
	}
	return nil
}

func (s *Store) transact(ctx context.Context, body func(ctx context.Context, tx pgx.Tx) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	if err := body(ctx, tx); err != nil {
		_ = tx.Rollback(ctx) // a connection that can not roll back is closed when it is released
		return err
	}
	warning, err := commitWarned(func() error { return tx.Commit(ctx) }, conn.Conn())
	if err == nil && warning != "" && faults.Enforced("R1") {
		return errors.New("the commit came with a warning: " + warning)
	}
	return err
}

// lockAssignment takes the row lock and reads the row; nil when the topic or the partition does not exist (any more).
func lockAssignment(ctx context.Context, tx pgx.Tx, topicID uuid.UUID, partition int32) (*Assignment, error) {
	rows, err := tx.Query(ctx, "SELECT "+assignmentColumns+" FROM assignments a JOIN topics t ON t.id = a.topic_id WHERE a.topic_id = $1 AND a.partition = $2 FOR UPDATE OF a",
		topicID, partition)
	if err != nil {
		return nil, err
	}
	return oneOrNil[Assignment](rows)
}

// lockMove reads a move under its row lock; nil when there is none by that id. The lock order is the places of the fleet
// (claims of plans only), then assignment, then move, then broker; whoever knows only the move id reads it without the lock
// first.
func lockMove(ctx context.Context, tx pgx.Tx, id string) (*Move, error) {
	rows, err := tx.Query(ctx, "SELECT "+moveColumns+" FROM moves WHERE id = $1 FOR UPDATE", id)
	if err != nil {
		return nil, err
	}
	return oneOrNil[Move](rows)
}

func lockBrokerShared(ctx context.Context, tx pgx.Tx, id string) (*Broker, error) {
	rows, err := tx.Query(ctx, "SELECT "+brokerColumns+" FROM brokers WHERE id = $1 FOR SHARE", id)
	if err != nil {
		return nil, err
	}
	return oneOrNil[Broker](rows)
}

func oneOrNil[T any](rows pgx.Rows) (*T, error) {
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[T])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return row, err
}

// change updates one locked assignment with the given SET clause and audits it in the same transaction. Every change
// raises the version and stamps the lineage it was written in (R1).
func change(ctx context.Context, tx pgx.Tx, before *Assignment, entry auditEntry, set string, args ...any) (*Assignment, error) {
	args = append([]any{before.TopicID, before.Partition}, args...)
	rows, err := tx.Query(ctx, "UPDATE assignments a SET version = a.version + 1, changed_at = now(), timeline = portage_timeline(), system_id = portage_system(), "+set+
		" FROM topics t WHERE t.id = a.topic_id AND a.topic_id = $1 AND a.partition = $2 RETURNING "+assignmentColumns, args...)
	if err != nil {
		return nil, err
	}
	after, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[Assignment])
	if err != nil {
		return nil, err
	}
	entry.topicID, entry.topic, entry.partition = &before.TopicID, before.Topic, &before.Partition
	entry.before, entry.after = before, after
	return after, entry.write(ctx, tx)
}

// auditEntry is one line of the audit table.
type auditEntry struct {
	action, actor, moveID, reason string
	topicID                       *uuid.UUID
	topic                         string
	partition                     *int32
	before, after                 any
}

func (e auditEntry) write(ctx context.Context, tx pgx.Tx) error {
	before, err := jsonOrNil(e.before)
	if err != nil {
		return err
	}
	after, err := jsonOrNil(e.after)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO audit (action, actor, topic_id, topic, partition, move_id, reason, before, after)
		VALUES ($1, $2, $3, $4, $5, NULLIF($6, ''), $7, $8, $9)`,
		e.action, e.actor, e.topicID, e.topic, e.partition, e.moveID, e.reason, before, after)
	return err
}

func jsonOrNil(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	return json.Marshal(v)
}
