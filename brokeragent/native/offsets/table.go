package offsets

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"portage/internal/durable"
)

// ErrClosed is returned by calls after Close.
var ErrClosed = errors.New("offsets table is closed")

// Options tune a table; the zero value is ready for production.
type Options struct {
	Now          func() time.Time
	CompactBytes int64 // the journal is rewritten when it is longer than this and than 4 times its contents; 0: 1 MiB

	syncFile func(*os.File) error // a test's failing disk
}

// compactRatio is how many times its contents a journal may be long.
const compactRatio = 4

// Table is the committed offsets of one partition. Every method is safe for concurrent use.
type Table struct {
	dir       string
	opts      Options
	recovered Recovery

	ioMu sync.Mutex // serializes writes to the journal; before mu
	file *os.File   // guarded by ioMu
	size int64      // guarded by ioMu: the journal's length

	mu      sync.Mutex
	state   state         // guarded by mu, as all below
	pending []byte        // frames that are not written yet
	seq     int64         // of the last frame made
	durable int64         // the last frame that is fsynced
	failed  error         // the first failure
	closed  bool          // no further changes
	changed chan struct{} // closed and replaced when durable advances or the table fails

	wake chan struct{}
	quit chan struct{}
	done chan struct{}
}

// Open opens the table in dir, or begins an empty one.
func Open(dir string) (*Table, error) { return OpenWith(dir, Options{}) }

// OpenWith is Open with options.
func OpenWith(dir string, opts Options) (*Table, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.CompactBytes <= 0 {
		opts.CompactBytes = 1 << 20
	}
	if opts.syncFile == nil {
		opts.syncFile = durable.Datasync
	}
	file, s, size, rec, err := openJournal(dir, opts.syncFile)
	if err != nil {
		return nil, fmt.Errorf("open committed offsets: %w", err)
	}
	t := &Table{dir: dir, opts: opts, recovered: rec, file: file, size: size, state: s,
		changed: make(chan struct{}), wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go t.flushLoop()
	return t, nil
}

// Recovered says what Open had to cut.
func (t *Table) Recovered() Recovery { return t.recovered }

// Failed is the error that ended this table, nil while it works.
func (t *Table) Failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

// Commit stores a group's offset under the next stamp of the partition's epoch. The entry may be acknowledged once wait
// returns nil.
func (t *Table) Commit(epoch int32, group string, offset int64, leaderEpoch int32, metadata string) (wait func(context.Context) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return func(context.Context) error { return err }
	}
	t.state.counter++
	e := Entry{Group: group, Offset: offset, LeaderEpoch: leaderEpoch, Metadata: metadata,
		Stamp: Stamp{epoch, t.state.counter}, CommittedAt: time.UnixMilli(t.opts.Now().UnixMilli())}
	t.state.entries[group] = e
	return t.journal(appendEntry([]byte{kindCommit}, e))
}

// Delete forgets a group. It uses up a stamp, so that what was deleted stays older than what comes after.
func (t *Table) Delete(group string) (wait func(context.Context) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return func(context.Context) error { return err }
	}
	t.state.counter++
	delete(t.state.entries, group)
	return t.journal(binary.AppendVarint(appendString([]byte{kindDelete}, group), t.state.counter))
}

// usable runs under mu.
func (t *Table) usable() error {
	switch {
	case t.failed != nil:
		return t.failed
	case t.closed:
		return ErrClosed
	case int64(len(t.pending)) > t.opts.CompactBytes:
		return errFull // the disk has been full for long; what is queued already is enough to remember
	}
	return nil
}

// journal queues a payload; it runs under mu, so the journal has the order of the stamps.
func (t *Table) journal(payload []byte) func(context.Context) error {
	t.pending = appendFrame(t.pending, payload)
	t.seq++
	seq := t.seq
	t.poke()
	return func(ctx context.Context) error { return t.wait(ctx, seq) }
}

// poke asks for a flush; it never blocks.
func (t *Table) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *Table) wait(ctx context.Context, seq int64) error {
	for {
		t.mu.Lock()
		done, failed, changed := t.durable >= seq, t.failed, t.changed
		t.mu.Unlock()
		if done || failed != nil {
			if done {
				failed = nil
			}
			return failed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Get is a group's entry.
func (t *Table) Get(group string) (Entry, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.state.entries[group]
	return e, ok
}

// All lists the entries by group.
func (t *Table) All() []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state.sorted()
}

// Snapshot encodes everything, for Replace or WriteSnapshotFile elsewhere.
func (t *Table) Snapshot() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return appendSum(t.state.encodeSnapshot())
}

// Replace puts a snapshot in the place of everything in the table (R24). It is durable when Replace returns nil. Commits
// that run at the same time are either replaced or come after.
func (t *Table) Replace(snapshot []byte) error {
	payload, err := checkSum(snapshot)
	if err != nil {
		return err
	}
	next := state{}
	if err := next.applySnapshot(payload); err != nil {
		return err
	}
	t.ioMu.Lock()
	defer t.ioMu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	next.counter = max(next.counter, t.state.counter)
	// Under mu, although it is disk I/O: no commit may be stamped between the old contents and the new.
	if err := t.rewrite(next.encodeSnapshot()); errors.Is(err, errFull) {
		return err
	} else if err != nil {
		t.fail(err)
		return t.failed
	}
	t.state = next
	t.pending, t.durable = nil, t.seq
	t.broadcast()
	return nil
}

// Close makes everything durable and ends the table.
func (t *Table) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	t.mu.Unlock()
	close(t.quit)
	<-t.done
	t.ioMu.Lock()
	defer t.ioMu.Unlock()
	return errors.Join(t.Failed(), t.file.Close())
}

// fail and broadcast run under mu.
func (t *Table) fail(err error) {
	if t.failed == nil {
		t.failed = fmt.Errorf("committed offsets in %s failed, open them again after a look at the disk: %w", t.dir, err)
	}
	t.broadcast()
}

func (t *Table) broadcast() {
	close(t.changed)
	t.changed = make(chan struct{})
}
