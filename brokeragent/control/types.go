// Package control is the language of the agents' control API: the requests and answers of /v1, the stable error codes,
// and the client that workers and other agents use. It knows no storage and no workflow.
//
// Every request about a move carries the move id, the controller epoch and a token; an agent refuses a lower token of
// the same move, so that a timed-out attempt that is still running somewhere can not undo the work of its successor
// (R16). Every request may be repeated: the answer of a repeat is the answer of the work, not a cached reply.
package control

import (
	"time"

	"github.com/google/uuid"
)

// Phase ordinals of a token, in the order of a move.
const (
	PhaseEnsure  = 1
	PhaseCopy    = 2
	PhaseCutover = 3
	PhaseConfirm = 4
	PhaseAbort   = 5
)

// Token orders the attempts of one move: the row version at its claim, the phase, Temporal's attempt; compared in that
// order (R16).
type Token struct {
	Version int64 `json:"version"`
	Phase   int32 `json:"phase"`
	Attempt int32 `json:"attempt"`
}

// Less reports whether t is older than u.
func (t Token) Less(u Token) bool {
	if t.Version != u.Version {
		return t.Version < u.Version
	}
	if t.Phase != u.Phase {
		return t.Phase < u.Phase
	}
	return t.Attempt < u.Attempt
}

// Authority is who gives the order. All fields are required unless the agent runs with --allow-unfenced.
type Authority struct {
	ControllerEpoch int64  `json:"controllerEpoch"`
	ControllerID    string `json:"controllerId"`
	Token           Token  `json:"token"`
}

// Subject names the partition a move is about.
type Subject struct {
	MoveID    string    `json:"moveId"`
	TopicID   uuid.UUID `json:"topicId"`
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Epoch     int32     `json:"epoch"` // the partition epoch at the claim
}

// Order is what every control request about a move starts with.
type Order struct {
	Authority
	Subject
}

// Move is the move an order is about; it must be the one in the path.
func (o Order) Move() string { return o.MoveID }

// EnsureRequest asks the destination to make room for a copy: POST /v1/moves/{id}/ensure.
type EnsureRequest struct {
	Order
	SourceURL   string  `json:"sourceUrl"`
	Source      string  `json:"source"`           // broker id
	LimitPerSec float64 `json:"limitBytesPerSec"` // 0: none
}

// EnsureAnswer tells what the destination holds already.
type EnsureAnswer struct {
	StagedBytes  int64 `json:"stagedBytes"`
	TotalBytes   int64 `json:"totalBytes"`
	Adopted      bool  `json:"adopted"` // a retained former copy was taken over
	ReservedByte int64 `json:"reservedBytes"`
}

// CopyRequest starts or joins the copy at the destination: POST /v1/moves/{id}/copy. It returns at once; progress is
// read with GET /v1/moves/{id}.
type CopyRequest struct {
	Order
	SourceURL   string  `json:"sourceUrl"`
	Source      string  `json:"source"`
	LagBytes    int64   `json:"lagBytes"`
	MaxPasses   int     `json:"maxPasses"`
	LimitPerSec float64 `json:"limitBytesPerSec"`
}

// Copy states of a session.
const (
	CopyIdle    = "idle"
	CopyRunning = "running"
	CopyWaiting = "waiting" // with Blocked saying for what
	CopyReady   = "ready"   // within the lag, or not converging: the cutover may begin
	CopyFailed  = "failed"
)

// SessionStatus is the destination's view of a move: GET /v1/moves/{id}?wait=1s&seq=N returns when Seq has passed N.
type SessionStatus struct {
	Seq           int64   `json:"seq"`
	State         string  `json:"state"`
	Blocked       string  `json:"blocked,omitempty"` // a stable code
	BlockedReason string  `json:"blockedReason,omitempty"`
	BytesDone     int64   `json:"bytesDone"`
	BytesTotal    int64   `json:"bytesTotal"`
	CopiedBytes   int64   `json:"copiedBytes"` // over the network by this session, retries included
	BytesPerSec   float64 `json:"bytesPerSec"`
	// UnpacedBytesPerSec leaves out the throttle's pauses: the rate of a drain.
	UnpacedBytesPerSec float64       `json:"unpacedBytesPerSec"`
	Passes             int           `json:"passes"`
	Converged          bool          `json:"converged"`
	LagBytes           int64         `json:"lagBytes"`
	ExpectedFreeze     time.Duration `json:"expectedFreezeNs"`
	Installed          bool          `json:"installed"`
	Error              *Error        `json:"error,omitempty"`
	// Copy is what this broker would have if the source were gone now; nil before the staging is open.
	Copy *CopyEvidence `json:"copy,omitempty"`
}

