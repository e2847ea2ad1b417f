package metastore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"portage/internal/faults"
)

// ClaimRequest asks for one partition to be claimed for a move.
type ClaimRequest struct {
	MoveID          string
	Kind            string // KindMove
	Topic           string
	Partition       int32
	To              string
	WorkflowID      string
	RunID           string
	ControllerEpoch int64 // fences new claims only (R15)
	RequestedBy     string
	Reason          string
	// OnSourceLoss is LossAsk (also when empty), LossAuto or LossNever; PromoteAfter how long the source must be silent before
	// the copy is promoted, DefaultPromoteAfter when 0. With LossAuto the row is marked, so that the source fences itself (R2).
	OnSourceLoss string
	PromoteAfter time.Duration
	// Expect, when there is one, is what the row must be for the claim to be made: what a plan was made of.
	Expect *ExpectedRow
	// Plan and PlanSeq name the action of a plan that this move carries out.
	Plan    string
	PlanSeq int
	// Again: the move has begun before, under another id, so it waits for no place in the fleet.
	Again bool

	swap   string // the swap that the move is a side of; see ClaimSwap
	places int    // how many moves begin with this claim; 0 for the second side of a swap, which began with the first
}

// ExpectedRow is what a claim expects of its row; what is zero is not compared.
type ExpectedRow struct {
	TopicID uuid.UUID
	Owner   string
	Version int64
}

// Differs refuses a row that is not as expected, with the difference; nil when it is.
func (e *ExpectedRow) Differs(row *Assignment) *Refused {
	var what string
	switch {
	case e == nil:
	case e.TopicID != uuid.Nil && e.TopicID != row.TopicID:
		what = "its topic was deleted and made anew"
	case e.Owner != "" && e.Owner != row.Owner:
		what = fmt.Sprintf("it is on %s now, not on %s", row.Owner, e.Owner)
	case e.Version != 0 && e.Version != row.Version:
		what = fmt.Sprintf("its row is at version %d now, not at %d", row.Version, e.Version)
	}
	if what == "" {
		return nil
	}
	return &Refused{Code: CodeRowDrifted, Row: row, Reason: fmt.Sprintf("%s is not as it was when its move was planned: %s; plan again", row.Name(), what)}
}

// DefaultPromoteAfter is twice the default write fence of an agent (60 s).
const DefaultPromoteAfter = 2 * time.Minute

// normal fills in the defaults of what happens when the source is gone.
func (r *ClaimRequest) normal() {
	if r.OnSourceLoss == "" {
		r.OnSourceLoss = LossAsk
	}
	if r.PromoteAfter == 0 {
		r.PromoteAfter = DefaultPromoteAfter
	}
}

