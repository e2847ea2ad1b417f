package native

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"portage/brokeragent/control"
	"portage/brokeragent/native/offsets"
	"portage/brokeragent/native/seglog"
	"portage/brokeragent/native/wire"
	"portage/metastore"
)

// State is what this broker may do with a partition.
type State string

// The states of a partition at one broker.
const (
	// StateElsewhere: another broker owns it, or nobody is known to; clients are sent there.
	StateElsewhere State = "elsewhere"
	// StateOpening: the row names this broker, OpenOwner is not acknowledged yet; requests are parked.
	StateOpening State = "opening"
	// StateClosed: the row names this broker, but it must not open (data missing, failed disk); the reason says why.
	StateClosed State = "closed"
	// StateOpen: it serves.
	StateOpen State = "open"
	// StateFrozen: it serves reads; produce and commits are parked for the cutover of a move.
	StateFrozen State = "frozen"
	// StateGone: the topic was deleted.
	StateGone State = "gone"
)

// legal are the transitions a partition may make; everything else is a bug that must not go unseen.
var legal = map[State][]State{
	StateElsewhere: {StateOpening, StateClosed, StateGone},
	StateOpening:   {StateOpen, StateClosed, StateElsewhere, StateGone},
	StateClosed:    {StateOpening, StateElsewhere, StateGone},
	StateOpen:      {StateFrozen, StateClosed, StateElsewhere, StateGone},
	StateFrozen:    {StateOpen, StateClosed, StateElsewhere, StateGone},
}

type key struct {
	topicID   uuid.UUID
	partition int32
}

// Partition is one partition at this broker. The reconciler (reconcile.go) is the only one that changes its state,
// except for the freeze, which is a request.
type Partition struct {
	key
	topic   string
	broker  *Broker
	logger  *slog.Logger
	kick    chan struct{}              // wakes the reconciler; capacity 1
	looking atomic.Bool                // a row read is under way
	fence   atomic.Pointer[writeFence] // changed under the broker's mu

	// acknowledged is the row of an OpenOwner that this process has won and not yet acted on; only the reconciler uses it.
	acknowledged *metastore.Assignment

	// folder is held by whoever moves the partition's folder into place or away; taken before mu.
	folder sync.Mutex

	mu         sync.Mutex // guards everything below; the lock of append, commit and freeze
	state      State
	reason     string    // why it is closed
	reasonCode string    // the same, as a stable code
	since      time.Time // of the state
	changed    chan struct{}
	row        *metastore.Assignment // the newest row applied
	serving    int32                 // the epoch it opened at
	log        *seglog.Log
	offsets    *offsets.Table
	install    *Installed // an installed copy that has not opened yet
	foreign    error      // why the folder is not this partition's log; it stays, and no copy can be taken in

	freeze        *freeze
	park          []*produce // FIFO (R27 i)
	parked        int64      // bytes in park
	refused       map[wire.ConnID]time.Time
	pinned        map[string]bool // moves that hold segments against retention
	openedAt      time.Time
	openedVersion int64                 // of the row by which it opened
	leftAt        time.Time             // when it was redirected, until the new owner is seen open
	last          *control.FreezeReport // replaced, never changed: a status given out shows it without the lock

	producedBytes, consumedBytes int64
}

func newPartition(b *Broker, k key, topic string) *Partition {
	return &Partition{
		key: k, topic: topic, broker: b, kick: make(chan struct{}, 1), state: StateElsewhere, since: time.Now(), changed: make(chan struct{}),
		refused: map[wire.ConnID]time.Time{}, pinned: map[string]bool{},
		logger: b.logger.With("partition", fmt.Sprintf("%s/%d", topic, k.partition)),
	}
}

func (p *Partition) name() string { return fmt.Sprintf("%s/%d", p.topic, p.partition) }

// wake asks the reconciler to look at the row again.
func (p *Partition) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// setState moves the partition to a new state and wakes whoever waits for one. The caller holds mu.
func (p *Partition) setState(next State, reason string) {
	p.reasonCode = ""
	if next == p.state {
		p.reason = reason
		return
	}
	allowed := false
	for _, s := range legal[p.state] {
		allowed = allowed || s == next
	}
	if !allowed {
		panic(fmt.Sprintf("%s: no transition from %s to %s", p.name(), p.state, next))
	}
	p.logger.Info("partition changes state", "from", p.state, "to", next, "reason", reason, "epoch", p.epoch())
	p.state, p.reason, p.since = next, reason, time.Now()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Partition) epoch() int32 {
	if p.row == nil {
		return -1
	}
	return p.row.Epoch
}

// serves reports whether reads are answered here. The caller holds mu.
func (p *Partition) serves() bool { return p.state == StateOpen || p.state == StateFrozen }

// Status describes the partition for people and for sweeps.
func (p *Partition) Status() control.PartitionStatus {
	suspended := p.broker.suspension(p.key)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status(suspended)
}

// StatusWithLags is Status with how far the groups are behind.
func (p *Partition) StatusWithLags(now time.Time) control.PartitionStatus {
	suspended := p.broker.suspension(p.key)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.status(suspended)
	s.GroupLags = p.groupLags(now)
	return s
}

// status runs under mu.
func (p *Partition) status(suspended *suspension) control.PartitionStatus {
	s := control.PartitionStatus{TopicID: p.topicID, Topic: p.topic, Partition: p.partition, State: string(p.state), Reason: p.reason, Since: p.since,
		Parked: len(p.park), LastFreeze: p.last, ProduceSum: p.producedBytes, ConsumedSum: p.consumedBytes}
	s.ReasonCode = p.reasonCode
	if suspended != nil {
		s.Suspended, s.SuspendedReason = suspended.code, suspended.reason
	}
	if p.row != nil {
		s.Epoch, s.Version, s.Owner, s.MoveID = p.row.Epoch, p.row.Version, p.row.Owner, p.row.Moving()
	}
	if p.log != nil {
		s.Start, s.End, s.DurableEnd, s.Bytes, s.Producers = p.log.Start(), p.log.End(), p.log.DurableEnd(), p.log.Size(), p.log.ProducerCount()
	}
	if p.serves() && p.log != nil {
		s.Epochs = epochStarts(p.log)
	}
	if p.offsets != nil {
		s.Groups = len(p.offsets.All())
	}
	if p.freeze != nil {
		s.FrozenFor = time.Since(p.freeze.at)
	}
	return s
}
