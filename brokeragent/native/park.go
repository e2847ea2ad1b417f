package native

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"portage/brokeragent/native/seglog"
	"portage/brokeragent/native/wire"
	"portage/internal/faults"
)

// oldFreeze is the age from which a refusal must make every client look for the leader again: the Java client does not
// refresh its metadata on REQUEST_TIMED_OUT (R27 ii).
const oldFreeze = 3 * time.Second

// parkBatch keeps a batch until the partition opens, moves, or the bound passes. Nothing of it is appended. The park is
// FIFO; a batch that does not fit is refused together with what comes behind it from its connection. The caller holds mu.
func (p *Partition) parkBatch(w *produce) {
	now := time.Now()
	if p.parked+int64(len(w.req.Records)) > p.broker.cfg.Limits.ParkBytes {
		p.refuseConnection(w.req.Conn, now)
		w.refuse(p.parkRefusal(now), nil)
		return
	}
	w.parkedAt = now
	p.park = append(p.park, w)
	p.parked += int64(len(w.req.Records))
	if m := p.broker.cfg.Metrics; m != nil {
		m.Parked.Inc()
	}
	if p.freeze != nil {
		p.freeze.parked++
		if p.freeze.firstParked.IsZero() {
			p.freeze.firstParked = now
		}
	}
	w.timer = time.AfterFunc(p.broker.cfg.Limits.ParkFor, func() { p.parkExpired(w) })
}

// parkExpired refuses a batch whose bound passed, and all of its connection's behind it.
func (p *Partition) parkExpired(w *produce) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range p.park {
		if other == w {
			if w.ahead {
				p.aheadExpired(w)
				return
			}
			if m := p.broker.cfg.Metrics; m != nil {
				m.ParkRefused.Inc()
			}
			now := time.Now()
			p.refuseConnection(w.req.Conn, now)
			return
		}
	}
}

// refuseConnection refuses everything one connection has parked (R27 i) and remembers when, for what it had already sent.
func (p *Partition) refuseConnection(conn wire.ConnID, now time.Time) {
	code := p.parkRefusal(now)
	if faults.Enforced("R27") {
		p.refused[conn] = now
	}
	kept := p.park[:0]
	for _, w := range p.park {
		if w.req.Conn != conn || (!faults.Enforced("R27") && now.Sub(w.parkedAt) < p.broker.cfg.Limits.ParkFor) {
			kept = append(kept, w)
			continue
		}
		p.unpark(w)
		w.refuse(code, nil)
	}
	p.setPark(kept)
}

// parkRefusal is the answer for a batch that was not appended: retried at once with the same sequence and without a
// metadata round in the first park of a freeze; later, or when the row can not be read, one that makes clients look for
// the leader (R27 ii). Codes 5, 19, 74, 75 and 46 are never sent: some clients lose records on them.
func (p *Partition) parkRefusal(now time.Time) int16 {
	if !faults.Enforced("R27") {
		return kerr.RequestTimedOut.Code
	}
	since := p.openingSince()
	if (!since.IsZero() && now.Sub(since) > oldFreeze) || !p.broker.rowsReadable() {
		return kerr.NotLeaderForPartition.Code
	}
	return kerr.RequestTimedOut.Code
}

func (p *Partition) openingSince() time.Time {
	if p.freeze != nil {
		return p.freeze.at
	}
	return time.Time{}
}

func (p *Partition) unpark(w *produce) {
	if w.timer != nil {
		w.timer.Stop()
	}
	p.parked -= int64(len(w.req.Records))
}

// setPark replaces the park after filtering in place, so that no refused batch stays referenced.
func (p *Partition) setPark(kept []*produce) {
	for i := len(kept); i < len(p.park); i++ {
		p.park[i] = nil
	}
	p.park = kept
}

// takePark empties the park in order. The caller holds mu and decides each batch.
func (p *Partition) takePark() []*produce {
	taken := append([]*produce(nil), p.park...)
	for _, w := range taken {
		p.unpark(w)
	}
	p.park = nil
	return taken
}

// refusePark answers everything parked with one code, in order.
func (p *Partition) refusePark(code int16, hint *wire.LeaderHint) {
	for _, w := range p.takePark() {
		w.refuse(code, hint)
	}
}

// appendPark appends everything parked, in order: after a thaw, or at the new owner once it opened.
func (p *Partition) appendPark() {
	for _, w := range p.takePark() {
		w.ahead = false
		p.admit(w)
	}
}

// holdsAhead reports whether the partition opened so recently that a batch ahead of the known sequence may only have
// overtaken its predecessor, which is still on its way from the old owner (R27 iii).
func (p *Partition) holdsAhead() bool {
	return faults.Enforced("R27") && time.Since(p.openedAt) < p.broker.cfg.Limits.HoldAheadFor
}

func (p *Partition) holdAhead(w *produce) {
	w.ahead = true
	w.parkedAt = time.Now()
	p.park = append(p.park, w)
	p.parked += int64(len(w.req.Records))
	w.timer = time.AfterFunc(p.broker.cfg.Limits.HoldAheadFor-time.Since(p.openedAt), func() { p.parkExpired(w) })
}

// releaseAhead appends the next held batch of one producer, now that its predecessor is in the log; that one releases
// the next in turn.
func (p *Partition) releaseAhead(producer int64) {
	for i, w := range p.park {
		if !w.ahead || w.header.ProducerID != producer {
			continue
		}
		if verdict := p.log.CheckProducer(w.header); verdict.Kind == seglog.OutOfOrder || verdict.UnknownProducer {
			continue
		}
		p.unpark(w)
		p.park = append(p.park[:i:i], p.park[i+1:]...)
		w.ahead = false
		p.append(w)
		return
	}
}

// aheadExpired treats a held batch as any broker would: its predecessor did not come.
func (p *Partition) aheadExpired(w *produce) {
	kept := p.park[:0]
	for _, other := range p.park {
		if other != w {
			kept = append(kept, other)
		}
	}
	p.unpark(w)
	p.setPark(kept)
	w.ahead = false
	p.logger.Warn("a batch was held for its predecessor, which did not come", "producer", w.header.ProducerID, "sequence", w.header.BaseSequence,
		"expected", p.log.CheckProducer(w.header).ExpectedSequence, "held", time.Since(w.parkedAt))
	p.admit(w)
}
