package seglog

import (
	"math"
	"testing"

	"portage/brokeragent/native/recordbatch"
	"portage/brokeragent/native/recordbatch/batchtest"
)

func head(id int64, epoch int16, seq int32, count int32) recordbatch.Header {
	return recordbatch.Header{ProducerID: id, ProducerEpoch: epoch, BaseSequence: seq, LastOffsetDelta: count - 1, NumRecords: count}
}

func TestProducerVerdicts(t *testing.T) {
	l := create(t, Options{})
	for i := range int32(7) { // 0-1, 2-3, ... 12-13 at the same offsets
		put(t, l, batchtest.Batch(batchtest.Opts{Count: 2, Producer: &batchtest.Producer{ID: 8, Epoch: 3, Seq: 2 * i}}))
	}
	check := func(t *testing.T, l *Log) {
		for _, c := range []struct {
			name string
			h    recordbatch.Header
			want Verdict
		}{
			{"next", head(8, 3, 14, 5), Verdict{Kind: Accept, CurrentEpoch: 3}},
			{"newest again", head(8, 3, 12, 2), Verdict{Kind: Duplicate, BaseOffset: 12, EndOffset: 14, Timestamp: 1, CurrentEpoch: 3}},
			{"fifth newest again", head(8, 3, 4, 2), Verdict{Kind: Duplicate, BaseOffset: 4, EndOffset: 6, Timestamp: 1, CurrentEpoch: 3}},
			{"sixth newest again", head(8, 3, 2, 2), Verdict{Kind: OutOfOrder, ExpectedSequence: 14, CurrentEpoch: 3}},
			{"same first, other last", head(8, 3, 12, 3), Verdict{Kind: OutOfOrder, ExpectedSequence: 14, CurrentEpoch: 3}},
			{"gap", head(8, 3, 15, 1), Verdict{Kind: OutOfOrder, ExpectedSequence: 14, CurrentEpoch: 3}},
			{"older epoch", head(8, 2, 14, 1), Verdict{Kind: Fenced, CurrentEpoch: 3}},
			{"newer epoch from 0", head(8, 4, 0, 1), Verdict{Kind: Accept, CurrentEpoch: 3}},
			{"newer epoch not from 0", head(8, 4, 14, 1), Verdict{Kind: OutOfOrder, CurrentEpoch: 3}},
			{"unknown from 0", head(9, 0, 0, 1), Verdict{Kind: Accept, CurrentEpoch: -1}},
			{"unknown later", head(9, 0, 6, 1), Verdict{Kind: Accept, UnknownProducer: true, CurrentEpoch: -1}},
			{"not idempotent", head(-1, -1, -1, 1), Verdict{Kind: Accept}},
		} {
			if got := l.CheckProducer(c.h); got != c.want {
				t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
			}
		}
	}
	check(t, l)
	l.Close()
	t.Run("from the snapshot", func(t *testing.T) {
		again, rec := reopen(t, l.Dir(), Options{})
		if rec.ReplayedFrom != 14 {
			t.Fatalf("replayed from %d", rec.ReplayedFrom)
		}
		check(t, again)
		again.Close()
	})
	t.Run("from the heads", func(t *testing.T) {
		removeIfThere(fileOf(l.Dir(), 14, producersExt))
		again, rec := reopen(t, l.Dir(), Options{})
		if rec.ReplayedFrom != 0 {
			t.Fatalf("replayed from %d", rec.ReplayedFrom)
		}
		check(t, again)
	})
}

func TestSequencesWrapFromTheLargestToZero(t *testing.T) {
	table := producerTable{}
	table.remember(head(1, 0, math.MaxInt32-3, 3)) // ends one below the largest
	cross := head(1, 0, math.MaxInt32, 4)          // the largest, 0, 1, 2
	cross.BaseOffset = 100
	if v := table.check(cross); v.Kind != Accept {
		t.Fatalf("batch across the wrap: %+v", v)
	}
	table.remember(cross)
	if v := table.check(cross); v.Kind != Duplicate || v.BaseOffset != 100 || v.EndOffset != 104 {
		t.Fatalf("the same again: %+v", v)
	}
	if v := table.check(head(1, 0, 3, 1)); v.Kind != Accept {
		t.Fatalf("after the wrap: %+v", v)
	}
	ends := producerTable{}
	ends.remember(head(1, 0, math.MaxInt32-1, 2))
	if v := ends.check(head(1, 0, 0, 1)); v.Kind != Accept {
		t.Fatalf("0 after the largest: %+v", v)
	}
}

func TestProducerSnapshotIsRefusedWhenDamaged(t *testing.T) {
	table := producerTable{}
	for id := range int64(20) {
		table.remember(head(id, int16(id), 0, 5))
	}
	b := table.encode(77)
	got, end, err := decodeProducers(b)
	if err != nil || end != 77 || len(got) != 20 || *got[7] != *table[7] {
		t.Fatalf("%d producers at %d, %v", len(got), end, err)
	}
	for i := range b {
		bad := append([]byte(nil), b...)
		bad[i] ^= 0x40
		if _, _, err := decodeProducers(bad); err == nil {
			t.Fatalf("byte %d flipped and accepted", i)
		}
		if _, _, err := decodeProducers(b[:i]); err == nil {
			t.Fatalf("%d of %d bytes accepted", i, len(b))
		}
	}
}

func TestProducersAreForgottenOnlyAfterTheirLastBatchIsGoneAndOld(t *testing.T) {
	l := create(t, small)
	put(t, l, batchtest.Batch(batchtest.Opts{Timestamp: 1000, Producer: &batchtest.Producer{ID: 1}}))
	fill(t, l, 40, 1000)
	put(t, l, batchtest.Batch(batchtest.Opts{Timestamp: 1000, Producer: &batchtest.Producer{ID: 2}}))
	l.DeleteBefore(l.Segments()[1].Base)
	if l.ProducerCount() != 1 {
		t.Fatalf("%d producers", l.ProducerCount())
	}
	if v := l.CheckProducer(head(2, 0, 1, 1)); v.UnknownProducer {
		t.Fatal("the producer whose batch is still there was forgotten")
	}
}
