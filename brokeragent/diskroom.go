package brokeragent

import (
	"context"
	"sync"
	"time"

	"portage/brokeragent/control"
)

// roomForCopies fails with CodeDiskFull while less than the floor is free: copies pause, and what this broker owns goes
// on. Before it says so, former copies whose owners prove that they are not needed go, whatever their age: trash is
// swept first.
//
// Everyone dies in it: nothing is lost, a swept copy was proven by its owner (R29).
func (a *Agent) roomForCopies(ctx context.Context) error {
	if a.freeBytes() >= a.cfg.DiskFloorBytes {
		return nil
	}
	if a.sweeping.due() {
		if answer, err := a.native.Trash().Sweep(ctx, 0); err != nil || answer.Deleted > 0 {
			a.logger.Info("the disk is nearly full; former copies were swept", "deleted", answer.Deleted, "kept", answer.Kept, "error", err)
		}
		if a.freeBytes() >= a.cfg.DiskFloorBytes {
			return nil
		}
	}
	return control.Errorf(control.CodeDiskFull, "%s has %d MiB free and keeps %d MiB for the partitions it owns; free space, or cancel the move",
		a.cfg.BrokerID, a.freeBytes()>>20, a.cfg.DiskFloorBytes>>20)
}

// roomFor is the room for one more copy beside those in flight. Before it is less than needed, former copies whose owners
// prove that they are not needed go, as in roomForCopies.
func (a *Agent) roomFor(ctx context.Context, moveID string, need int64) (int64, error) {
	room := func() (int64, error) {
		_, free, err := a.root.disk()
		return free - a.sessions.reserved(moveID) - a.cfg.DiskFloorBytes, err
	}
	has, err := room()
	if err != nil || need <= has {
		return has, err
	}
	answer, err := a.native.Trash().Sweep(ctx, 0)
	a.logger.Info("a copy lacks room; former copies were swept", "move", moveID, "deleted", answer.Deleted, "kept", answer.Kept, "error", err)
	return room()
}

// freeBytes is what the data folder's file system has left; what can not be asked is taken for enough, the write will
// tell.
func (a *Agent) freeBytes() int64 {
	_, free, err := a.root.disk()
	if err != nil {
		return a.cfg.DiskFloorBytes
	}
	return free
}

// sweepEvery bounds how often a full disk has the owners of former copies asked.
const sweepEvery = 10 * time.Second

// pace says whether something is due that is done now and then. The zero value is due.
type pace struct {
	mu   sync.Mutex
	last time.Time
}

func (p *pace) due() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.IsZero() && time.Since(p.last) < sweepEvery {
		return false
	}
	p.last = time.Now()
	return true
}
