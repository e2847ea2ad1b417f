package seglog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"portage/brokeragent/native/recordbatch"
	"portage/brokeragent/native/recordbatch/batchtest"
)

func TestWhatIsAppendedIsReadBackAlsoAfterReopening(t *testing.T) {
	l := create(t, small)
	var want []byte
	for i := range 40 {
		b := batchtest.Batch(batchtest.Opts{Count: 1 + i%4, Name: fmt.Sprint(i)})
		put(t, l, b) // stamped in place
		want = append(want, b...)
	}
	if n := len(l.Segments()); n < 3 {
		t.Fatalf("%d segments, the test wants several", n)
	}
	sameBytes(t, "log", contents(t, l), want)
	before := l.Segments()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, rec := reopen(t, l.Dir(), small)
	if rec.CutFile != "" || len(rec.RebuiltIndexes) > 0 || rec.ReplayedFrom != again.End() {
		t.Fatalf("a clean close needed recovery: %+v", rec)
	}
	sameBytes(t, "reopened log", contents(t, again), want)
	if got := fmt.Sprint(again.Segments()); got != fmt.Sprint(before) {
		t.Fatalf("segments changed:\n%s\n%v", got, before)
	}
	put(t, again, batchtest.Batch(batchtest.Opts{}))
}

func TestEveryOffsetIsReadFromItsBatch(t *testing.T) {
	l := create(t, small)
	fill(t, l, 30, 0)
	for offset := l.Start(); offset < l.End(); offset++ {
		for _, maxBytes := range []int{0, 1, 700} {
			b, err := l.Read(offset, maxBytes)
			if err != nil {
				t.Fatal(err)
			}
			h, _, rest, err := recordbatch.Next(b)
			if err != nil || h.BaseOffset > offset || h.NextOffset() <= offset {
				t.Fatalf("read at %d begins with %+v, %v", offset, h, err)
			}
			if len(rest) > 0 && len(b) > maxBytes {
				t.Fatalf("read at %d with %d allowed gave %d bytes", offset, maxBytes, len(b))
			}
		}
	}
	if b, err := l.Read(l.End(), 100); err != nil || len(b) > 0 {
		t.Fatalf("read at the end: %d bytes, %v", len(b), err)
	}
	for _, offset := range []int64{-1, l.End() + 1} {
		var out *OutOfRangeError
		if _, err := l.Read(offset, 100); !errors.As(err, &out) || out.End != l.End() {
			t.Fatalf("read at %d: %v", offset, err)
		}
	}
}

func TestCreateRefusesADirectoryThatHoldsAnything(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, "something"), nil)
	if _, err := Create(dir, orders, Options{}); !errors.Is(err, ErrNotEmpty) {
		t.Fatalf("create over a file: %v", err)
	}
	if _, _, err := Open(dir, Options{}); !errors.Is(err, ErrNotALog) {
		t.Fatalf("open of no log: %v", err)
	}
	empty := t.TempDir()
	l, err := Create(empty, orders, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if l.Identity() != orders || l.Dir() != empty {
		t.Fatalf("log of %v in %s", l.Identity(), l.Dir())
	}
	l.Close()
}

