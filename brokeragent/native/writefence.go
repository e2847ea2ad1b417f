package native

import (
	"sync/atomic"
	"time"

	"portage/internal/faults"
	"portage/metastore"
)

// writeFence stops an owner from acknowledging writes when another broker may be promoted over it (R2). It stands while the
// partition's row carries a claim that was marked for it.
//
// Invariant: readAt is when a heartbeat began that was acknowledged before the owner's right was read. A promotion names that
// heartbeat's counter after it was seen unchanged for at least twice the fence, so by then this process has stopped. That is
// the one place where the rates of two clocks are compared: they may differ by a factor of two.
type writeFence struct {
	moveID string
	readAt atomic.Int64 // a Boottime; 0: never, so the fence is closed
}

// Fences reports whether a partition here has a fence up, so that heartbeats need to ask for its right.
func (b *Broker) Fences() bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, p := range b.partitions {
		if p.fence.Load() != nil {
			return true
		}
	}
	return false
}

// RenewFences lets the partitions whose right was read after a heartbeat go on acknowledging writes. began is when that
// heartbeat began.
func (b *Broker) RenewFences(began Boottime, confirmed []metastore.Fenced) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, c := range confirmed {
		if p := b.partitions[key{c.TopicID, c.Partition}]; p != nil {
			if f := p.fence.Load(); f != nil && f.moveID == c.MoveID {
				f.readAt.Store(int64(began))
			}
		}
	}
}

// fenceBy puts the row's fence up or takes it down. A fence that goes up counts from the last heartbeat before it: later ones
// count only if they read the row themselves. A process that has had none starts closed. The caller holds b.mu.
func (b *Broker) fenceBy(p *Partition, row *metastore.Assignment) {
	move := ""
	if row.Owner == b.cfg.BrokerID {
		move = row.FencedFor()
	}
	switch f := p.fence.Load(); {
	case move == "":
		p.fence.Store(nil)
	case f == nil || f.moveID != move:
		f = &writeFence{moveID: move}
		if began, _, ok := b.lastPrimaryRead(); ok {
			f.readAt.Store(int64(began))
		}
		p.fence.Store(f)
	}
}

// fenced reports whether nothing may be acknowledged here (any more): asked before each acknowledgement, not only before
// each append.
func (p *Partition) fenced() bool {
	f := p.fence.Load()
	if f == nil || !faults.Enforced("R2") {
		return false
	}
	readAt := f.readAt.Load()
	now := BoottimeNow()
	return readAt == 0 || now == 0 || time.Duration(now-Boottime(readAt)) > p.broker.cfg.Limits.PromoteFence
}

func (p *Partition) fencedFor(moveID string) bool {
	f := p.fence.Load()
	return f != nil && f.moveID == moveID
}

// PromoteFence is how long an owner goes on acknowledging writes without a successful primary read (R2).
func (b *Broker) PromoteFence() time.Duration { return b.cfg.Limits.PromoteFence }
