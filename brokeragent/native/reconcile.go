package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"portage/brokeragent/control"
	"portage/brokeragent/native/offsets"
	"portage/brokeragent/native/seglog"
	"portage/internal/durable"
	"portage/internal/faults"
	"portage/metastore"
)

// retryAfter is the pause between attempts while the metastore does not answer. A frozen partition waits for it, so it
// is short.
const retryAfter = 200 * time.Millisecond

// Installed marks a directory that holds the verified copy of a move and has not opened yet.
type Installed struct {
	MoveID  string `json:"moveId"`
	Version int64  `json:"version"` // the row version it was installed for
	End     int64  `json:"end"`
	From    string `json:"from"`
	// Adopted is the former copy that the move had taken over, for the case that the move is aborted.
	Adopted *Retained `json:"adopted,omitempty"`
	// Promotion is set when the source was gone and the copy was not frozen for (R2): only ForcePromote may commit it.
	Promotion *control.CopyEvidence `json:"promotion,omitempty"`
}

const installFile = "install.json"

// run is the partition's reconciler: it acts on the row until ctx ends.
func (p *Partition) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.kick:
		}
		for again := true; again; {
			if again = p.reconcile(ctx); again {
				select {
				case <-ctx.Done():
					return
				case <-p.kick:
				case <-time.After(retryAfter):
				}
			}
		}
		if p.forgotten() {
			return
		}
	}
}

// reconcile makes one step from what is to what the row says. It is level-triggered: it acts on the newest row, whoever
// told of it, and asks for another round when an outcome was unknown.
func (p *Partition) reconcile(ctx context.Context) (again bool) {
	row, confirmed := p.broker.row(p.key)
	if !confirmed {
		return false // nothing was read by this process yet: nothing opens, nothing is moved away
	}
	p.mu.Lock()
	if row != nil && row.Newer(p.row) {
		p.row = row
	}
	state, f := p.state, p.freeze
	p.mu.Unlock()
	suspended := p.broker.suspension(p.key)
	switch {
	case row == nil:
		// Absence is proved by a read of its own before anything is put away: a topic is gone, or this was not its newest row.
		if present, err := p.broker.readRow(ctx, p.key); err != nil || present != nil {
			return true
		}
		gone, err := p.broker.deleted(ctx, p.topicID)
		if err != nil {
			return true
		}
		if !gone {
			p.broker.mu.Lock()
			p.broker.unknown(p.key)
			suspended = p.broker.suspended[p.key] // as of now: once the lock is let go, it may be lifted, which wakes this
			p.broker.mu.Unlock()
			p.stayBack(suspended)
			return false
		}
		return p.leave(nil)
	case row.Owner != p.broker.cfg.BrokerID:
		return p.leave(row)
	case state == StateFrozen && suspended != nil:
		return false // neither AbortMove nor OpenOwner before it is reconciled; lifting wakes this
	case state == StateFrozen:
		return p.settleFreeze(ctx, row, f)
	case state == StateOpen:
		return p.stayOpen(row)
	case state == StateClosed && p.storageFailed():
		return false // a failed log is not trusted again by this process
	case suspended != nil:
		p.stayBack(suspended)
		return false
	default:
		return p.open(ctx, row)
	}
}

// settleFreeze ends a freeze whose lease passed or whose move is gone. Nothing thaws on a read: the source wins AbortMove
// or sees the move gone, and then reopens by OpenOwner (R6).
//
// The disk fails meanwhile: that closes the partition, and nothing that was asked before opens it again.
func (p *Partition) settleFreeze(ctx context.Context, row *metastore.Assignment, f *freeze) (again bool) {
	p.mu.Lock()
	if p.freeze != f {
		p.mu.Unlock()
		return true
	}
	expired := f.expired
	if expired && !faults.Enforced("R6") { // thaws on what was read
		defer p.mu.Unlock()
		p.endFreeze(true)
		p.openAt(row)
		return false
	}
	p.mu.Unlock()
	if row.Moving() == f.moveID {
		if !expired {
			return false
		}
		after, err := p.broker.cfg.Rows.AbortMoveHolding(ctx, f.moveID, p.broker.cfg.BrokerID, "the freeze's lease ended", metastore.HeldOf(row))
		p.broker.noteRead(err) // R27 ii: what is refused from now on depends on it
		if p.broker.suspendRefused(p.key, err) {
			return false
		}
		if refused, ok := metastore.RefusedWith(err); ok {
			after = refused.Row // R14: a refusal carries the row, and the source acts on it
		} else if err != nil {
			p.logger.Warn("closed for writes until the metastore answers", "move", f.moveID, "error", err)
			return true
		}
		if !faults.Enforced("R14") && after != nil && after.Moving() != f.moveID && after.Owner == p.broker.cfg.BrokerID {
			return false
		}
		p.broker.apply(p.key, after)
		return true
	}
	if !faults.Enforced("R14") && !expired {
		return false
	}
	after, err := p.openOwner(ctx, row, f.moveID)
	if err != nil || after == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.freeze != f {
		return true
	}
	p.endFreeze(true)
	p.openAt(after)
	return false
}

