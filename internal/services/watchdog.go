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
//
// It serves systems without a parent death signal.
func startWatchdog(group int) (release func(), err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("watchdog of process group %d: %w", group, err)
	}
	defer read.Close()
	cmd := exec.Command("/bin/sh", "-c", `cat >/dev/null; kill -9 -"$1"`, "watchdog", fmt.Sprint(group))
	cmd.Stdin = read
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		write.Close()
		return nil, fmt.Errorf("watchdog of process group %d: %w", group, err)
	}
	return func() {
		// The whole group: the shell, and the cat it waits for. Only then the pipe, so that
		// the watchdog never acts on a group that is gone.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		write.Close()
	}, nil
}

func pollPause() { time.Sleep(20 * time.Millisecond) }
