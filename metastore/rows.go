package metastore

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Partition states. A partition in StateCreated was never opened: only then may its owner create an empty log (R5).
const (
	StateCreated = "created"
	StateOpened  = "opened"
)

// Outcomes of a move. Empty while it runs.
const (
	OutcomeCommitted = "committed"
	OutcomeAborted   = "aborted"
)

// What a move does when its source is gone (R2).
const (
	LossAsk   = "ask"   // a person decides
	LossAuto  = "auto"  // the copy is promoted once the source must have fenced itself
	LossNever = "never" // the move waits for the source
)

// Kinds of a row of moves.
const (
	KindMove    = "move"    // one partition goes to another broker
	KindSwap    = "swap"    // one side of a swap: see Move.Swap
	KindPromote = "promote" // no workflow's: a person gave the partition to a copy (R18)
	KindBuried  = "buried"  // no workflow's: the id was ended before it claimed anything (R7)
)

// Broker is one row of brokers.
type Broker struct {
	ID              string    `db:"id" json:"id"`
	NodeID          int32     `db:"node_id" json:"nodeId"`
	ControlURL      string    `db:"control_url" json:"controlUrl"`
	ClientHost      string    `db:"client_host" json:"clientHost"`
	ClientPort      int32     `db:"client_port" json:"clientPort"`
	Rack            string    `db:"rack" json:"rack,omitempty"`
	StorageInstance uuid.UUID `db:"storage_instance" json:"storageInstance"`
	ProcessInstance uuid.UUID `db:"process_instance" json:"processInstance"`
	Draining        bool      `db:"draining" json:"draining"`
	Removed         bool      `db:"removed" json:"removed,omitempty"`
	Heartbeat       int64     `db:"heartbeat" json:"heartbeat"`
	HeartbeatAt     time.Time `db:"heartbeat_at" json:"heartbeatAt"`
	DiskTotalBytes  int64     `db:"disk_total_bytes" json:"diskTotalBytes"`
	DiskFreeBytes   int64     `db:"disk_free_bytes" json:"diskFreeBytes"`
	// PromoteFenceMS is the write fence (R2) that the process PromoteFenceProcess registered with; see Fence.
	PromoteFenceMS      int64      `db:"promote_fence_ms" json:"promoteFenceMs,omitempty"`
	PromoteFenceProcess *uuid.UUID `db:"promote_fence_process" json:"promoteFenceProcess,omitempty"`
	// QuarantinedCopies hold records that exist nowhere else, as the broker last reported (R29, R30).
	QuarantinedCopies int32 `db:"quarantined_copies" json:"quarantinedCopies,omitempty"`
	// Capacity is what a person set of it for the planner.
	Capacity Capacity `db:"capacity" json:"capacity,omitzero"`
}

// Fence is how long after its last successful primary read the broker's present process goes on acknowledging writes of a
// partition whose move may promote over it (R2); 0 when it does not fence itself, because it is of an older version.
func (b *Broker) Fence() time.Duration {
	if !sameStorage(b.PromoteFenceProcess, b.ProcessInstance) {
		return 0
	}
	return time.Duration(b.PromoteFenceMS) * time.Millisecond
}

// Topic is one row of topics.
type Topic struct {
	ID                uuid.UUID         `db:"id" json:"id"`
	Name              string            `db:"name" json:"name"`
	Partitions        int32             `db:"partitions" json:"partitions"`
	ReplicationFactor int32             `db:"replication_factor" json:"replicationFactor"`
	WritePolicy       string            `db:"write_policy" json:"writePolicy"`
	ProducePolicy     string            `db:"produce_policy" json:"producePolicy"`
	Internal          bool              `db:"internal" json:"internal"`
	Config            map[string]string `db:"config" json:"config,omitempty"`
}

// Assignment is one row of assignments with its topic's name. Epoch rises at each change of owner, Version at each
// change of the row; apply a row only when (Epoch, Version) is higher than the one held.
type Assignment struct {
	TopicID         uuid.UUID  `db:"topic_id" json:"topicId"`
	Topic           string     `db:"topic" json:"topic"`
	Partition       int32      `db:"partition" json:"partition"`
	Owner           string     `db:"owner" json:"owner"`
	OwnerStorage    uuid.UUID  `db:"owner_storage" json:"ownerStorage"`
	Target          *string    `db:"target" json:"target,omitempty"`
	TargetStorage   *uuid.UUID `db:"target_storage" json:"targetStorage,omitempty"`
	Epoch           int32      `db:"epoch" json:"epoch"`
	Version         int64      `db:"version" json:"version"`
	State           string     `db:"state" json:"state"`
	OpenedEpoch     int32      `db:"opened_epoch" json:"openedEpoch"`
	OpenedProcess   *uuid.UUID `db:"opened_process" json:"openedProcess,omitempty"`
	OpenedEnd       int64      `db:"opened_end" json:"openedEnd"`
	MoveID          *string    `db:"move_id" json:"moveId,omitempty"`
	LastMove        *string    `db:"last_move" json:"lastMove,omitempty"`
	WriteCopies     int32      `db:"write_copies" json:"writeCopies"`
	SealCopies      int32      `db:"seal_copies" json:"sealCopies"`
	Boundary        *int64     `db:"boundary" json:"boundary,omitempty"`
	PendingRecovery *string    `db:"pending_recovery" json:"pendingRecovery,omitempty"`
	Timeline        int32      `db:"timeline" json:"timeline"` // of the Postgres that wrote it (R1)
	System          int64      `db:"system_id" json:"system,string"`
	Restored        bool       `db:"restored" json:"restored,omitempty"`          // written in another lineage than that of the server it was read from
	PromoteFence    *string    `db:"promote_fence" json:"promoteFence,omitempty"` // see FencedFor
}