// CopyEvidence is what a destination durably has of a partition and of its last look at the source (R3).
type CopyEvidence struct {
	SeenSource bool  `json:"seenSource"`
	StagedEnd  int64 `json:"stagedEnd"`
	// HighWatermark is the source's at the last look: what is confirmed after it is not known here.
	HighWatermark int64     `json:"highWatermark"`
	LogStart      int64     `json:"logStart"`
	Epoch         int32     `json:"epoch"`
	Process       uuid.UUID `json:"process"` // the source's
	SnapshotAt    time.Time `json:"snapshotAt"`
	Groups        int       `json:"groups"`
	Producers     int       `json:"producers"`
	// Missing says in a sentence why the copy can not be promoted; empty when it can.
	Missing string `json:"missing,omitempty"`
}

// PromoteRequest asks the destination to install its staged copy without a freeze, because the source is gone:
// POST /v1/moves/{id}/promote. Nothing opens before ForcePromote.
type PromoteRequest struct {
	Order
	Version int64 `json:"version"` // of the row as the worker just read it; ForcePromote names the same
}

// PromoteAnswer is the installed copy.
type PromoteAnswer struct {
	Version      int64        `json:"version"`
	InstalledEnd int64        `json:"installedEnd"`
	Storage      uuid.UUID    `json:"storage"`
	Copy         CopyEvidence `json:"copy"`
}

// FreezeRequest asks the source to park writes: POST /v1/moves/{id}/freeze.
type FreezeRequest struct {
	Order
	Version        int64         `json:"version"` // of the row, as the worker just read it
	ExpectedFreeze time.Duration `json:"expectedFreezeNs"`
	Force          bool          `json:"force"` // accept an expected freeze above MaxFreeze (R22)
}

// FreezeAnswer is the source's acknowledgement.
type FreezeAnswer struct {
	Version   int64     `json:"version"` // the row version CommitOwner must name (R7)
	FrozenEnd int64     `json:"frozenEnd"`
	Process   uuid.UUID `json:"process"`
}

// DrainRequest asks the destination to fetch the tail, verify and install: POST /v1/moves/{id}/drain.
type DrainRequest struct {
	Order
	SourceURL string       `json:"sourceUrl"`
	Freeze    FreezeAnswer `json:"freeze"`
}

// DrainAnswer is the installed copy.
type DrainAnswer struct {
	Version      int64     `json:"version"`
	InstalledEnd int64     `json:"installedEnd"`
	Storage      uuid.UUID `json:"storage"`
	TailBytes    int64     `json:"tailBytes"`
	Groups       int       `json:"groups"`
	Producers    int       `json:"producers"`
}

// LookRequest tells an agent that a row changed and to act on it: POST /v1/moves/{id}/look. It is only a hint; the agent
// reads the row itself (design §3 rule 4). WaitOpen waits until the partition is open here or surely elsewhere.
type LookRequest struct {
	Order
	WaitOpen bool `json:"waitOpen"`
	// Release ends the source's part: pins go and the frozen time is reported.
	Release bool `json:"release"`
}

// AbandonRequest ends the destination's part of an aborted move: POST /v1/moves/{id}/abandon. With Keep the staged bytes
// become a retained copy that a later move adopts by digest; otherwise they are deleted.
type AbandonRequest struct {
	Order
	Keep bool `json:"keep"`
}

// PartitionStatus is one partition as an agent sees it.
type PartitionStatus struct {
	TopicID    uuid.UUID `json:"topicId"`
	Topic      string    `json:"topic"`
	Partition  int32     `json:"partition"`
	State      string    `json:"state"`
	Reason     string    `json:"reason,omitempty"`
	ReasonCode string    `json:"reasonCode,omitempty"` // of a closed partition: a stable code
	// Suspended is the code under which the partition's changes of hands wait for `portage reconcile` (R1); what is open
	// serves on.
	Suspended       string        `json:"suspended,omitempty"`
	SuspendedReason string        `json:"suspendedReason,omitempty"`
	Since           time.Time     `json:"since"` // when it took its state, by the agent's clock
	Epoch           int32         `json:"epoch"`
	Version         int64         `json:"version"`
	Owner           string        `json:"owner"`
	Start           int64         `json:"start"`
	End             int64         `json:"end"`
	DurableEnd      int64         `json:"durableEnd"`
	Bytes           int64         `json:"bytes"`
	MoveID          string        `json:"moveId,omitempty"`
	Parked          int           `json:"parked"`
	FrozenFor       time.Duration `json:"frozenForNs"`
	LastFreeze      *FreezeReport `json:"lastFreeze,omitempty"`
	Epochs          []EpochStart  `json:"epochs,omitempty"` // of the log that is served, oldest first (R29)
	Groups          int           `json:"groups"`
	Producers       int           `json:"producers"`
	ProduceSum      int64         `json:"producedBytes"`
	ConsumedSum     int64         `json:"consumedBytes"`
	// GroupLags are those of the groups, at most MostGroupLags, the ones that committed last; only in GET /v1/partitions of an open
	// partition.
	GroupLags []GroupLag `json:"groupLags,omitempty"`
}

