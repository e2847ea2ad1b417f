package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"portage/brokeragent/native/offsets"
	"portage/brokeragent/native/seglog"
	"portage/internal/durable"
	"portage/internal/faults"
	"portage/metastore"
)

var errMetastoreAway = errors.New("the metastore does not answer")

// localCopy is what the disk holds of a partition.
type localCopy struct {
	exists   bool
	end      int64
	reported int64 // the durable end last reported to the metastore at the row's epoch; 0 for none
	identity seglog.Identity
	want     seglog.Identity
	install  *Installed
	move     *metastore.Move // the installed copy's move, with its outcome
}

// inspect opens the local log if there is one, and reads the proof of an installed copy.
func (p *Partition) inspect(ctx context.Context, row *metastore.Assignment) (localCopy, error) {
	local := localCopy{want: p.identity()}
	p.mu.Lock()
	log := p.log
	p.mu.Unlock()
	if log == nil {
		if _, err := os.Stat(p.dir()); errors.Is(err, os.ErrNotExist) {
			return local, nil
		} else if err != nil {
			return local, err
		}
		opened, recovery, err := seglog.Open(p.dir(), p.broker.cfg.Log)
		if err != nil {
			return local, fmt.Errorf("the log can not be opened: %w", err)
		}
		if recovery.CutBytes > 0 {
			p.logger.Warn("a torn tail was cut; nothing of it had been acknowledged", "bytes", recovery.CutBytes, "end", opened.End())
		}
		table, err := offsets.Open(p.dir())
		if err != nil {
			opened.Close()
			return local, fmt.Errorf("the committed offsets can not be read: %w", err)
		}
		p.mu.Lock()
		p.log, p.offsets = opened, table
		log = opened
		p.mu.Unlock()
	}
	local.exists, local.end, local.identity = true, log.End(), log.Identity()
	reported, err := p.broker.reportedEnd(ctx, p.key, row.Epoch)
	if err != nil {
		return local, err
	}
	local.reported = reported
	var marker Installed
	switch err := durable.ReadJSON(filepath.Join(p.dir(), installFile), &marker); {
	case errors.Is(err, os.ErrNotExist):
		return local, nil
	case err != nil:
		return local, err
	}
	move, err := p.broker.cfg.Rows.FindMove(ctx, marker.MoveID)
	p.broker.noteRead(err)
	if err != nil {
		return local, errMetastoreAway
	}
	local.install, local.move = &marker, move
	return local, nil
}

// Codes of a partition that its owner must not open, beside metastore.CodeStorageChanged and control.CodeStorage.
const (
	CodeDataMissing = "data_missing" // nothing is in the data folder
	CodeDataOlder   = "data_older"   // the log ends before what was confirmed: an old backup, or a disk that lost it
	CodeOtherEpoch  = "other_epoch"  // the copy is not the one the row's epoch began with
	CodeForeignData = "foreign_data" // the folder holds another partition
)

// obstacle is why a partition must not open: a stable code, and what the operator reads.
type obstacle struct{ code, reason string }

func obstruct(code, format string, args ...any) *obstacle {
	return &obstacle{code: code, reason: fmt.Sprintf(format, args...)}
}

// decideOpen says whether what the disk holds is the partition at the row's epoch; nil when it is.
func decideOpen(row *metastore.Assignment, local localCopy, storage uuid.UUID) *obstacle {
	fresh := row.State == metastore.StateCreated
	switch {
	case row.OwnerStorage != storage && faults.Enforced("R5"):
		return obstruct(metastore.CodeStorageChanged, "this partition was last kept on other storage (%s); mount that volume, or promote another copy", row.OwnerStorage)
	case !local.exists && fresh:
		return nil
	case !local.exists:
		if !faults.Enforced("R5") {
			return nil
		}
		return obstruct(CodeDataMissing, "this broker owns the partition but its data is not in the data folder: mount the right volume, or promote another copy; an empty log is never created over a lost one")
	case local.identity.TopicID != local.want.TopicID || local.identity.Partition != local.want.Partition:
		return obstruct(CodeForeignData, "the folder holds %s/%d of another topic; restore the right data", local.identity.Topic, local.identity.Partition)
	case fresh:
		return nil
	case local.install != nil && local.move != nil && local.move.Ended() == metastore.OutcomeCommitted && local.move.CommitEpoch != nil && *local.move.CommitEpoch == row.Epoch:
		// moves, not the row's last move, is the proof that this copy is the committed one (R6).
		if local.end < local.install.End {
			return obstruct(CodeDataOlder, "the installed copy ends at %d, not at %d: the disk lost what was confirmed; promote another copy", local.end, local.install.End)
		}
		return olderThanKnown(row, local) // the marker of a copy that has served since proves nothing about its end
	case row.OpenedEpoch != row.Epoch:
		return obstruct(CodeOtherEpoch, "this copy is not the one that epoch %d began with; promote a copy that is", row.Epoch)
	}
	return olderThanKnown(row, local)
}

// olderThanKnown refuses a log that ends before what was known of it at the row's epoch.
func olderThanKnown(row *metastore.Assignment, local localCopy) *obstacle {
	known := local.reported
	if row.OpenedEpoch == row.Epoch {
		known = max(known, row.OpenedEnd)
	}
	if local.end < known {
		return obstruct(CodeDataOlder, "the log ends at %d but was known to have had %d: an old backup or a lost disk; promote another copy or restore the newest data", local.end, known)
	}
	return nil
}

// reportedEnd is the durable end that an earlier process of this broker last reported for a partition on this storage at
// this epoch; 0 when none did. The reports are read once: what this process reports is its own.
func (b *Broker) reportedEnd(ctx context.Context, k key, epoch int32) (int64, error) {
	b.reportsMu.Lock()
	defer b.reportsMu.Unlock()
	if b.reports == nil {
		loads, err := b.cfg.Rows.ReadLoads(ctx, b.cfg.BrokerID, b.cfg.Storage)
		b.noteRead(err)
		if err != nil {
			return 0, errMetastoreAway
		}
		b.reports = make(map[key]metastore.Load, len(loads))
		for _, l := range loads {
			b.reports[key{l.TopicID, l.Partition}] = l
		}
	}
	if l := b.reports[k]; l.Epoch == epoch {
		return l.LogEnd, nil
	}
	return 0, nil
}
