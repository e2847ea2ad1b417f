package brokeragent

import (
	"context"

	"golang.org/x/time/rate"
)

// throttleBurst is how many bytes may pass at once; small enough that a rate holds over a second.
const throttleBurst = 1 << 20

// throttle is a byte rate that can be changed while it is in use; 0 is no limit.
type throttle struct{ limiter *rate.Limiter }

func newThrottle(bytesPerSec float64) *throttle {
	t := &throttle{limiter: rate.NewLimiter(rate.Inf, throttleBurst)}
	t.set(bytesPerSec)
	return t
}

func (t *throttle) set(bytesPerSec float64) {
	if bytesPerSec <= 0 {
		t.limiter.SetLimit(rate.Inf)
		return
	}
	t.limiter.SetLimit(rate.Limit(bytesPerSec))
}

// wait blocks until n bytes may pass.
func (t *throttle) wait(ctx context.Context, n int64) error {
	for n > 0 {
		part := min(n, throttleBurst)
		if err := t.limiter.WaitN(ctx, int(part)); err != nil {
			return err
		}
		n -= part
	}
	return nil
}
