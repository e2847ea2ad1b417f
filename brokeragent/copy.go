package brokeragent

import (
	"context"
	"fmt"
	"time"

	"portage/brokeragent/control"
	"portage/internal/faults"
)

const (
	defaultLagBytes  = 4 << 20
	defaultMaxPasses = 20
	stallPasses      = 3
	passPause        = 50 * time.Millisecond
	sourceRetry      = 500 * time.Millisecond
	// sourceSilence is how long a source may send nothing in the middle of a segment.
	sourceSilence = 15 * time.Second
	// cutoverOverhead is what a cutover costs beside the tail; part of the expected freeze.
	cutoverOverhead = 50 * time.Millisecond
)

// copy brings the staging close to the source's tail. The first pass is the bulk; from the second on, a pass within the
// lag ends it, and so do three passes in which the tail did not shrink, or the last pass allowed. A source that is away
// is waited for with the reason shown; only the row can end the wait.
//
// This process dies anywhere in it: what was staged is on disk and compared with the source before it is trusted; the
// worker sees the copy idle and starts it again.
func (s *session) copy(ctx context.Context, req control.CopyRequest) {
	if req.LagBytes <= 0 {
		req.LagBytes = defaultLagBytes
	}
	if req.MaxPasses <= 0 {
		req.MaxPasses = defaultMaxPasses
	}
	if !s.takeTransfer(ctx) {
		return
	}
	defer s.agent.incoming.Release(1)
	s.work.Lock()
	defer s.work.Unlock()
	best, stalls := int64(-1), 0
	for pass := 0; ; pass++ {
		faults.Point("pass.before")
		copied, took, err := s.pass(ctx, req)
		if ctx.Err() != nil {
			s.update(func(st *control.SessionStatus) { st.State = control.CopyIdle })
			return
		}
		if err != nil {
			s.update(func(st *control.SessionStatus) { st.State, st.Error = control.CopyFailed, asControl(err) })
			return
		}
		faults.Point("pass.after")
		rate := float64(copied) / max(took.Seconds(), 1e-3)
		s.update(func(st *control.SessionStatus) {
			st.Passes, st.LagBytes = pass+1, copied
			st.ExpectedFreeze = cutoverOverhead + time.Duration(float64(copied)/max(st.UnpacedBytesPerSec, 1<<20)*float64(time.Second))
		})
		s.agent.logger.Debug("copy pass", "move", req.MoveID, "pass", pass, "bytes", copied, "bytesPerSec", rate)
		if pass > 0 {
			if copied <= req.LagBytes {
				s.finishCopy(true)
				return
			}
			if best >= 0 && copied >= best {
				stalls++
			}
			if best < 0 || copied < best {
				best = copied
			}
			if stalls >= stallPasses || pass+1 >= req.MaxPasses {
				s.finishCopy(false)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(passPause):
			}
		}
	}
}

func (s *session) finishCopy(converged bool) {
	s.update(func(st *control.SessionStatus) {
		st.State, st.Converged, st.Blocked, st.BlockedReason = control.CopyReady, converged, "", ""
	})
}

// takeTransfer waits for one of this broker's incoming transfers, saying so.
func (s *session) takeTransfer(ctx context.Context) bool {
	if s.agent.incoming.TryAcquire(1) {
		return true
	}
	reason := fmt.Sprintf("%d copies come into %s already", s.agent.cfg.MaxTransfers, s.agent.cfg.BrokerID)
	if s.agent.cfg.MaxTransfers == 0 {
		reason = fmt.Sprintf("copies into %s are switched off (--max-transfers 0)", s.agent.cfg.BrokerID)
	}
	s.wait(control.CodeTransferLimit, reason)
	if err := s.agent.incoming.Acquire(ctx, 1); err != nil {
		s.update(func(st *control.SessionStatus) { st.State = control.CopyIdle })
		return false
	}
	s.resumed()
	return true
}

func (s *session) wait(code, reason string) {
	s.update(func(st *control.SessionStatus) {
		st.State, st.Blocked, st.BlockedReason = control.CopyWaiting, code, reason
	})
}

// resumed takes back what blocked the copy, once bytes flow again: trying again is not getting on.
func (s *session) resumed() {
	s.mu.Lock()
	waiting := s.status.State == control.CopyWaiting
	s.mu.Unlock()
	if !waiting {
		return
	}
	s.update(func(st *control.SessionStatus) { st.State, st.Blocked, st.BlockedReason = control.CopyRunning, "", "" })
}

// pass copies everything durable at the source as of now. It waits, visibly, while the source or the metastore are away.
func (s *session) pass(ctx context.Context, req control.CopyRequest) (copied int64, took time.Duration, err error) {
	for ctx.Err() == nil {
		began := time.Now()
		if _, err = s.open(nil); err != nil {
			return copied, 0, control.Errorf(control.CodeStorage, "the staging can not be opened: %v", err)
		}
		var n int64
		n, err = s.catchUp(ctx, req)
		copied += n
		if err == nil {
			s.resumed()
			return copied, time.Since(began), nil
		}
		code := waitable(err)
		if code == "" {
			return copied, 0, err
		}
		s.wait(code, err.Error())
		select {
		case <-ctx.Done():
		case <-time.After(sourceRetry):
		}
	}
	return copied, 0, ctx.Err()
}

// catchUp copies what is missing of the source's durable state as of now.
func (s *session) catchUp(ctx context.Context, req control.CopyRequest) (copied int64, err error) {
	if err := s.agent.roomForCopies(ctx); err != nil {
		return 0, err
	}
	list, err := s.agent.listing(ctx, s.source(), req.Subject)
	if err != nil {
		return 0, err
	}
	if err := s.saw(list); err != nil {
		return 0, err
	}
	if copied, err = s.pull(ctx, list, s.limit); err != nil {
		return copied, err
	}
	return copied, s.settle(ctx, list)
}

// settle does everything whose cost grows with the partition before the freeze: fsync, and the index files of the
// segments that the source has sealed.
func (s *session) settle(ctx context.Context, list control.Listing) error {
	if err := s.staging.Sync(ctx); err != nil {
		return err
	}
	if n := len(list.Segments); n > 0 {
		return s.staging.SealUpTo(ctx, list.Segments[n-1].Base)
	}
	return nil
}

// waitable says for what a failed pass waits; "" when waiting can not help.
func waitable(err error) string {
	switch code := asControl(err).Code; code {
	case control.CodeInternal:
		return control.CodeSourceAway
	case control.CodeNotOpen, control.CodeBusy, control.CodeMetastoreAway, control.CodeSourceAway, control.CodeDigestMismatch,
		control.CodeSourceCorrupt, control.CodeDiskFull, control.CodeStorage:
		return code
	}
	return ""
}

// listing asks the source what it has.
func (a *Agent) listing(ctx context.Context, sourceURL string, s control.Subject) (control.Listing, error) {
	list, err := a.peers.Listing(ctx, sourceURL, s)
	if err != nil && control.CodeOf(err) == "" {
		return list, control.Errorf(control.CodeSourceAway, "the source does not answer: %v", err)
	}
	return list, err
}
