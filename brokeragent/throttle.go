package brokeragent

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// throttleBurst is how many bytes may pass at once; small enough that a rate holds over a second.
const throttleBurst = 1 << 20

// throttle is a byte rate that can be changed while it is in use; 0 is no limit. Whoever waits under the old rate waits on
// under the new one: a copy that was held at a byte a second goes on at once when it is let go.
type throttle struct {
	limiter *rate.Limiter
	mu      sync.Mutex    // guards changed
	changed chan struct{} // closed when the rate changes
}

func newThrottle(bytesPerSec float64) *throttle {
	t := &throttle{limiter: rate.NewLimiter(rate.Inf, throttleBurst), changed: make(chan struct{})}
	t.set(bytesPerSec)
	return t
}

func (t *throttle) set(bytesPerSec float64) {
	limit := rate.Inf
	if bytesPerSec > 0 {
		limit = rate.Limit(bytesPerSec)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limiter.SetLimit(limit)
	close(t.changed)
	t.changed = make(chan struct{})
}

// reserve asks for n bytes and says how the wait for them may end.
func (t *throttle) reserve(n int) (*rate.Reservation, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.limiter.ReserveN(time.Now(), n), t.changed
}

// wait blocks until n bytes may pass.
func (t *throttle) wait(ctx context.Context, n int64) error {
	for n > 0 {
		part := min(n, throttleBurst)
		reserved, changed := t.reserve(int(part))
		delay := reserved.Delay()
		if delay == 0 {
			n -= part
			continue
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
			n -= part
		case <-changed: // asked for again, at the new rate
			reserved.Cancel()
		case <-ctx.Done():
			reserved.Cancel()
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
	return nil
}
