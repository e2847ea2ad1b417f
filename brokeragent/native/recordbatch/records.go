package recordbatch

import (
	"encoding/binary"
	"fmt"
)

// Decompress expands the records of a batch; codec is Header.Codec. It is never called for codec 0.
type Decompress func(codec int8, records []byte) ([]byte, error)

// WalkTimes calls visit with offset and timestamp of each record of one whole, verified batch, in order, until visit
// returns false. Keys and values are skipped, not copied.
func WalkTimes(batch []byte, decompress Decompress, visit func(offset, timestamp int64) bool) error {
	h, err := ParseHeader(batch)
	if err != nil {
		return err
	}
	records := batch[HeaderBytes:]
	if h.Codec() != 0 {
		if records, err = decompress(h.Codec(), records); err != nil {
			return fmt.Errorf("decompress batch at offset %d: %w", h.BaseOffset, err)
		}
	}
	for i := int32(0); i < h.NumRecords; i++ {
		length, n := binary.Varint(records)
		if n <= 0 || length < 1 || length > int64(len(records)-n) {
			return fmt.Errorf("%w: record %d of batch at offset %d", ErrCorrupt, i, h.BaseOffset)
		}
		record := records[n : n+int(length)]
		records = records[n+int(length):]
		timeDelta, n := binary.Varint(record[1:])
		if n <= 0 {
			return fmt.Errorf("%w: timestamp of record %d of batch at offset %d", ErrCorrupt, i, h.BaseOffset)
		}
		offsetDelta, n := binary.Varint(record[1+n:])
		if n <= 0 || offsetDelta < 0 || offsetDelta > int64(h.LastOffsetDelta) {
			return fmt.Errorf("%w: offset of record %d of batch at offset %d", ErrCorrupt, i, h.BaseOffset)
		}
		timestamp := h.BaseTimestamp + timeDelta
		if h.LogAppendTime() {
			timestamp = h.MaxTimestamp
		}
		if !visit(h.BaseOffset+offsetDelta, timestamp) {
			return nil
		}
	}
	return nil
}
