package native

import (
	"time"

	"golang.org/x/sys/unix"
)

// Boottime is a reading of the clock that only runs forward and counts while the machine sleeps. Its rate is trusted in
// one place (R2); its value means nothing on another machine or after a reboot.
type Boottime time.Duration

// BoottimeNow reads the clock.
func BoottimeNow() Boottime {
	var t unix.Timespec
	// The clock exists since Linux 2.6.39; a failure reads 0, which is as if no read had ever succeeded.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return Boottime(t.Nano())
}

// NotePrimaryRead remembers a heartbeat that a primary acknowledged: when it was begun, and the counter it raised in the
// transaction that read the rows' primary.
func (b *Broker) NotePrimaryRead(began Boottime, counter int64) {
	b.primaryRead.Store(&primaryRead{began: began, counter: counter})
}

type primaryRead struct {
	began   Boottime
	counter int64
}

// lastPrimaryRead is when the last heartbeat that a primary acknowledged began, and the counter it raised; ok is false
// while this process has none. Whatever happened to the rows before that moment, this process could have known.
func (b *Broker) lastPrimaryRead() (began Boottime, counter int64, ok bool) {
	r := b.primaryRead.Load()
	if r == nil {
		return 0, 0, false
	}
	return r.began, r.counter, true
}
