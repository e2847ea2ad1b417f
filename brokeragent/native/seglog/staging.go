package seglog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"portage/brokeragent/native/recordbatch"
	"portage/internal/durable"
)

// Staging is the copy of a log that is being made at the destination of a move. Its directory has the layout of a log
// and lacks only what Install writes, so that installing costs nothing that grows with the partition.
//
// Bytes enter by WriteSegment alone, which verifies every batch. After a crash OpenStaging reads everything again and
// keeps what is sound. A failed fsync or write-back ends a Staging; its unsynced bytes are cut, since the page cache can
// no longer be trusted to show what the disk holds.
//
// State, Bytes and End may be called at any time, also during a WriteSegment; the other methods wait for each other.
type Staging struct {
	dir  string
	id   Identity
	opts Options

	opMu sync.Mutex // serializes everything that touches files

	mu       sync.Mutex
	segs     []*stagedSegment // guarded by mu; changed only under opMu, so reading under opMu needs no mu
	failed   error            // guarded by mu
	dirDirty bool             // guarded by opMu: directory entries are not fsynced yet
}

// stagedSegment is one file of the copy. All but tally is guarded by opMu; tally also by Staging.mu for its writer.
type stagedSegment struct {
	base   int64
	tally  tally
	synced mark // the fsynced prefix
	sealed bool // its index is on disk
	file   *os.File
}

// StagedSegment is what a copy has of one segment.
type StagedSegment struct {
	Base       int64
	Size       int64
	NextOffset int64
	Digest     recordbatch.Digest
}

// OpenStaging begins a staged copy or resumes one. On a resume every staged byte is read and verified: each segment is cut
// to its last whole batch, and whatever does not follow on from that is dropped.
func OpenStaging(dir string, id Identity, opts Options) (*Staging, error) {
	s := &Staging{dir: filepath.Clean(dir), id: id, opts: opts.withDefaults()}
	if err := s.resume(); err != nil {
		s.closeFiles()
		return nil, fmt.Errorf("stage copy of %s: %w", id, err)
	}
	return s, nil
}

func (s *Staging) resume() error {
	marker := filepath.Join(s.dir, stagingFile)
	var had meta
	switch err := readJSON(marker, &had); {
	case errors.Is(err, fs.ErrNotExist):
		if err := mustBeEmpty(s.dir); err != nil {
			return err // never taken over: it may be a log
		}
		if err := makeDirDurable(s.dir); err != nil {
			return err
		}
		return writeDurable(marker, encodeJSON(meta{Format: 1, Identity: s.id}))
	case err != nil:
		return err
	}
	if had.Identity != s.id {
		return fmt.Errorf("%s holds %s (%s), not %s (%s): %w", s.dir, had.Identity, had.TopicID, s.id, s.id.TopicID, ErrIdentity)
	}
	if err := removeTemps(s.dir); err != nil {
		return err
	}
	if err := s.removeInstallFiles(); err != nil {
		return err
	}
	bases, err := offsetsOf(s.dir, logExt)
	if err != nil {
		return err
	}
	for i, base := range bases {
		if n := len(s.segs); n > 0 && s.segs[n-1].tally.at.next != base {
			return s.dropFiles(bases[i:])
		}
		seg, err := s.rescan(base)
		if err != nil {
			return err
		}
		s.segs = append(s.segs, seg)
	}
	return nil
}

// rescan verifies a staged segment and cuts it to its last whole batch.
func (s *Staging) rescan(base int64) (_ *stagedSegment, err error) {
	f, err := os.OpenFile(fileOf(s.dir, base, logExt), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	old, indexed, err := loadIndex(s.dir, base, info.Size())
	if err != nil {
		return nil, err
	}
	if !indexed { // an index is written after the fsync of what it describes
		if err := durable.Settle(f, s.opts.syncFile); err != nil {
			return nil, err
		}
	}
	t, damage, err := scan(f, base, s.opts.IndexIntervalBytes)
	if err != nil {
		return nil, err
	}
	if damage != nil {
		s.opts.Logger.Info("staged segment cut", "segment", f.Name(), "offset", t.at.next, "reason", damage.Error())
		if err := f.Truncate(t.at.size); err != nil {
			return nil, err
		}
	}
	seg := &stagedSegment{base: base, tally: t, synced: t.at, file: f}
	if indexed && old.at == t.at {
		seg.sealed, seg.file = true, nil
		return seg, f.Close()
	}
	if damage != nil {
		seg.synced = t.origin() // the cut is not durable
	}
	return seg, removeIfThere(fileOf(s.dir, base, indexExt))
}

// removeInstallFiles takes back what an Install wrote before a crash.
func (s *Staging) removeInstallFiles() error {
	snapshots, err := offsetsOf(s.dir, producersExt)
	if err != nil {
		return err
	}
	paths := []string{filepath.Join(s.dir, metaFile), filepath.Join(s.dir, epochsFile)}
	for _, at := range snapshots {
		paths = append(paths, fileOf(s.dir, at, producersExt))
	}
	return removeIfThere(paths...)
}

func (s *Staging) dropFiles(bases []int64) error {
	for _, base := range bases {
		if err := removeSegmentFiles(s.dir, base); err != nil {
			return err
		}
	}
	s.dirDirty = true
	return nil
}

// State lists the staged segments, oldest first.
func (s *Staging) State() []StagedSegment {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := make([]StagedSegment, len(s.segs))
	for i, seg := range s.segs {
		at := seg.tally.at
		state[i] = StagedSegment{seg.base, at.size, at.next, at.digest}
	}
	return state
}

// Bytes is the number of verified bytes staged.
func (s *Staging) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := int64(0)
	for _, seg := range s.segs {
		total += seg.tally.at.size
	}
	return total
}

