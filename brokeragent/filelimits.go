package brokeragent

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// fileLimits is how many files this process may have open and how many it has: segments, indexes and connections count
// alike, so a limit that is too low shows first as refused connections. What the system does not tell is 0.
func fileLimits() (limit, open int64) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err == nil {
		limit = int64(min(r.Cur, math.MaxInt64))
	}
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		open = int64(len(entries)) - 1 // reading the list is one of them
	}
	return limit, open
}
