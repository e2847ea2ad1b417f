package seglog

import (
	"fmt"
	"path/filepath"
	"time"
)

// Policy says how much of a log is kept. A zero or negative limit does not limit.
type Policy struct {
	MaxBytes int64
	MaxAge   time.Duration
}

// Pin keeps every segment on disk until Unpin of the same id. The log start may still move.
func (l *Log) Pin(id string) {
	l.structMu.Lock() // a removal that has begun ends first
	defer l.structMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pins[id] = struct{}{}
}

// Unpin ends a Pin; one that is not there is fine.
func (l *Log) Unpin(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pins, id)
}

// Retain removes whole sealed segments that the policy does not keep, oldest first, and moves the log start. Age is told
// by the batches' timestamps against now, never by file times; a segment without timestamps does not age.
func (l *Log) Retain(p Policy, now time.Time) (removed int, err error) {
	l.structMu.Lock()
	defer l.structMu.Unlock()
	l.mu.Lock()
	if err := l.usable(); err != nil || len(l.pins) > 0 {
		l.mu.Unlock()
		return 0, err
	}
	start := max(l.start, l.retained(p, now))
	l.mu.Unlock()
	return l.moveStart(start, now)
}

// retained is the first offset that the policy keeps; it runs under mu.
func (l *Log) retained(p Policy, now time.Time) int64 {
	total := int64(0)
	for _, s := range l.segs {
		total += s.tally.at.size
	}
	for _, s := range l.segs {
		size, newest := s.tally.at.size, s.tally.at.maxTS
		tooMuch := p.MaxBytes > 0 && total-size >= p.MaxBytes
		tooOld := p.MaxAge > 0 && newest >= 0 && now.UnixMilli()-newest > p.MaxAge.Milliseconds()
		if !s.sealed || !tooMuch && !tooOld {
			return s.base
		}
		total -= size
	}
	return l.active().base
}

// DeleteBefore moves the log start to offset, which must be durable, and removes the segments below it once nothing pins
// them. A start below the present one changes nothing.
func (l *Log) DeleteBefore(offset int64) error {
	l.structMu.Lock()
	defer l.structMu.Unlock()
	l.mu.Lock()
	err, start, end := l.usable(), l.start, l.durableEnd
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if offset > end {
		return fmt.Errorf("delete before: %w", &OutOfRangeError{offset, start, end})
	}
	_, err = l.moveStart(max(offset, start), l.opts.Now())
	return err
}

// moveStart runs under structMu. The start is durable before any byte below it goes.
func (l *Log) moveStart(start int64, now time.Time) (removed int, err error) {
	l.mu.Lock()
	moved := start > l.start
	l.mu.Unlock()
	if moved {
		if err := writeDurable(filepath.Join(l.dir, metaFile), encodeJSON(meta{1, l.id, start})); err != nil {
			return 0, fmt.Errorf("move log start of %s to %d: %w", l.id, start, err)
		}
	}
	l.mu.Lock()
	l.start = start
	l.producers.expire(start, now.Add(-l.opts.ProducerExpiry).UnixMilli())
	var gone []*segment
	for len(l.pins) == 0 && len(l.segs) > 1 && l.segs[1].base <= start {
		gone = append(gone, l.segs[0])
		l.segs = l.segs[1:]
	}
	l.mu.Unlock()
	for i, s := range gone {
		if err := removeSegmentFiles(l.dir, s.base); err != nil {
			return i, fmt.Errorf("remove segment %d of %s: %w", s.base, l.id, err)
		}
	}
	return len(gone), nil
}
