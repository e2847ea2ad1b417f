package offsets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"
)

// Stamp orders commits of one group: by epoch, then by counter.
type Stamp struct {
	Epoch   int32
	Counter int64
}

// Less reports whether s came before other.
func (s Stamp) Less(other Stamp) bool {
	return s.Epoch < other.Epoch || s.Epoch == other.Epoch && s.Counter < other.Counter
}

// Entry is one group's committed offset.
type Entry struct {
	Group       string
	Offset      int64
	LeaderEpoch int32 // -1 when the client did not say
	Metadata    string
	Stamp       Stamp
	CommittedAt time.Time // to the millisecond
}

// Kinds of payload.
const (
	kindCommit   = 1
	kindDelete   = 2
	kindSnapshot = 3
)

const (
	frameHead     = 8 // length and CRC of the payload
	maxFrameBytes = 1 << 30
	snapshotMagic = "PSO1"
)

var (
	errTorn    = errors.New("journal frame is incomplete or damaged")
	crcTable   = crc32.MakeTable(crc32.Castagnoli)
	errPayload = errors.New("payload is damaged")
)

func appendFrame(dst, payload []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)))
	dst = binary.BigEndian.AppendUint32(dst, crc32.Checksum(payload, crcTable))
	return append(dst, payload...)
}

// nextFrame splits the first frame's payload off b.
func nextFrame(b []byte) (payload, rest []byte, err error) {
	if len(b) < frameHead {
		return nil, b, errTorn
	}
	n := int64(binary.BigEndian.Uint32(b))
	if n == 0 || n > maxFrameBytes || n > int64(len(b)-frameHead) {
		return nil, b, errTorn
	}
	payload = b[frameHead : frameHead+n]
	if crc32.Checksum(payload, crcTable) != binary.BigEndian.Uint32(b[4:]) {
		return nil, b, errTorn
	}
	return payload, b[frameHead+n:], nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendEntry(b []byte, e Entry) []byte {
	b = appendString(b, e.Group)
	b = binary.AppendVarint(b, e.Offset)
	b = binary.AppendVarint(b, int64(e.LeaderEpoch))
	b = appendString(b, e.Metadata)
	b = binary.AppendVarint(b, int64(e.Stamp.Epoch))
	b = binary.AppendVarint(b, e.Stamp.Counter)
	return binary.AppendVarint(b, e.CommittedAt.UnixMilli())
}

// reader takes values off a payload; the first mistake stays.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) int64() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int32() int32 {
	v := r.int64()
	r.bad = r.bad || v != int64(int32(v))
	return int32(v)
}

func (r *reader) string() string {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > uint64(len(r.b)-n) {
		r.bad, r.b = true, nil
		return ""
	}
	s := string(r.b[n : n+int(v)])
	r.b = r.b[n+int(v):]
	return s
}

func (r *reader) entry() Entry {
	return Entry{
		Group:       r.string(),
		Offset:      r.int64(),
		LeaderEpoch: r.int32(),
		Metadata:    r.string(),
		Stamp:       Stamp{r.int32(), r.int64()},
		CommittedAt: time.UnixMilli(r.int64()),
	}
}

// state is what the journal says: the table's contents.
type state struct {
	entries map[string]Entry
	counter int64 // the last one given out
}

func (s *state) encodeSnapshot() []byte {
	b := append([]byte{kindSnapshot}, snapshotMagic...)
	b = binary.AppendVarint(b, s.counter)
	b = binary.AppendUvarint(b, uint64(len(s.entries)))
	for _, e := range s.sorted() {
		b = appendEntry(b, e)
	}
	return b
}

func (s *state) sorted() []Entry {
	all := make([]Entry, 0, len(s.entries))
	for _, e := range s.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Group, b.Group) })
	return all
}

// apply plays one payload.
func (s *state) apply(payload []byte) error {
	if len(payload) == 0 {
		return errPayload
	}
	r := reader{b: payload[1:]}
	switch payload[0] {
	case kindCommit:
		e := r.entry()
		if !r.bad {
			s.entries[e.Group] = e
			s.counter = max(s.counter, e.Stamp.Counter)
		}
	case kindDelete:
		group, counter := r.string(), r.int64()
		if !r.bad {
			delete(s.entries, group)
			s.counter = max(s.counter, counter)
		}
	case kindSnapshot:
		return s.applySnapshot(payload)
	default:
		return fmt.Errorf("%w: kind %d", errPayload, payload[0])
	}
	if r.bad || len(r.b) > 0 {
		return errPayload
	}
	return nil
}

// applySnapshot replaces everything; the counter never goes back.
func (s *state) applySnapshot(payload []byte) error {
	if len(payload) < 1+len(snapshotMagic) || payload[0] != kindSnapshot || string(payload[1:1+len(snapshotMagic)]) != snapshotMagic {
		return fmt.Errorf("%w: not a snapshot", errPayload)
	}
	r := reader{b: payload[1+len(snapshotMagic):]}
	counter := r.int64()
	n, used := binary.Uvarint(r.b)
	if r.bad || used <= 0 {
		return errPayload
	}
	r.b = r.b[used:]
	entries := map[string]Entry{}
	for ; n > 0 && !r.bad; n-- {
		e := r.entry()
		entries[e.Group] = e
		counter = max(counter, e.Stamp.Counter)
	}
	if r.bad || len(r.b) > 0 {
		return errPayload
	}
	s.entries, s.counter = entries, max(s.counter, counter)
	return nil
}

// appendSum and checkSum protect a snapshot on its way between processes, where no frame does.
func appendSum(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crcTable))
}

func checkSum(snapshot []byte) ([]byte, error) {
	n := len(snapshot) - 4
	if n < 0 || binary.BigEndian.Uint32(snapshot[n:]) != crc32.Checksum(snapshot[:n], crcTable) {
		return nil, fmt.Errorf("snapshot of committed offsets: %w", errPayload)
	}
	return snapshot[:n], nil
}
