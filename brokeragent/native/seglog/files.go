package seglog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	metaFile    = "meta.json"
	epochsFile  = "epochs.json"
	stagingFile = "staging.json"
	tempSuffix  = ".tmp"

	logExt       = ".log"
	indexExt     = ".index"
	producersExt = ".producers"
)

func fileOf(dir string, offset int64, ext string) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", offset, ext))
}

// offsetsOf lists, in order, the offsets that name files with one extension.
func offsetsOf(dir, ext string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var offsets []int64
	for _, e := range entries {
		stem, ok := strings.CutSuffix(e.Name(), ext)
		if !ok || len(stem) != 20 {
			continue
		}
		if n, err := strconv.ParseInt(stem, 10, 64); err == nil && n >= 0 {
			offsets = append(offsets, n)
		}
	}
	slices.Sort(offsets)
	return offsets, nil
}

// meta is what makes a directory a log.
type meta struct {
	Format int `json:"format"`
	Identity
	LogStart int64 `json:"log_start"`
}

func encodeJSON(v any) []byte {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("seglog: encode %T: %v", v, err)) // plain structs of numbers and strings
	}
	return append(b, '\n')
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return &CorruptError{File: path, Err: err}
	}
	return nil
}

// ReadIdentity says whose log a directory holds, without opening it.
func ReadIdentity(dir string) (Identity, error) {
	m, err := readMeta(dir)
	return m.Identity, err
}

func readMeta(dir string) (meta, error) {
	var m meta
	path := filepath.Join(dir, metaFile)
	switch err := readJSON(path, &m); {
	case errors.Is(err, fs.ErrNotExist):
		return m, fmt.Errorf("%s: %w", dir, ErrNotALog)
	case err != nil:
		return m, err
	}
	if m.Format != 1 || m.LogStart < 0 {
		return m, &CorruptError{File: path, Err: fmt.Errorf("format %d, log start %d", m.Format, m.LogStart)}
	}
	return m, nil
}

// removeIfThere removes files and does not mind those that are gone.
func removeIfThere(paths ...string) error {
	var errs []error
	for _, p := range paths {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeTemps removes what a crash left of unfinished replacements of this package's files.
func removeTemps(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), tempSuffix)
		if !ok {
			continue
		}
		ours := name == metaFile || name == epochsFile || name == stagingFile ||
			strings.HasSuffix(name, indexExt) || strings.HasSuffix(name, producersExt)
		if ours {
			if err := removeIfThere(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
