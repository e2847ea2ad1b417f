package seglog

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"portage/brokeragent/native/recordbatch"
	"portage/brokeragent/native/recordbatch/batchtest"
)

// FuzzRecovery opens a log whose only segment holds any bytes: it must end after a sound prefix, take appends, and be
// the same at the next open.
func FuzzRecovery(f *testing.F) {
	one := batchtest.Batch(batchtest.Opts{Count: 2, Producer: &batchtest.Producer{ID: 3}})
	two := batchtest.Batch(batchtest.Opts{Count: 1, BaseOffset: 2})
	f.Add(batchtest.Batches(one, two))
	f.Add(batchtest.Batches(one, two)[:len(one)+30])
	f.Add(batchtest.Batches(one, one))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, segment []byte) {
		dir, err := os.MkdirTemp(t.TempDir(), "log")
		if err != nil {
			t.Fatal(err)
		}
		mustWrite(t, fileOf(dir, 0, logExt), segment)
		mustWrite(t, filepath.Join(dir, metaFile), encodeJSON(meta{1, orders, 0}))
		mustWrite(t, filepath.Join(dir, epochsFile), encodeJSON(epochList{1, []Epoch{{Epoch: 1}}}))
		opts := Options{syncFile: func(*os.File) error { return nil }}
		l, _, err := Open(dir, opts)
		if err != nil {
			t.Fatal(err)
		}
		kept := mustRead(t, fileOf(dir, 0, logExt))
		if !bytes.HasPrefix(segment, kept) {
			t.Fatal("recovery changed bytes")
		}
		at := int64(0)
		for h, batch := range recordbatch.Iterate(kept) {
			if h.BaseOffset != at || recordbatch.Verify(batch) != nil {
				t.Fatalf("kept an unsound batch %+v", h)
			}
			at = h.NextOffset()
		}
		if at != l.End() {
			t.Fatalf("end %d, batches end at %d", l.End(), at)
		}
		put(t, l, batchtest.Batch(batchtest.Opts{}))
		want := contents(t, l)
		l.Close()
		again, rec, err := Open(dir, opts)
		if err != nil || rec.CutFile != "" {
			t.Fatalf("second open: %+v, %v", rec, err)
		}
		sameBytes(t, "log", contents(t, again), want)
		again.Close()
	})
}
