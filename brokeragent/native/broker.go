package native

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"

	"portage/brokeragent/native/seglog"
	"portage/brokeragent/native/wire"
	"portage/metastore"
)

// Broker serves the partitions that the rows give to this broker id. It implements wire.Broker.
type Broker struct {
	cfg    Config
	logger *slog.Logger
	now    func() time.Time // wall clock: records and retention only
	trash  *Trash

	judgeKick chan struct{} // wakes the judge of former copies; capacity 1

	routing atomic.Pointer[wire.Routing]
	ready   chan struct{}
	readyDo sync.Once

	snapshots sync.Mutex // one snapshot is read and applied at a time; taken before mu

	mu         sync.RWMutex // guards the maps; taken before a partition's own lock, never inside it
	partitions map[key]*Partition
	rows       map[key]*metastore.Assignment // the newest of each; never an older one again
	held       *heldRows                     // the same, on disk
	suspended  map[key]*suspension
	topics     map[uuid.UUID]metastore.Topic
	brokers    map[string]metastore.Broker
	beats      map[string]beat
	confirmed  bool // a snapshot was read by this process
	changed    chan struct{}

	reportsMu sync.Mutex             // guards: reports
	reports   map[key]metastore.Load // what earlier processes of this broker reported; nil until read

	readFailing atomic.Bool
	primaryRead atomic.Pointer[primaryRead]
	frozen      atomic.Int32

	ctx  context.Context
	work sync.WaitGroup
}

var _ wire.Broker = (*Broker)(nil)

// NewBroker prepares the folders below the data root.
func NewBroker(cfg Config) (*Broker, error) {
	cfg.Limits = cfg.Limits.withDefaults()
	b := &Broker{cfg: cfg, logger: cfg.Logger.With("broker", cfg.BrokerID), now: time.Now, ready: make(chan struct{}),
		partitions: map[key]*Partition{}, rows: map[key]*metastore.Assignment{}, suspended: map[key]*suspension{}, topics: map[uuid.UUID]metastore.Topic{},
		brokers: map[string]metastore.Broker{}, beats: map[string]beat{}, changed: make(chan struct{})}
	for _, dir := range []string{"partitions", "trash", "quarantine"} {
		if err := os.MkdirAll(filepath.Join(cfg.Root, dir), 0o755); err != nil {
			return nil, err
		}
	}
	b.trash = &Trash{root: filepath.Join(cfg.Root, "trash"), quarantine: filepath.Join(cfg.Root, "quarantine"), broker: b}
	b.judgeKick = make(chan struct{}, 1)
	b.routing.Store(&wire.Routing{Topics: map[string]*wire.Topic{}, TopicIDs: map[uuid.UUID]*wire.Topic{}})
	b.loadSidecar()
	var err error
	if b.held, err = openHeld(cfg.Root, b.logger); err != nil {
		return nil, err
	}
	rows, _ := b.held.all()
	for _, row := range rows {
		b.rows[key{row.TopicID, row.Partition}] = row
	}
	return b, nil
}

// Start begins to reconcile; it returns at once. Wait waits for the end of everything ctx ended.
func (b *Broker) Start(ctx context.Context) error {
	b.ctx = ctx
	local, err := b.localPartitions()
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, topic := range local {
		b.ensurePartition(k, topic)
	}
	b.work.Go(func() { b.housekeeping(ctx) })
	b.work.Go(func() { b.judging(ctx) })
	return nil
}

// Wait returns once all reconcilers ended, and closes the logs cleanly.
func (b *Broker) Wait() {
	b.work.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.partitions {
		p.mu.Lock()
		if p.log != nil {
			if err := p.log.Close(); err != nil {
				p.logger.Warn("closing the log", "error", err)
			}
		}
		if p.offsets != nil {
			_ = p.offsets.Close()
		}
		p.mu.Unlock()
	}
	_ = b.held.close()
}

// Trash is the folder of former copies.
func (b *Broker) Trash() *Trash { return b.trash }

// NodeID implements wire.Broker.
func (b *Broker) NodeID() int32 { return b.cfg.NodeID }

// Routing implements wire.Broker.
func (b *Broker) Routing() *wire.Routing { return b.routing.Load() }

// Ready implements wire.Broker.
func (b *Broker) Ready() <-chan struct{} { return b.ready }

// Settled reports whether everything the rows give to this broker is open or known not to be; if not, what it waits for.
func (b *Broker) Settled() (bool, string) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.confirmed {
		return false, "the metastore was not read yet"
	}
	for k, row := range b.rows {
		if row.Owner != b.cfg.BrokerID {
			continue
		}
		p := b.partitions[k]
		if p == nil {
			return false, row.Name() + " was not looked at yet"
		}
		p.mu.Lock()
		state := p.state
		p.mu.Unlock()
		if state == StateOpening || state == StateElsewhere {
			return false, row.Name() + " is opening"
		}
	}
	return true, ""
}

// Partitions lists what this broker holds or owns.
func (b *Broker) Partitions() []*Partition {
	b.mu.RLock()
	defer b.mu.RUnlock()
	all := make([]*Partition, 0, len(b.partitions))
	for _, p := range b.partitions {
		all = append(all, p)
	}
	return all
}

