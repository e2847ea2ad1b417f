package recordbatch_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"portage/brokeragent/native/recordbatch"
	"portage/brokeragent/native/recordbatch/batchtest"
)

func TestHeaderReadsWhatTheEncoderWrote(t *testing.T) {
	batch := batchtest.Batch(batchtest.Opts{Count: 3, Timestamp: 1000, BaseOffset: 70, Epoch: 4,
		Producer: &batchtest.Producer{ID: 9, Epoch: 2, Seq: 5}})
	h, err := recordbatch.ParseHeader(batch[:recordbatch.HeaderBytes])
	if err != nil {
		t.Fatal(err)
	}
	h.CRC, h.Length = 0, 0
	want := recordbatch.Header{BaseOffset: 70, LeaderEpoch: 4, Magic: 2, LastOffsetDelta: 2, BaseTimestamp: 1000,
		MaxTimestamp: 1002, ProducerID: 9, ProducerEpoch: 2, BaseSequence: 5, NumRecords: 3}
	if h != want {
		t.Fatalf("header %+v, want %+v", h, want)
	}
	if h.NextOffset() != 73 {
		t.Fatalf("next offset %d, want 73", h.NextOffset())
	}
}

func TestOffsetAndEpochAreSetWithoutBreakingTheCRC(t *testing.T) {
	batch := batchtest.Batch(batchtest.Opts{Count: 2})
	recordbatch.SetBaseOffset(batch, 1<<40)
	recordbatch.SetLeaderEpoch(batch, 77)
	if err := recordbatch.Verify(batch); err != nil {
		t.Fatal(err)
	}
	h, _ := recordbatch.ParseHeader(batch)
	if h.BaseOffset != 1<<40 || h.LeaderEpoch != 77 {
		t.Fatalf("got %+v", h)
	}
}

func TestVerifyNoticesEveryFlippedByteTheCRCCovers(t *testing.T) {
	batch := batchtest.Batch(batchtest.Opts{Count: 2})
	for i := recordbatch.CRCStart - 4; i < len(batch); i++ {
		bad := bytes.Clone(batch)
		bad[i] ^= 0x10
		if err := recordbatch.Verify(bad); !errors.Is(err, recordbatch.ErrCorrupt) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
	}
}

func TestValidateForProduce(t *testing.T) {
	good := batchtest.Batch(batchtest.Opts{Count: 2})
	change := func(f func(b []byte)) []byte {
		b := bytes.Clone(good)
		f(b)
		return batchtest.Seal(b)
	}
	for _, c := range []struct {
		name    string
		records []byte
		want    error
		heads   int
	}{
		{"two batches", batchtest.Batches(good, good), nil, 2},
		{"nothing", nil, recordbatch.ErrShort, 0},
		{"cut", good[:len(good)-1], recordbatch.ErrShort, 0},
		{"cut in the second", batchtest.Batches(good, good[:30]), recordbatch.ErrShort, 0},
		{"old format", change(func(b []byte) { b[16] = 1 }), recordbatch.ErrMagic, 0},
		{"transactional", batchtest.Batch(batchtest.Opts{Attributes: 0x10}), recordbatch.ErrTransactional, 0},
		{"control", batchtest.Batch(batchtest.Opts{Attributes: 0x20}), recordbatch.ErrControl, 0},
		{"unknown codec", batchtest.Batch(batchtest.Opts{Attributes: 7}), recordbatch.ErrCorrupt, 0},
		{"count and delta differ", change(func(b []byte) { b[26] = 5 }), recordbatch.ErrCorrupt, 0},
		{"idempotent without a sequence", batchtest.Batch(batchtest.Opts{Producer: &batchtest.Producer{ID: 4, Seq: -1}}), recordbatch.ErrCorrupt, 0},
		{"wrong crc", func() []byte { b := bytes.Clone(good); b[len(b)-1]++; return b }(), recordbatch.ErrCorrupt, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			heads, err := recordbatch.ValidateForProduce(c.records)
			if !errors.Is(err, c.want) || len(heads) != c.heads {
				t.Fatalf("%d heads, %v; want %d, %v", len(heads), err, c.heads, c.want)
			}
		})
	}
}

func TestIterateStopsBeforeAPartialBatch(t *testing.T) {
	one := batchtest.Batch(batchtest.Opts{})
	n := 0
	for range recordbatch.Iterate(batchtest.Batches(one, one, one[:40])) {
		n++
	}
	if n != 2 {
		t.Fatalf("%d batches, want 2", n)
	}
}

func TestDigestChainsTheHeads(t *testing.T) {
	batch := batchtest.Batch(batchtest.Opts{})
	want := sha256.Sum256(append(make([]byte, 32), batch[:61]...))
	got := recordbatch.Digest{}.Next(batch)
	if got != recordbatch.Digest(want) {
		t.Fatalf("digest %v, want %x", got, want)
	}
	text, _ := got.MarshalText()
	var back recordbatch.Digest
	if err := back.UnmarshalText(text); err != nil || back != got {
		t.Fatalf("text form came back as %v, %v", back, err)
	}
}

func TestRecordTimesAreFoundInEveryCompression(t *testing.T) {
	decompressor := kgo.DefaultDecompressor()
	expand := func(codec int8, b []byte) ([]byte, error) {
		return decompressor.Decompress(b, kgo.CompressionCodecType(codec))
	}
	for name, codec := range map[string]func() kgo.CompressionCodec{
		"none": nil, "gzip": kgo.GzipCompression, "snappy": kgo.SnappyCompression, "lz4": kgo.Lz4Compression, "zstd": kgo.ZstdCompression,
	} {
		t.Run(name, func(t *testing.T) {
			batch := batchtest.Batch(batchtest.Opts{Count: 4, Timestamp: 50, BaseOffset: 10, ValueBytes: 300, Codec: codec})
			var seen []int64
			err := recordbatch.WalkTimes(batch, expand, func(offset, ts int64) bool {
				seen = append(seen, offset, ts)
				return offset < 12
			})
			if err != nil || len(seen) != 6 || seen[4] != 12 || seen[5] != 52 {
				t.Fatalf("saw %v, %v", seen, err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	one := batchtest.Batch(batchtest.Opts{Count: 3, Timestamp: 9})
	f.Add(one)
	f.Add(batchtest.Batches(one, one)[:len(one)+20])
	f.Fuzz(func(t *testing.T, b []byte) {
		for h, batch := range recordbatch.Iterate(b) {
			if int64(len(batch)) != h.TotalBytes() || h.NextOffset() <= h.BaseOffset {
				t.Fatalf("%d bytes for %+v", len(batch), h)
			}
			_ = recordbatch.WalkTimes(batch, func(_ int8, b []byte) ([]byte, error) { return b, nil }, func(offset, _ int64) bool {
				if offset < h.BaseOffset || offset >= h.NextOffset() {
					t.Fatalf("record at %d outside %+v", offset, h)
				}
				return true
			})
		}
		heads, err := recordbatch.ValidateForProduce(b)
		if err != nil {
			return
		}
		total := int64(0)
		for _, h := range heads {
			total += h.TotalBytes()
		}
		if total != int64(len(b)) || binary.BigEndian.Uint32(b[17:]) != heads[0].CRC {
			t.Fatalf("accepted %d bytes as %d", len(b), total)
		}
	})
}
