package native

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"portage/brokeragent/control"
	"portage/brokeragent/native/recordbatch"
	"portage/brokeragent/native/seglog"
	"portage/internal/durable"
)

// judgeEvery is the first pause between two attempts to judge copies whose owner could not be asked, or whose answer decided
// nothing; it grows to judgeRarely while nothing changes.
const (
	judgeEvery  = 5 * time.Second
	judgeRarely = 2 * time.Minute
)

// judgeSoon asks for the copies in trash to be judged.
func (b *Broker) judgeSoon() {
	select {
	case b.judgeKick <- struct{}{}:
	default:
	}
}

// judging judges the copies in trash: at boot, when one comes in, and again while an owner could not be asked.
func (b *Broker) judging(ctx context.Context) {
	b.judgeSoon()
	var again <-chan time.Time // nil while nothing is left to judge
	pause := judgeEvery
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.judgeKick:
			pause = judgeEvery
		case <-again:
			pause = min(2*pause, judgeRarely)
		}
		left, err := b.trash.judgeAll(ctx)
		if err != nil && ctx.Err() == nil {
			b.logger.Warn("judging former copies", "error", err)
		}
		again = nil
		if left {
			again = time.After(pause)
		}
	}
}

// judgeAll compares every copy that is not judged yet with its owner's own answer, and sets aside what the owner does not
// have. It reports whether some are left.
//
// This process dies anywhere in it: a copy is where it was, or in quarantine under its record.
func (t *Trash) judgeAll(ctx context.Context) (left bool, err error) {
	all, err := t.List()
	if err != nil {
		return true, err
	}
	for _, r := range all {
		if r.Judged {
			continue
		}
		row, err := t.broker.cfg.Rows.ReadAssignment(ctx, r.TopicID, r.Partition)
		if err != nil {
			return true, errMetastoreAway
		}
		if row == nil {
			continue // its topic is gone: there is no owner to compare it with
		}
		owner, ok := t.broker.peer(row.Owner)
		if !ok {
			left = true
			continue
		}
		status, err := t.broker.cfg.Peers.Partition(ctx, owner.ControlURL, r.TopicID, r.Partition)
		if err != nil || (status.State != string(StateOpen) && status.State != string(StateFrozen)) {
			left = true
			continue
		}
		if len(r.Epochs) == 0 || r.End < 0 {
			t.learn(&r)
		}
		switch at, v := judge(r.Epochs, r.End, status.Epochs, status.DurableEnd); v {
		case diverged:
			err = t.SetAside(r, at)
		case within:
			err = t.change(r.Dir, func(now *Retained) { now.Judged, now.End, now.Epochs = true, r.End, r.Epochs })
		default:
			left = true
		}
		if err != nil {
			return true, err
		}
	}
	return left, nil
}

// learn fills in, from the copy's own folder, the end and the epochs that its record does not tell: it was kept by an earlier
// release, or before its first look at the source. What can not be learnt stays unknown, and the copy unjudged.
func (t *Trash) learn(r *Retained) {
	t.mu.Lock()
	defer t.mu.Unlock()
	segments, err := filepath.Glob(filepath.Join(r.Dir, "*.log"))
	if err != nil {
		return
	}
	if len(segments) == 0 {
		r.End = 0 // nothing was ever copied into it
		return
	}
	log, _, err := seglog.Open(r.Dir, t.broker.cfg.Log)
	if err != nil {
		r.End = -1 // a staging, whose bytes alone prove nothing, or a damaged log
		return
	}
	r.End, r.Epochs = log.End(), epochStarts(log)
	if err := log.Close(); err != nil {
		t.broker.logger.Warn("closing a former copy", "copy", r.ID(), "error", err)
	}
}

// change rewrites the record of a copy.
func (t *Trash) change(dir string, change func(*Retained)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var now Retained
	if err := durable.ReadJSON(filepath.Join(dir, retainedFile), &now); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // taken meanwhile
		}
		return err
	}
	change(&now)
	return durable.WriteJSON(filepath.Join(dir, retainedFile), now)
}

// SetAside moves a copy that holds records of its own from trash to quarantine, where nothing adopts or sweeps it (R29).
func (t *Trash) SetAside(r Retained, at int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.setAside(r, at)
}

