package seglog

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"sort"

	"portage/brokeragent/native/recordbatch"
)

// noTimestamp is the largest timestamp of no batch at all, and of batches without one.
const noTimestamp = -1

// mark is the state of a segment at a batch boundary: what lies before it.
type mark struct {
	size   int64
	next   int64 // the offset that comes next
	maxTS  int64
	digest recordbatch.Digest
}

// tally runs along a segment batch by batch. Index entries are marks, at most one each interval; they are only ever
// appended, so a copy of a tally stays valid while the original goes on.
type tally struct {
	base     int64
	interval int64
	at       mark
	entries  []mark
}

func newTally(base, interval int64) tally {
	return tally{base: base, interval: interval, at: mark{next: base, maxTS: noTimestamp}}
}

// origin is the mark before the first batch; it is not stored among the entries.
func (t *tally) origin() mark { return mark{next: t.base, maxTS: noTimestamp} }

func (t *tally) add(head []byte, h recordbatch.Header) {
	last := int64(0)
	if n := len(t.entries); n > 0 {
		last = t.entries[n-1].size
	}
	if t.at.size-last >= t.interval {
		t.entries = append(t.entries, t.at)
	}
	t.at = t.at.after(head, h)
}

func (m mark) after(head []byte, h recordbatch.Header) mark {
	return mark{size: m.size + h.TotalBytes(), next: h.NextOffset(), maxTS: max(m.maxTS, h.MaxTimestamp), digest: m.digest.Next(head)}
}

// lastWhere is the last entry for which before holds, which must hold for a prefix of the entries.
func (t *tally) lastWhere(before func(mark) bool) mark {
	n := sort.Search(len(t.entries), func(i int) bool { return !before(t.entries[i]) })
	if n == 0 {
		return t.origin()
	}
	return t.entries[n-1]
}

func (t *tally) beforeOffset(offset int64) mark {
	return t.lastWhere(func(m mark) bool { return m.next <= offset })
}

func (t *tally) beforeSize(size int64) mark {
	return t.lastWhere(func(m mark) bool { return m.size <= size })
}

// beforeTime is the last entry all of whose predecessors are older than ts.
func (t *tally) beforeTime(ts int64) mark {
	return t.lastWhere(func(m mark) bool { return m.maxTS < ts })
}

// cutTo makes the tally end at m, which must be one of its boundaries.
func (t *tally) cutTo(m mark) {
	n := sort.Search(len(t.entries), func(i int) bool { return t.entries[i].size >= m.size })
	t.entries = append([]mark(nil), t.entries[:n]...) // a copy: others may hold the longer one
	t.at = m
}

const (
	indexMagic = "PSI1"
	markBytes  = 8 + 8 + 8 + 32
)

func appendMark(b []byte, m mark) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(m.size))
	b = binary.BigEndian.AppendUint64(b, uint64(m.next))
	b = binary.BigEndian.AppendUint64(b, uint64(m.maxTS))
	return append(b, m.digest[:]...)
}

func decodeMark(b []byte) mark {
	m := mark{
		size:  int64(binary.BigEndian.Uint64(b)),
		next:  int64(binary.BigEndian.Uint64(b[8:])),
		maxTS: int64(binary.BigEndian.Uint64(b[16:])),
	}
	copy(m.digest[:], b[24:])
	return m
}

func (t *tally) encode() []byte {
	b := make([]byte, 0, len(indexMagic)+16+markBytes*(1+len(t.entries))+4)
	b = append(b, indexMagic...)
	b = binary.BigEndian.AppendUint64(b, uint64(t.base))
	b = binary.BigEndian.AppendUint64(b, uint64(t.interval))
	b = appendMark(b, t.at)
	for _, m := range t.entries {
		b = appendMark(b, m)
	}
	return sealFrame(b)
}

func decodeTally(b []byte) (tally, error) {
	b, err := openFrame(b, indexMagic)
	if err != nil {
		return tally{}, err
	}
	if len(b) < 16+markBytes || (len(b)-16)%markBytes != 0 {
		return tally{}, errBadFrame
	}
	t := tally{base: int64(binary.BigEndian.Uint64(b)), interval: int64(binary.BigEndian.Uint64(b[8:])), at: decodeMark(b[16:])}
	for b = b[16+markBytes:]; len(b) > 0; b = b[markBytes:] {
		t.entries = append(t.entries, decodeMark(b))
	}
	return t, nil
}

// loadIndex reads the index of a sealed segment; ok is false when there is none that fits the file beside it.
func loadIndex(dir string, base, fileBytes int64) (t tally, ok bool, err error) {
	b, err := os.ReadFile(fileOf(dir, base, indexExt))
	if errors.Is(err, fs.ErrNotExist) {
		return tally{}, false, nil
	}
	if err != nil {
		return tally{}, false, err
	}
	t, err = decodeTally(b)
	return t, err == nil && t.base == base && t.at.size == fileBytes, nil
}
