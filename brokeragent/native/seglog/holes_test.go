package seglog

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// HN6: staged files are not fsynced before the copy is put in place. (The holes are listed in the agent's holes_test.go.)
func TestHN6NothingIsInstalledThatIsNotDurable(t *testing.T) {
	l := create(t, small)
	fill(t, l, 40, 0)
	durableUpTo(t, l)
	broken := errors.New("disk is gone")
	for _, failing := range []string{"the last segment", "a sealed one"} {
		synced := map[string]int64{} // bytes of a file that an fsync has covered
		fails := ""
		opts := small
		opts.syncFile = func(f *os.File) error {
			if f.Name() == fails {
				return broken
			}
			info, err := f.Stat()
			if err == nil {
				synced[filepath.Base(f.Name())] = info.Size()
			}
			return err
		}
		dir := filepath.Join(t.TempDir(), "staging")
		s, err := OpenStaging(dir, l.Identity(), opts)
		if err != nil {
			t.Fatal(err)
		}
		copyAll(t, l, s)
		info := InstallInfo{LogStart: l.Start(), Epochs: l.Epochs(), WantEnd: l.End()}
		segs := s.State()
		which := segs[len(segs)-1]
		if failing == "a sealed one" {
			which = segs[0]
		}
		fails = fileOf(dir, which.Base, logExt)
		target := filepath.Join(filepath.Dir(dir), "log")
		if _, err := s.Install(target, info); !errors.Is(err, broken) {
			t.Fatalf("an install whose fsync of %s failed: %v", failing, err)
		}
		if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("the copy is in place although %s is not durable (%v)", failing, err)
		}
		fails = ""
		s.Close()
		if s, err = OpenStaging(dir, l.Identity(), opts); err != nil {
			t.Fatal(err)
		}
		copyAll(t, l, s)
		installed, err := s.Install(target, info)
		if err != nil {
			t.Fatal(err)
		}
		for _, seg := range installed.Segments() {
			name := filepath.Base(fileOf(dir, seg.Base, logExt))
			if synced[name] < seg.Size {
				t.Errorf("%s has %d bytes in place and %d were fsynced before", name, seg.Size, synced[name])
			}
		}
		installed.Close()
	}
}

// copyAll brings a staging to the state of a log.
func copyAll(t *testing.T, l *Log, s *Staging) {
	t.Helper()
	have := map[int64]int64{}
	for _, seg := range s.State() {
		have[seg.Base] = seg.Size
	}
	for _, seg := range l.Segments() {
		from := have[seg.Base]
		if from == seg.Size {
			continue
		}
		f, _, err := l.OpenSegment(seg.Base)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Seek(from, 0); err != nil {
			t.Fatal(err)
		}
		_, err = s.WriteSegment(context.Background(), seg.Base, from, f, seg.Size-from)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func durableUpTo(t *testing.T, l *Log) {
	t.Helper()
	if err := l.WaitDurable(context.Background(), l.End()); err != nil {
		t.Fatal(err)
	}
}
