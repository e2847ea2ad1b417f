package seglog

import (
	"fmt"
	"os"
	"path/filepath"

	"portage/internal/durable"
)

// Adopt turns the closed log at logDir, a retired copy, into a staging at dir, so that a move back copies only what
// differs. Its producer state and epochs are dropped, and files of other packages stay: the caller replaces the committed
// offsets (R24). Every byte is read again; the caller compares State with the source and truncates (R29).
//
// A crash before the rename leaves the log as it was, after it a staging that OpenStaging resumes.
func Adopt(logDir, dir string, id Identity, opts Options) (*Staging, error) {
	m, err := readMeta(logDir)
	if err != nil {
		return nil, fmt.Errorf("adopt retired copy: %w", err)
	}
	if m.Identity != id {
		return nil, fmt.Errorf("adopt retired copy: %s holds %s (%s), not %s (%s): %w", logDir, m.Identity, m.TopicID, id, id.TopicID, ErrIdentity)
	}
	if err := writeDurable(filepath.Join(logDir, stagingFile), encodeJSON(meta{1, id, m.LogStart})); err != nil {
		return nil, err
	}
	if err := makeDirDurable(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	if err := renameNoReplace(logDir, dir); err != nil {
		return nil, fmt.Errorf("adopt retired copy: %w", err)
	}
	for _, parent := range []string{filepath.Dir(dir), filepath.Dir(logDir)} {
		if err := durable.SyncDir(parent); err != nil {
			return nil, err
		}
	}
	return OpenStaging(dir, id, opts)
}

// makeDirDurable is os.MkdirAll whose new entries survive a crash.
func makeDirDurable(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := makeDirDurable(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	return durable.SyncDir(parent)
}
