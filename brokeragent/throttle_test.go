package brokeragent

import (
	"context"
	"math"
	"testing"
	"time"
)

// The limiter is asked when bytes could pass, at times of the test's choosing: nothing here depends on the clock.
func TestThrottleHoldsItsRate(t *testing.T) {
	const rate = 8 << 20
	for _, chunk := range []int{4 << 10, 64 << 10, throttleBurst} {
		throttle := newThrottle(rate)
		now := time.Unix(0, 0)
		began, passed := now, 0
		for passed < 20*rate {
			reservation := throttle.limiter.ReserveN(now, chunk)
			if !reservation.OK() {
				t.Fatalf("%d bytes can never pass", chunk)
			}
			now = now.Add(reservation.DelayFrom(now))
			passed += chunk
		}
		took := now.Sub(began).Seconds()
		if got := float64(passed-throttleBurst) / took; math.Abs(got-rate) > rate/100 {
			t.Errorf("in chunks of %d, %.0f bytes a second pass a limit of %d", chunk, got, rate)
		}
	}
}

func TestThrottleCanBeChangedAndLifted(t *testing.T) {
	throttle := newThrottle(1)
	throttle.set(1 << 20)
	if got := float64(throttle.limiter.Limit()); got != 1<<20 {
		t.Errorf("limit %v", got)
	}
	for _, none := range []float64{0, -1} {
		throttle.set(none)
		now := time.Unix(0, 0)
		for range 1000 {
			if d := throttle.limiter.ReserveN(now, throttleBurst).DelayFrom(now); d != 0 {
				t.Fatalf("without a limit bytes wait for %s", d)
			}
		}
	}
	// More than a burst at once is let through in parts.
	if err := throttle.wait(t.Context(), 10*throttleBurst+1); err != nil {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	throttle.set(1)
	if err := throttle.wait(gone, 3*throttleBurst); err == nil {
		t.Error("a reader that is gone was waited for")
	}
}

// A copy that is held at next to nothing goes on as soon as it is let go, not once it would have passed.
func TestThrottleWaitsOnAtTheNewRate(t *testing.T) {
	throttle := newThrottle(1)
	throttle.limiter.AllowN(time.Now(), throttleBurst) // nothing is left
	passed := make(chan error)
	go func() { passed <- throttle.wait(t.Context(), throttleBurst) }() // 12 days
	for range 3 {
		throttle.set(2)
	}
	throttle.set(0)
	if err := <-passed; err != nil {
		t.Error(err)
	}
}
