package seglog

import (
	"os"

	"golang.org/x/sys/unix"
)

// renameNoReplace moves a directory to a name that must be free, in one step.
func renameNoReplace(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	switch err {
	case nil:
		return nil
	case unix.ENOSYS, unix.EINVAL, unix.ENOTSUP:
		// A file system without it: the caller has looked, and a directory that is not empty is never replaced.
		return os.Rename(from, to)
	}
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
}