func TestATornTailIsCutAtTheLastWholeBatchWhereverItIsTorn(t *testing.T) {
	l := create(t, Options{})
	var ends []int64
	for i := range 4 {
		put(t, l, batchtest.Batch(batchtest.Opts{Count: 2, Producer: &batchtest.Producer{ID: 5, Seq: int32(2 * i)}}))
		ends = append(ends, l.Size())
	}
	whole := mustRead(t, activeFile(l))
	dir := crash(t, l.Dir())
	file := fileOf(dir, 0, logExt)
	for cut := 0; cut <= len(whole); cut++ {
		for _, garbage := range []string{"", strings.Repeat("\xff", 19)} {
			mustWrite(t, file, append(bytes.Clone(whole[:cut]), garbage...))
			removeIfThere(fileOf(dir, 0, producersExt))
			kept := 0
			for kept < len(ends) && ends[kept] <= int64(cut) {
				kept++
			}
			size := int64(0)
			if kept > 0 {
				size = ends[kept-1]
			}
			got, rec, err := Open(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got.End() != int64(2*kept) || got.Size() != size || rec.CutBytes != int64(cut+len(garbage))-size {
				t.Fatalf("cut at %d: end %d size %d, %+v", cut, got.End(), got.Size(), rec)
			}
			next := recordbatch.Header{ProducerID: 5, BaseSequence: int32(2 * kept), LastOffsetDelta: 1}
			if v := got.CheckProducer(next); v.Kind != Accept || v.UnknownProducer {
				t.Fatalf("cut at %d: the next batch is answered %+v", cut, v)
			}
			b := batchtest.Batch(batchtest.Opts{})
			put(t, got, b)
			sameBytes(t, "file", mustRead(t, file), append(bytes.Clone(whole[:size]), b...))
			got.Close()
			removeIfThere(fileOf(dir, got.end, producersExt))
		}
	}
}

func TestATailBelowWhatACleanCloseProvedDurableIsNotCut(t *testing.T) {
	l := create(t, Options{})
	fill(t, l, 3, 0)
	l.Close()
	file := activeFile2(l)
	b := mustRead(t, file)
	mustWrite(t, file, b[:len(b)-1])
	_, _, err := Open(l.Dir(), Options{})
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || corrupt.File != file || corrupt.Position != int64(len(b)/3*2) {
		t.Fatalf("open: %v", err)
	}
	sameBytes(t, "file", mustRead(t, file), b[:len(b)-1])
}

func activeFile2(l *Log) string { return fileOf(l.dir, l.active().base, logExt) }

func TestACorruptSealedSegmentIsNamedAndNothingIsCut(t *testing.T) {
	l := create(t, small)
	fill(t, l, 40, 0)
	segs := l.Segments()
	dir := crash(t, l.Dir())
	file := fileOf(dir, segs[1].Base, logExt)
	b := mustRead(t, file)
	batch := len(b) - len(b)/2
	b[batch] ^= 1
	mustWrite(t, file, b)
	removeIfThere(fileOf(dir, segs[1].Base, indexExt))
	_, _, err := Open(dir, small)
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || corrupt.File != file || corrupt.Position > int64(batch) || corrupt.Position == 0 {
		t.Fatalf("open: %v", err)
	}
	sameBytes(t, "file", mustRead(t, file), b)
}

func TestAMissingSegmentIsAnError(t *testing.T) {
	l := create(t, small)
	fill(t, l, 40, 0)
	segs := l.Segments()
	dir := crash(t, l.Dir())
	os.Remove(fileOf(dir, segs[1].Base, logExt))
	var corrupt *CorruptError
	if _, _, err := Open(dir, small); !errors.As(err, &corrupt) || corrupt.File != fileOf(dir, segs[0].Base, logExt) {
		t.Fatalf("open: %v", err)
	}
	dir = crash(t, l.Dir())
	for _, s := range segs {
		os.Remove(fileOf(dir, s.Base, logExt))
	}
	if _, _, err := Open(dir, small); !errors.As(err, &corrupt) {
		t.Fatalf("open without any segment: %v", err)
	}
}

func TestIndexesAreRebuiltWhenMissingOrWrong(t *testing.T) {
	l := create(t, small)
	fill(t, l, 40, 0)
	want := l.Segments()
	data := contents(t, l)
	l.Close()
	os.Remove(fileOf(l.Dir(), want[0].Base, indexExt))
	bad := fileOf(l.Dir(), want[1].Base, indexExt)
	b := mustRead(t, bad)
	b[len(b)/2]++
	mustWrite(t, bad, b)
	again, rec := reopen(t, l.Dir(), small)
	if fmt.Sprint(rec.RebuiltIndexes) != fmt.Sprint([]int64{want[0].Base, want[1].Base}) {
		t.Fatalf("rebuilt %v", rec.RebuiltIndexes)
	}
	if fmt.Sprint(again.Segments()) != fmt.Sprint(want) {
		t.Fatalf("segments %v, want %v", again.Segments(), want)
	}
	sameBytes(t, "log", contents(t, again), data)
}

func TestGroupCommitServesManyWritersWithFewSyncs(t *testing.T) {
	var syncs atomic.Int64
	opts := Options{SegmentBytes: 20000, syncFile: func(f *os.File) error {
		syncs.Add(1)
		time.Sleep(time.Millisecond)
		return fdatasync(f)
	}}
	l := create(t, opts)
	const writers, each = 16, 30
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				b := batchtest.Batch(batchtest.Opts{Name: fmt.Sprintf("%d-%d-", w, i)})
				a, err := l.Append(b, 0)
				if err == nil {
					err = l.WaitDurable(context.Background(), a.Next)
				}
				if err != nil || l.DurableEnd() < a.Next {
					t.Errorf("append: %v, durable to %d of %d", err, l.DurableEnd(), a.Next)
					return
				}
				got, err := l.Read(a.Base, len(b))
				if err != nil || !bytes.Equal(got, b) {
					t.Errorf("read of %d: %v", a.Base, err)
				}
			}
		})
	}
	wg.Wait()
	if l.End() != writers*each {
		t.Fatalf("end %d", l.End())
	}
	if n := syncs.Load(); n >= writers*each {
		t.Fatalf("%d syncs for %d appends", n, writers*each)
	}
}

