//go:build portage_faults && !linux

package faults

import (
	"os"
	"syscall"
)

// stop stops the process; the calling thread may run on for a moment.
func stop() error { return syscall.Kill(os.Getpid(), syscall.SIGSTOP) }
