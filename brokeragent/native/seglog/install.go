package seglog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"portage/internal/durable"
)

// InstallInfo is what the source reported under its freeze.
type InstallInfo struct {
	LogStart  int64
	Epochs    []Epoch
	Producers []byte // Log.ProducerSnapshot; heads after its end are replayed. Empty: all heads are
	WantEnd   int64  // the frozen end
}

// Install turns the copy into the log at target, which must not exist. It refuses unless the copy ends at exactly
// WantEnd. Its cost is that of the tail: one fsync of what Sync has not covered, three small files, three directory
// fsyncs; nothing is scanned.
//
// A crash before the rename leaves a staging that OpenStaging resumes; after it, a log that Open opens. When Install
// returns an error and target exists, the rename was done and only its durability is in doubt: Open target. Otherwise the
// staging goes on.
func (s *Staging) Install(target string, in InstallInfo) (*Log, error) {
	s.opMu.Lock()
	defer s.opMu.Unlock()
	l, err := s.install(filepath.Clean(target), in)
	if err != nil {
		return nil, fmt.Errorf("install copy of %s: %w", s.id, err)
	}
	return l, nil
}

func (s *Staging) install(target string, in InstallInfo) (_ *Log, err error) {
	if err := s.Failed(); err != nil {
		return nil, err
	}
	producers, err := s.checkInstall(target, in)
	if err != nil {
		return nil, err
	}
	segs, err := s.logSegments(producers, in)
	if err != nil {
		return nil, err
	}
	if err := s.writeInstallFiles(producers, in); err != nil {
		return nil, errors.Join(err, s.removeInstallFiles())
	}
	if err := renameNoReplace(s.dir, target); err != nil {
		return nil, errors.Join(err, s.removeInstallFiles())
	}
	// From here on the directory is a log.
	s.mu.Lock()
	s.failed = fmt.Errorf("staged copy of %s: installed at %s: %w", s.id, target, ErrClosed)
	s.segs = nil
	s.mu.Unlock()
	from, to := filepath.Dir(s.dir), filepath.Dir(target)
	err = durable.SyncDir(to)
	if err == nil && from != to {
		err = durable.SyncDir(from)
	}
	active := segs[len(segs)-1]
	if err != nil {
		return nil, errors.Join(err, active.file.Close())
	}
	// Deliberately not durable: the marker means nothing beside meta.json, nor does an index of the active segment.
	if err := removeIfThere(filepath.Join(target, stagingFile), fileOf(target, active.base, indexExt)); err != nil {
		s.opts.Logger.Warn("left over from staging", "log", target, "err", err)
	}
	l := &Log{dir: target, id: s.id, opts: s.opts, segs: segs, start: in.LogStart, end: in.WantEnd, durableEnd: in.WantEnd,
		epochs: slices.Clone(in.Epochs), producers: producers}
	return l.run(), nil
}

// checkInstall refuses what would not be the log that the source froze.
func (s *Staging) checkInstall(target string, in InstallInfo) (producerTable, error) {
	if len(s.segs) == 0 {
		if in.LogStart != in.WantEnd {
			return nil, fmt.Errorf("nothing is staged, the source has offsets %d to %d", in.LogStart, in.WantEnd)
		}
		if _, err := s.segmentForWrite(in.WantEnd, 0); err != nil {
			return nil, err
		}
	}
	first, end := s.segs[0].base, s.End()
	switch {
	case end != in.WantEnd:
		return nil, fmt.Errorf("the copy ends at offset %d, the source at %d", end, in.WantEnd)
	case in.LogStart < first || in.LogStart > end:
		return nil, fmt.Errorf("log start %d is outside the copy, %d to %d", in.LogStart, first, end)
	case len(in.Epochs) == 0 && s.Bytes() > 0:
		return nil, errors.New("there are batches and no epochs")
	}
	if err := checkEpochs(in.Epochs); err != nil {
		return nil, err
	}
	if n := len(in.Epochs); n > 0 && in.Epochs[n-1].Start > end {
		return nil, fmt.Errorf("epoch %d starts at %d, beyond the end %d", in.Epochs[n-1].Epoch, in.Epochs[n-1].Start, end)
	}
	if _, err := os.Lstat(target); err == nil {
		return nil, fmt.Errorf("%s: %w", target, ErrNotEmpty)
	}
	if len(in.Producers) == 0 {
		return producerTable{}, nil
	}
	producers, seen, err := decodeProducers(in.Producers)
	if err == nil && seen > end {
		err = fmt.Errorf("producer snapshot reaches offset %d, the copy only %d", seen, end)
	}
	return producers, err
}

// logSegments makes the log's segments of the staged ones and brings the producer state to the copy's end.
func (s *Staging) logSegments(producers producerTable, in InstallInfo) ([]*segment, error) {
	segs := make([]*segment, len(s.segs))
	for i, seg := range s.segs {
		segs[i] = &segment{base: seg.base, tally: seg.tally, durable: seg.tally.at, sealed: i < len(s.segs)-1}
	}
	last := s.segs[len(s.segs)-1]
	if err := s.reopen(last); err != nil {
		return nil, err
	}
	segs[len(segs)-1].file = last.file
	from := s.segs[0].base
	if len(in.Producers) > 0 {
		from, _ = SnapshotEnd(in.Producers)
	}
	return segs, replayHeads(s.dir, producers, from, segs)
}

// writeInstallFiles makes tail, producers, epochs and identity durable. They are written in place: until the rename the
// directory is no log, and OpenStaging removes them. Their fsyncs run side by side and share the file system's commit.
func (s *Staging) writeInstallFiles(producers producerTable, in InstallInfo) error {
	for _, seg := range s.segs[:len(s.segs)-1] {
		if err := s.syncSegment(seg); err != nil {
			return err
		}
		if !seg.sealed {
			// Deliberately not durable: one segment at most rolls during a freeze, and Open rebuilds its index.
			if err := os.WriteFile(fileOf(s.dir, seg.base, indexExt), seg.tally.encode(), 0o644); err != nil {
				return err
			}
		}
		if seg.file != nil {
			file := seg.file
			seg.file = nil
			if err := file.Close(); err != nil {
				return s.fail(err)
			}
		}
	}
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i, step := range []func() error{
		func() error { return s.syncSegment(s.segs[len(s.segs)-1]) },
		func() error {
			return writeSynced(fileOf(s.dir, in.WantEnd, producersExt), producers.encode(in.WantEnd))
		},
		func() error {
			return writeSynced(filepath.Join(s.dir, epochsFile), encodeJSON(epochList{1, in.Epochs}))
		},
		func() error {
			return writeSynced(filepath.Join(s.dir, metaFile), encodeJSON(meta{1, s.id, in.LogStart}))
		},
	} {
		wg.Go(func() { errs[i] = step() })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.dirDirty = true
	return s.syncEntries()
}
