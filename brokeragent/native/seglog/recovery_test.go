package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"portage/brokeragent/native/recordbatch"
	"portage/brokeragent/native/recordbatch/batchtest"
)

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

// A whole 64 KiB segment, torn at each of its bytes (the short run takes every 17th): the log that opens ends at the last
// whole batch.
func TestASegmentTornAtEveryByte(t *testing.T) {
	l := create(t, Options{})
	ends := []int64{0}
	for l.Size() < 64<<10 {
		put(t, l, batchtest.Batch(batchtest.Opts{Count: 3, ValueBytes: 700}))
		ends = append(ends, l.Size())
	}
	whole := mustRead(t, activeFile(l))
	dir := crash(t, l.Dir())
	file := fileOf(dir, 0, logExt)
	opts := Options{syncFile: func(*os.File) error { return nil }} // what is torn here is the file, not the disk's cache
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	step := 17
	if os.Getenv("PORTAGE_TEST") == "all" {
		step = 1
	}
	batches := len(ends) - 1
	for cut := len(whole); cut >= 0; cut -= step {
		for ends[batches] > int64(cut) {
			batches--
		}
		// What the last opening cut is written again, one byte less of it.
		if _, err := f.WriteAt(whole[ends[batches]:cut], ends[batches]); err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(int64(cut)); err != nil {
			t.Fatal(err)
		}
		var rec Recovery
		got := &Log{dir: dir, id: orders, opts: opts.withDefaults()}
		seg, err := got.openActive(0, &rec)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		at := seg.tally.at
		seg.file.Close()
		if at.next != int64(3*batches) || at.size != ends[batches] || rec.CutBytes != int64(cut)-ends[batches] {
			t.Fatalf("cut at %d: end %d size %d, %+v", cut, at.next, at.size, rec)
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