// Name is the partition as people write it: "orders/3".
func (a *Assignment) Name() string { return fmt.Sprintf("%s/%d", a.Topic, a.Partition) }

// Moving reports the id of the claimed move, empty when stable.
func (a *Assignment) Moving() string {
	if a.MoveID == nil {
		return ""
	}
	return *a.MoveID
}

// FencedFor is the claimed move for which the owner fences itself (R2), empty when it need not.
func (a *Assignment) FencedFor() string {
	if a.PromoteFence == nil || a.Moving() != *a.PromoteFence {
		return ""
	}
	return *a.PromoteFence
}

// Newer reports whether a is a later state of the row than b. A deleted and recreated topic has another topic id, so
// rows of two topics are never compared.
func (a *Assignment) Newer(b *Assignment) bool {
	if b == nil {
		return true
	}
	return a.Epoch > b.Epoch || (a.Epoch == b.Epoch && a.Version > b.Version)
}

// Move is one row of moves: what was asked, by whom, and how it ended.
type Move struct {
	ID            string     `db:"id" json:"id"`
	Kind          string     `db:"kind" json:"kind"`
	TopicID       uuid.UUID  `db:"topic_id" json:"topicId"`
	Topic         string     `db:"topic" json:"topic"`
	Partition     int32      `db:"partition" json:"partition"`
	FromBroker    string     `db:"from_broker" json:"from"`
	ToBroker      string     `db:"to_broker" json:"to"`
	WorkflowID    string     `db:"workflow_id" json:"workflowId"`
	RunID         string     `db:"run_id" json:"runId"`
	RequestedBy   string     `db:"requested_by" json:"requestedBy,omitempty"`
	Reason        string     `db:"reason" json:"reason,omitempty"`
	ClaimVersion  int64      `db:"claim_version" json:"claimVersion"`
	Phase         string     `db:"phase" json:"phase"`
	Outcome       *string    `db:"outcome" json:"outcome,omitempty"`
	OutcomeBy     *string    `db:"outcome_by" json:"outcomeBy,omitempty"`
	OutcomeReason *string    `db:"outcome_reason" json:"outcomeReason,omitempty"`
	CommitEpoch   *int32     `db:"commit_epoch" json:"commitEpoch,omitempty"`
	FrozenEnd     *int64     `db:"frozen_end" json:"frozenEnd,omitempty"`
	BytesCopied   int64      `db:"bytes_copied" json:"bytesCopied"`
	Converged     *bool      `db:"converged" json:"converged,omitempty"`
	FrozenMS      *float64   `db:"frozen_ms" json:"frozenMs,omitempty"`
	StartedAt     time.Time  `db:"started_at" json:"startedAt"`
	EndedAt       *time.Time `db:"ended_at" json:"endedAt,omitempty"`
	FinishedAt    *time.Time `db:"finished_at" json:"finishedAt,omitempty"`
	// OnSourceLoss is what the move does when its source is gone: LossAsk, LossAuto or LossNever.
	OnSourceLoss   string `db:"on_source_loss" json:"onSourceLoss"`
	PromoteAfterMS int64  `db:"promote_after_ms" json:"promoteAfterMs"`
	// Promoted: the source was gone, and the copy became the partition without a freeze. Evidence is what was known then.
	Promoted bool            `db:"promoted" json:"promoted,omitempty"`
	Evidence json.RawMessage `db:"evidence" json:"evidence,omitempty"`
	// Swap names the swap that this move is one side of; nil for every other move. Both sides end in one transaction (R32).
	Swap *string `db:"swap" json:"swap,omitempty"`
}

// Ended reports how the move ended: OutcomeCommitted, OutcomeAborted or "".
func (m *Move) Ended() string {
	if m.Outcome == nil {
		return ""
	}
	return *m.Outcome
}
