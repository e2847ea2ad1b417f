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
	identity seglog.Identity
	want     seglog.Identity
	install  *Installed
	move     *metastore.Move // the installed copy's move, with its outcome
}

// inspect opens the local log if there is one, and reads the proof of an installed copy.
func (p *Partition) inspect(ctx context.Context) (localCopy, error) {
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

// decideOpen says whether what the disk holds is the partition at the row's epoch. Its error is what the operator reads.
func decideOpen(row *metastore.Assignment, local localCopy, storage uuid.UUID) error {
	fresh := row.State == metastore.StateCreated
	switch {
	case row.OwnerStorage != storage && faults.Enforced("R5"):
		return fmt.Errorf("this partition was last kept on other storage (%s); mount that volume, or promote another copy", row.OwnerStorage)
	case !local.exists && fresh:
		return nil
	case !local.exists:
		if !faults.Enforced("R5") {
			return nil
		}
		return errors.New("this broker owns the partition but its data is not in the data folder: mount the right volume, or promote another copy; an empty log is never created over a lost one")
	case local.identity.TopicID != local.want.TopicID || local.identity.Partition != local.want.Partition:
		return fmt.Errorf("the folder holds %s/%d of another topic; restore the right data", local.identity.Topic, local.identity.Partition)
	case fresh:
		return nil
	case local.install != nil && local.move != nil && local.move.Ended() == metastore.OutcomeCommitted && local.move.CommitEpoch != nil && *local.move.CommitEpoch == row.Epoch:
		// moves, not the row's last move, is the proof that this copy is the committed one (R6).
		if local.end < local.install.End {
			return fmt.Errorf("the installed copy ends at %d, not at %d: the disk lost what was confirmed; promote another copy", local.end, local.install.End)
		}
		return nil
	case row.OpenedEpoch != row.Epoch:
		return fmt.Errorf("this copy is not the one that epoch %d began with; promote a copy that is", row.Epoch)
	case local.end < row.OpenedEnd:
		return fmt.Errorf("the log ends at %d but had %d when it was last opened: an old backup or a lost disk; promote another copy or restore the newest data", local.end, row.OpenedEnd)
	}
	return nil
}
