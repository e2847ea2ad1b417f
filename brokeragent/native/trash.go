package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"portage/brokeragent/control"
	"portage/brokeragent/native/seglog"
	"portage/internal/durable"
	"portage/internal/faults"
	"portage/metastore"
)

// Retained is a former copy of a partition: kept for a grace period, adopted by a move back whose digests match, swept
// only when the owner itself proves that it holds at least as much.
type Retained struct {
	TopicID   uuid.UUID `json:"topicId"`
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Epoch     int32     `json:"epoch"` // the last epoch it served, or was copied from
	End       int64     `json:"end"`   // -1 when unknown
	Reason    string    `json:"reason"`
	MoveID    string    `json:"moveId,omitempty"`
	At        time.Time `json:"at"`
	// Epochs are the copy's own, oldest first: what a judgement compares with the owner's (R29). Empty when not known.
	Epochs []control.EpochStart `json:"epochs,omitempty"`
	// Judged: its owner's history was compared and has all of it. A copy that is not is neither adopted nor swept.
	Judged bool `json:"judged,omitempty"`
	// Hold keeps it from being swept and adopted until an operator lets it go.
	Hold bool `json:"hold,omitempty"`
	// Divergence is the first offset that is this copy's alone; set in quarantine only.
	Divergence *int64 `json:"divergence,omitempty"`
	Dir        string `json:"-"`
}

// ID names a copy at its broker.
func (r Retained) ID() string { return filepath.Base(r.Dir) }

const retainedFile = "retained.json"

// Trash is the folder of former copies, with the quarantine beside it for those that hold what their owner does not.
type Trash struct {
	mu         sync.Mutex // one taker, adopter, sweeper or judge at a time
	root       string
	quarantine string
	broker     *Broker
}

// take renames a partition's folder into trash. Nothing is read or deleted, so it costs the same at any size.
func (t *Trash) take(p *Partition, row *metastore.Assignment, installed *Installed, end int64, epochs []control.EpochStart) error {
	if _, err := os.Stat(p.dir()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	r := Retained{TopicID: p.topicID, Topic: p.topic, Partition: p.partition, End: end, Epoch: -1, Epochs: epochs, Reason: "moved away", At: t.broker.now()}
	switch {
	case row != nil && installed != nil && installed.Adopted != nil:
		// The aborted move had taken a former copy over: it goes back as it was, with what the move added to it.
		back := *installed.Adopted
		back.Epochs, back.End = epochs, end
		return t.Keep(p.dir(), back)
	case row == nil:
		r.Reason = "topic deleted"
	case installed != nil:
		r.Reason, r.MoveID, r.Epoch = "move aborted", installed.MoveID, row.Epoch
	case len(epochs) > 0:
		r.Epoch = epochs[len(epochs)-1].Epoch
	default:
		r.Epoch = row.Epoch - 1
	}
	return t.Keep(p.dir(), r)
}

// Keep moves any folder with a partition's files into trash under its record.
func (t *Trash) Keep(dir string, r Retained) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Judged = false
	if err := durable.WriteJSON(filepath.Join(dir, retainedFile), r); err != nil {
		return err
	}
	if err := durable.Rename(dir, unused(filepath.Join(t.root, fmt.Sprintf("%s-%d-%d", r.TopicID, r.Partition, r.At.UnixNano())))); err != nil {
		return err
	}
	t.broker.judgeSoon()
	return nil
}

// unused is a path that nothing has: two copies may have come of one that was taken over and given back, with one date. The
// caller holds mu.
func unused(path string) string {
	name := path
	for n := 1; ; n++ {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return name
		}
		name = fmt.Sprintf("%s-%d", path, n)
	}
}

// List reads all records in trash, newest first. A folder without a readable record is left alone and not listed.
func (t *Trash) List() ([]Retained, error) { return list(t.root) }

func list(root string) ([]Retained, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var all []Retained
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), going) {
			continue
		}
		dir := filepath.Join(root, e.Name())
		r := Retained{Dir: dir}
		if err := durable.ReadJSON(filepath.Join(dir, retainedFile), &r); err != nil {
			continue
		}
		all = append(all, r)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].At.After(all[j].At) })
	return all, nil
}

