package native

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"portage/brokeragent/control"
	"portage/brokeragent/native/seglog"
	"portage/metastore"
)

// Rows is what the broker needs of the metastore. *metastore.Store satisfies it.
type Rows interface {
	ReadSnapshot(ctx context.Context) (*metastore.Snapshot, error)
	ReadAssignment(ctx context.Context, topicID uuid.UUID, partition int32) (*metastore.Assignment, error)
	FindMove(ctx context.Context, id string) (*metastore.Move, error)
	FindCommit(ctx context.Context, topicID uuid.UUID, partition, epoch int32) (*metastore.Move, error)
	OpenOwner(ctx context.Context, o metastore.OpenRequest) (*metastore.Assignment, error)
	AbortMoveHolding(ctx context.Context, moveID, by, reason string, held metastore.Held) (*metastore.Assignment, error)
	Contradict(ctx context.Context, topicID uuid.UUID, partition int32, broker string, held metastore.Held) error
	DeletedTopics(ctx context.Context, ids []uuid.UUID) ([]metastore.DeletedTopic, error)
	ReadLoads(ctx context.Context, broker string, storage uuid.UUID) ([]metastore.Load, error)
	CreateTopic(ctx context.Context, n metastore.NewTopic) (*metastore.Topic, error)
	AddPartitions(ctx context.Context, m metastore.MorePartitions) (uuid.UUID, error)
	DeleteTopic(ctx context.Context, name string, id uuid.UUID, by string) error
}

// Config is one broker's settings.
type Config struct {
	BrokerID string
	NodeID   int32
	Storage  uuid.UUID
	Process  uuid.UUID
	Root     string // the data root: partitions/, trash/ and quarantine/ live below it
	Rows     Rows
	Peers    *control.Client
	Logger   *slog.Logger
	Log      seglog.Options
	Limits   Limits
	Metrics  *Metrics
}

// Limits are the bounds of freezing and parking. The zero value of each means its default.
type Limits struct {
	ParkFor        time.Duration // how long one request is parked; 1 s, well under every client's timeout
	ParkBytes      int64         // parked bytes of one partition; 16 MiB
	FreezeLease    time.Duration // 10 s, renewed by progress only (R22)
	MaxFreeze      time.Duration // 30 s in all, far below delivery.timeout.ms (120 s)
	MaxFrozen      int           // partitions frozen at once: 2, since no freeze can end while Postgres is away
	HoldAheadFor   time.Duration // 2 s after opening (R27 iii)
	TrashRetention time.Duration // 24 h
	Housekeeping   time.Duration // between two looks at retention and trash; 1 min
	// PromoteFence is how long after the start of its last successful primary read an owner goes on acknowledging writes of a
	// partition whose move may promote over it (R2); 60 s.
	PromoteFence time.Duration
}

// DefaultPromoteFence is half of the least a move waits before it promotes by itself (R2).
const DefaultPromoteFence = time.Minute

func (l Limits) withDefaults() Limits {
	setDefault(&l.ParkFor, time.Second)
	setDefault(&l.ParkBytes, 16<<20)
	setDefault(&l.FreezeLease, 10*time.Second)
	setDefault(&l.MaxFreeze, 30*time.Second)
	setDefault(&l.MaxFrozen, 2)
	setDefault(&l.HoldAheadFor, 2*time.Second)
	setDefault(&l.TrashRetention, 24*time.Hour)
	setDefault(&l.Housekeeping, time.Minute)
	setDefault(&l.PromoteFence, DefaultPromoteFence)
	return l
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
