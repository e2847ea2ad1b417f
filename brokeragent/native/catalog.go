package native

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/google/uuid"

	"portage/brokeragent/native/wire"
	"portage/internal/durable"
	"portage/metastore"
)

// sidecarFile keeps the newest routing table, so that a restart while the metastore is away still sends clients to the
// right brokers. It opens nothing (R4).
const sidecarFile = "routing.json"

// aliveFor is how long a broker counts as alive after its counter was last seen to change, by this process's clock.
const aliveFor = 10 * time.Second

// beat is the last change of a broker's heartbeat counter as this process saw it: liveness never compares clocks.
type beat struct {
	counter int64
	seen    time.Time
}

// RowsChanged acts on a hint that rows changed: it reads them from the primary and wakes the partitions concerned.
func (b *Broker) RowsChanged(ctx context.Context, change metastore.Change) {
	if !change.All {
		row, err := b.readRow(ctx, key{change.TopicID, change.Partition})
		if err == nil && row != nil {
			return
		}
		if err != nil {
			return // the listener says All once the metastore answers again
		}
	}
	// Read and apply are one step: an older snapshot applied after a newer one would take new topics for deleted ones.
	b.snapshots.Lock()
	defer b.snapshots.Unlock()
	snapshot, err := b.cfg.Rows.ReadSnapshot(ctx)
	b.noteRead(err)
	if err != nil {
		if ctx.Err() == nil {
			b.logger.Warn("reading the rows failed", "error", err)
		}
		return
	}
	b.applySnapshot(snapshot)
}

// readRow reads one row from the primary and applies it.
func (b *Broker) readRow(ctx context.Context, k key) (*metastore.Assignment, error) {
	row, err := b.cfg.Rows.ReadAssignment(ctx, k.topicID, k.partition)
	b.noteRead(err)
	if err != nil {
		return nil, err
	}
	b.apply(k, row)
	return row, nil
}

// noteRead remembers whether the metastore answers.
func (b *Broker) noteRead(err error) {
	_, refused := metastore.RefusedWith(err)
	b.readFailing.Store(err != nil && !refused)
}

func (b *Broker) rowsReadable() bool { return !b.readFailing.Load() }

// row is the newest row of a partition; confirmed is false until this process has read the metastore.
func (b *Broker) row(k key) (row *metastore.Assignment, confirmed bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.rows[k], b.confirmed
}

// apply takes one row as read, when it is newer than the one held, and wakes the partition. A missing row is left to the
// next snapshot, which tells a deleted topic from a row not seen yet.
func (b *Broker) apply(k key, row *metastore.Assignment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if row == nil || !b.confirmed || !row.Newer(b.rows[k]) {
		return
	}
	if _, known := b.topics[row.TopicID]; !known {
		return
	}
	b.rows[k] = row
	b.reroute(row)
	b.touched(k, row)
	b.broadcast()
}

// touched wakes the partition of a changed row, if this broker has or gets a part in it. The caller holds b.mu.
func (b *Broker) touched(k key, row *metastore.Assignment) {
	p := b.partitions[k]
	if row.Owner == b.cfg.BrokerID {
		p = b.ensurePartition(k, row.Topic)
	}
	if p != nil {
		b.fenceBy(p, row)
		p.wake()
	}
}

func (b *Broker) broadcast() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *Broker) rowsChangedSignal() <-chan struct{} {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.changed
}

// applySnapshot takes one consistent read of the fleet. Rows only ever go forward; rows of topics that are gone go away.
func (b *Broker) applySnapshot(s *metastore.Snapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.brokers = make(map[string]metastore.Broker, len(s.Brokers))
	for _, broker := range s.Brokers {
		b.brokers[broker.ID] = broker
		if last, ok := b.beats[broker.ID]; !ok || last.counter != broker.Heartbeat {
			b.beats[broker.ID] = beat{counter: broker.Heartbeat, seen: now}
		}
	}
	b.topics = make(map[uuid.UUID]metastore.Topic, len(s.Topics))
	for _, t := range s.Topics {
		b.topics[t.ID] = t
	}
	first := !b.confirmed
	b.confirmed = true
	present := make(map[key]bool, len(s.Assignments))
	for i := range s.Assignments {
		row := &s.Assignments[i]
		k := key{row.TopicID, row.Partition}
		present[k] = true
		if row.Newer(b.rows[k]) {
			b.rows[k] = row
			b.touched(k, row)
		}
	}
	for k := range b.rows {
		if !present[k] {
			delete(b.rows, k)
		}
	}
	for k, p := range b.partitions {
		if first || !present[k] {
			p.wake()
		}
	}
	b.rebuildRouting(s.FleetID)
	b.broadcast()
	b.readyDo.Do(func() { close(b.ready) })
}

