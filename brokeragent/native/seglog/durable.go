package seglog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fdatasync makes a file's bytes, and the size needed to read them, durable.
func fdatasync(f *os.File) error {
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
	if err == nil && syncErr != nil {
		err = os.NewSyscallError("fdatasync", syncErr)
	}
	if err != nil {
		return fmt.Errorf("sync %s: %w", f.Name(), err)
	}
	return nil
}

// settle has the next reads of f come from the disk. After a failed fsync the page cache may show bytes that never got
// there, and a second fsync would not say so.
func settle(f *os.File, sync func(*os.File) error) error {
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

// syncDir makes the entries of a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// writeDurable replaces a file by one rename: readers and crashes see the old contents or the new, never a part.
func writeDurable(path string, data []byte) error {
	if err := replaceFile(path, data); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// replaceFile is writeDurable for a caller that fsyncs the directory itself, after several files.
func replaceFile(path string, data []byte) error {
	temp := path + tempSuffix
	if err := writeSynced(temp, data); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// writeSynced writes and fsyncs a file in place; its directory entry is the caller's to fsync.
func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

var crcTable = crc32.MakeTable(crc32.Castagnoli)

var errBadFrame = errors.New("checksum or format does not match")

// sealFrame appends a CRC of everything before it; openFrame checks and removes it.
func sealFrame(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crcTable))
}

func openFrame(b []byte, magic string) ([]byte, error) {
	n := len(b) - 4
	if n < len(magic) || string(b[:len(magic)]) != magic || binary.BigEndian.Uint32(b[n:]) != crc32.Checksum(b[:n], crcTable) {
		return nil, errBadFrame
	}
	return b[len(magic):n], nil
}
