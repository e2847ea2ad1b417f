package seglog

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"portage/brokeragent/native/recordbatch"
	"portage/brokeragent/native/recordbatch/batchtest"
)

func TestEpochRule(t *testing.T) {
	l := create(t, Options{})
	if e, end := l.EndOfEpoch(5); e != -1 || end != -1 {
		t.Fatalf("without epochs: %d, %d", e, end)
	}
	begin := func(epoch int32) {
		t.Helper()
		for range 2 { // the second time is fine
			if err := l.BeginEpoch(epoch, l.End()); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(epoch int32) {
		t.Helper()
		a, err := l.Append(batchtest.Batch(batchtest.Opts{Count: 10}), epoch)
		if err != nil {
			t.Fatal(err)
		}
		makeDurable(t, l, a.Next)
	}
	begin(2)
	write(2)
	begin(4) // nothing is written in it
	begin(7)
	write(7)
	l.Close()
	l, _ = reopen(t, l.Dir(), Options{})
	for _, c := range []struct {
		asked, epoch int32
		end          int64
	}{{1, -1, -1}, {2, 2, 10}, {3, 2, 10}, {4, 4, 10}, {6, 4, 10}, {7, 7, 20}, {9, 7, 20}} {
		if e, end := l.EndOfEpoch(c.asked); e != c.epoch || end != c.end {
			t.Errorf("asked for %d: %d ends at %d, want %d at %d", c.asked, e, end, c.epoch, c.end)
		}
	}
	if l.EpochAt(9) != 2 || l.EpochAt(10) != 7 {
		t.Errorf("epochs at 9 and 10: %d, %d", l.EpochAt(9), l.EpochAt(10))
	}
	for _, bad := range []Epoch{{6, 20, 0}, {7, 19, 0}, {8, 19, 0}, {8, 21, 0}} {
		if err := l.BeginEpoch(bad.Epoch, bad.Start); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	if _, err := l.Append(batchtest.Batch(batchtest.Opts{}), 6); !errors.Is(err, ErrStaleEpoch) {
		t.Errorf("append at a stale epoch: %v", err)
	}
	b, _ := l.Read(10, 1)
	if h, _ := recordbatch.ParseHeader(b); h.LeaderEpoch != 7 {
		t.Errorf("stored epoch %d", h.LeaderEpoch)
	}
}

func TestOffsetForTimeFindsTheRecordInsideItsBatch(t *testing.T) {
	for name, codec := range map[string]func() kgo.CompressionCodec{"plain": nil, "zstd": kgo.ZstdCompression} {
		t.Run(name, func(t *testing.T) {
			l := create(t, small)
			for i := range 50 {
				put(t, l, batchtest.Batch(batchtest.Opts{Count: 4, Timestamp: int64(1000 + 10*i), Codec: codec, ValueBytes: 60}))
			}
			for i := range int64(50) {
				for d, want := range []int64{0, 1, 2, 3, 4} { // 4 is the next batch's first
					offset, ts, ok, err := l.OffsetForTime(1000 + 10*i + int64(d))
					if i == 49 && d == 4 {
						if ok || err != nil {
							t.Fatalf("beyond the end: %d, %v", offset, err)
						}
						continue
					}
					if err != nil || !ok || offset != 4*i+want || (d < 4 && ts != 1000+10*i+int64(d)) {
						t.Fatalf("time %d: offset %d time %d %v %v, want %d", 1000+10*i+int64(d), offset, ts, ok, err, 4*i+want)
					}
				}
			}
			if ts, offset := l.MaxTimestamp(); ts != 1493 || offset != 199 {
				t.Fatalf("largest timestamp %d at %d", ts, offset)
			}
			if err := l.DeleteBefore(6); err != nil {
				t.Fatal(err)
			}
			if offset, _, ok, _ := l.OffsetForTime(0); !ok || offset != 6 {
				t.Fatalf("the first record is %d", offset)
			}
		})
	}
}

func TestRetentionDeletesWholeSealedSegmentsAndRespectsPins(t *testing.T) {
	l := create(t, small)
	fill(t, l, 40, 0) // one batch a second
	segs := l.Segments()
	now := time.UnixMilli(segs[1].MaxTimestamp + 60_001)
	byAge := Policy{MaxAge: time.Minute}
	l.Pin("copy-1")
	if n, err := l.Retain(byAge, now); n != 0 || err != nil {
		t.Fatalf("pinned: removed %d, %v", n, err)
	}
	l.Unpin("copy-1")
	if n, err := l.Retain(byAge, now); n != 2 || err != nil || l.Start() != segs[2].Base {
		t.Fatalf("by age: removed %d, %v, start %d, want %d", n, err, l.Start(), segs[2].Base)
	}
	var out *OutOfRangeError
	if _, err := l.Read(segs[1].Base, 10); !errors.As(err, &out) || out.Start != segs[2].Base {
		t.Fatalf("read below the start: %v", err)
	}
	if _, err := os.Stat(fileOf(l.Dir(), segs[0].Base, logExt)); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the first segment is still there: %v", err)
	}
	keep := l.Size() - segs[2].Size
	if n, err := l.Retain(Policy{MaxBytes: keep}, now); n != 1 || err != nil || l.Size() != keep {
		t.Fatalf("by size: removed %d, %v, %d bytes left of %d", n, err, l.Size(), keep)
	}
	// The active segment stays whatever the policy.
	if _, err := l.Retain(Policy{MaxBytes: 1, MaxAge: 1}, now.Add(time.Hour)); err != nil || len(l.Segments()) != 1 {
		t.Fatalf("%d segments left, %v", len(l.Segments()), err)
	}
	start := l.Start()
	l.Close()
	l, _ = reopen(t, l.Dir(), small)
	if l.Start() != start {
		t.Fatalf("start %d after reopening, want %d", l.Start(), start)
	}
}

func TestDeleteBeforeMovesTheStartWhilePinnedAndTheFilesLater(t *testing.T) {
	l := create(t, small)
	fill(t, l, 40, 0)
	segs := l.Segments()
	l.Pin("copy")
	if err := l.DeleteBefore(segs[2].Base + 1); err != nil {
		t.Fatal(err)
	}
	if l.Start() != segs[2].Base+1 || len(l.Segments()) != len(segs) {
		t.Fatalf("start %d, %d segments", l.Start(), len(l.Segments()))
	}
	l.Unpin("copy")
	if err := l.DeleteBefore(0); err != nil {
		t.Fatal(err)
	}
	if l.Start() != segs[2].Base+1 || l.Segments()[0].Base != segs[2].Base {
		t.Fatalf("start %d, first segment %d", l.Start(), l.Segments()[0].Base)
	}
	if err := l.DeleteBefore(l.End() + 1); err == nil {
		t.Fatal("a start beyond the end was accepted")
	}
}

func TestADeletionCutShortByACrashIsFinishedAtOpen(t *testing.T) {
	l := create(t, small)
	fill(t, l, 40, 0)
	segs := l.Segments()
	dir := crash(t, l.Dir())
	mustWrite(t, filepath.Join(dir, metaFile), encodeJSON(meta{1, orders, segs[3].Base}))
	os.Remove(fileOf(dir, segs[1].Base, logExt)) // out of order, as a crash may show it
	l, _ = reopen(t, dir, small)
	if l.Start() != segs[3].Base || l.Segments()[0].Base != segs[3].Base {
		t.Fatalf("start %d, first segment %d", l.Start(), l.Segments()[0].Base)
	}
}