// MostGroupLags bounds the groups that are told of.
const MostGroupLags = 100

// GroupLag is how far a group's committed offset is behind what is confirmed of a partition.
type GroupLag struct {
	Group   string        `json:"group"`
	Lag     int64         `json:"lag"`       // records
	IdleFor time.Duration `json:"idleForNs"` // since its last commit, by the clock of the agent that took that
}

// FreezeReport is the frozen time of one move: from the first parked request to the moment the partition took writes
// again, here or at its new owner. Zero when no request was parked.
type FreezeReport struct {
	MoveID string        `json:"moveId"`
	Frozen time.Duration `json:"frozenNs"`
	// At is when the freeze began, by the agent's wall clock: for display and for benchmarks on one machine.
	At time.Time `json:"at"`
	// Total is from the freeze itself, parked requests or not.
	Total  time.Duration `json:"totalNs"`
	Parked int           `json:"parked"`
}

// AgentStatus is GET /v1/status.
type AgentStatus struct {
	Broker          string            `json:"broker"`
	NodeID          int32             `json:"nodeId"`
	Fleet           uuid.UUID         `json:"fleet"`
	Storage         uuid.UUID         `json:"storage"`
	Process         uuid.UUID         `json:"process"`
	Version         string            `json:"version"`
	Ready           bool              `json:"ready"`
	NotReady        string            `json:"notReady,omitempty"`
	ControllerEpoch int64             `json:"controllerEpoch"`
	ControllerID    string            `json:"controllerId"`
	DiskTotalBytes  int64             `json:"diskTotalBytes"`
	DiskFreeBytes   int64             `json:"diskFreeBytes"`
	ReservedBytes   int64             `json:"reservedBytes"`
	TrashBytes      int64             `json:"trashBytes"`
	Quarantined     int               `json:"quarantined"`        // copies that hold what their owner does not (R29)
	QuarantinedRecs int64             `json:"quarantinedRecords"` // offsets in them that are nowhere else
	Clock           time.Time         `json:"clock"`              // the agent's, when it answered: for display
	FileLimit       int64             `json:"fileLimit"`          // RLIMIT_NOFILE
	OpenFiles       int64             `json:"openFiles"`          // 0 where the system does not tell
	Partitions      []PartitionStatus `json:"partitions"`
	Moves           []string          `json:"moves"`
}

// RetainedCopy is a former copy of a partition at a broker: in trash until it is swept, or in quarantine because it holds
// records that the owner does not have: GET /v1/retained.
type RetainedCopy struct {
	ID          string    `json:"id"`
	Quarantined bool      `json:"quarantined"`
	TopicID     uuid.UUID `json:"topicId"`
	Topic       string    `json:"topic"`
	Partition   int32     `json:"partition"`
	Epoch       int32     `json:"epoch"` // the last one it served, or was copied from
	End         int64     `json:"end"`   // -1 when not known
	Reason      string    `json:"reason"`
	MoveID      string    `json:"moveId,omitempty"`
	At          time.Time `json:"at"`
	Bytes       int64     `json:"bytes"`
	Judged      bool      `json:"judged"` // its owner's history was seen to have all of it
	Hold        bool      `json:"hold"`   // an operator keeps it
	Divergence  int64     `json:"divergence"`
	Records     int64     `json:"records"` // offsets from the divergence on
}

// CopyInPlace stands for the copy's id where a person lets an owner go on with what its own folder holds (R18).
const CopyInPlace = "in-place"

// RetainedCopies is everything a broker keeps beside its partitions.
type RetainedCopies struct {
	Copies []RetainedCopy `json:"copies"`
}

// HoldRequest keeps a copy in trash from being swept and adopted, or lets it go: POST /v1/trash/hold.
type HoldRequest struct {
	ID   string `json:"id"`
	Hold bool   `json:"hold"`
}

// QuarantinePurge deletes a quarantined copy with the records that only it holds: POST /v1/quarantine/purge.
type QuarantinePurge struct {
	ID         string `json:"id"`
	AcceptLoss bool   `json:"acceptLoss"`
}

// TrashPurge deletes the former copies whose owners prove that they hold as much; with an id that one copy, whatever its
// owner says: POST /v1/trash/purge.
type TrashPurge struct {
	ID         string `json:"id,omitempty"`
	AcceptLoss bool   `json:"acceptLoss,omitempty"` // required with an id
}

