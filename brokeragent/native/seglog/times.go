package seglog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"

	"portage/brokeragent/native/recordbatch"
)

// OffsetForTime is the first durable record at or after ts, with its own timestamp; ok is false when there is none.
func (l *Log) OffsetForTime(ts int64) (offset, timestamp int64, ok bool, err error) {
	views, start, err := l.durableViews()
	if err != nil {
		return 0, 0, false, err
	}
	for _, v := range views {
		if v.at.maxTS < ts || v.at.next <= start {
			continue
		}
		err = v.with(func(f *os.File) (err error) {
			offset, timestamp, ok, err = firstSince(f, v, ts, start)
			return err
		})
		if errors.Is(err, fs.ErrNotExist) {
			continue // retention removed it: its records are no answer any more
		}
		if err != nil || ok {
			return offset, timestamp, ok, err
		}
	}
	return 0, 0, false, nil
}

// MaxTimestamp is the largest timestamp among the durable records and the first record that has it; -1 and -1 when there
// is none.
func (l *Log) MaxTimestamp() (ts, offset int64) {
	views, _, err := l.durableViews()
	if err != nil {
		return noTimestamp, -1
	}
	ts = noTimestamp
	for _, v := range views {
		ts = max(ts, v.at.maxTS)
	}
	if ts == noTimestamp {
		return noTimestamp, -1
	}
	offset, found, ok, err := l.OffsetForTime(ts)
	if err != nil || !ok {
		return noTimestamp, -1
	}
	return found, offset
}

func (l *Log) durableViews() ([]view, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return nil, 0, err
	}
	views := make([]view, len(l.segs))
	for i, s := range l.segs {
		views[i] = l.viewOf(s)
	}
	return views, l.start, nil
}

func firstSince(f *os.File, v view, ts, start int64) (offset, timestamp int64, ok bool, err error) {
	near := v.tally.beforeTime(ts)
	if s := v.tally.beforeOffset(start); s.size > near.size {
		near = s
	}
	var inner error
	err = walkHeads(f, min(near.size, v.at.size), v.at.size, func(pos int64, _ []byte, h recordbatch.Header) bool {
		if h.MaxTimestamp < ts || h.NextOffset() <= start {
			return true
		}
		offset, timestamp, ok, inner = firstInBatch(f, pos, h, ts, start)
		return !ok && inner == nil
	})
	return offset, timestamp, ok, errors.Join(err, inner)
}

// firstInBatch looks at the times of the records. A batch whose records cannot be decoded is answered by its first
// offset: a reader that starts there misses nothing.
func firstInBatch(f *os.File, pos int64, h recordbatch.Header, ts, start int64) (offset, timestamp int64, ok bool, err error) {
	if h.LogAppendTime() {
		return max(h.BaseOffset, start), h.MaxTimestamp, true, nil
	}
	batch := make([]byte, h.TotalBytes())
	if _, err := io.ReadFull(io.NewSectionReader(f, pos, int64(len(batch))), batch); err != nil {
		return 0, 0, false, err
	}
	err = recordbatch.WalkTimes(batch, expand, func(o, t int64) bool {
		if t >= ts && o >= start {
			offset, timestamp, ok = o, t, true
		}
		return !ok
	})
	if err != nil && !ok {
		return max(h.BaseOffset, start), h.MaxTimestamp, true, nil
	}
	return offset, timestamp, ok, nil
}

func expand(codec int8, records []byte) ([]byte, error) {
	b, err := kgo.DefaultDecompressor().Decompress(records, kgo.CompressionCodecType(codec))
	if err != nil {
		return nil, fmt.Errorf("codec %d: %w", codec, err)
	}
	return b, nil
}
