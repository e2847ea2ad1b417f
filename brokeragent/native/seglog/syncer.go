package seglog

import (
	"context"
	"fmt"
	"os"

	"portage/internal/durable"
)

// sealJob is what is left to do for a segment that was rolled: its index, the producer snapshot at its end, and the
// directory entries of both and of its follower.
type sealJob struct {
	seg      *segment
	snapshot []byte
	end      int64
}

// WaitDurable returns once everything below end is fsynced. It may be called by any number of goroutines; one fsync
// serves all who wait.
func (l *Log) WaitDurable(ctx context.Context, end int64) error {
	for {
		l.mu.Lock()
		// What is durable stays so, whatever happened to the log since.
		done, err, written, changed := l.durableEnd >= end, l.usable(), l.end, l.changed
		l.mu.Unlock()
		switch {
		case done:
			return nil
		case err != nil:
			return err
		case end > written:
			return fmt.Errorf("wait for %s: %w", l.id, &OutOfRangeError{end, 0, written})
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// poke asks the syncer to run; it never blocks.
func (l *Log) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Log) syncLoop() {
	defer close(l.syncerDone)
	for {
		select {
		case <-l.wake:
			l.syncOnce()
		case <-l.quit:
			l.syncOnce()
			return
		}
	}
}

// syncOnce makes durable what was written when it began.
func (l *Log) syncOnce() {
	l.mu.Lock()
	jobs, seg, failed := l.sealing, l.active(), l.failed
	l.sealing = nil
	target := seg.tally.at
	dirty := target.size > seg.durable.size
	l.mu.Unlock()
	if failed != nil {
		return
	}
	if len(jobs) > 0 {
		if err := l.seal(jobs); err != nil {
			l.fail(err)
			return
		}
	}
	if !dirty {
		return
	}
	if err := l.opts.syncFile(seg.file); err != nil {
		l.fail(err)
		return
	}
	l.mu.Lock()
	seg.durable = target
	l.durableEnd = target.next
	l.broadcast()
	l.mu.Unlock()
}

// seal finishes rolled segments. Index and snapshot can be rebuilt, so failing to write them is a warning; the directory
// entry of the new segment cannot.
func (l *Log) seal(jobs []sealJob) error {
	for _, job := range jobs {
		l.structMu.Lock()
		err := l.writeIndex(job)
		l.structMu.Unlock()
		if err != nil {
			l.opts.Logger.Warn("sealed segment has no index; it will be rebuilt", "log", l.id.String(), "segment", job.seg.base, "err", err)
		}
		l.mu.Lock()
		file := job.seg.file
		job.seg.file = nil
		l.mu.Unlock()
		if err := file.Close(); err != nil {
			l.opts.Logger.Warn("close sealed segment", "log", l.id.String(), "segment", job.seg.base, "err", err)
		}
	}
	if err := durable.SyncDir(l.dir); err != nil {
		return fmt.Errorf("sync directory of %s: %w", l.id, err)
	}
	return nil
}

// writeIndex runs under structMu: retention may have removed the segment already.
func (l *Log) writeIndex(job sealJob) error {
	if _, err := os.Stat(fileOf(l.dir, job.seg.base, logExt)); err != nil {
		return nil
	}
	if err := replaceFile(fileOf(l.dir, job.seg.base, indexExt), job.seg.tally.encode()); err != nil {
		return err
	}
	if err := replaceFile(fileOf(l.dir, job.end, producersExt), job.snapshot); err != nil {
		return err
	}
	return pruneSnapshots(l.dir)
}

// fail ends the log. The first failure stays.
func (l *Log) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = fmt.Errorf("log of %s failed, open it again after a look at the disk: %w", l.id, err)
		l.opts.Logger.Error("log failed", "log", l.id.String(), "err", err)
	}
	l.broadcast()
}
