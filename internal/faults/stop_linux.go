//go:build portage_faults

package faults

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// stop sends SIGSTOP to this very thread, which stops the whole process before the call returns. Sent to the process,
// another thread may take the signal while this one runs on past the point.
func stop() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
}
