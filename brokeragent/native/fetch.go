package native

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"portage/brokeragent/native/seglog"
	"portage/brokeragent/native/wire"
)

// reading finds the log a read is answered from. A partition that is just opening is waited for, within the park's bound:
// answering that it is elsewhere would send clients away from where they belong. Reads never freeze.
func (b *Broker) reading(ctx context.Context, ref wire.PartitionRef, clientEpoch int32) (log *seglog.Log, p *Partition, frozen bool, code int16, hint *wire.LeaderHint) {
	p = b.lookup(ref)
	if p == nil {
		code, hint = b.elsewhere(ref)
		return nil, nil, false, code, hint
	}
	deadline := time.Now().Add(b.cfg.Limits.ParkFor)
	for {
		p.mu.Lock()
		state, changed, epoch := p.state, p.changed, p.serving
		log, frozen = p.log, state == StateFrozen || p.fenced() // either may have been flipped over without knowing it
		soon := state == StateOpening || (state == StateElsewhere && p.expectsCommit())
		p.mu.Unlock()
		switch {
		case state == StateOpen || state == StateFrozen:
			switch {
			case clientEpoch >= 0 && clientEpoch < epoch:
				return nil, p, frozen, kerr.FencedLeaderEpoch.Code, nil
			case clientEpoch > epoch:
				return nil, p, frozen, kerr.UnknownLeaderEpoch.Code, nil
			}
			return log, p, frozen, 0, nil
		case state == StateGone:
			return nil, p, false, kerr.UnknownTopicOrPartition.Code, nil
		case !soon || !waitFor(ctx, changed, deadline):
			code, hint = b.elsewhere(ref)
			return nil, p, false, code, hint
		}
	}
}

// waitFor waits for a signal until a deadline; false when the deadline or the context ended first.
func waitFor(ctx context.Context, signal <-chan struct{}, deadline time.Time) bool {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-signal:
		return true
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
}

// Fetch implements wire.Broker.
func (b *Broker) Fetch(ctx context.Context, req wire.FetchRequest) wire.FetchAnswer {
	log, p, frozen, code, hint := b.reading(ctx, req.PartitionRef, req.CurrentLeaderEpoch)
	if code != 0 {
		return wire.FetchAnswer{Code: code, Leader: hint, HighWatermark: -1, LogStart: -1}
	}
	changed := log.Changed() // taken before reading, so that no record slips between the read and the wait
	records, err := log.Read(req.Offset, int(req.MaxBytes))
	answer := wire.FetchAnswer{HighWatermark: log.DurableEnd(), LogStart: log.Start(), Records: records, Changed: changed}
	var outside *seglog.OutOfRangeError
	switch {
	case errors.As(err, &outside) && frozen:
		answer.Code = kerr.NotLeaderForPartition.Code // R13: only an open owner says "out of range"
	case errors.As(err, &outside):
		answer.Code = kerr.OffsetOutOfRange.Code
	case err != nil:
		// The log was closed under the read because the partition left, or its disk failed.
		answer.Code, answer.Leader = b.elsewhere(req.PartitionRef)
	}
	p.mu.Lock()
	p.consumedBytes += int64(len(records))
	p.mu.Unlock()
	if m := b.cfg.Metrics; m != nil {
		m.FetchedBytes.Add(float64(len(records)))
	}
	return answer
}

// ListOffset implements wire.Broker.
func (b *Broker) ListOffset(ctx context.Context, ref wire.PartitionRef, clientEpoch int32, timestamp int64) wire.OffsetAnswer {
	log, p, _, code, _ := b.reading(ctx, ref, clientEpoch)
	if code == 0 && p.fenced() {
		code = kerr.NotLeaderForPartition.Code // R13: another may have been promoted, and its log ends elsewhere
	}
	if code != 0 {
		return wire.OffsetAnswer{Code: code, Offset: -1, Timestamp: -1, LeaderEpoch: -1}
	}
	answer := wire.OffsetAnswer{Offset: -1, Timestamp: -1, LeaderEpoch: -1}
	switch timestamp {
	case -1:
		answer.Offset = log.DurableEnd()
	case -2:
		answer.Offset = log.Start()
	case -3:
		answer.Timestamp, answer.Offset = log.MaxTimestamp()
	default:
		offset, at, ok, err := log.OffsetForTime(timestamp)
		if err != nil {
			return wire.OffsetAnswer{Code: kerr.KafkaStorageError.Code, Offset: -1, Timestamp: -1, LeaderEpoch: -1}
		}
		if ok {
			answer.Offset, answer.Timestamp = offset, at
		}
	}
	if answer.Offset >= 0 {
		answer.LeaderEpoch = log.EpochAt(answer.Offset)
	}
	return answer
}

// EpochEnd implements wire.Broker.
func (b *Broker) EpochEnd(ctx context.Context, ref wire.PartitionRef, clientEpoch, epoch int32) wire.EpochEndAnswer {
	log, p, _, code, _ := b.reading(ctx, ref, clientEpoch)
	if code == 0 && p.fenced() {
		code = kerr.NotLeaderForPartition.Code
	}
	if code != 0 {
		return wire.EpochEndAnswer{Code: code, LeaderEpoch: -1, EndOffset: -1}
	}
	known, end := log.EndOfEpoch(epoch)
	return wire.EpochEndAnswer{LeaderEpoch: known, EndOffset: end}
}

// retain applies the topic's retention. Batch timestamps decide, never file times.
func (p *Partition) retain(config map[string]string) {
	p.mu.Lock()
	log, open := p.log, p.state == StateOpen
	for conn, at := range p.refused {
		if open && time.Since(at) > time.Minute {
			delete(p.refused, conn) // whatever came behind that refusal has arrived long since
		}
	}
	p.mu.Unlock()
	if !open {
		return
	}
	policy := seglog.Policy{}
	if n, err := strconv.ParseInt(config["retention.bytes"], 10, 64); err == nil && n >= 0 {
		policy.MaxBytes = n
	}
	if n, err := strconv.ParseInt(config["retention.ms"], 10, 64); err == nil && n >= 0 {
		policy.MaxAge = time.Duration(n) * time.Millisecond
	}
	if _, err := log.Retain(policy, p.broker.now()); err != nil {
		p.logger.Warn("retention failed", "error", err)
	}
}