// Adopt gives the newest former copy of a partition to a move: the folder becomes dir. Only a copy whose every record is in
// the source's history is adopted: one that holds more goes to quarantine, one that can not be judged by the source's listing
// stays (R29). Offsets and producer state are dropped, for they are older than the owner's (R24). It reports false when there
// is nothing to adopt. The caller compares the digests of what is on disk with the source before it trusts a byte.
//
// remember is called before the folder moves, so that an aborted move gives the copy back under its own record.
func (t *Trash) Adopt(topicID uuid.UUID, partition int32, dir string, source control.Listing, remember func(Retained) error) (Retained, bool, error) {
	all, err := t.List()
	if err != nil {
		return Retained{}, false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range all {
		if r.TopicID != topicID || r.Partition != partition || r.Hold {
			continue
		}
		switch at, v := judge(r.Epochs, r.End, source.Epochs, source.HighWatermark); v {
		case diverged:
			if err := t.setAside(r, at); err != nil {
				return r, false, err
			}
			continue
		case unjudged:
			continue
		}
		if err := remember(r); err != nil {
			return r, false, err
		}
		// The last look at the source of an earlier move is older than what the next one will see.
		if err := os.Remove(filepath.Join(r.Dir, SourceFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return r, false, err
		}
		id := seglog.Identity{TopicID: r.TopicID, Topic: r.Topic, Partition: r.Partition}
		if err := stageFolder(r.Dir, dir, id, t.broker.cfg.Log); err != nil {
			return r, false, err
		}
		return r, true, nil
	}
	return Retained{}, false, nil
}

// Drop deletes what an aborted move left here. The caller knows from the move's own row that it is aborted.
func (t *Trash) Drop(moveID string) error {
	all, err := t.List()
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range all {
		if r.MoveID == moveID {
			if err := discard(r.Dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// going begins the name of a copy whose deletion was decided and has begun.
const going = ".going-"

// discard deletes a copy that may go. This process dies in it: the copy is whole under its own name, or has a name by which
// nobody lists, adopts or exports what is left of it, and the next sweep deletes that.
func discard(dir string) error {
	gone := filepath.Join(filepath.Dir(dir), going+filepath.Base(dir))
	if err := os.RemoveAll(gone); err != nil { // what another of this name left
		return err
	}
	if err := durable.Rename(dir, gone); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // taken or deleted meanwhile
		}
		return err
	}
	faults.Point("sweep.half")
	return os.RemoveAll(gone)
}

// discardRest deletes what a process left that died in discard.
func (t *Trash) discardRest() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, root := range []string{t.root, t.quarantine} {
		entries, err := os.ReadDir(root)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), going) {
				if err := os.RemoveAll(filepath.Join(root, e.Name())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Bytes is the size of everything in trash.
func (t *Trash) Bytes() int64 { return sizeOf(t.root) }

// Sweep deletes former copies older than age whose owners prove that they hold at least as much (R29): a fresh read of
// the row and the owner's own answer, open, at a later epoch, with an end at least as high. Any doubt keeps the copy.
//
// This process dies anywhere in it: see discard.
func (t *Trash) Sweep(ctx context.Context, age time.Duration) (control.PurgeAnswer, error) {
	var answer control.PurgeAnswer
	if err := t.discardRest(); err != nil {
		return answer, err
	}
	all, err := t.List()
	if err != nil {
		return answer, err
	}
	for _, r := range all {
		if t.broker.now().Sub(r.At) < age {
			continue
		}
		if err := t.sweepable(ctx, r); err != nil {
			answer.Kept = append(answer.Kept, fmt.Sprintf("%s/%d: %v", r.Topic, r.Partition, err))
			continue
		}
		faults.Point("sweep.before")
		// What was proved of it stands: an owner's log that is open only grows, and a hold that came meanwhile is seen here.
		swept, err := t.sweep(r)
		if err != nil {
			return answer, err
		}
		if !swept {
			answer.Kept = append(answer.Kept, fmt.Sprintf("%s/%d: it was taken, or an operator keeps it", r.Topic, r.Partition))
			continue
		}
		faults.Point("sweep.after")
		answer.Deleted++
		t.broker.logger.Info("a former copy was swept", "partition", fmt.Sprintf("%s/%d", r.Topic, r.Partition), "end", r.End)
	}
	return answer, nil
}

func (t *Trash) sweepable(ctx context.Context, r Retained) error {
	row, err := t.broker.readRow(ctx, key{r.TopicID, r.Partition})
	if err != nil {
		return errMetastoreAway
	}
	if row == nil {
		switch gone, err := t.broker.deleted(ctx, r.TopicID); {
		case err != nil:
			return errMetastoreAway
		case !gone:
			return errors.New("the metastore does not know this topic, and nothing says that it was deleted")
		}
		return nil // deleted by a guarded write; the topic id never comes back
	}
	if s := t.broker.suspension(key{r.TopicID, r.Partition}); s != nil {
		return errors.New(s.reason)
	}
	if r.Hold {
		return errors.New("an operator keeps it; let it go with `portage trash keep --off`")
	}
	if row.Moving() != "" {
		return errors.New("the partition is moving")
	}
	if !faults.Enforced("R29") {
		if row.Owner == t.broker.cfg.BrokerID {
			return errors.New("this broker owns the partition")
		}
		return nil // by the row alone: another broker has it
	}
	if r.End < 0 {
		return errors.New("its own end is not known, so nothing proves that the owner holds as much")
	}
	owner, ok := t.broker.peer(row.Owner)
	if !ok {
		return fmt.Errorf("owner %s is not known", row.Owner)
	}
	status, err := t.broker.cfg.Peers.Partition(ctx, owner.ControlURL, r.TopicID, r.Partition)
	switch {
	case err != nil:
		return fmt.Errorf("owner %s did not answer: %w", row.Owner, err)
	case status.State != string(StateOpen):
		return fmt.Errorf("owner %s has it %s", row.Owner, status.State)
	case r.MoveID == "" && status.Epoch < r.Epoch+1:
		return fmt.Errorf("owner %s serves epoch %d", row.Owner, status.Epoch)
	case status.DurableEnd < r.End:
		return fmt.Errorf("owner %s ends at %d, this copy at %d", row.Owner, status.DurableEnd, r.End)
	}
	switch at, v := judge(r.Epochs, r.End, status.Epochs, status.DurableEnd); v {
	case diverged:
		if err := t.SetAside(r, at); err != nil {
			return err
		}
		return fmt.Errorf("it holds records from offset %d on that the owner does not have; it is in quarantine now", at)
	case unjudged:
		return errors.New("nothing proves that the owner's history has all of it")
	}
	return nil
}

// sweep deletes one copy that may go; false when it is gone or kept meanwhile.
func (t *Trash) sweep(r Retained) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var now Retained
	switch err := durable.ReadJSON(filepath.Join(r.Dir, retainedFile), &now); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case now.Hold:
		return false, nil
	}
	return true, discard(r.Dir)
}