func TestReadersNeverSeeWhatIsNotDurableNorAGap(t *testing.T) {
	l := create(t, small)
	const n = 400
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			at := int64(0)
			for at < n {
				changed := l.Changed()
				b, err := l.Read(at, 900)
				if err != nil {
					t.Errorf("read at %d: %v", at, err)
					return
				}
				for h, batch := range recordbatch.Iterate(b) {
					if h.BaseOffset != at || recordbatch.Verify(batch) != nil || h.NextOffset() > l.DurableEnd() {
						t.Errorf("batch %+v where %d was expected", h, at)
						return
					}
					at = h.NextOffset()
				}
				if len(b) == 0 {
					<-changed
				}
			}
		})
	}
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			for _, s := range l.Segments() {
				if d, err := l.DigestAt(s.Base, s.Size); err != nil || d != s.Digest {
					t.Errorf("digest of %+v: %v %v", s, d, err)
				}
			}
			l.OffsetForTime(200)
		}
	})
	for i := range n {
		if _, err := l.Append(batchtest.Batch(batchtest.Opts{Timestamp: int64(i)}), 0); err != nil {
			t.Fatal(err)
		}
	}
	durable(t, l, n)
	close(done)
	wg.Wait()
}

func TestAFailedSyncEndsTheLogForGood(t *testing.T) {
	broken := errors.New("disk is gone")
	var fails atomic.Bool
	opts := Options{syncFile: func(f *os.File) error {
		if fails.Load() {
			return broken
		}
		return fdatasync(f)
	}}
	l := create(t, opts)
	fill(t, l, 2, 0)
	fails.Store(true)
	changed := l.Changed()
	a, err := l.Append(batchtest.Batch(batchtest.Opts{}), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.WaitDurable(context.Background(), a.Next); !errors.Is(err, broken) {
		t.Fatalf("wait: %v", err)
	}
	<-changed
	fails.Store(false) // and it is not tried again
	_, appendErr := l.Append(batchtest.Batch(batchtest.Opts{}), 1)
	_, readErr := l.Read(0, 10)
	for _, err := range []error{appendErr, readErr, l.Failed(), l.BeginEpoch(9, 7), l.WaitDurable(context.Background(), 7), l.Close()} {
		if !errors.Is(err, broken) {
			t.Fatalf("a failed log answered %v", err)
		}
	}
	if l.DurableEnd() != 6 {
		t.Fatalf("durable end %d", l.DurableEnd())
	}
}

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
		durable(t, l, a.Next)
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
	for _, bad := range []Epoch{{6, 20}, {7, 19}, {8, 19}, {8, 21}} {
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

func TestDigestAtEveryBoundaryIsTheChainOverTheHeads(t *testing.T) {
	l := create(t, Options{IndexIntervalBytes: 500})
	fill(t, l, 30, 0)
	file := mustRead(t, activeFile(l))
	var want recordbatch.Digest
	pos := int64(0)
	for h, batch := range recordbatch.Iterate(file) {
		if got, err := l.DigestAt(0, pos); err != nil || got != want {
			t.Fatalf("digest at %d: %v %v", pos, got, err)
		}
		if _, err := l.DigestAt(0, pos+1); !errors.Is(err, ErrBoundary) {
			t.Fatalf("digest inside a batch: %v", err)
		}
		want = want.Next(batch)
		pos += h.TotalBytes()
	}
	f, size, err := l.OpenSegment(0)
	if err != nil || size != pos {
		t.Fatalf("segment of %d bytes, %v", size, err)
	}
	f.Close()
}