// openOwner asks for the acknowledged right to serve; nil when it must be asked again or the row moved on.
func (p *Partition) openOwner(ctx context.Context, row *metastore.Assignment, gone string) (*metastore.Assignment, error) {
	if !faults.Enforced("R4") {
		return row, nil // opens on what was read
	}
	p.mu.Lock()
	end := p.log.DurableEnd() // what a crash can not take back
	p.mu.Unlock()
	faults.Point("open.before")
	after, err := p.broker.cfg.Rows.OpenOwner(ctx, metastore.OpenRequest{TopicID: p.topicID, Partition: p.partition, Broker: p.broker.cfg.BrokerID,
		Epoch: row.Epoch, Storage: p.broker.cfg.Storage, Process: p.broker.cfg.Process, LogEnd: end, GoneMove: gone, Held: metastore.HeldOf(row)})
	p.broker.noteRead(err)
	if p.broker.suspendRefused(p.key, err) {
		p.wake()
		return nil, nil
	}
	if refused, ok := metastore.RefusedWith(err); ok {
		p.logger.Warn("opening was refused", "code", refused.Code, "reason", refused.Reason)
		if refused.Code == metastore.CodeStorageChanged || refused.Code == metastore.CodeSuperseded {
			p.close(refused.Code, refused.Reason)
			return nil, nil
		}
		p.broker.apply(p.key, refused.Row)
		return nil, nil
	}
	if err != nil {
		p.logger.Warn("opening waits for the metastore", "error", err)
		return nil, err
	}
	faults.Point("open.after")
	p.broker.apply(p.key, after)
	// What is acknowledged under this opening must not be forgotten when the metastore is (R1).
	if err := p.broker.held.sync(); err != nil {
		p.logger.Error("the opened row could not be kept, so it does not open", "error", err)
		return nil, err
	}
	return after, nil
}

// openAt begins to serve: the caller holds mu and an acknowledged OpenOwner.
func (p *Partition) openAt(row *metastore.Assignment) {
	p.row, p.serving = row, row.Epoch
	p.openedAt, p.openedVersion = time.Now(), row.Version
	p.install = nil
	p.setState(StateOpen, "")
	p.appendPark()
}

// stayOpen checks what an open partition rests on.
func (p *Partition) stayOpen(row *metastore.Assignment) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != StateOpen {
		return true
	}
	for id := range p.pinned {
		if id != row.Moving() {
			p.unpin(id) // the move is over, whether or not someone said so (R23)
		}
	}
	if p.failBrokenStorage() {
		return false
	}
	if row.Version > p.openedVersion && row.OpenedEpoch == p.serving && row.OpenedProcess != nil && *row.OpenedProcess != p.broker.cfg.Process {
		// A copy of this data folder runs as the same broker. Its heartbeat will stop this process; nothing more is accepted until then.
		p.shut(metastore.CodeSuperseded, "another process of this broker has opened the partition")
	} else if row.Epoch != p.serving {
		// The partition left and came back while this process did not look: what it holds is not that history.
		p.shut(CodeOtherEpoch, "the metastore has this broker as owner at an epoch whose records it does not hold; restart this agent")
	}
	return false
}

func (p *Partition) storageFailed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return (p.log != nil && p.log.Failed() != nil) || (p.offsets != nil && p.offsets.Failed() != nil)
}

