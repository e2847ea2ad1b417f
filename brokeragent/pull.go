package brokeragent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	"portage/brokeragent/control"
	"portage/brokeragent/native/seglog"
	"portage/internal/faults"
)

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
	if staged := s.staging.State(); len(staged) > 0 && len(list.Segments) > 0 && staged[len(staged)-1].NextOffset < list.Segments[0].Base {
		return s.restart("it ends at %d, before the source's log begins", staged[len(staged)-1].NextOffset)
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
	var damage *seglog.CorruptError
	if errors.As(err, &damage) {
		// The network has checksums of its own, so the bytes are damaged on the source's disk, or were when they were read.
		return n, control.Errorf(control.CodeSourceCorrupt, "segment %d of %s/%d is damaged at byte %d on %s: %v; nothing of it was taken over, and the partition serves on where it is",
			seg.Base, s.record.Subject.Topic, s.record.Subject.Partition, damage.Position, s.record.Source, damage.Err)
	}
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
	reading time.Duration // without the throttle's pauses: what the drain, which is not throttled, would take
	total   int64
	pending int64
	told    time.Time
}

func (c *countingReader) Read(p []byte) (int, error) {
	if len(p) > throttleBurst {
		p = p[:throttleBurst]
	}
	if c.total > 0 {
		faults.Point("segment.half")
	}
	c.silence.Reset(sourceSilence)
	began := time.Now()
	n, err := c.reader.Read(p)
	c.reading += time.Since(began)
	c.silence.Stop() // the throttle's pauses are not the source's
	for _, limit := range c.limits {
		if waitErr := limit.wait(c.ctx, int64(n)); waitErr != nil && err == nil {
			err = waitErr
		}
	}
	c.total += int64(n)
	c.pending += int64(n)
	if time.Since(c.told) > 200*time.Millisecond {
		if !c.told.IsZero() {
			c.session.resumed()
		}
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
			st.UnpacedBytesPerSec = float64(c.total) / max(c.reading.Seconds(), 1e-3)
		}
	})
	c.pending = 0
}
