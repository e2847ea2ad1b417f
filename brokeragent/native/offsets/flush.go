package offsets

import (
	"errors"
	"fmt"
	"time"

	"portage/internal/durable"
)

// retryFull is the pause before queued frames are tried again on a full disk.
const retryFull = time.Second

// errFull says that the disk had no room for frames and that the journal is as it was before.
var errFull = errors.New("no room for committed offsets")

// flushLoop writes and fsyncs what has been queued; everything queued meanwhile shares the next round.
func (t *Table) flushLoop() {
	defer close(t.done)
	for {
		select {
		case <-t.wake:
			t.flush()
		case <-t.quit:
			t.flush()
			return
		}
	}
}

func (t *Table) flush() {
	t.ioMu.Lock()
	defer t.ioMu.Unlock()
	t.mu.Lock()
	frames, seq, failed := t.pending, t.seq, t.failed
	t.pending = nil
	var compacted []byte
	if failed == nil && t.size+int64(len(frames)) > t.opts.CompactBytes {
		// The snapshot holds what the queued frames say too, so it takes their place.
		if s := t.state.encodeSnapshot(); t.size+int64(len(frames)) > compactRatio*int64(len(s)+frameHead) {
			compacted = s
		}
	}
	t.mu.Unlock()
	if failed != nil || len(frames) == 0 {
		return
	}
	err := t.store(compacted, frames)
	t.mu.Lock()
	defer t.mu.Unlock()
	if errors.Is(err, errFull) {
		// Not a failed disk: whoever waits for these frames waits on, in their order, until there is room.
		t.pending = append(frames, t.pending...)
		time.AfterFunc(retryFull, t.poke)
		return
	}
	if err != nil {
		t.fail(err)
		return
	}
	t.durable = seq
	t.broadcast()
}

// store, append and rewrite run under ioMu.
func (t *Table) store(compacted, frames []byte) error {
	if compacted == nil {
		return t.append(frames)
	}
	err := t.rewrite(compacted)
	if errors.Is(err, errFull) {
		return t.append(frames) // there may be room for a few frames where there is none for a second journal
	}
	return err
}

func (t *Table) append(frames []byte) error {
	if _, err := t.file.WriteAt(frames, t.size); err != nil {
		// What was written of them was never acknowledged and must not come to light at the next Open.
		if cut := t.file.Truncate(t.size); cut != nil {
			return fmt.Errorf("%w; then: %w", err, cut)
		}
		if durable.NoRoom(err) {
			return fmt.Errorf("%w: %w", errFull, err)
		}
		return err
	}
	if err := t.opts.syncFile(t.file); err != nil {
		return err
	}
	t.size += int64(len(frames))
	return nil
}

func (t *Table) rewrite(payload []byte) error {
	file, size, err := replaceJournal(t.dir, payload, t.opts.syncFile)
	if err != nil {
		return err
	}
	old := t.file
	t.file, t.size = file, size
	return old.Close() // everything in it was fsynced, and it is no longer the journal
}
