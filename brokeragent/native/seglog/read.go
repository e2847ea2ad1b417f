package seglog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"portage/brokeragent/native/recordbatch"
)

// view is what a reader takes out from under mu: a durable prefix of one segment.
type view struct {
	base   int64
	sealed bool
	at     mark
	tally  tally
	file   *os.File // nil: open the path
	path   string
}

func (l *Log) viewOf(s *segment) view {
	return view{base: s.base, sealed: s.sealed, at: s.durable, tally: s.tally, file: s.file, path: fileOf(l.dir, s.base, logExt)}
}

// with runs read on the segment's file. The shared handle may be closed under a reader when the segment is sealed; the
// file itself never changes below its durable end, so reading it again through a handle of its own is the same.
func (v view) with(read func(f *os.File) error) error {
	if v.file != nil {
		if err := read(v.file); !errors.Is(err, os.ErrClosed) {
			return err
		}
	}
	f, err := os.Open(v.path)
	if err != nil {
		return err
	}
	defer f.Close()
	return read(f)
}

// Read returns stored bytes from the batch that holds offset on: whole batches, at least one whatever maxBytes says,
// durable ones only, of one segment. At DurableEnd it returns nothing; outside of [Start, DurableEnd] an
// *OutOfRangeError. The first batch may begin before offset.
func (l *Log) Read(offset int64, maxBytes int) ([]byte, error) {
	v, empty, err := l.viewAt(offset)
	if err != nil || empty {
		return nil, err
	}
	var out []byte
	err = v.with(func(f *os.File) (err error) {
		out, err = readFrom(f, v, offset, int64(maxBytes))
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		// Retention was faster.
		if _, _, now := l.viewAt(offset); now != nil {
			return nil, now
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s at %d: %w", l.id, offset, err)
	}
	return out, nil
}

func (l *Log) viewAt(offset int64) (v view, empty bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return view{}, false, err
	}
	if offset < l.start || offset > l.durableEnd {
		return view{}, false, &OutOfRangeError{offset, l.start, l.durableEnd}
	}
	if offset == l.durableEnd {
		return view{}, true, nil
	}
	return l.viewOf(l.find(offset)), false, nil
}

func readFrom(f *os.File, v view, offset, maxBytes int64) ([]byte, error) {
	from, first := int64(-1), int64(0)
	near := v.tally.beforeOffset(offset)
	err := walkHeads(f, near.size, v.at.size, func(pos int64, _ []byte, h recordbatch.Header) bool {
		if h.NextOffset() <= offset {
			return true
		}
		from, first = pos, h.TotalBytes()
		return false
	})
	if err != nil {
		return nil, err
	}
	if from < 0 {
		return nil, &CorruptError{File: f.Name(), Position: near.size, Err: fmt.Errorf("offset %d is not where the index says", offset)}
	}
	buf := make([]byte, min(max(maxBytes, first), v.at.size-from))
	if _, err := io.ReadFull(io.NewSectionReader(f, from, int64(len(buf))), buf); err != nil {
		return nil, err
	}
	whole := 0
	for _, batch := range recordbatch.Iterate(buf) {
		whole += len(batch)
	}
	return buf[:whole], nil
}
