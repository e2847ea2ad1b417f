package native

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"github.com/google/uuid"

	"portage/brokeragent/native/wire"
	"portage/internal/durable"
	"portage/internal/faults"
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
	before := b.heldNow()
	snapshot, err := b.cfg.Rows.ReadSnapshot(ctx)
	b.noteRead(err)
	var deleted map[uuid.UUID]bool
	if err == nil {
		deleted, err = b.deletedSince(ctx, before, snapshot)
	}
	if err != nil {
		if ctx.Err() == nil {
			b.logger.Warn("reading the rows failed", "error", err)
		}
		return
	}
	b.applySnapshot(snapshot, before, deleted)
}

// heldNow is the newest row of every partition, as of before a read.
func (b *Broker) heldNow() map[key]*metastore.Assignment {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return maps.Clone(b.rows)
}

// deletedSince finds which topics that were held are missing from a snapshot because they were deleted.
func (b *Broker) deletedSince(ctx context.Context, before map[key]*metastore.Assignment, s *metastore.Snapshot) (map[uuid.UUID]bool, error) {
	missing, deleted := map[uuid.UUID]bool{}, map[uuid.UUID]bool{}
	for k := range before {
		missing[k.topicID] = true
	}
	for _, t := range s.Topics {
		delete(missing, t.ID)
	}
	if len(missing) == 0 {
		return deleted, nil
	}
	if !faults.Enforced("R1") {
		return missing, nil // absence for proof
	}
	gone, err := b.cfg.Rows.DeletedTopics(ctx, slices.Collect(maps.Keys(missing)))
	b.noteRead(err)
	for _, t := range gone {
		deleted[t.ID] = true
	}
	return deleted, err
}

// readRow reads one row from the primary and applies it.
func (b *Broker) readRow(ctx context.Context, k key) (*metastore.Assignment, error) {
	before, _ := b.row(k)
	row, err := b.cfg.Rows.ReadAssignment(ctx, k.topicID, k.partition)
	b.noteRead(err)
	if err != nil {
		return nil, err
	}
	b.apply(k, row)
	if row != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.judge(k, row, before)
	}
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
	b.held.keepRow(row)
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

// applySnapshot takes one consistent read of the fleet. Rows only ever go forward; rows of topics whose deletion is proved
// go away, and those of topics that are merely absent stay (R1).
func (b *Broker) applySnapshot(s *metastore.Snapshot, before map[key]*metastore.Assignment, deleted map[uuid.UUID]bool) {
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
		b.held.keepTopic(t)
	}
	first := !b.confirmed
	b.confirmed = true
	present := make(map[key]bool, len(s.Assignments))
	for i := range s.Assignments {
		row := &s.Assignments[i]
		k := key{row.TopicID, row.Partition}
		present[k] = true
		newer := row.Newer(b.rows[k])
		if newer {
			b.rows[k] = row
			b.held.keepRow(row)
		}
		if newer || first {
			b.touched(k, b.rows[k])
		}
		b.judge(k, row, before[k])
	}
	for k := range b.rows {
		switch {
		case present[k]:
		case deleted[k.topicID]:
			delete(b.rows, k)
			b.held.forget(k.topicID)
		case before[k] != nil: // else it came after the snapshot was read
			if t, ok := b.held.topic(k.topicID); ok {
				b.topics[k.topicID] = t // its clients are served on
			}
			b.unknown(k)
			if first {
				b.touched(k, b.rows[k])
			}
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
		routing.TopicIDs[t.ID] = topic
		// Of two topics by one name the metastore has one, and the other is only held here: the name is the metastore's.
		if _, missing := b.suspended[key{t.ID, 0}]; routing.Topics[t.Name] == nil || !missing {
			routing.Topics[t.Name] = topic
		}
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
