package seglog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"portage/brokeragent/native/recordbatch"
	"portage/brokeragent/native/recordbatch/batchtest"
	"portage/internal/durable"
)

func stage(t *testing.T, dir string, opts Options) *Staging {
	t.Helper()
	s, err := OpenStaging(dir, orders, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// pull copies what the source has and the copy lacks.
func pull(t *testing.T, s *Staging, l *Log) {
	t.Helper()
	have := map[int64]int64{}
	for _, seg := range s.State() {
		have[seg.Base] = seg.Size
	}
	for _, seg := range l.Segments() {
		from, staged := have[seg.Base]
		if staged && from == seg.Size {
			continue
		}
		pullSegment(t, s, l, seg.Base, from, seg.Size-from)
	}
}

func pullSegment(t *testing.T, s *Staging, l *Log, base, from, n int64) {
	t.Helper()
	f, _, err := l.OpenSegment(base)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := s.WriteSegment(context.Background(), base, from, io.NewSectionReader(f, from, n), n); err != nil {
		t.Fatal(err)
	}
}

func infoOf(l *Log) InstallInfo {
	return InstallInfo{LogStart: l.Start(), Epochs: l.Epochs(), Producers: l.ProducerSnapshot(), WantEnd: l.End()}
}

func sameDigests(t *testing.T, s *Staging, l *Log) {
	t.Helper()
	var want []StagedSegment
	for _, seg := range l.Segments() {
		want = append(want, StagedSegment{seg.Base, seg.Size, seg.NextOffset, seg.Digest})
	}
	if got := s.State(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("staged\n%v\nsource\n%v", got, want)
	}
}

func TestACopyIsInstalledAndGoesOnAsALog(t *testing.T) {
	l := create(t, small)
	put(t, l, batchtest.Batch(batchtest.Opts{Count: 2, Producer: &batchtest.Producer{ID: 6}}))
	fill(t, l, 40, 1000)
	root := t.TempDir()
	s := stage(t, filepath.Join(root, "staging", "m1"), small)
	pull(t, s, l)
	if err := s.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	segs := l.Segments()
	if err := s.SealUpTo(context.Background(), segs[len(segs)-1].Base); err != nil {
		t.Fatal(err)
	}
	// the tail, with a roll in it
	fill(t, l, 12, 100_000)
	put(t, l, batchtest.Batch(batchtest.Opts{Count: 3, Timestamp: 200_000, Producer: &batchtest.Producer{ID: 6, Seq: 2}}))
	pull(t, s, l)
	sameDigests(t, s, l)
	mustWrite(t, filepath.Join(s.Dir(), "offsets.journal"), []byte("travels along"))

	target := filepath.Join(root, "data")
	wrong := infoOf(l)
	wrong.WantEnd++
	if _, err := s.Install(target, wrong); err == nil {
		t.Fatal("installed below the frozen end")
	}
	got, err := s.Install(target, infoOf(l))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	check := func(got *Log) {
		t.Helper()
		sameBytes(t, "installed log", contents(t, got), contents(t, l))
		if fmt.Sprint(got.Segments(), got.Epochs(), got.Start(), got.End()) != fmt.Sprint(l.Segments(), l.Epochs(), l.Start(), l.End()) {
			t.Fatalf("installed\n%v\nsource\n%v", got.Segments(), l.Segments())
		}
		if v := got.CheckProducer(head(6, 0, 2, 3)); v.Kind != Duplicate || v.EndOffset != l.End() {
			t.Fatalf("last batch again: %+v", v)
		}
		if !bytes.Equal(got.ProducerSnapshot(), l.ProducerSnapshot()) {
			t.Fatal("producer state differs")
		}
	}
	check(got)
	crashed, _ := reopen(t, crash(t, target), small) // as if killed right after
	check(crashed)
	if string(mustRead(t, filepath.Join(target, "offsets.journal"))) != "travels along" {
		t.Fatal("a file of another package was lost")
	}

	b := batchtest.Batch(batchtest.Opts{Count: 4})
	for range 10 {
		put(t, got, bytes.Clone(b))
		put(t, l, bytes.Clone(b))
	}
	got.Close()
	again, rec := reopen(t, target, small)
	if rec.CutFile != "" || len(rec.RebuiltIndexes) > 0 {
		t.Fatalf("recovery after an install: %+v", rec)
	}
	sameBytes(t, "reopened", contents(t, again), contents(t, l))
	if _, err := s.Install(filepath.Join(root, "twice"), infoOf(l)); err == nil {
		t.Fatal("installed twice")
	}
}

func TestAnEmptyPartitionIsInstalled(t *testing.T) {
	l := create(t, small)
	if err := l.BeginEpoch(3, 0); err != nil {
		t.Fatal(err)
	}
	for _, withSegment := range []bool{true, false} {
		root := t.TempDir()
		s := stage(t, filepath.Join(root, "s"), small)
		if withSegment {
			pull(t, s, l)
		}
		got, err := s.Install(filepath.Join(root, "d"), infoOf(l))
		if err != nil {
			t.Fatal(err)
		}
		got.Close()
		again, _ := reopen(t, filepath.Join(root, "d"), small)
		if again.End() != 0 || again.EpochAt(0) != 3 {
			t.Fatalf("end %d, epochs %v", again.End(), again.Epochs())
		}
	}
}

func TestAStagedCopyResumesAtTheLastWholeBatchWhereverItWasCut(t *testing.T) {
	l := create(t, small)
	fill(t, l, 14, 0)
	dir := filepath.Join(t.TempDir(), "s")
	s := stage(t, dir, small)
	pull(t, s, l)
	s.Sync(context.Background())
	segs := s.State()
	last := segs[len(segs)-1]
	whole := mustRead(t, fileOf(dir, last.Base, logExt))
	s.Close()
	for cut := 0; cut < len(whole); cut += 7 {
		mustWrite(t, fileOf(dir, last.Base, logExt), whole[:cut])
		again := stage(t, dir, small)
		state := again.State()
		if len(state) != len(segs) {
			t.Fatalf("cut at %d: %d segments", cut, len(state))
		}
		got := state[len(state)-1]
		if got.Size > int64(cut) || got.Size%(last.Size/((last.NextOffset-last.Base)/3)) != 0 {
			t.Fatalf("cut at %d resumed at %d", cut, got.Size)
		}
		if d, err := l.DigestAt(got.Base, got.Size); err != nil || d != got.Digest {
			t.Fatalf("cut at %d: digest differs, %v", cut, err)
		}
		pullSegment(t, again, l, got.Base, got.Size, last.Size-got.Size)
		sameDigests(t, again, l)
		again.Close()
	}
}

func TestAStreamCutAnywhereKeepsWholeBatchesOnly(t *testing.T) {
	l := create(t, Options{})
	fill(t, l, 4, 0)
	all := mustRead(t, activeFile(l))
	one := int64(len(all) / 4)
	for cut := int64(0); cut <= int64(len(all)); cut += 5 {
		s := stage(t, filepath.Join(t.TempDir(), "s"), Options{})
		n, err := s.WriteSegment(context.Background(), 0, 0, bytes.NewReader(all[:cut]), cut)
		if err != nil || n != cut/one*one {
			t.Fatalf("%d bytes: kept %d, %v", cut, n, err)
		}
		// the rest, of which the stream breaks off
		m, err := s.WriteSegment(context.Background(), 0, n, bytes.NewReader(all[n:]), int64(len(all))-n+1)
		if !errors.Is(err, io.ErrUnexpectedEOF) || n+m != int64(len(all)) {
			t.Fatalf("%d bytes: then kept %d, %v", cut, m, err)
		}
		sameBytes(t, "staged", mustRead(t, fileOf(s.Dir(), 0, logExt)), all)
		sameDigests(t, s, l)
		s.Close()
	}
}

func TestBadStreamsAreRefused(t *testing.T) {
	l := create(t, Options{})
	fill(t, l, 4, 0)
	all := mustRead(t, activeFile(l))
	one := len(all) / 4
	flipped := bytes.Clone(all)
	flipped[2*one+80] ^= 1
	s := stage(t, filepath.Join(t.TempDir(), "s"), Options{})
	var corrupt *CorruptError
	if n, err := s.WriteSegment(context.Background(), 0, 0, bytes.NewReader(flipped), int64(len(all))); !errors.As(err, &corrupt) || n != int64(2*one) {
		t.Fatalf("flipped byte: kept %d, %v", n, err)
	}
	var mismatch *SizeMismatchError
	if _, err := s.WriteSegment(context.Background(), 0, 0, bytes.NewReader(all), int64(len(all))); !errors.As(err, &mismatch) || mismatch.Size != int64(2*one) {
		t.Fatalf("wrong size: %v", err)
	}
	// a batch is missing
	if n, err := s.WriteSegment(context.Background(), 0, int64(2*one), bytes.NewReader(all[3*one:]), int64(one)); !errors.As(err, &corrupt) || n != 0 {
		t.Fatalf("gap: kept %d, %v", n, err)
	}
	if _, err := s.WriteSegment(context.Background(), 99, 0, bytes.NewReader(nil), 0); !errors.Is(err, ErrNoSegment) {
		t.Fatalf("segment beyond the end: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.WriteSegment(ctx, 0, int64(2*one), bytes.NewReader(all[2*one:]), int64(2*one)); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	pullSegment(t, s, l, 0, int64(2*one), int64(2*one))
	sameDigests(t, s, l)
}

func TestTruncateGoesBackToABoundaryAndTheCopyGoesOn(t *testing.T) {
	l := create(t, small)
	fill(t, l, 40, 0)
	dir := filepath.Join(t.TempDir(), "s")
	s := stage(t, dir, small)
	pull(t, s, l)
	segs := l.Segments()
	if err := s.SealUpTo(context.Background(), segs[3].Base); err != nil {
		t.Fatal(err)
	}
	one := segs[0].Size / (segs[0].NextOffset / 3)
	if err := s.Truncate(segs[1].Base, one+1); !errors.Is(err, ErrBoundary) {
		t.Fatalf("inside a batch: %v", err)
	}
	if err := s.Truncate(segs[1].Base, 2*one); err != nil {
		t.Fatal(err)
	}
	state := s.State()
	want, _ := l.DigestAt(segs[1].Base, 2*one)
	if len(state) != 2 || state[1].Digest != want || s.End() != segs[1].Base+6 || s.Bytes() != segs[0].Size+2*one {
		t.Fatalf("state %v", state)
	}
	s.Close()
	s = stage(t, dir, small)
	if fmt.Sprint(s.State()) != fmt.Sprint(state) {
		t.Fatalf("resumed as %v, was %v", s.State(), state)
	}
	pull(t, s, l)
	sameDigests(t, s, l)
	if err := s.Truncate(segs[2].Base, 0); err != nil || s.End() != segs[2].Base {
		t.Fatalf("end %d, %v", s.End(), err)
	}
	if err := s.Reset(); err != nil || len(s.State()) != 0 {
		t.Fatalf("reset: %v, %v", s.State(), err)
	}
	pull(t, s, l)
	sameDigests(t, s, l)
}

func TestACrashBeforeTheRenameLeavesAStagingThatResumes(t *testing.T) {
	l := create(t, small)
	fill(t, l, 20, 0)
	root := t.TempDir()
	s := stage(t, filepath.Join(root, "s"), small)
	pull(t, s, l)
	in := infoOf(l)
	producers, _, _ := decodeProducers(in.Producers)
	if err := s.writeInstallFiles(producers, in); err != nil {
		t.Fatal(err)
	}
	dir := crash(t, s.Dir())
	s = stage(t, dir, small)
	sameDigests(t, s, l)
	if _, err := os.Stat(filepath.Join(dir, metaFile)); err == nil {
		t.Fatal("the staging still says it is a log")
	}
	fill(t, l, 5, 0)
	pull(t, s, l)
	got, err := s.Install(filepath.Join(root, "d"), infoOf(l))
	if err != nil {
		t.Fatal(err)
	}
	sameBytes(t, "installed", contents(t, got), contents(t, l))
	got.Close()
}

func TestStagingIsNotALogAndALogIsNotAStaging(t *testing.T) {
	l := create(t, small)
	fill(t, l, 3, 0)
	if _, err := OpenStaging(l.Dir(), orders, small); !errors.Is(err, ErrNotEmpty) {
		t.Fatalf("log as a staging: %v", err)
	}
	s := stage(t, filepath.Join(t.TempDir(), "s"), small)
	if _, _, err := Open(s.Dir(), small); !errors.Is(err, ErrNotALog) {
		t.Fatalf("staging as a log: %v", err)
	}
	other := orders
	other.Partition++
	s.Close()
	if _, err := OpenStaging(s.Dir(), other, small); !errors.Is(err, ErrIdentity) {
		t.Fatalf("staging of another partition: %v", err)
	}
	if _, err := s.Install(l.Dir(), infoOf(l)); err == nil {
		t.Fatal("a closed staging was installed")
	}
}

func TestInstallRefusesATargetThatExistsAndBadEvidence(t *testing.T) {
	l := create(t, small)
	fill(t, l, 20, 0)
	s := stage(t, filepath.Join(t.TempDir(), "s"), small)
	pull(t, s, l)
	free := filepath.Join(t.TempDir(), "d")
	for name, change := range map[string]func(in *InstallInfo) string{
		"target exists":     func(*InstallInfo) string { return l.Dir() },
		"no epochs":         func(in *InstallInfo) string { in.Epochs = nil; return free },
		"epochs unordered":  func(in *InstallInfo) string { in.Epochs = []Epoch{{4, 0, 0}, {3, 0, 0}}; return free },
		"damaged producers": func(in *InstallInfo) string { in.Producers[0]++; return free },
		"later producers":   func(in *InstallInfo) string { in.Producers = producerTable{}.encode(in.WantEnd + 1); return free },
		"log start beyond":  func(in *InstallInfo) string { in.LogStart = in.WantEnd + 1; return free },
		"end below":         func(in *InstallInfo) string { in.WantEnd--; return free },
	} {
		in := infoOf(l)
		target := change(&in)
		if _, err := s.Install(target, in); err == nil {
			t.Errorf("%s: installed", name)
		}
	}
	in := infoOf(l)
	in.LogStart = l.Segments()[1].Base + 1
	in.Producers = nil
	got, err := s.Install(free, in)
	if err != nil {
		t.Fatal(err)
	}
	got.Close()
	again, _ := reopen(t, free, small)
	if again.Start() != in.LogStart || again.Segments()[0].Base != l.Segments()[1].Base {
		t.Fatalf("start %d, first segment %d", again.Start(), again.Segments()[0].Base)
	}
}

func TestAFailedSyncOfTheCopyKeepsOnlyWhatWasSynced(t *testing.T) {
	broken := errors.New("disk is gone")
	fails := false
	opts := small
	opts.syncFile = func(f *os.File) error {
		if fails {
			return broken
		}
		return durable.Datasync(f)
	}
	l := create(t, Options{})
	fill(t, l, 3, 0)
	dir := filepath.Join(t.TempDir(), "s")
	s := stage(t, dir, opts)
	pull(t, s, l)
	if err := s.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	synced := s.State()
	fill(t, l, 3, 0)
	pull(t, s, l)
	fails = true
	if err := s.Sync(context.Background()); !errors.Is(err, broken) {
		t.Fatalf("sync: %v", err)
	}
	fails = false
	if err := s.Sync(context.Background()); !errors.Is(err, broken) {
		t.Fatalf("a failed staging went on: %v", err)
	}
	s.Close()
	again := stage(t, dir, small)
	if fmt.Sprint(again.State()) != fmt.Sprint(synced) {
		t.Fatalf("resumed as %v, synced was %v", again.State(), synced)
	}
}

func TestALongCopyOfLargeBatchesIsTheSameByteForByte(t *testing.T) {
	l := create(t, Options{SegmentBytes: 16 << 20})
	for i := range 10 {
		put(t, l, batchtest.Batch(batchtest.Opts{ValueBytes: 3<<20 + i*1000}))
	}
	s := stage(t, filepath.Join(t.TempDir(), "s"), Options{})
	pull(t, s, l)
	sameDigests(t, s, l)
	for _, seg := range s.State() {
		sameBytes(t, "segment", mustRead(t, fileOf(s.Dir(), seg.Base, logExt)), mustRead(t, fileOf(l.Dir(), seg.Base, logExt)))
		var d recordbatch.Digest
		for _, batch := range recordbatch.Iterate(mustRead(t, fileOf(s.Dir(), seg.Base, logExt))) {
			d = d.Next(batch)
		}
		if d != seg.Digest {
			t.Fatal("digest is not the chain over the staged heads")
		}
	}
}

func TestARetiredCopyIsAdoptedUpToWhereHistoriesPart(t *testing.T) {
	l := create(t, small)
	fill(t, l, 20, 0)
	retired := crash(t, l.Dir())
	old, _ := reopen(t, retired, small)
	put(t, old, batchtest.Batch(batchtest.Opts{Name: "only here"}))
	old.Close()
	fill(t, l, 20, 0)
	other := orders
	other.Partition++
	dir := filepath.Join(t.TempDir(), "staging", "m2")
	if _, err := Adopt(retired, dir, other, small); !errors.Is(err, ErrIdentity) {
		t.Fatalf("another partition's: %v", err)
	}
	s, err := Adopt(retired, dir, orders, small)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, seg := range s.State() {
		if d, err := l.DigestAt(seg.Base, seg.Size); err == nil && d == seg.Digest {
			continue
		}
		b := mustRead(t, fileOf(dir, seg.Base, logExt))
		last := int64(0)
		for h := range recordbatch.Iterate(b) {
			if h.NextOffset() < seg.NextOffset {
				last += h.TotalBytes()
			}
		}
		if err := s.Truncate(seg.Base, last); err != nil {
			t.Fatal(err)
		}
	}
	if s.End() != 60 {
		t.Fatalf("kept up to %d, the histories part at 60", s.End())
	}
	pull(t, s, l)
	sameDigests(t, s, l)
	got, err := s.Install(filepath.Join(t.TempDir(), "d"), infoOf(l))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	sameBytes(t, "installed", contents(t, got), contents(t, l))
}