// setAside is SetAside for a caller that holds mu.
func (t *Trash) setAside(r Retained, at int64) error {
	if _, err := os.Stat(r.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dir := r.Dir
	r.Divergence = &at
	if err := durable.WriteJSON(filepath.Join(dir, retainedFile), r); err != nil {
		return err
	}
	t.broker.logger.Error("a former copy holds records that its owner does not have; it is in quarantine", "partition", fmt.Sprintf("%s/%d", r.Topic, r.Partition),
		"from", at, "end", r.End, "copy", r.ID())
	return durable.Rename(dir, unused(filepath.Join(t.quarantine, filepath.Base(dir))))
}

// Copies lists trash and quarantine, newest first.
func (t *Trash) Copies() ([]control.RetainedCopy, error) {
	copies := []control.RetainedCopy{}
	for _, root := range []string{t.root, t.quarantine} {
		all, err := list(root)
		if err != nil {
			return nil, err
		}
		for _, r := range all {
			c := control.RetainedCopy{ID: r.ID(), Quarantined: root == t.quarantine, TopicID: r.TopicID, Topic: r.Topic, Partition: r.Partition, Epoch: r.Epoch, End: r.End,
				Reason: r.Reason, MoveID: r.MoveID, At: r.At, Bytes: sizeOf(r.Dir), Judged: r.Judged, Hold: r.Hold}
			if r.Divergence != nil {
				c.Divergence, c.Records = *r.Divergence, max(0, r.End-*r.Divergence)
			}
			copies = append(copies, c)
		}
	}
	sort.SliceStable(copies, func(i, j int) bool { return copies[i].At.After(copies[j].At) })
	return copies, nil
}

// Quarantined counts the copies in quarantine and the offsets in them that are nowhere else; an error when they can not be read.
func (t *Trash) Quarantined() (copies int, records int64, err error) {
	all, err := list(t.quarantine)
	for _, r := range all {
		copies++
		if r.Divergence != nil {
			records += max(0, r.End-*r.Divergence)
		}
	}
	return copies, records, err
}

// Kept are the former copies in trash and in quarantine.
type Kept struct {
	Copies int
	Bytes  int64
}

// Kept counts them; an error when a folder can not be read, for then nothing is known.
func (t *Trash) Kept() (trash, quarantine Kept, err error) {
	for _, k := range []struct {
		root string
		kept *Kept
	}{{t.root, &trash}, {t.quarantine, &quarantine}} {
		all, err := list(k.root)
		if err != nil {
			return Kept{}, Kept{}, err
		}
		k.kept.Copies, k.kept.Bytes = len(all), sizeOf(k.root)
	}
	return trash, quarantine, nil
}

var copyID = regexp.MustCompile(`^[a-zA-Z0-9-]{1,120}$`)

func (t *Trash) find(root, id string) (Retained, error) {
	r := Retained{Dir: filepath.Join(root, id)}
	if !copyID.MatchString(id) || durable.ReadJSON(filepath.Join(r.Dir, retainedFile), &r) != nil {
		return r, control.Errorf(control.CodeNotFound, "there is no copy %q there; list them with `portage trash list` and `portage quarantine list`", id)
	}
	return r, nil
}

// Hold keeps a copy in trash from being swept and adopted, or lets it go.
func (t *Trash) Hold(id string, hold bool) error {
	r, err := t.find(t.root, id)
	if err != nil {
		return err
	}
	if err := t.change(r.Dir, func(now *Retained) { now.Hold = hold }); err != nil {
		return control.Errorf(control.CodeStorage, "the copy's record could not be written: %v", err)
	}
	return nil
}

// PurgeQuarantine deletes a quarantined copy. The caller was told what is lost with it.
func (t *Trash) PurgeQuarantine(id string) error { return t.purge(t.quarantine, id) }

// PurgeTrash deletes a copy in trash whatever its owner says. The caller accepts that nothing proves that nothing is lost.
func (t *Trash) PurgeTrash(id string) error { return t.purge(t.root, id) }

func (t *Trash) purge(root, id string) error {
	r, err := t.find(root, id)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := discard(r.Dir); err != nil {
		return control.Errorf(control.CodeStorage, "the copy could not be deleted: %v", err)
	}
	t.broker.logger.Warn("a copy was purged by an operator", "partition", fmt.Sprintf("%s/%d", r.Topic, r.Partition), "from", value(r.Divergence), "end", r.End)
	return nil
}

func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// Export returns a walk over the records from a quarantined copy's divergence on. It reads segment files as they are and
// changes nothing, so it works for a former log and for a staging alike.
func (t *Trash) Export(id string) (func(func(control.ExportedRecord) error) error, error) {
	r, err := t.find(t.quarantine, id)
	if err != nil {
		return nil, err
	}
	segments, err := filepath.Glob(filepath.Join(r.Dir, "*.log"))
	if err != nil {
		return nil, err
	}
	sort.Strings(segments) // the names are base offsets of equal length
	return func(each func(control.ExportedRecord) error) error {
		for _, path := range segments {
			if err := exportSegment(path, value(r.Divergence), each); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		return nil
	}, nil
}

// exportSegment decodes one segment, batch by batch. A torn last batch ends it: nothing of it was ever acknowledged.
func exportSegment(path string, from int64, each func(control.ExportedRecord) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	reader := bufio.NewReaderSize(file, 1<<20)
	decompressor := kgo.DefaultDecompressor()
	head := make([]byte, recordbatch.HeaderBytes)
	for {
		if _, err := io.ReadFull(reader, head); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			return err
		}
		h, err := recordbatch.ParseHeader(head)
		if err != nil {
			return err
		}
		rest := h.TotalBytes() - recordbatch.HeaderBytes
		if h.NextOffset() <= from {
			if _, err := io.CopyN(io.Discard, reader, rest); err != nil {
				return ignoreTorn(err)
			}
			continue
		}
		batch := make([]byte, h.TotalBytes())
		copy(batch, head)
		if _, err := io.ReadFull(reader, batch[recordbatch.HeaderBytes:]); err != nil {
			return ignoreTorn(err)
		}
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.RecordBatches = batch
		decoded, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: from}, &rp, decompressor, nil)
		if decoded.Err != nil {
			return decoded.Err
		}
		for _, record := range decoded.Records {
			out := control.ExportedRecord{Offset: record.Offset, Timestamp: record.Timestamp.UTC(), Key: record.Key, Value: record.Value}
			for _, header := range record.Headers {
				out.Headers = append(out.Headers, control.ExportedHeader{Key: header.Key, Value: header.Value})
			}
			if err := each(out); err != nil {
				return err
			}
		}
	}
}

func ignoreTorn(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// sizeOf is the size of all files below a folder.
func sizeOf(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				total += info.Size()
			}
		}
		return nil
	})
	return total
}
