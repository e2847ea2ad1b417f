package faultctl

import "golang.org/x/sys/unix"

// awaitStopped waits until a child that has been told to stop stands still. As its parent we hear of it; it can not be
// killed in between by anyone else.
func awaitStopped(pid int) error {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}
