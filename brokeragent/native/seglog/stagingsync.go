package seglog

import (
	"context"
	"fmt"

	"portage/internal/durable"
)

// Sync makes everything staged durable: files that grew since the last time, and their directory entries.
func (s *Staging) Sync(ctx context.Context) error {
	s.opMu.Lock()
	defer s.opMu.Unlock()
	return s.sync(ctx)
}

func (s *Staging) sync(ctx context.Context) error {
	if err := s.Failed(); err != nil {
		return err
	}
	for _, seg := range s.segs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.syncSegment(seg); err != nil {
			return err
		}
	}
	return s.syncEntries()
}

func (s *Staging) syncSegment(seg *stagedSegment) error {
	if seg.synced == seg.tally.at && seg.synced.size > 0 {
		return nil
	}
	if err := s.reopen(seg); err != nil {
		return err
	}
	if err := s.opts.syncFile(seg.file); err != nil {
		return s.fail(err)
	}
	seg.synced = seg.tally.at
	return nil
}

func (s *Staging) syncEntries() error {
	if !s.dirDirty {
		return nil
	}
	if err := durable.SyncDir(s.dir); err != nil {
		return s.fail(err)
	}
	s.dirDirty = false
	return nil
}

// SealUpTo finishes the segments that begin before base: fsync, then the index beside them. Called with the base of the
// source's active segment during the catch-up, it leaves nothing that grows with the partition for the freeze.
func (s *Staging) SealUpTo(ctx context.Context, base int64) error {
	s.opMu.Lock()
	defer s.opMu.Unlock()
	if err := s.Failed(); err != nil {
		return err
	}
	for _, seg := range s.segs {
		if seg.base >= base || seg.sealed {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.syncSegment(seg); err != nil {
			return err
		}
		if err := replaceFile(fileOf(s.dir, seg.base, indexExt), seg.tally.encode()); err != nil {
			return fmt.Errorf("index of staged segment %d of %s: %w", seg.base, s.id, err)
		}
		s.dirDirty = true
		seg.sealed = true
		if seg.file != nil {
			file := seg.file
			seg.file = nil
			if err := file.Close(); err != nil {
				return s.fail(err)
			}
		}
	}
	return s.syncEntries()
}
