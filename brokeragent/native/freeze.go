package native

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"portage/brokeragent/control"
	"portage/brokeragent/native/seglog"
	"portage/brokeragent/native/wire"
	"portage/internal/durable"
	"portage/internal/faults"
	"portage/metastore"
)

// freeze is the lease under which a source parks writes for one move at one row version.
//
// Invariant: while it stands, log.End() == end and nothing is appended or committed.
type freeze struct {
	moveID      string
	version     int64
	at          time.Time // monotonic
	expires     time.Time // renewed by progress only, never past at+MaxFreeze (R22)
	end         int64
	firstParked time.Time
	parked      int
	timer       *time.Timer
	expired     bool
}

// freezeFile remembers on disk that a freeze was given, for the operator who looks at a dead broker's folder. It decides
// nothing: every process starts closed and asks OpenOwner, whatever it says (R4).
const freezeFile = "freeze.json"

type freezeRecord struct {
	MoveID  string    `json:"moveId"`
	Version int64     `json:"version"`
	At      time.Time `json:"at"`
}

// Freeze parks writes of one partition for one move and answers the version and the end the commit must name.
//
// The source dies before it: no freeze, the worker asks again. After it: the next process opens by OpenOwner, which
// raises the version, so that the commit prepared with this answer is refused. The answer is lost: a repeat answers the
// same freeze. The worker dies after it: the lease ends, the source wins AbortMove and opens again.
func (b *Broker) Freeze(ctx context.Context, req control.FreezeRequest) (control.FreezeAnswer, error) {
	var none control.FreezeAnswer
	p := b.partition(key{req.TopicID, req.Partition})
	if p == nil {
		return none, control.Errorf(control.CodeNotOwner, "%s/%d is not on this broker", req.Topic, req.Partition)
	}
	faults.Point("freeze.before")
	row, err := b.readRow(ctx, p.key) // R14: one primary read decides whether this freeze is still wanted
	if err != nil {
		return none, control.Errorf(control.CodeMetastoreAway, "the metastore does not answer, so nothing is frozen: %v", err)
	}
	if err := b.Suspended(req.Subject); err != nil {
		return none, err
	}
	switch {
	case row == nil:
		return none, control.Errorf(control.CodeNotFound, "%s was deleted", p.name())
	case row.Owner != b.cfg.BrokerID:
		return none, control.Errorf(control.CodeNotOwner, "%s belongs to %s", p.name(), row.Owner)
	case faults.Enforced("R14") && (row.Moving() != req.MoveID || row.Version != req.Version):
		return none, control.Errorf(control.CodeRowMoved, "%s is no longer claimed by %s at version %d (now %q at %d)", p.name(), req.MoveID, req.Version, row.Moving(), row.Version)
	case faults.Enforced("R22") && req.ExpectedFreeze > b.cfg.Limits.MaxFreeze && !req.Force:
		return none, control.Errorf(control.CodeFreezeTooLong, "freezing %s would take about %s, more than the limit of %s; lower the write rate, raise the copy rate, or force the move",
			p.name(), req.ExpectedFreeze.Round(time.Second), b.cfg.Limits.MaxFreeze)
	}
	// Written before the lock is taken, so that its fsync is not part of the frozen time. If it fails, so does the freeze.
	if err := durable.WriteJSON(filepath.Join(p.dir(), freezeFile), freezeRecord{MoveID: req.MoveID, Version: row.Version, At: b.now()}); err != nil {
		return none, control.Errorf(control.CodeStorage, "the freeze of %s could not be recorded, so nothing is frozen: %v", p.name(), err)
	}
	if err := b.held.sync(); err != nil {
		return none, control.Errorf(control.CodeStorage, "the row of %s could not be kept, so nothing is frozen: %v", p.name(), err)
	}
	log, end, answer := p.beginFreeze(req.MoveID, row)
	if answer != nil {
		return none, answer
	}
	// The group commit in flight: at RF 1 the frozen end is the durable end and the high watermark (R25).
	if err := log.WaitDurable(ctx, end); err != nil {
		p.checkStorage()
		return none, control.Errorf(control.CodeStorage, "the last writes of %s could not be made durable: %v", p.name(), err)
	}
	p.wake() // the row may have changed between the read and the freeze
	faults.Point("freeze.after")
	return control.FreezeAnswer{Version: row.Version, FrozenEnd: end, Process: b.cfg.Process}, nil
}

