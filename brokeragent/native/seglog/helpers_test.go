package seglog

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"portage/brokeragent/native/recordbatch"
	"portage/brokeragent/native/recordbatch/batchtest"
)

var orders = Identity{TopicID: uuid.MustParse("0195e1b0-0000-7000-8000-000000000001"), Topic: "orders", Partition: 3}

// small rolls often and indexes often.
var small = Options{SegmentBytes: 2000, IndexIntervalBytes: 300}

func create(t *testing.T, opts Options) *Log {
	t.Helper()
	l, err := Create(filepath.Join(t.TempDir(), "log"), orders, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func reopen(t *testing.T, dir string, opts Options) (*Log, Recovery) {
	t.Helper()
	l, rec, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, rec
}

// put appends batches one by one and waits until they are durable.
func put(t *testing.T, l *Log, batches ...[]byte) Appended {
	t.Helper()
	first := Appended{Base: -1}
	for _, b := range batches {
		a, err := l.Append(b, 1)
		if err != nil {
			t.Fatal(err)
		}
		if first.Base < 0 {
			first.Base = a.Base
		}
		first.Next = a.Next
	}
	makeDurable(t, l, first.Next)
	return first
}

func makeDurable(t *testing.T, l *Log, end int64) {
	t.Helper()
	if err := l.WaitDurable(context.Background(), end); err != nil {
		t.Fatal(err)
	}
}

// fill appends n batches of three records, a second apart, starting at time from.
func fill(t *testing.T, l *Log, n int, from int64) {
	t.Helper()
	for i := range n {
		put(t, l, batchtest.Batch(batchtest.Opts{Count: 3, ValueBytes: 40, Timestamp: from + int64(i)*1000}))
	}
}

// contents reads a log from start to durable end.
func contents(t *testing.T, l *Log) []byte {
	t.Helper()
	var all []byte
	for at := l.Start(); at < l.DurableEnd(); {
		b, err := l.Read(at, 500)
		if err != nil {
			t.Fatal(err)
		}
		for h := range recordbatch.Iterate(b) {
			at = h.NextOffset()
		}
		all = append(all, b...)
	}
	return all
}

// crash copies a log's directory as a killed process would leave it; without its clean-close snapshot when it has one.
func crash(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "crashed")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func activeFile(l *Log) string {
	segs := l.Segments()
	return fileOf(l.Dir(), segs[len(segs)-1].Base, logExt)
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustWrite(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func sameBytes(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("%s: %d bytes differ from the %d expected", what, len(got), len(want))
	}
}
