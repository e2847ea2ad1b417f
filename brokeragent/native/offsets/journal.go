package offsets

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"portage/internal/durable"
)

// JournalFile is the journal's name in the partition's directory.
const JournalFile = "offsets.journal"

const tempSuffix = ".tmp"

// Recovery says what Open cut off a journal.
type Recovery struct {
	CutAt    int64
	CutBytes int64
}

// load plays a journal up to its last sound frame.
func load(path string) (s state, good, size int64, err error) {
	s = state{entries: map[string]Entry{}}
	b, err := os.ReadFile(path)
	if err != nil {
		return s, 0, 0, err
	}
	for rest := b; len(rest) > 0; {
		payload, after, err := nextFrame(rest)
		if err != nil {
			break
		}
		if err := s.apply(payload); err != nil {
			// The CRC holds, so this is not a torn write: it was written by another version, or by a mistake.
			return s, 0, 0, fmt.Errorf("%s at byte %d: %w", path, good, err)
		}
		good += int64(len(rest) - len(after))
		rest = after
	}
	return s, good, int64(len(b)), nil
}

// replaceJournal puts a journal of one snapshot in the place of whatever is there, in one durable step.
func replaceJournal(dir string, payload []byte, sync func(*os.File) error) (f *os.File, size int64, err error) {
	path := filepath.Join(dir, JournalFile)
	temp := path + tempSuffix
	frame := appendFrame(nil, payload)
	f, err = os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return nil, 0, err
	}
	if _, err = f.Write(frame); err == nil {
		err = sync(f)
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err == nil {
		err = durable.SyncDir(dir)
	} else {
		_ = os.Remove(temp)
		if durable.NoRoom(err) { // the journal that was there still is
			err = fmt.Errorf("%w: %w", errFull, err)
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("replace %s: %w", path, errors.Join(err, f.Close()))
	}
	return f, int64(len(frame)), nil
}

// WriteSnapshotFile makes dir's journal out of a snapshot, in one durable step: for a staged copy, whose table nobody has
// open.
func WriteSnapshotFile(dir string, snapshot []byte) error {
	payload, err := checkSum(snapshot)
	if err != nil {
		return err
	}
	var s state
	if err := s.applySnapshot(payload); err != nil {
		return err
	}
	f, _, err := replaceJournal(dir, payload, durable.Datasync)
	if err != nil {
		return err
	}
	return f.Close()
}

// openJournal opens or creates the journal and cuts its torn tail.
func openJournal(dir string, sync func(*os.File) error) (f *os.File, s state, size int64, rec Recovery, err error) {
	path := filepath.Join(dir, JournalFile)
	if err := os.Remove(path + tempSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, s, 0, rec, err
	}
	f, err = os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		s = state{entries: map[string]Entry{}}
		f, size, err = replaceJournal(dir, s.encodeSnapshot(), sync)
		return f, s, size, rec, err
	}
	if err != nil {
		return nil, s, 0, rec, err
	}
	s, good, size, err := recoverJournal(f, sync)
	if err != nil {
		return nil, s, 0, rec, errors.Join(err, f.Close())
	}
	if good < size {
		rec = Recovery{good, size - good}
	}
	return f, s, good, rec, nil
}

func recoverJournal(f *os.File, sync func(*os.File) error) (s state, good, size int64, err error) {
	if err := durable.Settle(f, sync); err != nil { // what is read from now on is answered, so it comes from the disk
		return s, 0, 0, err
	}
	if s, good, size, err = load(f.Name()); err != nil || good == size {
		return s, good, size, err
	}
	if err := f.Truncate(good); err != nil {
		return s, 0, 0, err
	}
	return s, good, size, sync(f)
}
