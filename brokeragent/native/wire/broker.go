package wire

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Broker is what the protocol server needs of the broker behind it. Every method is safe for concurrent use. Error codes
// are Kafka's own (kerr): the broker decides the code, the server only encodes it.
type Broker interface {
	// NodeID is this broker's Kafka node id.
	NodeID() int32
	// Routing is the newest routing table this broker knows. The value is immutable.
	Routing() *Routing
	// Ready closes once the first routing table is known; requests that need one wait for it.
	Ready() <-chan struct{}

	// Produce takes the record batches of one partition and returns at once; the answer is ready once the batch is
	// durable, refused or its park ended. Calls of one connection and partition keep their order. It must be called for
	// every partition of a request before the first answer is awaited, so that one parked partition does not keep the
	// others from being appended.
	Produce(ctx context.Context, req ProduceRequest) PendingProduce
	// Fetch reads from one partition without waiting.
	Fetch(ctx context.Context, req FetchRequest) FetchAnswer
	// ListOffset answers one partition: timestamp -1 latest, -2 earliest, -3 largest timestamp, else the first record at or after it.
	ListOffset(ctx context.Context, p PartitionRef, currentLeaderEpoch int32, timestamp int64) OffsetAnswer
	// EpochEnd answers OffsetForLeaderEpoch: the largest epoch known that is not above the asked one, and where it ends.
	EpochEnd(ctx context.Context, p PartitionRef, currentLeaderEpoch, epoch int32) EpochEndAnswer

	// CommitOffsets stores offsets of one group with the owners of their partitions (design §4: offsets live with the
	// partition). A returned whole != 0 code answers every partition of the request (R27 v).
	CommitOffsets(ctx context.Context, group string, commits []OffsetCommit) (whole int16, perPartition map[PartitionRef]int16)
	// FetchOffsets reads one group's offsets; partitions nil means all the group ever committed. Offset -1 ("none") only
	// ever comes from an open owner (R13); whole != 0 answers the whole group.
	FetchOffsets(ctx context.Context, group string, partitions []PartitionRef) (whole int16, offsets map[PartitionRef]CommittedOffset)

	// CreateTopic creates a topic in the metastore; validateOnly checks alone. A zero code is success.
	CreateTopic(ctx context.Context, req CreateTopicRequest) CreateTopicAnswer
	// AddPartitions raises the number of a topic's partitions; a zero code is success.
	AddPartitions(ctx context.Context, req AddPartitionsRequest) (code int16, message string)
	// DeleteTopic deletes by name, or by id when name is empty.
	DeleteTopic(ctx context.Context, name string, id uuid.UUID) (code int16, message string)
}

// PartitionRef names one partition. Topic is always set; the server resolves topic ids through Routing.
type PartitionRef struct {
	Topic     string
	TopicID   uuid.UUID
	Partition int32
}

// Routing is one immutable view of the fleet: who owns what, at which epoch.
type Routing struct {
	ClusterID string
	Nodes     []Node // in NodeID order; every owner named below is among them
	Topics    map[string]*Topic
	TopicIDs  map[uuid.UUID]*Topic
}

// Node is one broker's client address.
type Node struct {
	ID   int32
	Host string
	Port int32
	Rack string
}

// Topic is one topic with its partitions in number order (Partitions[i].Partition == i).
type Topic struct {
	ID         uuid.UUID
	Name       string
	Internal   bool
	Partitions []PartitionRoute
}

// PartitionRoute names the owner of a partition. LeaderEpoch never goes down.
type PartitionRoute struct {
	Partition   int32
	Leader      int32 // node id; -1 when unknown
	LeaderEpoch int32
}

// ConnID names one client connection for the life of this process.
type ConnID uint64

// ProduceRequest is the batches of one partition out of one Produce request.
type ProduceRequest struct {
	PartitionRef
	Conn      ConnID
	Arrived   time.Time     // when the whole request had been read from the connection (R27 i)
	Acks      int16         // 0, 1 or -1; 1 is treated as -1 (all)
	Timeout   time.Duration // the client's own bound
	Records   []byte        // exactly as sent; the broker validates and stores them verbatim
	KnowsHint bool          // the version carries CurrentLeader in the answer (v10 and newer)
}

// PendingProduce is an answer in the making.
type PendingProduce interface {
	// Wait blocks until the answer is decided. It is called exactly once, from the connection's own goroutine.
	Wait(ctx context.Context) ProduceAnswer
}

// ProduceAnswer is one partition's answer.
type ProduceAnswer struct {
	Code       int16
	Message    string
	BaseOffset int64 // -1 on an error
	LogStart   int64
	Leader     *LeaderHint // with NOT_LEADER_OR_FOLLOWER, when known
}

// LeaderHint is KIP-951's CurrentLeader with its NodeEndpoint; id and endpoint always agree.
type LeaderHint struct {
	Node  Node
	Epoch int32
}

// FetchRequest reads one partition.
type FetchRequest struct {
	PartitionRef
	Offset             int64
	CurrentLeaderEpoch int32 // -1 when the client did not say
	MaxBytes           int32 // at least one whole batch is returned whatever it says
}

// FetchAnswer is one partition's answer. Records are whole stored batches (the last may be cut, as Kafka allows).
type FetchAnswer struct {
	Code          int16
	HighWatermark int64
	LogStart      int64
	Records       []byte
	Leader        *LeaderHint
	// Changed closes when asking again may answer differently (new records, or the owner changed). Nil on an error.
	Changed <-chan struct{}
}

// OffsetAnswer is one ListOffsets answer; Offset and Timestamp are -1 when there is none.
type OffsetAnswer struct {
	Code        int16
	Offset      int64
	Timestamp   int64
	LeaderEpoch int32
}

// EpochEndAnswer is one OffsetForLeaderEpoch answer.
type EpochEndAnswer struct {
	Code        int16
	LeaderEpoch int32
	EndOffset   int64
}

// OffsetCommit is one committed offset of a request.
type OffsetCommit struct {
	PartitionRef
	CommittedOffset
}

// CommittedOffset is what a group committed.
type CommittedOffset struct {
	Offset      int64 // -1 when there is none
	LeaderEpoch int32 // -1 when the client did not say
	Metadata    string
	Code        int16 // an error of this partition alone
}

// CreateTopicRequest asks for a new topic.
type CreateTopicRequest struct {
	Name              string
	Partitions        int32 // -1: the fleet's default
	ReplicationFactor int16 // -1 or 1
	Assignment        map[int32][]int32
	Configs           map[string]string
	ValidateOnly      bool
}

// CreateTopicAnswer is the result.
type CreateTopicAnswer struct {
	Code              int16
	Message           string
	ID                uuid.UUID
	Partitions        int32
	ReplicationFactor int16
}
