package ledger

import (
	"context"
	"time"
)

// pace calls send rate times a second, catching up after a stall, until the context ends, count calls were made (0: no
// bound) or send returns false. With rate 0 it calls as fast as send returns.
func pace(ctx context.Context, rate int, count int64, send func() bool) {
	began, sent := time.Now(), int64(0)
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		due := sent + 1
		if rate > 0 {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			due = int64(time.Since(began).Seconds() * float64(rate))
		}
		for ; sent < due; sent++ {
			if ctx.Err() != nil || count > 0 && sent >= count || !send() {
				return
			}
		}
	}
}
