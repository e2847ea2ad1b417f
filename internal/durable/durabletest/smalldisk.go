// Package durabletest gives tests disks that are really full.
package durabletest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// SmallDisk mounts a file system of a size ("64m") at dir until the test ends. Mounting needs root; without it the test
// is skipped, and says so.
func SmallDisk(t testing.TB, dir, size string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small disk needs root")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no small disk can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// Fill fills the disk at dir until only free bytes are left, whoever else writes; empty makes the room again.
func Fill(t testing.TB, dir string, free int64) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for zeros := make([]byte, 64<<10); ; {
		var stat syscall.Statfs_t
		if err := syscall.Statfs(dir, &stat); err != nil {
			t.Fatal(err)
		}
		room := int64(stat.Bavail)*stat.Bsize - free
		if room <= 0 {
			break
		}
		if _, err := file.Write(zeros[:min(room, int64(len(zeros)))]); errors.Is(err, syscall.ENOSPC) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
