package wire

import "encoding/binary"

// Where the fields used here are in a record batch (magic 2).
const (
	batchLengthAt     = 8
	batchLengthEnd    = 12
	batchMagicAt      = 16
	batchAttributesAt = 21
	batchHeaderBytes  = 61

	attributeCodec         = 0x07
	attributeTransactional = 0x10
	codecZstd              = 4
)

// eachBatch calls visit with the attributes of every whole record batch until visit returns false. Bytes that are no
// whole batch end the walk; validating them is the broker's.
func eachBatch(records []byte, visit func(size int, attributes uint16) bool) {
	for len(records) >= batchHeaderBytes {
		size := batchLengthEnd + int64(int32(binary.BigEndian.Uint32(records[batchLengthAt:])))
		if size < batchHeaderBytes || size > int64(len(records)) || records[batchMagicAt] != 2 {
			return
		}
		if !visit(int(size), binary.BigEndian.Uint16(records[batchAttributesAt:])) {
			return
		}
		records = records[size:]
	}
}

func anyBatch(records []byte, is func(attributes uint16) bool) bool {
	found := false
	eachBatch(records, func(_ int, attributes uint16) bool {
		found = is(attributes)
		return !found
	})
	return found
}

func isTransactional(attributes uint16) bool { return attributes&attributeTransactional != 0 }

func isZstd(attributes uint16) bool { return attributes&attributeCodec == codecZstd }

// wholeBatches is the longest run of whole batches from the start that fits.
func wholeBatches(records []byte, most int) []byte {
	end := 0
	eachBatch(records, func(size int, _ uint16) bool {
		if end+size > most {
			return false
		}
		end += size
		return true
	})
	return records[:end]
}
