package seglog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"sync"
)

// segment is one file of the log. All fields but base are guarded by Log.mu.
type segment struct {
	base    int64
	tally   tally    // of what is written
	durable mark     // of what is fsynced; equal to tally.at once sealed
	sealed  bool     // never grows again; all of it is durable
	file    *os.File // open while the segment is the active one, and a moment longer
}

// Log is the log of one partition. Every method is safe for concurrent use.
type Log struct {
	dir  string
	id   Identity
	opts Options

	appendMu sync.Mutex // serializes what changes the end: Append, rolls, BeginEpoch, Close
	structMu sync.Mutex // serializes what removes or replaces files, and pins

	mu         sync.Mutex
	segs       []*segment // guarded by mu, as all below; never empty, the last is active
	start      int64
	end        int64
	durableEnd int64
	epochs     []Epoch // replaced, never changed
	producers  producerTable
	pins       map[string]struct{}
	sealing    []sealJob // rolled segments whose index is not on disk yet
	failed     error
	closed     bool
	changed    chan struct{} // closed and replaced at each advance of durableEnd, at failure and at close

	wake       chan struct{} // of the syncer; holds at most one call
	quit       chan struct{}
	syncerDone chan struct{}
}

// start the syncer of a log whose fields are set.
func (l *Log) run() *Log {
	l.pins = map[string]struct{}{}
	l.changed = make(chan struct{})
	l.wake = make(chan struct{}, 1)
	l.quit = make(chan struct{})
	l.syncerDone = make(chan struct{})
	go l.syncLoop()
	return l
}

// usable runs under mu.
func (l *Log) usable() error {
	switch {
	case l.failed != nil:
		return l.failed
	case l.closed:
		return fmt.Errorf("%s: %w", l.id, ErrClosed)
	}
	return nil
}

func (l *Log) active() *segment { return l.segs[len(l.segs)-1] }

// find returns the segment that holds offset, or would; it runs under mu.
func (l *Log) find(offset int64) *segment {
	n := sort.Search(len(l.segs), func(i int) bool { return l.segs[i].base > offset })
	if n == 0 {
		return nil
	}
	return l.segs[n-1]
}

// Dir is the log's directory.
func (l *Log) Dir() string { return l.dir }

// Identity is whose log it is.
func (l *Log) Identity() Identity { return l.id }

// Start is the first offset that may be read.
func (l *Log) Start() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start
}

// End is the offset the next append gets; what lies below may not be durable yet.
func (l *Log) End() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// DurableEnd is the end of what is fsynced: the high watermark of a partition with one copy.
func (l *Log) DurableEnd() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durableEnd
}

// Size is the number of bytes in the segments.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := int64(0)
	for _, s := range l.segs {
		total += s.tally.at.size
	}
	return total
}

// Failed is the error that ended this log, nil while it works.
func (l *Log) Failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Changed closes at the next advance of DurableEnd, at a failure and at Close. Take it before looking at the state.
func (l *Log) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// broadcast wakes all who wait on Changed; it runs under mu.
func (l *Log) broadcast() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Close makes everything durable, writes the producer snapshot and ends the log.
func (l *Log) Close() error {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	l.mu.Lock()
	end, failed, closed := l.end, l.failed, l.closed
	l.mu.Unlock()
	if closed {
		return nil
	}
	var err error
	if failed == nil {
		if err = l.WaitDurable(context.Background(), end); err == nil {
			err = l.writeSnapshot(l.ProducerSnapshot(), end)
		}
	}
	l.mu.Lock()
	l.closed = true
	l.broadcast()
	active := l.active()
	l.mu.Unlock()
	close(l.quit)
	<-l.syncerDone // it finishes the seals in hand
	return errors.Join(failed, err, active.file.Close())
}
