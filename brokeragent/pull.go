package brokeragent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"portage/brokeragent/control"
	"portage/brokeragent/native/seglog"
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
		copied, took, err := s.pass(ctx, req)
		if ctx.Err() != nil {
			s.update(func(st *control.SessionStatus) { st.State = control.CopyIdle })
			return
		}
		if err != nil {
			s.update(func(st *control.SessionStatus) { st.State, st.Error = control.CopyFailed, asControl(err) })
			return
		}
		rate := float64(copied) / max(took.Seconds(), 1e-3)
		s.update(func(st *control.SessionStatus) {
			st.Passes, st.LagBytes = pass+1, copied
			st.ExpectedFreeze = cutoverOverhead + time.Duration(float64(copied)/max(st.BytesPerSec, 1<<20)*float64(time.Second))
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
	s.wait("transfer_limit", fmt.Sprintf("%d copies come into %s already", s.agent.cfg.MaxTransfers, s.agent.cfg.BrokerID))
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

func (s *session) resumed() {
	s.update(func(st *control.SessionStatus) { st.State, st.Blocked, st.BlockedReason = control.CopyRunning, "", "" })
}

// pass copies everything durable at the source as of now. It waits, visibly, while the source or the metastore are away.
func (s *session) pass(ctx context.Context, req control.CopyRequest) (copied int64, took time.Duration, err error) {
	for ctx.Err() == nil {
		began := time.Now()
		if _, err = s.open(); err != nil {
			return copied, 0, control.Errorf(control.CodeStorage, "the staging can not be opened: %v", err)
		}
		var list control.Listing
		if list, err = s.agent.listing(ctx, s.source(), req.Subject); err == nil {
			var n int64
			n, err = s.pull(ctx, list, s.limit)
			copied += n
			if err == nil {
				err = s.settle(ctx, list)
			}
		}
		if err == nil {
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
		s.resumed()
	}
	return copied, 0, ctx.Err()
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
	switch code := control.CodeOf(err); code {
	case "":
		var corrupt *seglog.CorruptError
		switch {
		case errors.As(err, &corrupt):
			return ""
		case errors.Is(err, unix.ENOSPC):
			return "disk_full"
		case errors.Is(err, unix.EIO), errors.Is(err, unix.EROFS):
			return control.CodeStorage
		}
		return control.CodeSourceAway
	case control.CodeNotOpen, control.CodeBusy, control.CodeMetastoreAway, control.CodeSourceAway, control.CodeDigestMismatch:
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

// pull brings the staging to exactly the listed state and compares the digest of every segment.
func (s *session) pull(ctx context.Context, list control.Listing, limit *throttle) (copied int64, err error) {
	if err := s.compare(ctx, list); err != nil {
		return 0, err
	}
	var total int64
	for _, seg := range list.Segments {
		total += seg.Size
	}
	s.update(func(st *control.SessionStatus) { st.BytesTotal = total })
	staged := s.stagedSizes()
	for _, seg := range list.Segments {
		known, begun := staged[seg.Base]
		have := known.Size
		if !begun && seg.Size == 0 {
			// The empty active segment: it alone says where a log begins whose records retention removed.
			if _, err := s.staging.WriteSegment(ctx, seg.Base, 0, strings.NewReader(""), 0); err != nil {
				return copied, err
			}
		}
		if have < seg.Size {
			n, err := s.fetch(ctx, list, seg, have, limit)
			copied += n
			if err != nil {
				return copied, err
			}
		}
		if err := s.checkDigest(seg); err != nil {
			return copied, err
		}
	}
	s.mu.Lock()
	s.process = list.Process
	s.mu.Unlock()
	return copied, nil
}

func (s *session) stagedSizes() map[int64]seglog.StagedSegment {
	sizes := map[int64]seglog.StagedSegment{}
	for _, seg := range s.staging.State() {
		sizes[seg.Base] = seg
	}
	return sizes
}

// compare drops what was staged and is not a prefix of what the source has: after another source process took over
// (which may have lost what was never durable), after a restart here, and of a former copy taken out of trash (R25).
func (s *session) compare(ctx context.Context, list control.Listing) error {
	s.mu.Lock()
	trusted := s.process == list.Process
	s.mu.Unlock()
	if trusted || !faults.Enforced("R25") {
		return nil
	}
	listed := map[int64]control.ListedSegment{}
	for _, seg := range list.Segments {
		listed[seg.Base] = seg
	}
	for _, staged := range s.staging.State() {
		seg, ok := listed[staged.Base]
		if !ok && staged.NextOffset <= list.LogStart {
			continue // a prefix that retention has removed at the source since
		}
		if !ok {
			return s.restart("segment %d is not at the source", staged.Base)
		}
		if staged.Size > seg.Size {
			if err := s.staging.Truncate(staged.Base, seg.Size); err != nil {
				return s.truncateSegment(staged.Base)
			}
			staged.Size = seg.Size
			staged.Digest = s.stagedSizes()[staged.Base].Digest
		}
		want := seg.Digest
		if staged.Size < seg.Size {
			digest, err := s.agent.peers.SegmentDigest(ctx, s.source(), s.record.Subject, staged.Base, staged.Size)
			if err != nil && control.CodeOf(err) != control.CodeDigestMismatch {
				return err
			}
			want = digest
		}
		if staged.Digest.String() != want {
			// What follows in later segments can not match either; it goes with it.
			return s.truncateSegment(staged.Base)
		}
	}
	return nil
}

// truncateSegment empties the first segment that differs, and drops all after it.
func (s *session) truncateSegment(base int64) error {
	s.agent.logger.Info("staged bytes differ from the source and are fetched again", "move", s.record.Subject.MoveID, "segment", base)
	if err := s.staging.Truncate(base, 0); err != nil {
		return s.restart("segment %d could not be cut: %v", base, err)
	}
	return nil
}

func (s *session) restart(format string, args ...any) error {
	s.agent.logger.Info("the copy starts over", "move", s.record.Subject.MoveID, "why", fmt.Sprintf(format, args...))
	return s.staging.Reset()
}

// checkDigest compares one segment, copied to its listed size, with the source's digest. After two differences the whole
// copy starts over: one segment fetched again did not help.
func (s *session) checkDigest(seg control.ListedSegment) error {
	staged := s.stagedSizes()[seg.Base]
	if staged.Digest.String() == seg.Digest && staged.Size == seg.Size || (seg.Size == 0 && staged.Size == 0) {
		return nil
	}
	s.mu.Lock()
	s.mismatches++
	often := s.mismatches > 2
	s.process = uuid.Nil
	s.mu.Unlock()
	if faults.Enforced("R25") {
		var err error
		if often {
			err = s.restart("segment %d differs again", seg.Base)
		} else {
			err = s.truncateSegment(seg.Base)
		}
		if err != nil {
			return err
		}
	}
	return control.Errorf(control.CodeDigestMismatch, "segment %d differs from the source's and is fetched again", seg.Base)
}

// fetch streams the missing part of one segment into the staging.
func (s *session) fetch(ctx context.Context, list control.Listing, seg control.ListedSegment, from int64, limit *throttle) (int64, error) {
	parent := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A source that hangs ends the stream, so that the copy can say what it waits for.
	silence := time.AfterFunc(sourceSilence, cancel)
	defer silence.Stop()
	body, process, err := s.agent.peers.SegmentBytes(ctx, s.source(), s.record.Subject, seg.Base, from, seg.Size)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	if process != list.Process && faults.Enforced("R25") {
		return 0, control.Errorf(control.CodeSourceAway, "the source was restarted during the copy; its log is compared again")
	}
	reader := &countingReader{reader: body, silence: silence, session: s, ctx: ctx, limits: []*throttle{s.agent.limitIn}, began: time.Now()}
	if limit != nil {
		reader.limits = append(reader.limits, limit)
	} else {
		reader.limits = nil // the drain is not throttled
	}
	n, err := s.staging.WriteSegment(ctx, seg.Base, from, reader, seg.Size-from)
	reader.flush()
	if err != nil && errors.Is(err, context.Canceled) && parent.Err() == nil {
		return n, control.Errorf(control.CodeSourceAway, "the source has sent nothing for %s", sourceSilence)
	}
	return n, err
}

// countingReader paces and counts a stream. It tells progress a few times a second, not at each read.
type countingReader struct {
	reader  io.Reader
	silence *time.Timer
	session *session
	ctx     context.Context
	limits  []*throttle
	began   time.Time
	total   int64
	pending int64
	told    time.Time
}

func (c *countingReader) Read(p []byte) (int, error) {
	if len(p) > throttleBurst {
		p = p[:throttleBurst]
	}
	c.silence.Reset(sourceSilence)
	n, err := c.reader.Read(p)
	c.silence.Stop() // the throttle's pauses are not the source's
	for _, limit := range c.limits {
		if waitErr := limit.wait(c.ctx, int64(n)); waitErr != nil && err == nil {
			err = waitErr
		}
	}
	c.total += int64(n)
	c.pending += int64(n)
	if time.Since(c.told) > 200*time.Millisecond {
		c.flush()
	}
	return n, err
}

func (c *countingReader) flush() {
	c.told = time.Now()
	c.session.agent.copiedBytes.Add(float64(c.pending))
	c.session.update(func(st *control.SessionStatus) {
		st.CopiedBytes += c.pending
		st.BytesDone = min(st.BytesDone+c.pending, st.BytesTotal)
		if took := time.Since(c.began).Seconds(); c.total >= 1<<20 && took > 0 {
			st.BytesPerSec = float64(c.total) / took
		}
	})
	c.pending = 0
}

// serveSession answers the progress of a move, waiting for a change after seq when asked to.
func (a *Agent) serveSession(w http.ResponseWriter, r *http.Request) error {
	s, err := a.sessions.get(r.PathValue("id"))
	if err != nil {
		return err
	}
	seq, _ := strconv.ParseInt(r.URL.Query().Get("seq"), 10, 64)
	wait, _ := time.ParseDuration(r.URL.Query().Get("wait"))
	timer := time.NewTimer(min(wait, 10*time.Second))
	defer timer.Stop()
	for {
		status, changed := s.snapshot()
		if status.Seq > seq {
			return writeJSON(w, status)
		}
		select {
		case <-changed:
		case <-timer.C:
			return writeJSON(w, status)
		case <-r.Context().Done():
			return nil
		}
	}
}

// serveLimit changes the throttle of a running copy.
func (a *Agent) serveLimit(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		BytesPerSec float64 `json:"bytesPerSec"`
	}
	decoder := json.NewDecoder(io.LimitReader(r.Body, maxOrderBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&req); err != nil || req.BytesPerSec < 0 {
		return control.Errorf(control.CodeBadRequest, `give {"bytesPerSec": N} with N at least 0`)
	}
	s, err := a.sessions.get(r.PathValue("id"))
	if err != nil {
		return err
	}
	s.limit.set(req.BytesPerSec)
	return writeJSON(w, struct{}{})
}

func asControl(err error) *control.Error {
	var refusal *control.Error
	if errors.As(err, &refusal) {
		return refusal
	}
	return control.Errorf(control.CodeInternal, "%v", err)
}
