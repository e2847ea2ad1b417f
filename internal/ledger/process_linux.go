package ledger

import "syscall"

// childAttributes keep Ctrl-C away from the child, whose end is ours to order, and have the kernel end it with us.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