// End is the offset after the last staged batch; 0 while nothing is staged.
func (s *Staging) End() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.segs) == 0 {
		return 0
	}
	return s.segs[len(s.segs)-1].tally.at.next
}

// Dir is the staging directory.
func (s *Staging) Dir() string { return s.dir }

// Identity is whose copy it is.
func (s *Staging) Identity() Identity { return s.id }

// Failed is the error that ended this staging, nil while it works.
func (s *Staging) Failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// fail ends the staging after a failed fsync; it runs under opMu. Only what was fsynced before is kept on disk.
func (s *Staging) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	s.failed = fmt.Errorf("staged copy of %s failed, open it again: %w", s.id, err)
	for _, seg := range s.segs {
		if seg.file != nil && seg.synced.size < seg.tally.at.size {
			if cut := seg.file.Truncate(seg.synced.size); cut != nil {
				s.failed = errors.Join(s.failed, cut)
			}
		}
	}
	return s.failed
}

// Truncate cuts the copy back to size bytes of the segment at base, which must end at a batch boundary, and drops all
// later segments. Size 0 drops the segment too.
func (s *Staging) Truncate(base, size int64) error {
	s.opMu.Lock()
	defer s.opMu.Unlock()
	if err := s.Failed(); err != nil {
		return err
	}
	i := slices.IndexFunc(s.segs, func(seg *stagedSegment) bool { return seg.base == base })
	if i < 0 {
		return fmt.Errorf("truncate copy of %s at segment %d: %w", s.id, base, ErrNoSegment)
	}
	if size == 0 {
		return s.dropFrom(i)
	}
	seg := s.segs[i]
	if err := s.reopen(seg); err != nil {
		return err
	}
	if size > seg.tally.at.size || size < 0 {
		return fmt.Errorf("truncate copy of %s: segment %d has %d bytes, not %d: %w", s.id, base, seg.tally.at.size, size, ErrBoundary)
	}
	m := seg.tally.at
	if size < m.size {
		var err error
		if m, err = markAt(seg.file, &seg.tally, size, seg.tally.at.size); err != nil {
			return err
		}
	}
	if err := s.dropFrom(i + 1); err != nil {
		return err
	}
	if err := removeIfThere(fileOf(s.dir, base, indexExt)); err != nil {
		return err
	}
	if err := seg.file.Truncate(size); err != nil {
		return fmt.Errorf("truncate copy of %s: %w", s.id, err)
	}
	s.mu.Lock()
	seg.tally.cutTo(m)
	s.mu.Unlock()
	seg.sealed = false
	if seg.synced.size > size {
		seg.synced = m
	}
	// At once, so that bytes of the old history cannot come back behind new ones after a crash.
	if err := s.opts.syncFile(seg.file); err != nil {
		return s.fail(err)
	}
	seg.synced = m
	return nil
}

func (s *Staging) dropFrom(i int) error {
	for j := len(s.segs) - 1; j >= i; j-- {
		seg := s.segs[j]
		if seg.file != nil {
			seg.file.Close()
		}
		if err := s.dropFiles([]int64{seg.base}); err != nil {
			return err
		}
		s.mu.Lock()
		s.segs = s.segs[:j]
		s.mu.Unlock()
	}
	return nil
}

// Reset drops everything staged.
func (s *Staging) Reset() error {
	s.opMu.Lock()
	defer s.opMu.Unlock()
	if err := s.Failed(); err != nil {
		return err
	}
	return s.dropFrom(0)
}

func (s *Staging) reopen(seg *stagedSegment) error {
	if seg.file != nil {
		return nil
	}
	f, err := os.OpenFile(fileOf(s.dir, seg.base, logExt), os.O_RDWR, 0)
	seg.file = f
	return err
}

// Close ends the staging and leaves the copy on disk for OpenStaging.
func (s *Staging) Close() error {
	s.opMu.Lock()
	defer s.opMu.Unlock()
	s.mu.Lock()
	if s.failed == nil {
		s.failed = fmt.Errorf("staged copy of %s: %w", s.id, ErrClosed)
	}
	s.mu.Unlock()
	return s.closeFiles()
}

func (s *Staging) closeFiles() error {
	var errs []error
	for _, seg := range s.segs {
		if seg.file != nil {
			errs = append(errs, seg.file.Close())
			seg.file = nil
		}
	}
	return errors.Join(errs...)
}