// leave gives the partition up: another broker owns it, or the topic is gone. Requests are sent to the new owner, the
// data becomes a retained copy in trash. Nothing is deleted here.
//
// This process dies before the data is in trash: the next one finds a folder that the row does not give it and takes it
// there.
func (p *Partition) leave(row *metastore.Assignment) (again bool) {
	p.folder.Lock()
	defer p.folder.Unlock()
	if newest, _ := p.broker.row(p.key); newest != row {
		return true // a copy may have been installed since that row was read
	}
	p.mu.Lock()
	if row != nil && p.install != nil && row.Moving() == p.install.MoveID {
		p.mu.Unlock()
		return false // the installed copy waits for its commit
	}
	next := StateElsewhere
	if row == nil {
		next = StateGone
	}
	if p.serves() {
		p.leftAt = time.Now()
	}
	p.endFreeze(false)
	if row == nil {
		p.refusePark(kerr.UnknownTopicOrPartition.Code, nil)
	} else {
		p.redirectPark()
	}
	if p.state != next {
		p.setState(next, "")
	}
	if row != nil && !p.leftAt.IsZero() && row.OpenedEpoch == row.Epoch {
		p.movedOpen(p.leftAt)
		p.leftAt = time.Time{}
		close(p.changed)
		p.changed = make(chan struct{})
	}
	log, table, installed := p.log, p.offsets, p.install
	p.log, p.offsets, p.install = nil, nil, nil
	p.mu.Unlock()
	if log != nil {
		faults.Point("leave.before")
	}

	if log == nil {
		var err error
		log, err = p.openForEnd()
		p.mu.Lock()
		p.foreign = err
		p.mu.Unlock()
		if err != nil {
			// Not a former copy that a later move may adopt: an operator put it here, or must look at what the disk did to it.
			p.logger.Error("the partition's folder holds something else and stays where it is", "folder", p.dir(), "error", err)
			if table != nil {
				_ = table.Close()
			}
			if row == nil {
				p.broker.forget(p)
			}
			return false
		}
	}
	if installed == nil {
		installed = p.readInstall()
	}
	if installed != nil && row != nil && row.Moving() == installed.MoveID {
		p.keepInstalled(installed, log) // seen at boot: the installed copy of the move that is still running
		return false
	}
	var end int64 = -1 // unknown: the copy is kept until someone looks
	var epochs []control.EpochStart
	if log != nil {
		end, epochs = log.End(), epochStarts(log)
		if err := log.Close(); err != nil {
			p.logger.Warn("closing the log of a partition that left", "error", err)
		}
	}
	if table != nil {
		_ = table.Close()
	}
	if err := p.broker.trash.take(p, row, installed, end, epochs); err != nil {
		p.logger.Error("moving a former copy to trash failed; trying again", "error", err)
		return true
	}
	if log != nil {
		faults.Point("leave.after")
	}
	if row == nil {
		p.broker.forget(p)
	}
	return false
}