// rebuildRouting makes the routing table anew. The caller holds b.mu.
func (b *Broker) rebuildRouting(fleet uuid.UUID) {
	routing := &wire.Routing{ClusterID: fleet.String(), Topics: map[string]*wire.Topic{}, TopicIDs: map[uuid.UUID]*wire.Topic{}}
	for _, broker := range b.brokers {
		if !broker.Removed {
			routing.Nodes = append(routing.Nodes, wire.Node{ID: broker.NodeID, Host: broker.ClientHost, Port: broker.ClientPort, Rack: broker.Rack})
		}
	}
	sort.Slice(routing.Nodes, func(i, j int) bool { return routing.Nodes[i].ID < routing.Nodes[j].ID })
	for _, t := range b.topics {
		topic := &wire.Topic{ID: t.ID, Name: t.Name, Internal: t.Internal, Partitions: make([]wire.PartitionRoute, t.Partitions)}
		for i := range topic.Partitions {
			topic.Partitions[i] = b.route(key{t.ID, int32(i)})
		}
		routing.Topics[t.Name], routing.TopicIDs[t.ID] = topic, topic
	}
	b.routing.Store(routing)
	if err := durable.WriteJSON(filepath.Join(b.cfg.Root, sidecarFile), routing); err != nil {
		b.logger.Warn("the routing table could not be kept", "error", err)
	}
}

// reroute changes one partition's route, copying only what changes. The caller holds b.mu.
func (b *Broker) reroute(row *metastore.Assignment) {
	old := b.routing.Load()
	was := old.TopicIDs[row.TopicID]
	if was == nil || int(row.Partition) >= len(was.Partitions) {
		return
	}
	topic := *was
	topic.Partitions = append([]wire.PartitionRoute(nil), was.Partitions...)
	topic.Partitions[row.Partition] = b.route(key{row.TopicID, row.Partition})
	next := &wire.Routing{ClusterID: old.ClusterID, Nodes: old.Nodes, Topics: make(map[string]*wire.Topic, len(old.Topics)), TopicIDs: make(map[uuid.UUID]*wire.Topic, len(old.TopicIDs))}
	for name, t := range old.Topics {
		next.Topics[name] = t
	}
	for id, t := range old.TopicIDs {
		next.TopicIDs[id] = t
	}
	next.Topics[topic.Name], next.TopicIDs[topic.ID] = &topic, &topic
	b.routing.Store(next)
}

func (b *Broker) route(k key) wire.PartitionRoute {
	route := wire.PartitionRoute{Partition: k.partition, Leader: -1, LeaderEpoch: 0}
	if row := b.rows[k]; row != nil {
		route.LeaderEpoch = row.Epoch
		if owner, ok := b.brokers[row.Owner]; ok {
			route.Leader = owner.NodeID
		}
	}
	return route
}

// aliveBrokers lists the brokers whose heartbeat counter moved lately.
func (b *Broker) aliveBrokers() []string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var alive []string
	for id := range b.brokers {
		if id == b.cfg.BrokerID || time.Since(b.beats[id].seen) < aliveFor {
			alive = append(alive, id)
		}
	}
	sort.Strings(alive)
	return alive
}

func (b *Broker) loadSidecar() {
	var routing wire.Routing
	err := durable.ReadJSON(filepath.Join(b.cfg.Root, sidecarFile), &routing)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			b.logger.Warn("the kept routing table can not be read; waiting for the metastore", "error", err)
		}
		return
	}
	routing.TopicIDs = map[uuid.UUID]*wire.Topic{}
	for _, t := range routing.Topics {
		routing.TopicIDs[t.ID] = t
	}
	b.routing.Store(&routing)
	b.readyDo.Do(func() { close(b.ready) })
}
