//go:build !linux

package ledger

import "syscall"

// childAttributes keep Ctrl-C away from the child, whose end is ours to order. It ends with us too, at the end of its input.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
