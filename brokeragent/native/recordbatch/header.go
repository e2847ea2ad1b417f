package recordbatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// HeaderBytes is the length of a batch's head: everything before its records.
const HeaderBytes = 61

// MaxBatchBytes bounds a batch's total length; anything longer is taken for damage.
const MaxBatchBytes = 1 << 30

const (
	prefixBytes = 12 // base offset and length, which Length does not count
	epochAt     = 12
	magicAt     = 16
	crcAt       = 17
	crcCovers   = 21
)

// Attribute bits of a batch.
const (
	codecMask         = 0x07
	logAppendTimeBit  = 0x08
	transactionalBit  = 0x10
	controlBit        = 0x20
	highestKnownCodec = 4
)

var (
	// ErrShort says that the bytes end before the batch does.
	ErrShort = errors.New("record batch is incomplete")
	// ErrMagic says that the bytes are not a v2 batch.
	ErrMagic = errors.New("record batch is not format v2")
	// ErrCorrupt says that the batch contradicts itself: its CRC, a length or a count.
	ErrCorrupt = errors.New("record batch is corrupt")
	// ErrTransactional says that the batch belongs to a transaction, which this log does not offer.
	ErrTransactional = errors.New("record batch is transactional")
	// ErrControl says that a client sent a control batch, which only a broker may write.
	ErrControl = errors.New("record batch is a control batch")
)

// Header is the head of one batch.
type Header struct {
	BaseOffset      int64
	Length          int32 // of everything after this field
	LeaderEpoch     int32
	Magic           int8
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	NumRecords      int32
}

// TotalBytes is the whole batch's length.
func (h Header) TotalBytes() int64 { return int64(h.Length) + prefixBytes }

// NextOffset is the offset after the batch's last record.
func (h Header) NextOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) + 1 }

// Transactional reports whether the batch belongs to a transaction.
func (h Header) Transactional() bool { return h.Attributes&transactionalBit != 0 }

// Control reports whether the batch holds control records.
func (h Header) Control() bool { return h.Attributes&controlBit != 0 }

// Codec is the compression of the records: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
func (h Header) Codec() int8 { return int8(h.Attributes & codecMask) }

// LogAppendTime reports whether every record carries MaxTimestamp instead of a time of its own.
func (h Header) LogAppendTime() bool { return h.Attributes&logAppendTimeBit != 0 }

// ParseHeader reads the head of a batch. It needs HeaderBytes bytes, not the whole batch.
func ParseHeader(b []byte) (Header, error) {
	// The magic byte is judged before the length: older formats have shorter messages.
	if len(b) > magicAt && b[magicAt] != 2 {
		return Header{}, fmt.Errorf("%w: magic %d", ErrMagic, int8(b[magicAt]))
	}
	if len(b) < HeaderBytes {
		return Header{}, fmt.Errorf("%w: %d bytes of a %d byte head", ErrShort, len(b), HeaderBytes)
	}
	h := Header{
		BaseOffset:      int64(binary.BigEndian.Uint64(b)),
		Length:          int32(binary.BigEndian.Uint32(b[8:])),
		LeaderEpoch:     int32(binary.BigEndian.Uint32(b[epochAt:])),
		Magic:           int8(b[magicAt]),
		CRC:             binary.BigEndian.Uint32(b[crcAt:]),
		Attributes:      int16(binary.BigEndian.Uint16(b[crcCovers:])),
		LastOffsetDelta: int32(binary.BigEndian.Uint32(b[23:])),
		BaseTimestamp:   int64(binary.BigEndian.Uint64(b[27:])),
		MaxTimestamp:    int64(binary.BigEndian.Uint64(b[35:])),
		ProducerID:      int64(binary.BigEndian.Uint64(b[43:])),
		ProducerEpoch:   int16(binary.BigEndian.Uint16(b[51:])),
		BaseSequence:    int32(binary.BigEndian.Uint32(b[53:])),
		NumRecords:      int32(binary.BigEndian.Uint32(b[57:])),
	}
	return h, h.plausible()
}

func (h Header) plausible() error {
	switch {
	case h.Length < HeaderBytes-prefixBytes || h.TotalBytes() > MaxBatchBytes:
		return fmt.Errorf("%w: length %d", ErrCorrupt, h.Length)
	case h.LastOffsetDelta < 0:
		return fmt.Errorf("%w: last offset delta %d", ErrCorrupt, h.LastOffsetDelta)
	case h.BaseOffset < 0 || h.BaseOffset > math.MaxInt64-int64(h.LastOffsetDelta)-1:
		return fmt.Errorf("%w: base offset %d", ErrCorrupt, h.BaseOffset)
	case h.NumRecords < 0 || int64(h.NumRecords) > int64(h.LastOffsetDelta)+1:
		return fmt.Errorf("%w: %d records in %d offsets", ErrCorrupt, h.NumRecords, int64(h.LastOffsetDelta)+1)
	}
	return nil
}

// SetBaseOffset sets the base offset in place; the CRC does not cover it.
func SetBaseOffset(batch []byte, offset int64) { binary.BigEndian.PutUint64(batch, uint64(offset)) }

// SetLeaderEpoch sets the leader epoch in place; the CRC does not cover it.
func SetLeaderEpoch(batch []byte, epoch int32) {
	binary.BigEndian.PutUint32(batch[epochAt:], uint32(epoch))
}
