// Package batchtest builds record batches for tests, through an encoder that is not the one under test.
package batchtest

import (
	"bytes"
	"fmt"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Record is one record; its offset is its place in the batch.
type Record struct {
	Key, Value []byte
	Timestamp  int64
}

// Producer makes a batch idempotent.
type Producer struct {
	ID    int64
	Epoch int16
	Seq   int32
}

// Opts describe a batch. The zero value is one small keyed record of no producer at time zero.
type Opts struct {
	Records    []Record // nil: Count records are made up
	Count      int      // 0: one
	ValueBytes int      // of each made-up record; 0: a dozen
	Timestamp  int64    // of the first made-up record; each next one is a millisecond later
	Producer   *Producer
	BaseOffset int64
	Epoch      int32
	Attributes int16 // apart from the codec
	Codec      func() kgo.CompressionCodec
	Name       string // prefixes made-up keys and values
}

// Batch builds one batch.
func Batch(o Opts) []byte {
	if o.Records == nil {
		o.Records = madeUp(o)
	}
	first, highest := o.Records[0].Timestamp, o.Records[0].Timestamp
	var body []byte
	for i, r := range o.Records {
		highest = max(highest, r.Timestamp)
		body = appendRecord(body, int32(i), r.Timestamp-first, r)
	}
	if o.Codec != nil {
		compressor, err := kgo.DefaultCompressor(o.Codec())
		if err != nil {
			panic(fmt.Sprintf("batchtest: %v", err))
		}
		packed, codec := compressor.Compress(new(bytes.Buffer), body)
		body = append([]byte(nil), packed...)
		o.Attributes |= int16(codec)
	}
	b := kmsg.NewRecordBatch()
	b.FirstOffset = o.BaseOffset
	b.PartitionLeaderEpoch = o.Epoch
	b.Magic = 2
	b.Attributes = o.Attributes
	b.LastOffsetDelta = int32(len(o.Records) - 1)
	b.FirstTimestamp, b.MaxTimestamp = first, highest
	b.ProducerID, b.ProducerEpoch, b.FirstSequence = -1, -1, -1
	if p := o.Producer; p != nil {
		b.ProducerID, b.ProducerEpoch, b.FirstSequence = p.ID, p.Epoch, p.Seq
	}
	b.NumRecords = int32(len(o.Records))
	b.Records = body
	b.Length = int32(49 + len(body))
	return Seal(b.AppendTo(nil))
}

// Batches concatenates batches.
func Batches(batches ...[]byte) []byte {
	var all []byte
	for _, b := range batches {
		all = append(all, b...)
	}
	return all
}

// Seal writes the right CRC into a batch that a test has changed, and returns it.
func Seal(batch []byte) []byte {
	sum := crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli))
	copy(batch[17:], kbin.AppendUint32(nil, sum))
	return batch
}

func madeUp(o Opts) []Record {
	records := make([]Record, max(o.Count, 1))
	for i := range records {
		value := fmt.Appendf(nil, "%svalue-%06d", o.Name, i)
		for len(value) < o.ValueBytes {
			value = append(value, byte('a'+len(value)%26))
		}
		records[i] = Record{Key: fmt.Appendf(nil, "%skey-%d", o.Name, i), Value: value, Timestamp: o.Timestamp + int64(i)}
	}
	return records
}

func appendRecord(dst []byte, offsetDelta int32, timeDelta int64, r Record) []byte {
	body := []byte{0}
	body = kbin.AppendVarlong(body, timeDelta)
	body = kbin.AppendVarint(body, offsetDelta)
	body = kbin.AppendVarintBytes(body, r.Key)
	body = kbin.AppendVarintBytes(body, r.Value)
	body = kbin.AppendVarint(body, 0)
	return append(kbin.AppendVarint(dst, int32(len(body))), body...)
}