// ClaimMove reserves a partition for one move: it sets target and move id and opens the move's row. Everything that can
// be known to be wrong about a move is refused here, before any side effect.
//
// Everyone dies after it: the row carries the claim, the source serves on, the workflow repeats the claim and finds
// its own. A claim whose workflow is gone is taken back by AbortMove.
func (s *Store) ClaimMove(ctx context.Context, req ClaimRequest) (*Assignment, *Move, error) {
	req.normal()
	if !req.Again {
		req.places = 1
	}
	var after *Assignment
	var move *Move
	err := s.guarded(ctx, "ClaimMove", func(ctx context.Context, tx pgx.Tx) error {
		if err := lockPlaces(ctx, tx, req.Plan); err != nil {
			return err
		}
		topic, err := movableTopic(ctx, tx, req.Topic)
		if err != nil {
			return err
		}
		row, err := lockAssignment(ctx, tx, topic.ID, req.Partition)
		if err != nil {
			return err
		}
		if row == nil {
			return noSuchPartition(topic, req.Partition)
		}
		after, move, err = claimLocked(ctx, tx, req, row)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return after, move, nil
}

// movableTopic reads a topic whose partitions may move.
func movableTopic(ctx context.Context, tx pgx.Tx, name string) (*Topic, error) {
	topic, err := readTopic(ctx, tx, name)
	switch {
	case err != nil:
		return nil, err
	case topic == nil:
		return nil, &Refused{Code: CodeUnknownTopic, Reason: fmt.Sprintf("there is no topic %q; check the name", name)}
	case topic.Internal || strings.HasPrefix(topic.Name, "__"):
		return nil, &Refused{Code: CodeInternalTopic, Reason: fmt.Sprintf("topic %q is internal and never moves", name)}
	}
	return topic, nil
}

func noSuchPartition(topic *Topic, partition int32) *Refused {
	return &Refused{Code: CodeUnknownPartition, Reason: fmt.Sprintf("topic %q has partitions 0 to %d, there is no %d", topic.Name, topic.Partitions-1, partition)}
}

// claimLocked claims one row whose lock is held, or finds the claim that an earlier attempt made.
func claimLocked(ctx context.Context, tx pgx.Tx, req ClaimRequest, row *Assignment) (*Assignment, *Move, error) {
	move, err := lockMove(ctx, tx, req.MoveID)
	if err != nil {
		return nil, nil, err
	}
	if move != nil && (move.Outcome == nil || faults.Enforced("R7")) {
		if move.Outcome != nil {
			// R7: an ended move id is dead for ever.
			return nil, nil, &Refused{Code: CodeMoveEnded, Reason: fmt.Sprintf("move %s has already ended (%s)", move.ID, *move.Outcome), Row: row, Move: move}
		}
		if row.Moving() == req.MoveID {
			return row, move, nil // our own claim, repeated after a lost reply
		}
		return nil, nil, &Refused{Code: CodeRowMoved, Reason: fmt.Sprintf("move %s no longer holds its claim", move.ID), Row: row, Move: move}
	}
	if refused := refuseLineage(row, Held{}); refused != nil {
		return nil, nil, refused
	}
	if holder := row.Moving(); holder != "" {
		other, err := lockMove(ctx, tx, holder)
		if err != nil {
			return nil, nil, err
		}
		return nil, nil, &Refused{Code: CodeAlreadyMoving, Row: row, Move: other,
			Reason: fmt.Sprintf("%s is already moving to %s under workflow %q; wait for it or cancel it", row.Name(), value(row.Target), workflowOf(other))}
	}
	if row.PendingRecovery != nil {
		return nil, nil, &Refused{Code: CodeRecoveryPending, Row: row, Reason: fmt.Sprintf("%s is being recovered; move it afterwards", row.Name())}
	}
	if refused := req.Expect.Differs(row); refused != nil {
		return nil, nil, refused
	}
	target, err := lockBrokerShared(ctx, tx, req.To) // R30: a claim and a drain serialise on the broker row
	if err != nil {
		return nil, nil, err
	}
	switch {
	case target == nil:
		return nil, nil, &Refused{Code: CodeUnknownBroker, Row: row, Reason: fmt.Sprintf("there is no broker %q; `portage cluster members` lists them", req.To)}
	case target.Removed && faults.Enforced("R30"):
		return nil, nil, &Refused{Code: CodeBrokerRemoved, Row: row, Reason: fmt.Sprintf("broker %q was removed from the fleet", req.To)}
	case target.Draining && faults.Enforced("R30"):
		return nil, nil, &Refused{Code: CodeBrokerDraining, Row: row, Reason: fmt.Sprintf("broker %q is draining and takes no partitions; choose another", req.To)}
	case row.Owner == req.To:
		return nil, nil, &Refused{Code: CodeAlreadyOwner, Row: row, Reason: fmt.Sprintf("%s is already on %s; nothing to do", row.Name(), req.To)}
	}
	fence, err := promoteFence(ctx, tx, req, row)
	if err != nil {
		return nil, nil, err
	}
	var epoch int64
	if err := tx.QueryRow(ctx, "SELECT epoch FROM controller FOR SHARE").Scan(&epoch); err != nil {
		return nil, nil, err
	}
	if epoch != req.ControllerEpoch && faults.Enforced("R15") {
		return nil, nil, &Refused{Code: CodeStaleController, Row: row,
			Reason: fmt.Sprintf("controller epoch %d is superseded by %d: another worker deployment took over", req.ControllerEpoch, epoch)}
	}
	if err := findPlaces(ctx, tx, req.Plan, req.places); err != nil {
		return nil, nil, err
	}
	after, err := change(ctx, tx, row, auditEntry{action: "claim_" + req.Kind, actor: req.WorkflowID, moveID: req.MoveID, reason: req.Reason},
		"target = $3, target_storage = $4, move_id = $5, promote_fence = $6", target.ID, target.StorageInstance, req.MoveID, fence)
	if err != nil {
		return nil, nil, err
	}
	if move != nil { // only with R7 switched off: the id is used again
		if _, err := tx.Exec(ctx, "DELETE FROM moves WHERE id = $1", move.ID); err != nil {
			return nil, nil, err
		}
	}
	rows, err := tx.Query(ctx, `INSERT INTO moves (id, kind, topic_id, topic, partition, from_broker, to_broker, workflow_id, run_id, requested_by, reason, claim_version,
		on_source_loss, promote_after_ms, swap, plan, plan_seq) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, NULLIF($15, ''), NULLIF($16, ''), $17) RETURNING `+moveColumns,
		req.MoveID, req.Kind, row.TopicID, row.Topic, row.Partition, row.Owner, target.ID, req.WorkflowID, req.RunID, req.RequestedBy, req.Reason, after.Version,
		req.OnSourceLoss, req.PromoteAfter.Milliseconds(), req.swap, req.Plan, req.PlanSeq)
	if err != nil {
		return nil, nil, err
	}
	move, err = pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[Move])
	return after, move, err
}

// promoteFence is the mark that makes the owner fence itself for this move: nil unless the copy may be promoted without a
// person. It is refused where the owner's process would not fence itself, or not in time (R2).
func promoteFence(ctx context.Context, tx pgx.Tx, req ClaimRequest, row *Assignment) (*string, error) {
	if req.OnSourceLoss != LossAuto {
		return nil, nil
	}
	owner, err := lockBrokerShared(ctx, tx, row.Owner)
	if err != nil {
		return nil, err
	}
	switch {
	case owner == nil || owner.Fence() == 0:
		return nil, &Refused{Code: CodeNoFence, Row: row,
			Reason: fmt.Sprintf("the agent of %s is of a version that does not fence itself, so its copy can not be promoted by itself; upgrade it, or use \"onSourceLoss\":\"ask\"", row.Owner)}
	case req.PromoteAfter < 2*owner.Fence():
		return nil, &Refused{Code: CodeNoFence, Row: row,
			Reason: fmt.Sprintf("promoteAfter is %s and must be at least %s, twice the write fence of %s (its --promote-fence)", req.PromoteAfter, 2*owner.Fence(), row.Owner)}
	}
	return &req.MoveID, nil
}

func readTopic(ctx context.Context, q querier, name string) (*Topic, error) {
	rows, err := q.Query(ctx, "SELECT "+topicColumns+" FROM topics WHERE name = $1", name)
	if err != nil {
		return nil, err
	}
	return oneOrNil[Topic](rows)
}

func workflowOf(move *Move) string {
	if move == nil {
		return "unknown"
	}
	return move.WorkflowID
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func sameStorage(a *uuid.UUID, b uuid.UUID) bool { return a != nil && *a == b }
