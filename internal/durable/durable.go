// Package durable writes small files so that they survive a power cut: temporary file, fsync, rename, fsync of the
// folder. A reader finds the old content or the new, never a mixture.
package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"portage/internal/faults"
)

// WriteFile replaces path with content.
func WriteFile(path string, content []byte) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // no-op after the rename
	_, err = tmp.Write(content)
	if err == nil {
		err = tmp.Sync()
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}

// WriteJSON replaces path with v as JSON.
func WriteJSON(path string, v any) error {
	content, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return WriteFile(path, append(content, '\n'))
}

// ReadJSON reads path into v. A file that does not parse is an error, never a fresh start.
func ReadJSON(path string, v any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, v); err != nil {
		return fmt.Errorf("%s is damaged; restore it from a backup, do not delete it: %w", path, err)
	}
	return nil
}

// Datasync makes a file's bytes, and the size needed to read them, durable. After an error nothing may be assumed of what
// was written, and a second call would not say so: it is never retried.
func Datasync(f *os.File) error {
	err := faults.Fail("fdatasync")
	if err == nil {
		err = datasync(f)
	}
	if err != nil {
		return fmt.Errorf("sync %s: %w", f.Name(), os.NewSyscallError("fdatasync", err))
	}
	return nil
}

func datasync(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var syncErr error
	err = conn.Control(func(fd uintptr) {
		for {
			// An interrupted call has reported nothing and may be made again; any other error is final.
			if syncErr = unix.Fdatasync(int(fd)); syncErr != unix.EINTR {
				return
			}
		}
	})
	return errors.Join(err, syncErr)
}

// Settle has the next reads of f come from the disk: what a killed process wrote and never made durable is shown from now
// on, and after a failed sync the page cache may show bytes that never got there. sync is Datasync, or a test's.
func Settle(f *os.File, sync func(*os.File) error) error {
	if err := sync(f); err != nil {
		return err
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	// Where the file system has no such advice, it has no such cache either.
	return conn.Control(func(fd uintptr) { _ = unix.Fadvise(int(fd), 0, 0, unix.FADV_DONTNEED) })
}

// NoRoom reports whether an error says that the disk, or a quota on it, is full: something that ends by itself once there
// is room again.
func NoRoom(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// SyncDir makes renames, creations and removals in dir durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Rename moves a file or folder and makes both parents durable.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	if err := SyncDir(filepath.Dir(to)); err != nil {
		return err
	}
	if filepath.Dir(from) == filepath.Dir(to) {
		return nil
	}
	return SyncDir(filepath.Dir(from))
}
