package offsets

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

	"portage/internal/durable"
)

func open(t *testing.T, dir string, opts Options) *Table {
	t.Helper()
	table, err := OpenWith(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	return table
}

func commit(t *testing.T, table *Table, epoch int32, group string, offset int64) {
	t.Helper()
	if err := table.Commit(epoch, group, offset, 7, "meta of "+group)(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestCommitsAreThereAfterReopeningWithTheirStamps(t *testing.T) {
	dir := t.TempDir()
	now := time.UnixMilli(1_700_000_000_123)
	table := open(t, dir, Options{Now: func() time.Time { return now }})
	commit(t, table, 3, "a", 10)
	commit(t, table, 3, "b", 20)
	commit(t, table, 4, "a", 5) // a rewind is a later commit
	if err := table.Delete("b")(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := table.All()
	table.Close()
	table = open(t, dir, Options{})
	if got := table.All(); fmt.Sprint(got) != fmt.Sprint(want) || len(got) != 1 {
		t.Fatalf("got %v, want %v", got, want)
	}
	e, ok := table.Get("a")
	if !ok || e != (Entry{"a", 5, 7, "meta of a", Stamp{4, 3}, now}) {
		t.Fatalf("entry %+v", e)
	}
	commit(t, table, 4, "c", 1)
	if e, _ := table.Get("c"); e.Stamp != (Stamp{4, 5}) {
		t.Fatalf("stamp %+v: the delete's was given out again", e.Stamp)
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	if err := table.Commit(4, "c", 2, -1, "")(context.Background()); !errors.Is(err, ErrClosed) {
		t.Fatalf("commit after close: %v", err)
	}
}

func TestATornJournalIsCutAtTheLastWholeFrameWhereverItIsTorn(t *testing.T) {
	dir := t.TempDir()
	table := open(t, dir, Options{})
	path := filepath.Join(dir, JournalFile)
	var ends []int
	for i := range 5 {
		b, _ := os.ReadFile(path)
		ends = append(ends, len(b))
		commit(t, table, 1, fmt.Sprint("g", i), int64(i))
	}
	whole, _ := os.ReadFile(path)
	ends = append(ends, len(whole))
	table.Close()
	for cut := ends[0]; cut < len(whole); cut++ {
		for _, garbage := range []string{"", "\x00\x00\x00\x00\x00\x00\x00\x00\x00", "\xff\xff\xff"} {
			if err := os.WriteFile(path, append(bytes.Clone(whole[:cut]), garbage...), 0o644); err != nil {
				t.Fatal(err)
			}
			kept := 0
			for ends[kept+1] <= cut {
				kept++
			}
			table, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(table.All()); n < kept || n > kept+1 || (garbage == "" && n != kept) {
				t.Fatalf("cut at %d: %d entries, want %d", cut, n, kept)
			}
			if rec := table.Recovered(); garbage == "" && rec.CutBytes != int64(cut-ends[kept]) {
				t.Fatalf("cut at %d: %+v", cut, rec)
			}
			commit(t, table, 2, "after", 9)
			table.Close()
			if table, err = Open(dir); err != nil || table.Recovered() != (Recovery{}) {
				t.Fatalf("cut at %d, second open: %+v %v", cut, table.Recovered(), err)
			}
			if _, ok := table.Get("after"); !ok {
				t.Fatalf("cut at %d: the commit after it is lost", cut)
			}
			table.Close()
		}
	}
}

func TestReplaceLeavesNothingOfTheOldTable(t *testing.T) {
	source := open(t, t.TempDir(), Options{})
	commit(t, source, 5, "a", 0) // rewound by an operator
	commit(t, source, 5, "b", 7)
	dir := t.TempDir()
	table := open(t, dir, Options{})
	for range 10 {
		commit(t, table, 4, "a", 1000)
	}
	commit(t, table, 4, "gone", 1000)
	if err := table.Replace(source.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(table.All()) != fmt.Sprint(source.All()) {
		t.Fatalf("table %v, source %v", table.All(), source.All())
	}
	commit(t, table, 6, "c", 3)
	if e, _ := table.Get("c"); e.Stamp.Counter != 12 {
		t.Fatalf("the counter went back: %+v", e.Stamp)
	}
	table.Delete("c")
	table.Close()
	table = open(t, dir, Options{})
	snapshot := source.Snapshot()
	for i := range snapshot {
		bad := bytes.Clone(snapshot)
		bad[i] ^= 4
		if err := table.Replace(bad); err == nil {
			t.Fatalf("snapshot with byte %d flipped was accepted", i)
		}
	}
	if fmt.Sprint(table.All()) != fmt.Sprint(source.All()) {
		t.Fatalf("after reopening: %v", table.All())
	}
}

func TestAStagedJournalIsMadeOfASnapshot(t *testing.T) {
	source := open(t, t.TempDir(), Options{})
	for i := range 30 {
		commit(t, source, 5, fmt.Sprint("g", i), int64(i))
	}
	dir := t.TempDir()
	for range 2 { // the second replaces the first
		if err := WriteSnapshotFile(dir, source.Snapshot()); err != nil {
			t.Fatal(err)
		}
		commit(t, source, 5, "late", 1)
	}
	if err := WriteSnapshotFile(dir, []byte("nonsense")); err == nil {
		t.Fatal("nonsense was accepted")
	}
	source.Delete("late")(context.Background())
	table := open(t, dir, Options{})
	if len(table.All()) != 31 {
		t.Fatalf("%d entries", len(table.All()))
	}
	commit(t, table, 6, "x", 1)
	if e, _ := table.Get("x"); e.Stamp.Counter <= 31 {
		t.Fatalf("stamp %+v is not newer than the source's", e.Stamp)
	}
}

func TestTheJournalIsCompacted(t *testing.T) {
	dir := t.TempDir()
	table := open(t, dir, Options{CompactBytes: 4096})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 200 {
				wait := table.Commit(1, fmt.Sprint("g", w), int64(i), -1, "")
				if i%5 == 0 {
					if err := wait(context.Background()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	want := table.All()
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, JournalFile))
	if err != nil || info.Size() > 4096 {
		t.Fatalf("journal of %d bytes, %v", info.Size(), err)
	}
	again := open(t, dir, Options{})
	if fmt.Sprint(again.All()) != fmt.Sprint(want) || len(want) != 8 || want[0].Offset != 199 {
		t.Fatalf("got %v, want %v", again.All(), want)
	}
	commit(t, again, 1, "next", 0)
	if e, _ := again.Get("next"); e.Stamp.Counter != 1601 {
		t.Fatalf("stamp %+v", e.Stamp)
	}
}

func TestAFailedSyncEndsTheTableForGood(t *testing.T) {
	broken := errors.New("disk is gone")
	var fails atomic.Bool
	table := open(t, t.TempDir(), Options{syncFile: func(f *os.File) error {
		if fails.Load() {
			return broken
		}
		return durable.Datasync(f)
	}})
	commit(t, table, 1, "a", 1)
	fails.Store(true)
	if err := table.Commit(1, "a", 2, -1, "")(context.Background()); !errors.Is(err, broken) {
		t.Fatalf("commit: %v", err)
	}
	fails.Store(false)
	for _, err := range []error{table.Commit(1, "a", 3, -1, "")(context.Background()), table.Replace(table.Snapshot()), table.Failed(), table.Close()} {
		if !errors.Is(err, broken) {
			t.Fatalf("a failed table answered %v", err)
		}
	}
}

func FuzzJournal(f *testing.F) {
	s := state{entries: map[string]Entry{"a": {Group: "a", Offset: 4}}, counter: 2}
	f.Add(appendFrame(nil, s.encodeSnapshot()))
	f.Add(appendFrame(nil, appendEntry([]byte{kindCommit}, Entry{Group: "b", Metadata: "m", Offset: -1})))
	f.Fuzz(func(t *testing.T, payload []byte) {
		got := state{entries: map[string]Entry{}}
		if got.apply(payload) != nil {
			return
		}
		back := state{entries: map[string]Entry{}}
		if err := back.apply(got.encodeSnapshot()); err != nil || fmt.Sprint(back) != fmt.Sprint(got) {
			t.Fatalf("%v came back as %v, %v", got, back, err)
		}
	})
}
