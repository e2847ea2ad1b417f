//go:build unix && !linux

package services

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// There is no parent death signal here; the watchdog is alone.
func dieWithParent(*syscall.SysProcAttr) {}

// There is no portable way to wait without reaping. Between the reaping and the note that it has
// happened, the id could in theory be given to another process.
func waitUntilDead(pid int) {
	for !isGone(pid) {
		pollPause()
	}
}

// postgresProcesses lists the postmaster and its children. Children of a postmaster that is dead
// already are not found; they notice its death and end by themselves.
func postgresProcesses(postmaster int, _ string) ([]int, error) {
	list, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("list the processes of Postgres: %w", err)
	}
	var pids []int
	for line := range strings.Lines(string(list)) {
		var pid, parent int
		if _, err := fmt.Sscan(line, &pid, &parent); err == nil && (pid == postmaster || parent == postmaster) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// isGone reports whether the process holds nothing any more.
func isGone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	state, err := exec.Command("ps", "-o", "state=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}
