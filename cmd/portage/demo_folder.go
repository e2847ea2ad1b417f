package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"portage/workflows/protocol"
)

const (
	demoFolder = "demo-data"
	// demoFolderOfRoot is used where the unprivileged user that runs Postgres for root can not enter the working folder.
	demoFolderOfRoot = "/var/tmp/portage-demo"
)

// demoData is the folder of a demo, held against a second one.
type demoData struct {
	dir  string
	lock *os.File
}

// openDemoData makes the folder, or takes one up again.
func openDemoData(dir string) (*demoData, error) {
	if dir == "" {
		if dir = demoFolder; os.Geteuid() == 0 && !everybodyMayEnter(".") {
			dir = demoFolderOfRoot
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("the demo's folder can not be made: %w; name another one with --dir", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "demo.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("the demo's folder can not be written: %w; name another one with --dir", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another demo runs in %s; end it with Ctrl-C, or name another folder with --dir", dir)
		}
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	return &demoData{dir, lock}, nil
}

// everybodyMayEnter reports whether any user can get into the folder: it and all above it let others in.
func everybodyMayEnter(dir string) bool {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// needRoom refuses to begin what a full disk would end.
func (d *demoData) needRoom(bytes protocol.ByteSize) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(d.dir, &fs); err != nil {
		return fmt.Errorf("free room of %s: %w", d.dir, err)
	}
	free := protocol.ByteSize(fs.Bavail) * protocol.ByteSize(fs.Bsize)
	if free < bytes {
		return fmt.Errorf("%s has %s free and the demo needs %s; name a folder elsewhere with --dir, or write less with --data", d.dir, free, bytes)
	}
	return nil
}

func (d *demoData) path(name string) string { return filepath.Join(d.dir, name) }

func (d *demoData) close() { d.lock.Close() }