func (b *Broker) partitionDir(k key) string {
	return filepath.Join(b.cfg.Root, "partitions", k.topicID.String(), strconv.Itoa(int(k.partition)))
}

// localPartitions finds the partitions whose folders exist, with their topics' names, whatever the rows will say of them. A
// folder that holds no log goes by its topic id.
func (b *Broker) localPartitions() (map[key]string, error) {
	found := map[key]string{}
	topics, err := os.ReadDir(filepath.Join(b.cfg.Root, "partitions"))
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		id, err := uuid.Parse(t.Name())
		if err != nil {
			continue
		}
		numbers, err := os.ReadDir(filepath.Join(b.cfg.Root, "partitions", t.Name()))
		if err != nil {
			return nil, err
		}
		for _, n := range numbers {
			if number, err := strconv.ParseInt(n.Name(), 10, 32); err == nil {
				topic := t.Name()
				if log, err := seglog.ReadIdentity(filepath.Join(b.cfg.Root, "partitions", t.Name(), n.Name())); err == nil {
					topic = log.Topic
				}
				found[key{id, int32(number)}] = topic
			}
		}
	}
	return found, nil
}

// ensurePartition returns the partition, starting its reconciler when it is new. The caller holds b.mu.
func (b *Broker) ensurePartition(k key, topic string) *Partition {
	p := b.partitions[k]
	if p == nil {
		p = newPartition(b, k, topic)
		b.partitions[k] = p
		b.work.Go(func() { p.run(b.ctx) })
	}
	return p
}

// forget drops a partition of a deleted topic.
func (b *Broker) forget(p *Partition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.partitions, p.key)
	delete(b.suspended, p.key)
	_ = os.Remove(filepath.Dir(p.dir())) // the topic's folder, once it is empty
}

// forgotten reports whether the partition was dropped: its topic is gone and its data put away.
func (p *Partition) forgotten() bool { return p.broker.partition(p.key) != p }

func (b *Broker) partition(k key) *Partition {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.partitions[k]
}

// lookup finds the partition a client names, nil when this broker has no part in it.
func (b *Broker) lookup(ref wire.PartitionRef) *Partition {
	id := ref.TopicID
	if id == uuid.Nil {
		topic := b.Routing().Topics[ref.Topic]
		if topic == nil {
			return nil
		}
		id = topic.ID
	}
	return b.partition(key{id, ref.Partition})
}

// elsewhere is the answer for a partition that is not served here: where it is, with the newer epoch, when that is known.
func (b *Broker) elsewhere(ref wire.PartitionRef) (int16, *wire.LeaderHint) {
	routing := b.Routing()
	topic := routing.TopicIDs[ref.TopicID]
	if topic == nil {
		topic = routing.Topics[ref.Topic]
	}
	if topic == nil || int(ref.Partition) >= len(topic.Partitions) || ref.Partition < 0 {
		return kerr.UnknownTopicOrPartition.Code, nil
	}
	route := topic.Partitions[ref.Partition]
	if route.Leader == b.cfg.NodeID {
		return kerr.NotLeaderForPartition.Code, nil // this broker is to own it and does not serve it (yet)
	}
	for _, n := range routing.Nodes {
		if n.ID == route.Leader {
			return kerr.NotLeaderForPartition.Code, &wire.LeaderHint{Node: n, Epoch: route.LeaderEpoch}
		}
	}
	return kerr.NotLeaderForPartition.Code, nil
}

func (b *Broker) peer(id string) (metastore.Broker, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	peer, ok := b.brokers[id]
	return peer, ok
}

// lookAgain reads a partition's row in the background, one read at a time.
func (b *Broker) lookAgain(p *Partition) {
	if !p.looking.CompareAndSwap(false, true) {
		return
	}
	b.work.Go(func() {
		defer p.looking.Store(false)
		if _, err := b.readRow(b.ctx, p.key); err == nil {
			p.wake()
		}
	})
}

func (b *Broker) takeFreezeSlot(limit int) bool {
	if b.frozen.Add(1) > int32(limit) {
		b.frozen.Add(-1)
		return false
	}
	return true
}

func (b *Broker) returnFreezeSlot() { b.frozen.Add(-1) }

// housekeeping applies retention and sweeps expired former copies.
func (b *Broker) housekeeping(ctx context.Context) {
	ticker := time.NewTicker(b.cfg.Limits.Housekeeping)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, p := range b.Partitions() {
			p.retain(b.topicConfig(p.topicID))
		}
		if _, err := b.trash.Sweep(ctx, b.cfg.Limits.TrashRetention); err != nil && ctx.Err() == nil {
			b.logger.Warn("sweeping former copies", "error", err)
		}
	}
}

func (b *Broker) topicConfig(id uuid.UUID) map[string]string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.topics[id].Config
}

// Lookup finds one partition by id; an error when this broker knows nothing of it.
func (b *Broker) Lookup(topicID uuid.UUID, partition int32) (*Partition, error) {
	if p := b.partition(key{topicID, partition}); p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("partition %s/%d is not on broker %s", topicID, partition, b.cfg.BrokerID)
}
