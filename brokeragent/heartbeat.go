package brokeragent

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"portage/brokeragent/native"
	"portage/metastore"
)

const (
	heartbeatEvery = 2 * time.Second
	// loadsEvery is how many heartbeats pass between two reports of the partitions' figures.
	loadsEvery = 3
	// LoadsTold is how long it takes at most until an agent has told what has changed.
	LoadsTold = loadsEvery * heartbeatEvery
)

// loadKey is one partition of a report.
type loadKey struct {
	topicID   uuid.UUID
	partition int32
}

// reporter chooses what a heartbeat reports: every few heartbeats, and only what has changed since it was last
// acknowledged, so that idle partitions cost nothing.
type reporter struct {
	beats        int
	acknowledged map[loadKey]metastore.Load
}

// due are the figures the next heartbeat carries; nil when it carries none, empty when none has changed.
func (r *reporter) due(now func() []metastore.Load) []metastore.Load {
	r.beats++
	if (r.beats-1)%loadsEvery != 0 {
		return nil
	}
	changed := []metastore.Load{}
	for _, l := range now() {
		if r.acknowledged[loadKey{l.TopicID, l.Partition}] != l {
			changed = append(changed, l)
		}
	}
	return changed
}

// done remembers what a heartbeat brought through.
func (r *reporter) done(reported []metastore.Load) {
	for _, l := range reported {
		r.acknowledged[loadKey{l.TopicID, l.Partition}] = l
	}
}

// beat raises the heartbeat counter and reports the open partitions. An agent whose place another process took stops
// serving. One that finds the metastore older than its last heartbeat registers again and serves on (R1): nobody took its
// place.
func (a *Agent) beat(ctx context.Context, fail func(error)) error {
	ticker := time.NewTicker(heartbeatEvery)
	defer ticker.Stop()
	reports := reporter{acknowledged: map[loadKey]metastore.Load{}}
	var counter int64
	for {
		total, free, err := a.root.disk()
		if err == nil {
			loads := reports.due(a.native.Loads)
			began := native.BoottimeNow()
			quarantined, _ := a.quarantined()
			var raised int64
			raised, err = a.store.Heartbeat(ctx, metastore.HeartbeatReport{Broker: a.cfg.BrokerID, Process: a.process, Storage: a.root.identity.Storage,
				DiskTotalBytes: total, DiskFreeBytes: free, Quarantined: quarantined, Loads: loads, Counter: counter})
			if err == nil {
				counter = raised
				now := time.Now()
				a.beatAt.Store(&now)
				a.native.NotePrimaryRead(began, counter)
				a.renewFences(ctx, began)
				reports.done(loads)
			}
		}
		if refused, ok := metastore.RefusedWith(err, metastore.CodeMetastoreOlder); ok {
			a.logger.Error("registering again", "reason", refused.Reason)
			counter, reports.beats = 0, 0
			clear(reports.acknowledged)
			if err := a.register(ctx); err != nil && ctx.Err() == nil {
				fail(err)
				return nil
			}
		} else if refused, ok := metastore.RefusedWith(err); ok {
			fail(errors.New(refused.Reason))
			return nil
		} else if err != nil && ctx.Err() == nil {
			a.logger.Warn("heartbeat failed; serving on", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// aside is what was last read of the quarantine.
type aside struct {
	copies  int
	records int64
}

// quarantined counts what is in quarantine. What can not be read is at least what was there before, and never nothing: a broker
// whose quarantine is unknown is not removed (R30).
func (a *Agent) quarantined() (copies int, records int64) {
	copies, records, err := a.native.Trash().Quarantined()
	if err == nil {
		a.aside.Store(&aside{copies, records})
		return copies, records
	}
	a.logger.Warn("the quarantine can not be read, so copies are taken to be in it", "error", err)
	var last aside
	if read := a.aside.Load(); read != nil {
		last = *read
	}
	return max(1, last.copies), last.records
}

// renewFences asks, after an acknowledged heartbeat, which partitions may go on under their write fence (R2). An answer that
// does not come renews nothing.
func (a *Agent) renewFences(ctx context.Context, began native.Boottime) {
	if !a.native.Fences() {
		return
	}
	confirmed, err := a.store.ReadFenced(ctx, a.cfg.BrokerID)
	if err != nil {
		a.logger.Warn("the write fences were not renewed", "error", err)
		return
	}
	a.native.RenewFences(began, confirmed)
}