func (p *Partition) beginFreeze(moveID string, row *metastore.Assignment) (*seglog.Log, int64, *control.Error) {
	limits := p.broker.cfg.Limits
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == StateFrozen && p.freeze.moveID == moveID && p.freeze.version == row.Version && !p.freeze.expired {
		return p.log, p.freeze.end, nil // asked again after a lost answer
	}
	if p.state != StateOpen || p.serving != row.Epoch {
		return nil, 0, control.Errorf(control.CodeNotOpen, "%s is %s, not open", p.name(), p.state)
	}
	if !p.broker.takeFreezeSlot(limits.MaxFrozen) {
		return nil, 0, control.Errorf(control.CodeBusy, "%d partitions are frozen on this broker already", limits.MaxFrozen)
	}
	now := time.Now()
	f := &freeze{moveID: moveID, version: row.Version, at: now, expires: now.Add(limits.FreezeLease), end: p.log.End()}
	f.timer = time.AfterFunc(limits.FreezeLease, func() { p.freezeExpired(f) })
	p.freeze = f
	p.setState(StateFrozen, "move "+moveID)
	return p.log, f.end, nil
}

// FreezeProgress renews the lease of a freeze because its drain moved on (R22: only progress renews, and never past
// MaxFreeze in all).
func (p *Partition) FreezeProgress(moveID string) {
	limits := p.broker.cfg.Limits
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != StateFrozen || p.freeze.moveID != moveID || p.freeze.expired {
		return
	}
	until := time.Now().Add(limits.FreezeLease)
	if last := p.freeze.at.Add(limits.MaxFreeze); until.After(last) && faults.Enforced("R22") {
		until = last
	}
	p.freeze.expires = until
}

// freezeExpired runs when a lease may have ended. Reopening is the reconciler's work: it must win AbortMove first.
func (p *Partition) freezeExpired(f *freeze) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.freeze != f {
		return
	}
	if left := time.Until(f.expires); left > 0 {
		f.timer.Reset(left)
		return
	}
	f.expired = true
	p.logger.Warn("the freeze's lease ended; taking the move back", "move", f.moveID, "after", time.Since(f.at))
	if m := p.broker.cfg.Metrics; m != nil {
		m.FreezesExpired.Inc()
	}
	p.wake()
}

// endFreeze forgets the freeze and, when the partition takes writes again at reopenedAt (here or at the new owner),
// reports how long it was frozen. The caller holds mu and changes the state.
func (p *Partition) endFreeze(reopened bool) {
	f := p.freeze
	if f == nil {
		return
	}
	f.timer.Stop()
	p.freeze = nil
	p.broker.returnFreezeSlot()
	_ = os.Remove(filepath.Join(p.dir(), freezeFile)) // informative only
	report := &control.FreezeReport{MoveID: f.moveID, At: f.at.Round(0), Parked: f.parked, Total: time.Since(f.at)}
	if !f.firstParked.IsZero() {
		report.Frozen = time.Since(f.firstParked)
	}
	p.last = report
	if !reopened {
		return // the new owner's opening completes the report
	}
	p.observeFrozen(report)
}

// movedOpen completes the report of a freeze once the row shows the new owner open. The report given out before is a
// reader's, who holds no lock: it is replaced, never changed. The caller holds mu.
func (p *Partition) movedOpen(since time.Time) {
	if p.last == nil || since.IsZero() {
		return
	}
	waited := time.Since(since)
	completed := *p.last
	completed.Total += waited
	if completed.Frozen > 0 {
		completed.Frozen += waited
	}
	p.last = &completed
	p.observeFrozen(p.last)
}

func (p *Partition) observeFrozen(r *control.FreezeReport) {
	if m := p.broker.cfg.Metrics; m != nil && r.Frozen > 0 {
		m.FrozenSeconds.Observe(r.Frozen.Seconds())
	}
}

// redirectPark answers everything parked with the new owner, in order: nothing of it was appended here.
func (p *Partition) redirectPark() {
	_, hint := p.broker.elsewhere(p.ref())
	p.refusePark(kerr.NotLeaderForPartition.Code, hint)
}

func (p *Partition) ref() wire.PartitionRef {
	return wire.PartitionRef{Topic: p.topic, TopicID: p.topicID, Partition: p.partition}
}
