//go:build !portage_faults

package faults

// Built reports whether this binary carries crash points.
const Built = false

// Point marks a place where a test may stop the process.
func Point(string) {}

// LoseReply reports whether the reply of the named call is to be dropped after the call took effect.
func LoseReply(string) bool { return false }

// Fail is an error that the named call to the operating system is to report in place of being made; always nil in the
// product.
func Fail(string) error { return nil }

// Enforced reports whether a safety rule ("R7") is in force; always true in the product.
func Enforced(string) bool { return true }

// Dial returns the address to connect to instead of addr; always addr in the product.
func Dial(addr string) string { return addr }
