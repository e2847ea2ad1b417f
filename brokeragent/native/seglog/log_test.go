package seglog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portage/brokeragent/native/recordbatch"
	"portage/brokeragent/native/recordbatch/batchtest"
	"portage/internal/durable"
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

func TestGroupCommitServesManyWritersWithFewSyncs(t *testing.T) {
	var syncs atomic.Int64
	opts := Options{SegmentBytes: 20000, syncFile: func(f *os.File) error {
		syncs.Add(1)
		time.Sleep(time.Millisecond)
		return durable.Datasync(f)
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
	makeDurable(t, l, n)
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
		return durable.Datasync(f)
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
