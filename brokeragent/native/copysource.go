package native

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"portage/brokeragent/control"
	"portage/brokeragent/native/offsets"
	"portage/brokeragent/native/recordbatch"
	"portage/brokeragent/native/seglog"
	"portage/internal/durable"
	"portage/internal/faults"
	"portage/metastore"
)

// source finds the open partition a claimed move copies from. A claim that this broker has not heard of yet is looked up
// once: the destination may be faster than the notification.
func (b *Broker) source(ctx context.Context, s control.Subject) (*Partition, error) {
	k := key{s.TopicID, s.Partition}
	p := b.partition(k)
	if p == nil {
		return nil, control.Errorf(control.CodeNotOpen, "%s/%d is not on this broker", s.Topic, s.Partition)
	}
	row, _ := b.row(k)
	if row == nil || row.Moving() != s.MoveID {
		var err error
		if row, err = b.readRow(ctx, k); err != nil {
			return nil, control.Errorf(control.CodeMetastoreAway, "the metastore does not answer: %v", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case row == nil || row.Moving() != s.MoveID:
		return nil, control.Errorf(control.CodeRowMoved, "%s is not claimed by move %s", p.name(), s.MoveID)
	case !p.serves():
		return nil, control.Errorf(control.CodeNotOpen, "%s is %s on its owner: %s", p.name(), p.state, p.reason)
	case row.FencedFor() == s.MoveID && !p.fencedFor(s.MoveID):
		// R2: what is promoted over this owner has seen it, and whom it has seen has its fence up.
		return nil, control.Errorf(control.CodeNotOpen, "%s has not put up the write fence of move %s yet", p.name(), s.MoveID)
	case p.serving != s.Epoch:
		return nil, control.Errorf(control.CodeRowMoved, "%s is at epoch %d, not %d", p.name(), p.serving, s.Epoch)
	}
	return p, nil
}

// Listing shows the durable state of a partition to the destination of its move, and pins its segments against
// retention until the move is over.
func (b *Broker) Listing(ctx context.Context, s control.Subject) (control.Listing, error) {
	var none control.Listing
	p, err := b.source(ctx, s)
	if err != nil {
		return none, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.serves() {
		return none, control.Errorf(control.CodeNotOpen, "%s is %s here", p.name(), p.state)
	}
	p.log.Pin(s.MoveID)
	p.pinned[s.MoveID] = true
	list := control.Listing{Process: b.cfg.Process, Epoch: p.serving, LogStart: p.log.Start(), HighWatermark: p.log.DurableEnd(),
		Producers: p.log.ProducerSnapshot(), Offsets: p.offsets.Snapshot(), ProducerCount: p.log.ProducerCount(), GroupCount: len(p.offsets.All())}
	list.Epochs = epochStarts(p.log)
	for _, seg := range p.log.Segments() {
		list.Segments = append(list.Segments, control.ListedSegment{Base: seg.Base, Size: seg.Size, NextOffset: seg.NextOffset, Sealed: seg.Sealed, Digest: seg.Digest.String()})
	}
	if p.freeze != nil && p.freeze.moveID == s.MoveID && !p.freeze.expired {
		list.FrozenVersion = p.freeze.version
	}
	return list, nil
}

// epochStarts are a log's epochs as they travel.
func epochStarts(log *seglog.Log) (all []control.EpochStart) {
	for _, e := range log.Epochs() {
		all = append(all, control.EpochStart{Epoch: e.Epoch, Start: e.Start, Lost: e.Lost})
	}
	return all
}

// OpenSegment opens one segment of a partition for its move; size is its durable part (R25).
func (b *Broker) OpenSegment(ctx context.Context, s control.Subject, base int64) (f *os.File, size int64, err error) {
	p, err := b.source(ctx, s)
	if err != nil {
		return nil, 0, err
	}
	p.mu.Lock()
	log := p.log
	p.mu.Unlock()
	if log == nil {
		return nil, 0, control.Errorf(control.CodeNotOpen, "%s left this broker", p.name())
	}
	f, size, err = log.OpenSegment(base)
	if err == nil && !faults.Enforced("R25") {
		if info, statErr := f.Stat(); statErr == nil {
			size = info.Size()
		}
	}
	return f, size, err
}

// SegmentDigest is the digest of the first size bytes of a segment.
func (b *Broker) SegmentDigest(ctx context.Context, s control.Subject, base, size int64) (recordbatch.Digest, error) {
	p, err := b.source(ctx, s)
	if err != nil {
		return recordbatch.Digest{}, err
	}
	p.mu.Lock()
	log := p.log
	p.mu.Unlock()
	if log == nil {
		return recordbatch.Digest{}, control.Errorf(control.CodeNotOpen, "%s left this broker", p.name())
	}
	digest, err := log.DigestAt(base, size)
	if errors.Is(err, seglog.ErrBoundary) || errors.Is(err, seglog.ErrNoSegment) {
		// The destination holds something else at this place; that is all it needs to know.
		return recordbatch.Digest{}, control.Errorf(control.CodeDigestMismatch, "%s has no batch boundary at %d of segment %d", p.name(), size, base)
	}
	return digest, err
}

// Release unpins what a move had pinned.
func (b *Broker) Release(s control.Subject) {
	if p := b.partition(key{s.TopicID, s.Partition}); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.unpin(s.MoveID)
	}
}

// unpin lets retention at what a move held. The caller holds mu.
func (p *Partition) unpin(moveID string) {
	if p.pinned[moveID] && p.log != nil {
		p.log.Unpin(moveID)
	}
	delete(p.pinned, moveID)
}

// Vacant reports why this broker could not take a copy of the partition: it still has one that it serves or waits to open.
func (b *Broker) Vacant(s control.Subject) error {
	b.mu.Lock()
	p := b.ensurePartition(key{s.TopicID, s.Partition}, s.Topic)
	b.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != StateElsewhere {
		return control.Errorf(control.CodeNotEmpty, "%s is %s on this broker: %s", p.name(), p.state, p.reason)
	}
	if p.install != nil {
		if p.install.MoveID == s.MoveID {
			return nil
		}
		p.wake()
		return control.Errorf(control.CodeBusy, "the copy of an earlier move of %s is being put away", p.name())
	}
	if marker := p.readInstall(); marker != nil && marker.MoveID == s.MoveID {
		return nil
	}
	if _, err := os.Stat(p.dir()); err == nil {
		p.wake() // a former copy that is on its way to trash, or something else
		if p.foreign != nil {
			return control.Errorf(control.CodeNotEmpty, "the folder %s on %s is in the way: it holds no readable log of %s (%v); look at what it is and move it away, then start the move again",
				p.dir(), b.cfg.BrokerID, p.name(), p.foreign)
		}
		return control.Errorf(control.CodeBusy, "the former copy of %s is being put away", p.name())
	}
	return nil
}

// InstalledFor returns the installed copy of a move, if this broker holds it for exactly that row version (R7).
func (b *Broker) InstalledFor(s control.Subject, version int64) (*Installed, bool) {
	p := b.partition(key{s.TopicID, s.Partition})
	if p == nil {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	installed := p.install
	if installed == nil || installed.MoveID != s.MoveID {
		return nil, false
	}
	return installed, installed.Promotion == nil && (installed.Version == version || !faults.Enforced("R7"))
}

// InstalledOf returns the installed copy of a move, whatever it was installed for; nil when this broker holds none.
func (b *Broker) InstalledOf(s control.Subject) *Installed {
	p := b.partition(key{s.TopicID, s.Partition})
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.install == nil || p.install.MoveID != s.MoveID {
		return nil
	}
	return p.install
}

// Unchecked reports whether an earlier process of this broker installed a copy for exactly this freeze that the reconciler
// has not taken up yet. A marker alone proves nothing about the bytes.
func (b *Broker) Unchecked(s control.Subject, version int64) bool {
	p := b.partition(key{s.TopicID, s.Partition})
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.install != nil || p.state != StateElsewhere {
		return false
	}
	marker := p.readInstall()
	if marker == nil || marker.MoveID != s.MoveID || marker.Version != version {
		return false
	}
	p.wake()
	return true
}

// FrozenFor reports whether the partition is frozen for this move: what is read for it now is its drain.
func (b *Broker) FrozenFor(s control.Subject) bool {
	p := b.partition(key{s.TopicID, s.Partition})
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == StateFrozen && p.freeze.moveID == s.MoveID && !p.freeze.expired
}

// DrainProgress renews the freeze of a move whose tail has been sent on.
func (b *Broker) DrainProgress(s control.Subject) {
	if p := b.partition(key{s.TopicID, s.Partition}); p != nil {
		p.FreezeProgress(s.MoveID)
	}
}

// Uninstall takes an installed copy back into a staging folder: to drain it again for a later freeze of the same move, or
// to drop it once the move is aborted. It acts only on proof that the copy can not become the partition any more: the
// move is aborted, or the row has passed the version it was installed for, which every commit must name (R7). It reports
// false when there is nothing installed.
func (b *Broker) Uninstall(ctx context.Context, s control.Subject, staging string) (taken bool, err error) {
	p := b.partition(key{s.TopicID, s.Partition})
	if p == nil {
		return false, nil
	}
	p.folder.Lock()
	defer p.folder.Unlock()
	marker := p.readInstall()
	if marker == nil || marker.MoveID != s.MoveID {
		return false, nil
	}
	move, err := b.cfg.Rows.FindMove(ctx, s.MoveID)
	if err != nil {
		return false, control.Errorf(control.CodeMetastoreAway, "the metastore does not answer: %v", err)
	}
	if move == nil || move.Ended() != metastore.OutcomeAborted {
		row, err := b.readRow(ctx, p.key)
		if err != nil {
			return false, control.Errorf(control.CodeMetastoreAway, "the metastore does not answer: %v", err)
		}
		if row == nil || row.Moving() != s.MoveID || row.Version <= marker.Version {
			return false, control.Errorf(control.CodeRowMoved, "the installed copy of %s may be the committed one", p.name())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != StateElsewhere {
		return false, control.Errorf(control.CodeNotEmpty, "%s is %s on this broker", p.name(), p.state)
	}
	if p.log != nil {
		if err := p.log.Close(); err != nil {
			return false, err
		}
		_ = p.offsets.Close()
	}
	p.log, p.offsets, p.install = nil, nil, nil
	return true, stageFolder(p.dir(), staging, p.identity(), b.cfg.Log)
}

// SourceFile is where a staging keeps the last look at its source: offsets, producers, epochs and the high watermark (R3).
const SourceFile = "source.json"

// stageFolder turns the folder of a closed log, or of an earlier staging, into a staging folder. Everything but the
// records is dropped: offsets and producer state of a former copy are older than the owner's (R24).
func stageFolder(from, to string, id seglog.Identity, opts seglog.Options) error {
	for _, name := range []string{installFile, freezeFile, retainedFile, offsets.JournalFile} {
		if name == offsets.JournalFile && !faults.Enforced("R24") {
			continue
		}
		if err := os.Remove(filepath.Join(from, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	staging, err := seglog.Adopt(from, to, id, opts)
	if errors.Is(err, seglog.ErrNotALog) {
		return durable.Rename(from, to) // a staging already
	}
	if err != nil {
		return err
	}
	return staging.Close()
}

// Install puts the verified staged copy of a move in place: after it this broker holds a whole log that is not open.
// The offsets taken under the freeze replace everything (R24); those of a promotion are clamped to the copy's end (R3).
//
// This process dies before the rename: the staging is resumed. After it: the folder is found at boot with its marker,
// and waits for the commit. The answer is lost: a repeat answers from the marker.
func (b *Broker) Install(ctx context.Context, s control.Subject, staging *seglog.Staging, marker Installed, list control.Listing) error {
	b.mu.Lock()
	p := b.ensurePartition(key{s.TopicID, s.Partition}, s.Topic)
	b.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(p.dir()), 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(staging.Dir(), offsets.JournalFile)); err != nil || faults.Enforced("R24") {
		if err := writeOffsets(staging.Dir(), list.Offsets, marker); err != nil {
			return err
		}
	}
	if err := durable.WriteJSON(filepath.Join(staging.Dir(), installFile), marker); err != nil {
		return err
	}
	faults.Point("offsets.after")
	info := seglog.InstallInfo{LogStart: list.LogStart, Producers: list.Producers, WantEnd: marker.End}
	for _, e := range list.Epochs {
		info.Epochs = append(info.Epochs, seglog.Epoch{Epoch: e.Epoch, Start: e.Start, Lost: e.Lost})
	}
	// The reconciler must know the claim before it meets the installed folder, or it would take it for a former copy.
	if moving, _ := b.MovingNow(s); moving != s.MoveID {
		if row, err := b.readRow(ctx, p.key); err != nil || row == nil || row.Moving() != s.MoveID {
			return control.Errorf(control.CodeRowMoved, "%s is not claimed by move %s any more", p.name(), s.MoveID)
		}
	}
	if err := b.held.sync(); err != nil {
		return err
	}
	p.folder.Lock()
	defer p.folder.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != StateElsewhere || p.log != nil {
		return control.Errorf(control.CodeNotEmpty, "%s is %s on this broker", p.name(), p.state)
	}
	log, err := staging.Install(p.dir(), info)
	if err != nil {
		return err
	}
	table, err := offsets.Open(p.dir())
	if err != nil {
		log.Close()
		return err
	}
	p.log, p.offsets, p.install = log, table, &marker
	p.wake() // the commit may have been seen already
	return nil
}

// writeOffsets puts the source's committed offsets beside the copy. What a promotion has of them is older than what the
// groups may have committed since, and must not point behind the log's end.
func writeOffsets(dir string, snapshot []byte, marker Installed) error {
	if marker.Promotion != nil {
		if !faults.Enforced("R3") {
			return nil // offsets travel under the freeze only, and there was none
		}
		var err error
		if snapshot, err = offsets.ClampSnapshot(snapshot, marker.End); err != nil {
			return err
		}
	}
	return offsets.WriteSnapshotFile(dir, snapshot)
}

// Refresh reads a partition's row from the primary and applies it.
func (b *Broker) Refresh(ctx context.Context, s control.Subject) error {
	_, err := b.readRow(ctx, key{s.TopicID, s.Partition})
	return err
}

// MovingNow is the move that holds a partition as far as this broker knows; confirmed is false until rows were read.
func (b *Broker) MovingNow(s control.Subject) (move string, confirmed bool) {
	row, confirmed := b.row(key{s.TopicID, s.Partition})
	if row == nil {
		return "", confirmed
	}
	return row.Moving(), confirmed
}

// Look re-reads a partition's row and wakes its reconciler: a hint, never an order (design §3 rule 4).
func (b *Broker) Look(s control.Subject) *Partition {
	if p := b.partition(key{s.TopicID, s.Partition}); p != nil {
		p.wake()
		return p
	}
	return nil
}

// Changed closes at the partition's next change of state.
func (p *Partition) Changed() (<-chan struct{}, control.PartitionStatus) {
	p.mu.Lock()
	changed := p.changed
	p.mu.Unlock()
	return changed, p.Status()
}

// Redirecting reports whether the partition left this broker and its new owner is not known to be open yet.
func (p *Partition) Redirecting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.leftAt.IsZero()
}
