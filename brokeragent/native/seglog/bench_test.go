package seglog

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"portage/brokeragent/native/recordbatch/batchtest"
)

// BenchmarkCopy stages and installs a log of 256 MiB in batches of 16 KiB; it reports the install alone too, which must not
// grow with the log.
func BenchmarkCopy(b *testing.B) {
	const segments, batches = 8, 2048
	l, err := Create(filepath.Join(b.TempDir(), "log"), orders, Options{SegmentBytes: 32 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	batch := batchtest.Batch(batchtest.Opts{Count: 16, ValueBytes: 1000})
	for range segments * batches {
		if _, err := l.Append(batch, 0); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.WaitDurable(context.Background(), l.End()); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(l.Size())
	var install time.Duration
	for b.Loop() {
		root := b.TempDir()
		s, err := OpenStaging(filepath.Join(root, "s"), orders, Options{})
		if err != nil {
			b.Fatal(err)
		}
		segs := l.Segments()
		for _, seg := range segs {
			f, size, err := l.OpenSegment(seg.Base)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := s.WriteSegment(context.Background(), seg.Base, 0, io.LimitReader(f, size), size); err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
		if err := s.SealUpTo(context.Background(), segs[len(segs)-1].Base); err != nil {
			b.Fatal(err)
		}
		if err := s.Sync(context.Background()); err != nil {
			b.Fatal(err)
		}
		begin := time.Now()
		got, err := s.Install(filepath.Join(root, "d"), InstallInfo{Epochs: l.Epochs(), Producers: l.ProducerSnapshot(), WantEnd: l.End()})
		if err != nil {
			b.Fatal(err)
		}
		install += time.Since(begin)
		got.Close()
		os.RemoveAll(root) // so that each round finds the page cache like the first
	}
	b.ReportMetric(float64(install.Microseconds())/float64(b.N)/1000, "ms/install")
}

// BenchmarkRead reads a log from its start in fetches of 1 MiB.
func BenchmarkRead(b *testing.B) {
	l, err := Create(filepath.Join(b.TempDir(), "log"), orders, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	batch := batchtest.Batch(batchtest.Opts{Count: 16, ValueBytes: 1000})
	for range 4096 {
		if _, err := l.Append(batch, 0); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.WaitDurable(context.Background(), l.End()); err != nil {
		b.Fatal(err)
	}
	at := int64(0)
	for b.Loop() {
		data, err := l.Read(at, 1<<20)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(data)))
		if at += int64(len(data)/len(batch)) * 16; at >= l.End() {
			at = 0
		}
	}
}
