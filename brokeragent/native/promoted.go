package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"portage/brokeragent/control"
	"portage/brokeragent/native/offsets"
	"portage/brokeragent/native/seglog"
	"portage/internal/durable"
	"portage/metastore"
)

// decision is a person's choice of the copy that a partition goes on with at its present epoch (R18).
type decision struct {
	move     *metastore.Move
	evidence metastore.CopyEvidence
}

// decided reads the decision that gave this broker the partition, nil when an ordinary move or nothing did. It is asked until
// the log has the epoch's entry: a row that says opened only proves that the opening was acknowledged to someone, and what
// was lost goes into that entry.
func (p *Partition) decided(ctx context.Context, row *metastore.Assignment) (*decision, error) {
	if row.State != metastore.StateOpened || p.hasEpoch(row.Epoch) {
		return nil, nil
	}
	move, err := p.broker.cfg.Rows.FindCommit(ctx, p.topicID, p.partition, row.Epoch)
	p.broker.noteRead(err)
	if err != nil {
		return nil, errMetastoreAway
	}
	if move == nil || move.Kind != metastore.KindPromote || move.ToBroker != p.broker.cfg.BrokerID {
		return nil, nil
	}
	d := &decision{move: move}
	if err := json.Unmarshal(move.Evidence, &d.evidence); err != nil {
		return nil, fmt.Errorf("decision %s can not be read: %w", move.ID, err)
	}
	return d, nil
}

// hasEpoch reports whether the log in the partition's place, opened if need be, has the entry of an epoch.
func (p *Partition) hasEpoch(epoch int32) bool {
	p.mu.Lock()
	log := p.log
	p.mu.Unlock()
	var epochs []seglog.Epoch
	if log != nil {
		epochs = log.Epochs()
	} else {
		epochs, _ = seglog.ReadEpochs(p.dir()) // what can not be read is met when the log is opened
	}
	return len(epochs) > 0 && epochs[len(epochs)-1].Epoch >= epoch
}

// obey puts the chosen copy in the partition's place; what is there instead goes to trash. It changes nothing once that is done.
// A copy that was chosen in place stays there.
//
// This process dies anywhere in it: the copy is where it was or in its place with its marker, and the next process goes on.
func (p *Partition) obey(d *decision, row *metastore.Assignment) error {
	p.folder.Lock()
	defer p.folder.Unlock()
	if marker := p.readInstall(); marker != nil && marker.MoveID == d.move.ID {
		return nil
	}
	p.mu.Lock()
	log, table := p.log, p.offsets
	p.log, p.offsets = nil, nil
	p.mu.Unlock()
	if table != nil {
		_ = table.Close()
	}
	marker := Installed{MoveID: d.move.ID, Version: row.Version, End: d.evidence.CopyEnd, From: d.evidence.From}
	if d.evidence.Copy == control.CopyInPlace {
		if log != nil {
			if err := log.Close(); err != nil {
				return err
			}
		}
		return p.keepInPlace(d, marker)
	}
	if _, err := os.Stat(p.dir()); err == nil {
		if log == nil {
			if log, err = p.openForEnd(); err != nil {
				return fmt.Errorf("%s is in the place of the promoted copy and is no readable log; move it away: %w", p.dir(), err)
			}
		}
		end, epochs := log.End(), epochStarts(log)
		if err := log.Close(); err != nil {
			return err
		}
		if err := p.broker.trash.take(p, row, nil, end, epochs); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(p.dir()), 0o755); err != nil {
		return err
	}
	if d.evidence.Copy == "" {
		return p.installEmpty(d, marker)
	}
	return p.broker.trash.promote(d, marker, p)
}

// keepInPlace lets the log that its owner could not open, a restored backup for one, become the partition where it is.
func (p *Partition) keepInPlace(d *decision, marker Installed) error {
	log, err := p.openForEnd()
	switch {
	case err != nil:
		return fmt.Errorf("%s, which was promoted by %s, is no readable log of this partition; promote another copy: %w", p.dir(), d.move.RequestedBy, err)
	case log == nil:
		return fmt.Errorf("%s, which was promoted by %s, is not here any more; promote another copy", p.dir(), d.move.RequestedBy)
	}
	marker.End = log.End()
	if err := log.Close(); err != nil {
		return err
	}
	if err := clampOffsets(p.dir(), d.evidence.KnownEnd); err != nil {
		return err
	}
	return durable.WriteJSON(filepath.Join(p.dir(), installFile), marker)
}

// clampOffsets puts the committed offsets in a folder that are beyond where the log will go on back to there.
func clampOffsets(dir string, end int64) error {
	table, err := offsets.Open(dir)
	if err != nil {
		return fmt.Errorf("the committed offsets in %s can not be read: %w", dir, err)
	}
	clamped, err := offsets.ClampSnapshot(table.Snapshot(), end)
	if err == nil {
		err = table.Replace(clamped)
	}
	return errors.Join(err, table.Close())
}

