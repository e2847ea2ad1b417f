package seglog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"portage/internal/durable"
)

// writeDurable replaces a file by one rename: readers and crashes see the old contents or the new, never a part.
func writeDurable(path string, data []byte) error {
	if err := replaceFile(path, data); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
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