// keepInstalled takes up, at boot, the installed copy of a move that still runs, so that a repeated drain is answered from
// it and the freeze need not end. A copy that is not what its marker says is left to the next drain. The caller holds
// folder.
func (p *Partition) keepInstalled(installed *Installed, log *seglog.Log) {
	if log == nil {
		return // taken back into staging meanwhile
	}
	table, err := offsets.Open(p.dir())
	if err != nil || log.End() != installed.End {
		p.logger.Warn("an installed copy is not whole; it is drained again", "move", installed.MoveID, "end", log.End(), "installed", installed.End, "error", err)
		_ = log.Close()
		if err == nil {
			_ = table.Close()
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log, p.offsets, p.install = log, table, installed
}

// openForEnd opens the log of a partition that left while this process was not running, to learn what it holds: nil when
// there is no folder, an error when the folder is not a readable log of this partition.
func (p *Partition) openForEnd() (*seglog.Log, error) {
	if _, err := os.Stat(p.dir()); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	log, _, err := seglog.Open(p.dir(), p.broker.cfg.Log)
	if err != nil {
		return nil, err
	}
	if id := log.Identity(); id.TopicID != p.topicID || id.Partition != p.partition {
		_ = log.Close()
		return nil, fmt.Errorf("it is the log of %s (topic id %s)", id, id.TopicID)
	}
	return log, nil
}

func (p *Partition) readInstall() *Installed {
	var marker Installed
	if err := durable.ReadJSON(filepath.Join(p.dir(), installFile), &marker); err != nil {
		return nil
	}
	return &marker
}

func (p *Partition) dir() string { return p.broker.partitionDir(p.key) }

// close marks the partition as not to be opened, with a stable code and what the operator can do.
func (p *Partition) close(code, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut(code, reason)
}

// shut is close for a caller that holds mu.
func (p *Partition) shut(code, reason string) {
	p.logger.Error("the partition stays closed", "code", code, "reason", reason)
	p.endFreeze(false)
	p.setState(StateClosed, reason)
	p.reasonCode = code
	p.refusePark(kerr.NotLeaderForPartition.Code, nil)
}

// open brings a partition the row gives to this broker into service.
//
// This process dies anywhere in it: the next one starts over; each part may be repeated. Postgres dies: it stays in
// opening and asks again.
func (p *Partition) open(ctx context.Context, row *metastore.Assignment) (again bool) {
	p.mu.Lock()
	if p.state != StateOpening {
		p.setState(StateOpening, "")
	}
	p.mu.Unlock()

	chosen, err := p.decided(ctx, row)
	if err == nil && chosen != nil {
		err = p.obey(chosen, row)
	}
	var local localCopy
	if err == nil {
		local, err = p.inspect(ctx, row)
	}
	if err != nil {
		if metastore.IsUnknown(err) || errors.Is(err, errMetastoreAway) {
			return true
		}
		return p.cannotOpen("", err)
	}
	if obstacle := decideOpen(row, local, p.broker.cfg.Storage); obstacle != nil {
		p.close(obstacle.code, obstacle.reason)
		return false
	}
	if !local.exists {
		if err := p.create(); err != nil {
			return p.cannotOpen("the empty log could not be created: ", err)
		}
	}
	if chosen != nil {
		if err := p.goOn(chosen, row.Epoch); err != nil {
			return p.cannotOpen("the lost offsets could not be passed over: ", err)
		}
	}
	after := p.acknowledged
	if after == nil || after.Version != row.Version {
		if after, err = p.openOwner(ctx, row, ""); err != nil || after == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.state == StateOpening
		}
		p.acknowledged = after
	}
	// An entry at every take-over, also when no batch follows: without it clients read "lost records" out of
	// OffsetForLeaderEpoch.
	if err := p.beginEpoch(after.Epoch, chosen.lost(local.install)); err != nil {
		return p.cannotOpen("the epoch's start could not be recorded: ", err)
	}
	p.acknowledged = nil
	if local.install != nil {
		for _, name := range []string{installFile, SourceFile} {
			if err := os.Remove(filepath.Join(p.dir(), name)); err != nil && !os.IsNotExist(err) {
				p.logger.Warn("a leftover of the move could not be removed", "file", name, "error", err)
			}
		}
		if err := durable.SyncDir(p.dir()); err != nil {
			p.logger.Warn("the removal of the move's leftovers may not be durable", "error", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.openAt(after)
	return false
}

// cannotOpen closes a partition that can not be opened. A full disk is waited for instead: it ends without anyone looking
// after this partition.
func (p *Partition) cannotOpen(what string, err error) (again bool) {
	reason := what + err.Error()
	if !durable.NoRoom(err) {
		p.close(control.CodeStorage, reason)
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason == "" {
		p.logger.Error("opening waits for room on the disk", "reason", reason)
	}
	p.setState(StateOpening, reason)
	return true
}

func (p *Partition) beginEpoch(epoch int32, lost int64) error {
	p.mu.Lock()
	log := p.log
	p.mu.Unlock()
	if known := log.Epochs(); len(known) > 0 && known[len(known)-1].Epoch >= epoch {
		return nil
	}
	return log.BeginEpochAfterLoss(epoch, log.End(), lost)
}

func (p *Partition) create() error {
	if err := os.MkdirAll(filepath.Dir(p.dir()), 0o755); err != nil {
		return err
	}
	if err := durable.SyncDir(filepath.Dir(filepath.Dir(p.dir()))); err != nil {
		return err
	}
	log, err := seglog.Create(p.dir(), p.identity(), p.broker.cfg.Log)
	if err != nil {
		return err
	}
	table, err := offsets.Open(p.dir())
	if err != nil {
		log.Close()
		return err
	}
	p.mu.Lock()
	p.log, p.offsets = log, table
	p.mu.Unlock()
	return nil
}

func (p *Partition) identity() seglog.Identity {
	return seglog.Identity{TopicID: p.topicID, Topic: p.topic, Partition: p.partition}
}
