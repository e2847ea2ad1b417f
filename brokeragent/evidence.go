package brokeragent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/brokeragent/native/seglog"
	"portage/internal/durable"
)

// seen is a session's last look at its source, kept with the staging: all that a promotion will have of the source beside
// the records (R3). It is durable before the bytes that it lists are fetched, so the high watermark in it is never below what
// is staged, and a copy that matches it is whole.
type seen struct {
	control.Listing
	At time.Time `json:"at"` // by this broker's wall clock: for people
}

// saw keeps a look at the source. The caller holds work.
//
// This process dies before it: the look before it stands, and what is staged matches that one or nothing. After it: the copy
// can be promoted once what it lists is staged.
func (s *session) saw(list control.Listing) error {
	now := &seen{Listing: list, At: time.Now()}
	if err := durable.WriteJSON(filepath.Join(s.stagingDir(), native.SourceFile), now); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = now
	return nil
}

// pullBesideLook is the pull of a drain: clients wait for it, so the look is kept while the tail is fetched, and only when the
// source's log has grown since the last one.
func (s *session) pullBesideLook(ctx context.Context, list control.Listing) (copied int64, err error) {
	s.mu.Lock()
	known := s.seen != nil && s.seen.HighWatermark == list.HighWatermark
	s.mu.Unlock()
	if known {
		return s.pull(ctx, list, nil)
	}
	kept := make(chan error, 1)
	go func() { kept <- s.saw(list) }()
	copied, err = s.pull(ctx, list, nil)
	return copied, errors.Join(err, <-kept)
}

// readSeen is the last look that was kept with a staging; nil when there was none.
func readSeen(staging string) (*seen, error) {
	var before seen
	switch err := durable.ReadJSON(filepath.Join(staging, native.SourceFile), &before); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &before, nil
}

// evidence is what the session has, nil before its staging is open.
func (s *session) evidence() *control.CopyEvidence {
	s.mu.Lock()
	staging, last := s.staging, s.seen
	s.mu.Unlock()
	if installed := s.agent.native.InstalledOf(s.record.Subject); installed != nil {
		return s.installedEvidence(installed)
	}
	if staging == nil {
		return nil
	}
	e := &control.CopyEvidence{StagedEnd: staging.End()}
	if last == nil {
		e.Missing = "the source was not seen by this copy yet, so nothing is known of its log, its groups and its producers"
		return e
	}
	e.SeenSource, e.HighWatermark, e.LogStart, e.Epoch, e.Process, e.SnapshotAt = true, last.HighWatermark, last.LogStart, last.Epoch, last.Process, last.At
	e.Groups, e.Producers = last.GroupCount, last.ProducerCount
	switch {
	case staging.Failed() != nil:
		e.Missing = fmt.Sprintf("the staged copy failed: %v", staging.Failed())
	default:
		e.Missing = incomplete(staging.State(), last.Listing)
	}
	return e
}

// incomplete says how a staged copy differs from what its source listed; "" when it is the same, byte for byte by digest.
func incomplete(staged []seglog.StagedSegment, list control.Listing) string {
	have := map[int64]seglog.StagedSegment{}
	end := int64(0)
	for _, seg := range staged {
		have[seg.Base] = seg
		end = seg.NextOffset
	}
	for _, want := range list.Segments {
		got := have[want.Base]
		if got.Size < want.Size {
			return fmt.Sprintf("the copy ends at %d, the source had %d: %d offsets are not here", end, list.HighWatermark, list.HighWatermark-end)
		}
		if got.Size != want.Size || (want.Size > 0 && got.Digest.String() != want.Digest) {
			return fmt.Sprintf("segment %d of the copy is not what the source had", want.Base)
		}
	}
	if end != list.HighWatermark && len(list.Segments) > 0 {
		return fmt.Sprintf("the copy ends at %d, the source had %d", end, list.HighWatermark)
	}
	return ""
}

// installedEvidence is what an installed copy proves: that of its promotion, or a whole log frozen at its end.
func (s *session) installedEvidence(m *native.Installed) *control.CopyEvidence {
	if m.Promotion != nil {
		return m.Promotion
	}
	e := &control.CopyEvidence{SeenSource: true, StagedEnd: m.End, HighWatermark: m.End, Epoch: s.record.Subject.Epoch}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen != nil {
		e.LogStart, e.Process, e.SnapshotAt, e.Groups, e.Producers = s.seen.LogStart, s.seen.Process, s.seen.At, s.seen.GroupCount, s.seen.ProducerCount
	}
	return e
}
