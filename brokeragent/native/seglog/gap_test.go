package seglog

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"portage/brokeragent/native/recordbatch"
	"portage/brokeragent/native/recordbatch/batchtest"
)

// R18: a log whose end was lost goes on at the last known end: recovery, reads, digests and a copy cope with the gap.
func TestR18ALogGoesOnBehindTheOffsetsThatWereLost(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	id := Identity{TopicID: uuid.New(), Topic: "orders", Partition: 3}
	log, err := Create(dir, id, Options{})
	if err != nil {
		t.Fatal(err)
	}
	write := func(l *Log, epoch int32) int64 {
		t.Helper()
		appended, err := l.Append(batchtest.Batch(batchtest.Opts{Count: 1}), epoch)
		if err == nil {
			err = l.WaitDurable(context.Background(), appended.Next)
		}
		if err != nil {
			t.Fatal(err)
		}
		return appended.Base
	}
	write(log, 0)
	const far = 3 << 31 // more than one batch can span
	for range 2 {
		if err := log.SkipTo(far, 9); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.BeginEpochAfterLoss(2, far, far-1); err != nil {
		t.Fatal(err)
	}
	if at := write(log, 2); at != far {
		t.Errorf("the next record is at %d, want %d", at, int64(far))
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	log, recovery, err := Open(dir, Options{})
	if err != nil || recovery.CutBytes != 0 || log.End() != far+1 {
		t.Fatalf("opened again it ends at %d, recovery %+v (%v)", log.End(), recovery, err)
	}
	defer log.Close()
	if epochs := log.Epochs(); len(epochs) != 2 || epochs[1] != (Epoch{Epoch: 2, Start: far, Lost: far - 1}) {
		t.Errorf("the epochs are %+v", epochs)
	}
	// A read from within the gap comes to the record behind it.
	next, records := int64(5), 0
	for next < far+1 {
		batches, err := log.Read(next, 1<<20)
		if err != nil || len(batches) == 0 {
			t.Fatalf("reading at %d: %d bytes, %v", next, len(batches), err)
		}
		for h := range recordbatch.Iterate(batches) {
			next, records = h.NextOffset(), records+int(h.NumRecords)
		}
	}
	if records != 1 {
		t.Errorf("read were %d records behind the first", records)
	}
	// A copy is byte for byte the same.
	staging, err := OpenStaging(filepath.Join(t.TempDir(), "staging"), id, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer staging.Close()
	for _, seg := range log.Segments() {
		f, size, err := log.OpenSegment(seg.Base)
		if err == nil {
			_, err = staging.WriteSegment(context.Background(), seg.Base, 0, f, size)
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if staging.End() != far+1 || staging.State()[0].Digest != log.Segments()[0].Digest {
		t.Errorf("the copy ends at %d", staging.End())
	}
}
