package seglog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	copyBufferBytes = 1 << 20
	copyBuffers     = 4
	// writeBackLag bounds the dirty bytes of a copy: a backlog of gigabytes would stall every other fsync on the disk.
	writeBackLag = 32 << 20
)

// SizeMismatchError refuses bytes that do not begin where the staged segment ends.
type SizeMismatchError struct {
	Base, Size, Asked int64
}

func (e *SizeMismatchError) Error() string {
	return fmt.Sprintf("staged segment %d has %d bytes, the stream begins at %d", e.Base, e.Size, e.Asked)
}

// piece is one buffer of a stream with the tally at its end.
type piece struct {
	buf   []byte
	tally tally
	err   error // after these bytes the stream ended badly
}

// WriteSegment appends n bytes of r to the segment at base, which must have exactly fromSize bytes. A new segment begins
// with fromSize 0 at the copy's end; only the last segment grows. Batches are verified as they pass; what is not a whole,
// sound and contiguous batch is kept out. written counts the bytes kept, also with an error, and the next call goes on
// from there. An incomplete batch at the end of the n bytes is no error; a stream that ends early is io.ErrUnexpectedEOF.
//
// A Read that blocks must end when ctx does; WriteSegment waits for it. Nothing written is durable before Sync.
func (s *Staging) WriteSegment(ctx context.Context, base, fromSize int64, r io.Reader, n int64) (written int64, err error) {
	s.opMu.Lock()
	defer s.opMu.Unlock()
	seg, err := s.segmentForWrite(base, fromSize)
	if err != nil {
		return 0, fmt.Errorf("copy segment %d of %s: %w", base, s.id, err)
	}
	err = s.stream(ctx, seg, r, n)
	// The tail of an incomplete batch, or of a bad one, may have been written.
	if s.Failed() == nil {
		if cut := seg.file.Truncate(seg.tally.at.size); cut != nil {
			err = errors.Join(err, s.fail(cut))
		}
	}
	written = seg.tally.at.size - fromSize
	if err != nil {
		err = fmt.Errorf("copy segment %d of %s from byte %d: %w", base, s.id, fromSize, err)
	}
	return written, err
}

func (s *Staging) segmentForWrite(base, fromSize int64) (*stagedSegment, error) {
	if err := s.Failed(); err != nil {
		return nil, err
	}
	if n := len(s.segs); n > 0 {
		last := s.segs[n-1]
		switch {
		case last.base == base:
			if last.tally.at.size != fromSize {
				return nil, &SizeMismatchError{base, last.tally.at.size, fromSize}
			}
			if last.sealed { // the source went on after all
				last.sealed = false
				if err := removeIfThere(fileOf(s.dir, base, indexExt)); err != nil {
					return nil, err
				}
			}
			return last, s.reopen(last)
		case base < last.base:
			return nil, fmt.Errorf("segment %d came after it: %w", last.base, ErrNoSegment)
		case base != last.tally.at.next:
			return nil, fmt.Errorf("the copy ends at offset %d: %w", last.tally.at.next, ErrNoSegment)
		}
	}
	if fromSize != 0 {
		return nil, &SizeMismatchError{base, 0, fromSize}
	}
	f, err := os.OpenFile(fileOf(s.dir, base, logExt), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	seg := &stagedSegment{base: base, tally: newTally(base, s.opts.IndexIntervalBytes), file: f}
	seg.synced = seg.tally.origin()
	s.dirDirty = true
	s.mu.Lock()
	s.segs = append(s.segs, seg)
	s.mu.Unlock()
	return seg, nil
}

// stream reads and verifies in one goroutine and writes in this one, over two buffers.
func (s *Staging) stream(ctx context.Context, seg *stagedSegment, r io.Reader, n int64) error {
	free := make(chan []byte, copyBuffers)
	for range copyBuffers {
		free <- make([]byte, min(copyBufferBytes, max(n, 1)))
	}
	pieces := make(chan piece)
	stop := make(chan struct{})
	go readPieces(ctx, verifier{tally: seg.tally}, r, n, free, pieces, stop)
	defer func() {
		close(stop)
		for range pieces { // the reader closes it when it has ended
		}
	}()

	for pos, back := seg.tally.at.size, (writeBack{file: seg.file, next: seg.tally.at.size}); ; {
		p, more := <-pieces
		if !more {
			return nil
		}
		if _, err := seg.file.WriteAt(p.buf, pos); err != nil {
			return err
		}
		pos += int64(len(p.buf))
		s.mu.Lock()
		seg.tally = p.tally
		s.mu.Unlock()
		if p.err != nil {
			return p.err
		}
		if err := back.upTo(pos); err != nil {
			return s.fail(err)
		}
		free <- p.buf[:cap(p.buf)]
	}
}

func readPieces(ctx context.Context, v verifier, r io.Reader, n int64, free <-chan []byte, pieces chan<- piece, stop <-chan struct{}) {
	defer close(pieces)
	streamAt := v.tally.at.size
	for n > 0 {
		var buf []byte
		select {
		case buf = <-free:
		case <-stop:
			return
		}
		buf = buf[:min(int64(len(buf)), n)]
		err := ctx.Err()
		got := 0
		if err == nil {
			if got, err = io.ReadFull(r, buf); errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
		}
		buf = buf[:got]
		n -= int64(got)
		streamAt += int64(got)
		if bad := v.feed(buf); bad != nil {
			err = &CorruptError{File: "stream", Position: v.tally.at.size, Err: bad}
		}
		select {
		case pieces <- piece{buf, v.tally, err}:
		case <-stop:
			return
		}
		if err != nil {
			return
		}
	}
}

// writeBack has the kernel write a growing file early: each window is started when it is full and waited for once it is
// writeBackLag old. It makes nothing durable; that is Sync's.
type writeBack struct {
	file *os.File
	next int64 // first byte not started
}

func (w *writeBack) upTo(end int64) error {
	for end-w.next >= copyBufferBytes {
		if err := w.window(w.next, unix.SYNC_FILE_RANGE_WRITE); err != nil {
			return err
		}
		if old := w.next - writeBackLag; old >= 0 {
			err := w.window(old, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
			if err != nil {
				return err
			}
		}
		w.next += copyBufferBytes
	}
	return nil
}

// window treats a refusal by the file system as fine: this is only about pace. A write error is not: the kernel reports
// it once, and the fsync that follows might succeed.
func (w *writeBack) window(from int64, flags int) error {
	conn, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	var rangeErr error
	if err := conn.Control(func(fd uintptr) { rangeErr = unix.SyncFileRange(int(fd), from, copyBufferBytes, flags) }); err != nil {
		return err
	}
	switch rangeErr {
	case nil, unix.ENOSYS, unix.EINVAL, unix.ENOTSUP, unix.ESPIPE, unix.EINTR:
		return nil
	}
	return os.NewSyscallError("sync_file_range", rangeErr)
}
