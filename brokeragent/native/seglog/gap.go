package seglog

import (
	"context"
	"encoding/binary"
	"math"

	"portage/brokeragent/native/recordbatch"
)

// SkipTo makes the log end at an offset beyond its end, durably: what lies between was lost, and its offsets are never given
// out again (R18). The gap is filled with batches that hold no record, as a compacted log has them: recovery, digests and copies
// see a log without holes, and every Kafka client reads over them. An end that is reached already is done.
//
// A crash in it leaves some of the gap filled; repeated, it fills the rest.
func (l *Log) SkipTo(end int64, epoch int32) error {
	for {
		at := l.End()
		if at >= end {
			return l.WaitDurable(context.Background(), at)
		}
		if known := l.Epochs(); len(known) > 0 {
			epoch = known[len(known)-1].Epoch // nothing begins here: the gap belongs to what was lost
		}
		if _, err := l.Append(emptyBatch(min(end-at, math.MaxInt32)), epoch); err != nil {
			return err
		}
	}
}

// emptyBatch is a batch of so many offsets, 1 to 2^31-1, and no record.
func emptyBatch(offsets int64) []byte {
	const beforeLength = 12 // base offset and length
	b := make([]byte, recordbatch.HeaderBytes)
	binary.BigEndian.PutUint32(b[8:], recordbatch.HeaderBytes-beforeLength)
	b[16] = 2                                             // magic
	binary.BigEndian.PutUint32(b[23:], uint32(offsets-1)) // last offset delta
	binary.BigEndian.PutUint64(b[27:], math.MaxUint64)    // base timestamp: none
	binary.BigEndian.PutUint64(b[35:], math.MaxUint64)    // max timestamp: none
	binary.BigEndian.PutUint64(b[43:], math.MaxUint64)    // producer id: none
	binary.BigEndian.PutUint16(b[51:], math.MaxUint16)    // producer epoch: none
	binary.BigEndian.PutUint32(b[53:], math.MaxUint32)    // base sequence: none
	binary.BigEndian.PutUint32(b[17:], recordbatch.Checksum(0, b[recordbatch.CRCStart:]))
	return b
}