// installEmpty begins an empty log where the lost one ended.
func (p *Partition) installEmpty(d *decision, marker Installed) error {
	dir := filepath.Join(p.broker.cfg.Root, "staging", d.move.ID)
	if err := os.RemoveAll(dir); err != nil { // an earlier attempt's, and empty
		return err
	}
	staging, err := seglog.OpenStaging(dir, p.identity(), p.broker.cfg.Log)
	if err != nil {
		return err
	}
	marker.End = d.evidence.KnownEnd
	if err := durable.WriteJSON(filepath.Join(dir, installFile), marker); err != nil {
		return errors.Join(err, staging.Close())
	}
	log, err := staging.Install(p.dir(), seglog.InstallInfo{LogStart: d.evidence.KnownEnd, WantEnd: d.evidence.KnownEnd})
	if err != nil {
		return err
	}
	return log.Close()
}

// promote takes a copy out of trash or quarantine and makes it the partition's log, with its own offsets clamped to where the
// log will go on.
func (t *Trash) promote(d *decision, marker Installed, p *Partition) error {
	r, err := t.find(t.root, d.evidence.Copy)
	if err != nil {
		if r, err = t.find(t.quarantine, d.evidence.Copy); err != nil {
			return fmt.Errorf("copy %s, which was promoted by %s, is not here; promote another one", d.evidence.Copy, d.move.RequestedBy)
		}
	}
	if r.TopicID != p.topicID || r.Partition != p.partition {
		return fmt.Errorf("copy %s is of %s/%d; promote another one", d.evidence.Copy, r.Topic, r.Partition)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	log, _, err := seglog.Open(r.Dir, t.broker.cfg.Log)
	if errors.Is(err, seglog.ErrNotALog) {
		return t.promoteStaged(d, marker, p, r)
	}
	if err != nil {
		return fmt.Errorf("copy %s can not be opened: %w", d.evidence.Copy, err)
	}
	marker.End = log.End()
	if err := log.Close(); err != nil {
		return err
	}
	if err := clampOffsets(r.Dir, d.evidence.KnownEnd); err != nil {
		return err
	}
	if err := durable.WriteJSON(filepath.Join(r.Dir, installFile), marker); err != nil {
		return err
	}
	if err := durable.Rename(r.Dir, p.dir()); err != nil {
		return err
	}
	_ = os.Remove(filepath.Join(p.dir(), retainedFile)) // means nothing in the partition's place
	return nil
}

// promoteStaged makes a log of a copy that never was one: offsets, producers and epochs are those of its last look at the source.
func (t *Trash) promoteStaged(d *decision, marker Installed, p *Partition, r Retained) error {
	var last control.Listing
	if err := durable.ReadJSON(filepath.Join(r.Dir, SourceFile), &last); err != nil {
		return fmt.Errorf("copy %s was staged without a look at its source that was kept; promote another one: %w", d.evidence.Copy, err)
	}
	staging, err := seglog.OpenStaging(r.Dir, p.identity(), t.broker.cfg.Log)
	if err != nil {
		return fmt.Errorf("copy %s can not be opened: %w", d.evidence.Copy, err)
	}
	clamped, err := offsets.ClampSnapshot(last.Offsets, d.evidence.KnownEnd)
	if err == nil {
		err = offsets.WriteSnapshotFile(r.Dir, clamped)
	}
	marker.End = staging.End()
	if err == nil {
		err = durable.WriteJSON(filepath.Join(r.Dir, installFile), marker)
	}
	if err != nil {
		return errors.Join(err, staging.Close())
	}
	info := seglog.InstallInfo{LogStart: min(last.LogStart, staging.End()), WantEnd: staging.End()}
	for _, e := range last.Epochs {
		if e.Start <= staging.End() {
			info.Epochs = append(info.Epochs, seglog.Epoch{Epoch: e.Epoch, Start: e.Start, Lost: e.Lost})
		}
	}
	if seen, err := seglog.SnapshotEnd(last.Producers); err == nil && seen <= staging.End() {
		info.Producers = last.Producers // older heads are replayed; a newer snapshot would know batches that are not here
	}
	log, err := staging.Install(p.dir(), info)
	if err != nil {
		return err
	}
	return log.Close()
}

// lost is how many offsets the partition goes on without: from where the chosen copy ends to the last known end.
func (d *decision) lost(copied *Installed) int64 {
	if d == nil || copied == nil {
		return 0
	}
	if d.evidence.Copy == "" {
		return d.evidence.KnownEnd
	}
	return max(0, d.evidence.KnownEnd-copied.End)
}

// goOn makes the log end at the last known end before the partition opens at its new epoch.
func (p *Partition) goOn(d *decision, epoch int32) error {
	p.mu.Lock()
	log := p.log
	p.mu.Unlock()
	return log.SkipTo(d.evidence.KnownEnd, epoch-1)
}
