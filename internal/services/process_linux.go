package services

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel kill the child when the thread that started it ends. It reaches the
// child alone, but at once, and from the first moment; the watchdog takes the rest of the group.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// waitUntilDead returns when the child has ended but is not reaped: its id is still taken.
func waitUntilDead(pid int) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// postgresProcesses lists all processes of the server with this data folder, whether its postmaster
// is alive or not: each of them works inside the folder, and nothing else does.
func postgresProcesses(_ int, data string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes of Postgres: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// Unreadable: of another user, or ended, and so none of ours. A dead process that
		// nobody has reaped yet has no working directory either.
		cwd, err := os.Readlink(filepath.Join("/proc", entry.Name(), "cwd"))
		if err == nil && cwd == data {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// isGone reports whether the process holds nothing any more. A dead one that its parent has not
// reaped (an init that reaps nobody is common in containers) counts as gone.
func isGone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	// "pid (name) state ...", and the name may hold anything.
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), " ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}
