package native

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"portage/brokeragent/control"
	"portage/internal/faults"
	"portage/metastore"
)

// suspension is why no guarded write, freeze or sweep of a partition is done: its row in the metastore may be older than
// what was acknowledged (R1). What is open serves on; `portage reconcile` ends it. Readers hold no lock: one in the broker's
// map is replaced, never changed.
type suspension struct {
	code   string // metastore.CodeMetastoreOlder or CodeMetastoreRestored
	reason string
	marked bool // the metastore was told, so that it refuses everyone's writes
}

// suspension is the partition's, nil when there is none.
func (b *Broker) suspension(k key) *suspension {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.suspended[k]
}

// Suspended refuses what must wait until the partition is reconciled; nil when nothing must.
func (b *Broker) Suspended(s control.Subject) error {
	if held := b.suspension(key{s.TopicID, s.Partition}); held != nil {
		return control.Errorf(held.code, "%s", held.reason)
	}
	return nil
}

// judge compares a row as read with the newest one that was held before the read began: a primary that has not lost
// anything can not answer with an older one. A row read before another was applied may be older than that one and means
// nothing. The caller holds b.mu and has applied the row.
func (b *Broker) judge(k key, row, before *metastore.Assignment) {
	if !faults.Enforced("R1") {
		return
	}
	switch {
	case row.Older(metastore.HeldOf(before)) || row.Contradicts(before):
		how := "is older than the one held here"
		if row.Contradicts(before) {
			how = "was written by another history than the one held here"
		}
		b.suspend(k, metastore.CodeMetastoreOlder, fmt.Sprintf("the metastore's row of %s (epoch %d, version %d) %s (epoch %d, version %d, owner %s); look at what `portage reconcile` would do, then let it",
			row.Name(), row.Epoch, row.Version, how, before.Epoch, before.Version, before.Owner))
		if s := *b.suspended[k]; !s.marked && !row.Restored {
			s.marked = true
			b.suspended[k] = &s
			b.contradict(k, metastore.HeldOf(before))
		}
	case row.Restored:
		b.suspend(k, metastore.CodeMetastoreRestored, fmt.Sprintf("the metastore was restored, or failed over, since the row of %s was written; look at what `portage reconcile` would do, then let it", row.Name()))
	case b.suspended[k] != nil && !row.Older(metastore.HeldOf(b.rows[k])):
		b.lift(k)
	}
}

// suspend holds back the partition's guarded writes, saying so once. The caller holds b.mu.
func (b *Broker) suspend(k key, code, reason string) {
	if known := b.suspended[k]; known != nil && known.code == code {
		b.suspended[k] = &suspension{code: code, reason: reason, marked: known.marked}
		return
	}
	b.logger.Error("the partition's changes are suspended", "partition", fmt.Sprintf("%s/%d", b.topicName(k.topicID), k.partition), "code", code, "reason", reason)
	b.suspended[k] = &suspension{code: code, reason: reason}
	if p := b.partitions[k]; p != nil {
		p.wake()
	}
}

// suspendRefused suspends a partition whose guarded write was refused for its lineage. It reports whether it was.
func (b *Broker) suspendRefused(k key, err error) bool {
	refused, ok := metastore.RefusedWith(err, metastore.CodeMetastoreRestored, metastore.CodeMetastoreOlder)
	if ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.suspend(k, refused.Code, refused.Reason)
	}
	return ok
}

// lift ends a suspension: the row is of this lineage and not older than the one held. The caller holds b.mu.
func (b *Broker) lift(k key) {
	b.logger.Info("the partition's changes go on", "partition", fmt.Sprintf("%s/%d", b.topicName(k.topicID), k.partition))
	delete(b.suspended, k)
	if p := b.partitions[k]; p != nil {
		p.wake()
	}
}

// unknown suspends a partition that the metastore does not know, though nothing proves that its topic was deleted. The
// caller holds b.mu.
func (b *Broker) unknown(k key) {
	b.suspend(k, metastore.CodeMetastoreOlder, fmt.Sprintf("the metastore does not know %s/%d (topic id %s), and nothing says that it was deleted: it is older than this agent, or another one; look at what `portage reconcile` would do, then let it",
		b.topicName(k.topicID), k.partition, k.topicID))
}

// topicName is the topic's name, or its id. The caller holds b.mu.
func (b *Broker) topicName(id uuid.UUID) string {
	if t, ok := b.topics[id]; ok {
		return t.Name
	}
	return id.String()
}

// contradict marks the row in the metastore, so that it refuses everyone's writes, also those of workers, which hold no
// rows. A mark that fails is tried again at the next read. The caller holds b.mu.
func (b *Broker) contradict(k key, held metastore.Held) {
	b.work.Go(func() {
		if err := b.cfg.Rows.Contradict(b.ctx, k.topicID, k.partition, b.cfg.BrokerID, held); err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			if s := b.suspended[k]; s != nil {
				b.suspended[k] = &suspension{code: s.code, reason: s.reason}
			}
		}
	})
}

// deleted reports whether the topic's deletion is proved.
func (b *Broker) deleted(ctx context.Context, topicID uuid.UUID) (bool, error) {
	if !faults.Enforced("R1") {
		return true, nil // absence for proof
	}
	gone, err := b.cfg.Rows.DeletedTopics(ctx, []uuid.UUID{topicID})
	b.noteRead(err)
	return len(gone) > 0, err
}

// stayBack keeps a partition closed that the row gives to this broker while it is suspended. Lifting wakes it.
func (p *Partition) stayBack(s *suspension) {
	p.mu.Lock()
	same := p.state == StateClosed && p.reason == s.reason
	p.mu.Unlock()
	if !same {
		p.close(s.code, s.reason)
	}
}

// HeldRow is one row this agent holds, with what it does with the partition.
type HeldRow struct {
	Row       *metastore.Assignment
	Serving   bool
	Suspended string
}

// HeldRows are the rows and topics this agent holds durably.
func (b *Broker) HeldRows() ([]HeldRow, map[uuid.UUID]metastore.Topic) {
	rows, topics := b.held.all()
	all := make([]HeldRow, 0, len(rows))
	for _, row := range rows {
		k := key{row.TopicID, row.Partition}
		h := HeldRow{Row: row}
		if s := b.suspension(k); s != nil {
			h.Suspended = s.code
		}
		if p := b.partition(k); p != nil {
			p.mu.Lock()
			h.Serving = p.serves() && p.serving == row.Epoch
			p.mu.Unlock()
		}
		all = append(all, h)
	}
	return all, topics
}
