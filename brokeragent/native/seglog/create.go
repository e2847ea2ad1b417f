package seglog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"portage/internal/durable"
)

// Create makes the empty log of a partition that never had one. It refuses a directory that holds anything (R5).
func Create(dir string, id Identity, opts Options) (*Log, error) { return CreateAt(dir, id, 0, opts) }

// CreateAt is Create with a first offset of its own, for a partition whose earlier records are given up.
func CreateAt(dir string, id Identity, start int64, opts Options) (*Log, error) {
	opts = opts.withDefaults()
	dir = filepath.Clean(dir)
	if start < 0 {
		return nil, fmt.Errorf("create log of %s: start %d", id, start)
	}
	if err := mustBeEmpty(dir); err != nil {
		return nil, fmt.Errorf("create log of %s: %w", id, err)
	}
	// Built beside its place and renamed: a crash leaves no half-made log that neither Open nor Create would take.
	making := dir + ".creating"
	if err := os.RemoveAll(making); err != nil {
		return nil, err
	}
	if err := makeDirDurable(making); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(fileOf(making, start, logExt), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = func() error {
		if err := f.Sync(); err != nil {
			return err
		}
		if err := writeSynced(filepath.Join(making, metaFile), encodeJSON(meta{1, id, start})); err != nil {
			return err
		}
		if err := durable.SyncDir(making); err != nil {
			return err
		}
		// An empty directory gives way; one that filled up in the meantime does not.
		if err := removeIfThere(dir); err != nil {
			return err
		}
		if err := renameNoReplace(making, dir); err != nil {
			return err
		}
		return durable.SyncDir(filepath.Dir(dir))
	}()
	if err != nil {
		return nil, fmt.Errorf("create log of %s: %w", id, errors.Join(err, f.Close()))
	}
	seg := &segment{base: start, tally: newTally(start, opts.IndexIntervalBytes), file: f}
	seg.durable = seg.tally.at
	l := &Log{dir: dir, id: id, opts: opts, segs: []*segment{seg}, start: start, end: start, durableEnd: start, producers: producerTable{}}
	return l.run(), nil
}

func mustBeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s: %w", dir, ErrNotEmpty)
	}
	return err
}
