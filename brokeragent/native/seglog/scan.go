package seglog

import (
	"errors"
	"fmt"
	"io"
	"os"

	"portage/brokeragent/native/recordbatch"
)

const scanBufferBytes = 1 << 20

// verifier checks batches as their bytes stream by, in pieces of any length, and keeps the tally of the whole, sound
// ones. A batch of any size costs no memory.
type verifier struct {
	tally tally
	head  [recordbatch.HeaderBytes]byte
	have  int // bytes of head
	h     recordbatch.Header
	left  int64 // bytes of the batch after its head that are still to come
	sum   uint32
}

// feed takes the next bytes. After an error, and at the end, tally.at is the last boundary before which all is sound.
func (v *verifier) feed(p []byte) error {
	for len(p) > 0 {
		if v.have < len(v.head) {
			n := copy(v.head[v.have:], p)
			v.have += n
			p = p[n:]
			if v.have < len(v.head) {
				return nil
			}
			if err := v.begin(); err != nil {
				return err
			}
		}
		n := min(v.left, int64(len(p)))
		v.sum = recordbatch.Checksum(v.sum, p[:n])
		v.left -= n
		p = p[n:]
		if v.left > 0 {
			return nil
		}
		if v.sum != v.h.CRC {
			return fmt.Errorf("%w: crc %08x, contents have %08x", recordbatch.ErrCorrupt, v.h.CRC, v.sum)
		}
		v.tally.add(v.head[:], v.h)
		v.have = 0
	}
	return nil
}

func (v *verifier) begin() (err error) {
	if v.h, err = recordbatch.ParseHeader(v.head[:]); err != nil {
		return err
	}
	// The CRC covers neither offset nor length: contiguity is the only proof that the offset is the stored one.
	if v.h.BaseOffset != v.tally.at.next {
		return fmt.Errorf("%w: base offset %d where %d belongs", recordbatch.ErrCorrupt, v.h.BaseOffset, v.tally.at.next)
	}
	v.left = v.h.TotalBytes() - recordbatch.HeaderBytes
	v.sum = recordbatch.Checksum(0, v.head[recordbatch.CRCStart:])
	return nil
}

// partial reports whether a batch has begun and not ended.
func (v *verifier) partial() bool { return v.have > 0 }

// scan reads a whole segment. damage says why the file is not sound up to its end; err is a failure to read.
func scan(f *os.File, base, interval int64) (t tally, damage, err error) {
	v := verifier{tally: newTally(base, interval)}
	info, err := f.Stat()
	if err != nil {
		return v.tally, nil, err
	}
	buf := make([]byte, min(scanBufferBytes, info.Size()+1)) // one more, to meet the end
	for pos := int64(0); ; {
		n, err := f.ReadAt(buf, pos)
		pos += int64(n)
		if damage := v.feed(buf[:n]); damage != nil {
			return v.tally, damage, nil
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return v.tally, nil, err
		}
	}
	if v.partial() {
		return v.tally, fmt.Errorf("%w at the end of the file", recordbatch.ErrShort), nil
	}
	return v.tally, nil, nil
}

// walkHeads calls visit for each batch of f from one boundary up to end, reading little but the heads, until visit
// returns false.
func walkHeads(f *os.File, from, end int64, visit func(pos int64, head []byte, h recordbatch.Header) bool) error {
	buf := make([]byte, 16<<10)
	var window []byte
	windowAt := from
	for pos := from; pos < end; {
		skip := pos - windowAt
		if skip+recordbatch.HeaderBytes > int64(len(window)) {
			n, err := f.ReadAt(buf[:min(int64(len(buf)), end-pos)], pos)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			window, windowAt, skip = buf[:n], pos, 0
		}
		head := window[skip:]
		h, err := recordbatch.ParseHeader(head)
		if err == nil && pos+h.TotalBytes() > end {
			err = fmt.Errorf("%w: batch of %d bytes with %d left", recordbatch.ErrShort, h.TotalBytes(), end-pos)
		}
		if err != nil {
			return &CorruptError{File: f.Name(), Position: pos, Err: err}
		}
		if !visit(pos, head[:recordbatch.HeaderBytes], h) {
			return nil
		}
		pos += h.TotalBytes()
	}
	return nil
}
