package seglog

import (
	"fmt"
	"os"

	"portage/brokeragent/native/recordbatch"
)

// SegmentInfo is the durable part of one segment (R25).
type SegmentInfo struct {
	Base         int64
	Size         int64
	NextOffset   int64
	Sealed       bool
	Digest       recordbatch.Digest // of Size bytes
	MaxTimestamp int64              // -1 when there is none
}

// Segments lists the segments with their durable bytes, oldest first. The last one is never sealed.
func (l *Log) Segments() []SegmentInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	infos := make([]SegmentInfo, len(l.segs))
	for i, s := range l.segs {
		d := s.durable
		infos[i] = SegmentInfo{s.base, d.size, d.next, s.sealed, d.digest, d.maxTS}
	}
	return infos
}

// OpenSegment opens a segment's file anew, for sendfile. Only its first size bytes are durable and may be sent.
func (l *Log) OpenSegment(base int64) (f *os.File, size int64, err error) {
	v, err := l.viewOfBase(base)
	if err != nil {
		return nil, 0, err
	}
	if f, err = os.Open(v.path); err != nil {
		return nil, 0, err
	}
	return f, v.at.size, nil
}

// DigestAt is the digest of a segment's first size bytes, which must be durable and end at a batch boundary.
func (l *Log) DigestAt(base, size int64) (recordbatch.Digest, error) {
	v, err := l.viewOfBase(base)
	if err != nil {
		return recordbatch.Digest{}, err
	}
	if size < 0 || size > v.at.size {
		return recordbatch.Digest{}, fmt.Errorf("segment %d of %s has %d durable bytes, not %d: %w", base, l.id, v.at.size, size, ErrBoundary)
	}
	if size == v.at.size {
		return v.at.digest, nil
	}
	var m mark
	err = v.with(func(f *os.File) (err error) {
		m, err = markAt(f, &v.tally, size, v.at.size)
		return err
	})
	return m.digest, err
}

// markAt finds the boundary at size by the heads after the nearest index entry.
func markAt(f *os.File, t *tally, size, end int64) (mark, error) {
	m := t.beforeSize(size)
	if m.size == size {
		return m, nil
	}
	err := walkHeads(f, m.size, end, func(_ int64, head []byte, h recordbatch.Header) bool {
		m = m.after(head, h)
		return m.size < size
	})
	if err == nil && m.size != size {
		err = fmt.Errorf("byte %d of %s: %w", size, f.Name(), ErrBoundary)
	}
	return m, err
}

func (l *Log) viewOfBase(base int64) (view, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return view{}, err
	}
	for _, s := range l.segs {
		if s.base == base {
			return l.viewOf(s), nil
		}
	}
	return view{}, fmt.Errorf("segment %d of %s: %w", base, l.id, ErrNoSegment)
}
