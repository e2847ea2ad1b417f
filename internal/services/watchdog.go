package services

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// startWatchdog starts a small process that kills the process group when this process ends: it
// reads from a pipe whose other end only this process holds. release ends the watchdog, and must be
// called when the group is gone.
func startWatchdog(group int) (release func(), err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("watchdog of process group %d: %w", group, err)
	}
	defer read.Close()
	// Nothing is ever written: read returns at the end of the pipe.
	cmd := exec.Command("/bin/sh", "-c", `read -r nothing; kill -9 -"$1"`, "watchdog", fmt.Sprint(group))
	cmd.Dir = "/"
	cmd.Stdin = read
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		write.Close()
		return nil, fmt.Errorf("watchdog of process group %d: %w", group, err)
	}
	return func() {
		// Before the pipe, so that the watchdog never acts on a group that is gone.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		write.Close()
	}, nil
}

func pollPause() { time.Sleep(20 * time.Millisecond) }