// ExportedRecord is one line of GET /v1/quarantine/{id}/records.
type ExportedRecord struct {
	Offset    int64            `json:"offset"`
	Timestamp time.Time        `json:"timestamp"`
	Key       []byte           `json:"key"`   // base64; null for none
	Value     []byte           `json:"value"` // base64; null for none
	Headers   []ExportedHeader `json:"headers,omitempty"`
}

// ExportedHeader is one header of a record.
type ExportedHeader struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Listing is what a source shows of one partition to the destination of a claimed move: GET /v1/copies/{id}/listing.
// Only durable bytes are listed, and they are valid for one source process only (R25).
type Listing struct {
	Process       uuid.UUID       `json:"process"`
	Epoch         int32           `json:"epoch"`
	LogStart      int64           `json:"logStart"`
	HighWatermark int64           `json:"highWatermark"`
	Segments      []ListedSegment `json:"segments"`
	Epochs        []EpochStart    `json:"epochs"`
	Producers     []byte          `json:"producers"`
	Offsets       []byte          `json:"offsets"`
	ProducerCount int             `json:"producerCount"`
	GroupCount    int             `json:"groupCount"`
	// FrozenVersion is the row version of the freeze in force for this move, 0 when there is none.
	FrozenVersion int64 `json:"frozenVersion"`
}

// ListedSegment is one segment's durable part.
type ListedSegment struct {
	Base       int64  `json:"base"`
	Size       int64  `json:"size"`
	NextOffset int64  `json:"nextOffset"`
	Sealed     bool   `json:"sealed"`
	Digest     string `json:"digest"` // hex
}

// EpochStart is one entry of the leader epoch list.
type EpochStart struct {
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start"`
	Lost  int64 `json:"lost,omitempty"` // offsets before Start that were lost when it began (R18)
}

// OffsetCommit is one committed offset relayed to the owner: POST /v1/offsets/commit.
type OffsetCommit struct {
	TopicID     uuid.UUID `json:"topicId"`
	Topic       string    `json:"topic"`
	Partition   int32     `json:"partition"`
	Offset      int64     `json:"offset"`
	LeaderEpoch int32     `json:"leaderEpoch"`
	Metadata    string    `json:"metadata,omitempty"`
	Code        int16     `json:"code,omitempty"` // in answers
}

// OffsetsRequest commits or asks for one group's offsets at an owner.
type OffsetsRequest struct {
	Group   string         `json:"group"`
	Offsets []OffsetCommit `json:"offsets"`
	All     bool           `json:"all,omitempty"` // fetch: every partition this broker owns
}

// OffsetsAnswer answers both; Code answers the whole request.
type OffsetsAnswer struct {
	Code    int16          `json:"code"`
	Offsets []OffsetCommit `json:"offsets"`
}

// HeldRows is what one agent durably holds of the metastore's rows: GET /v1/rows. Whatever the metastore says, it has once
// said this.
type HeldRows struct {
	Broker          string      `json:"broker"`
	Storage         uuid.UUID   `json:"storage"`
	Process         uuid.UUID   `json:"process"`
	ControllerEpoch int64       `json:"controllerEpoch"`
	ControllerID    string      `json:"controllerId"`
	Topics          []HeldTopic `json:"topics"`
	Rows            []HeldRow   `json:"rows"`
}

// HeldTopic is a topic as an agent last saw it.
type HeldTopic struct {
	TopicID           uuid.UUID         `json:"topicId"`
	Name              string            `json:"name"`
	Partitions        int32             `json:"partitions"`
	ReplicationFactor int32             `json:"replicationFactor"`
	WritePolicy       string            `json:"writePolicy"`
	ProducePolicy     string            `json:"producePolicy"`
	Internal          bool              `json:"internal"`
	Config            map[string]string `json:"config,omitempty"`
}

// HeldRow is the newest state of a partition's row that an agent has seen.
type HeldRow struct {
	TopicID       uuid.UUID  `json:"topicId"`
	Topic         string     `json:"topic"`
	Partition     int32      `json:"partition"`
	Owner         string     `json:"owner"`
	OwnerStorage  uuid.UUID  `json:"ownerStorage"`
	Epoch         int32      `json:"epoch"`
	Version       int64      `json:"version"`
	State         string     `json:"state"`
	OpenedEpoch   int32      `json:"openedEpoch"`
	OpenedProcess *uuid.UUID `json:"openedProcess,omitempty"`
	OpenedEnd     int64      `json:"openedEnd"`
	MoveID        string     `json:"moveId,omitempty"`
	LastMove      *string    `json:"lastMove,omitempty"`
	WriteCopies   int32      `json:"writeCopies"`
	SealCopies    int32      `json:"sealCopies"`
	Serving       bool       `json:"serving"`             // this agent has it open at this epoch
	Suspended     string     `json:"suspended,omitempty"` // a stable code
}
