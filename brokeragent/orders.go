package brokeragent

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/internal/faults"
)

// ensure makes this broker ready to receive a copy: the place is vacant, the room is there for this move and all others
// in flight, what was staged before is opened.
//
// This process dies anywhere in it: repeated. The reply is lost: repeated.
func (a *Agent) ensure(ctx context.Context, req control.EnsureRequest) (control.EnsureAnswer, error) {
	var none control.EnsureAnswer
	if err := a.admit(req.Order); err != nil {
		return none, err
	}
	if err := a.native.Refresh(ctx, req.Subject); err != nil {
		return none, control.Errorf(control.CodeMetastoreAway, "the metastore does not answer: %v", err)
	}
	faults.Point("ensure.before")
	a.sessions.putAway() // an earlier move's staging of this partition becomes adoptable
	if err := a.native.Vacant(req.Subject); err != nil {
		return none, err
	}
	list, err := a.listing(ctx, req.SourceURL, req.Subject)
	if err != nil {
		return none, err
	}
	var total int64
	for _, seg := range list.Segments {
		total += seg.Size
	}
	s, err := a.sessions.begin(req)
	if err != nil {
		return none, err
	}
	s.work.Lock()
	defer s.work.Unlock()
	adopted, err := s.open(&list)
	if err != nil {
		return none, control.Errorf(control.CodeStorage, "the staging of %s/%d can not be opened: %v", req.Topic, req.Partition, err)
	}
	staged := s.staging.Bytes()
	need := total + total/10
	room, err := a.roomFor(ctx, req.MoveID, need-staged)
	if err != nil {
		return none, err
	}
	if max(0, need-staged) > room {
		return none, control.Errorf(control.CodeNoRoom, "%s/%d needs %d MiB on %s, which has room for %d MiB beside the moves in flight; free space or choose another broker",
			req.Topic, req.Partition, (need-staged)>>20, a.cfg.BrokerID, max(0, room)>>20)
	}
	s.pace(req.LimitPerSec)
	s.mu.Lock()
	s.reserved = need
	s.mu.Unlock()
	s.update(func(st *control.SessionStatus) { st.BytesDone, st.BytesTotal = min(staged, total), total })
	faults.Point("ensure.after")
	return control.EnsureAnswer{StagedBytes: staged, TotalBytes: total, Adopted: adopted, ReservedByte: need}, nil
}

// startCopy starts or joins the copy and returns at once.
func (a *Agent) startCopy(_ context.Context, req control.CopyRequest) (control.SessionStatus, error) {
	if err := a.admit(req.Order); err != nil {
		return control.SessionStatus{}, err
	}
	s, err := a.sessions.get(req.MoveID)
	if err != nil {
		return control.SessionStatus{}, err
	}
	s.pace(req.LimitPerSec)
	s.sourceAt(req.SourceURL)
	s.mu.Lock()
	running := s.cancelCopy != nil
	if !running {
		ctx, cancel := context.WithCancel(a.ctx)
		s.cancelCopy = cancel
		s.status.State, s.status.Error, s.status.Passes = control.CopyRunning, nil, 0
		a.work.Go(func() {
			s.copy(ctx, req)
			cancel()
			s.mu.Lock()
			s.cancelCopy = nil
			s.mu.Unlock()
		})
	}
	s.mu.Unlock()
	status, _ := s.snapshot()
	return status, nil
}

// drain fetches the tail of the frozen source, compares all digests and installs the copy. It is not throttled.
//
// This process dies before the install's rename: the staging is resumed by the next attempt. After it: the installed
// copy is found at boot and waits for the commit. The reply is lost: a repeat answers from the installed copy, for exactly
// this freeze's version (R7).
func (a *Agent) drain(ctx context.Context, req control.DrainRequest) (control.DrainAnswer, error) {
	var none control.DrainAnswer
	if err := a.admit(req.Order); err != nil {
		return none, err
	}
	s, err := a.sessions.get(req.MoveID)
	if err != nil {
		return none, err
	}
	s.stopCopy()
	s.sourceAt(req.SourceURL)
	s.work.Lock()
	defer s.work.Unlock()
	answer := control.DrainAnswer{Version: req.Freeze.Version, InstalledEnd: req.Freeze.FrozenEnd, Storage: a.root.identity.Storage}
	if installed, same := a.native.InstalledFor(req.Subject, req.Freeze.Version); installed != nil && same {
		answer.InstalledEnd, answer.Version = installed.End, installed.Version
		return answer, nil
	}
	if a.native.Unchecked(req.Subject, req.Freeze.Version) {
		return none, control.Errorf(control.CodeBusy, "the copy that was installed before this agent's restart is being checked")
	}
	faults.Point("drain.before")
	if taken, err := a.native.Uninstall(ctx, req.Subject, s.stagingDir()); err != nil {
		return none, err
	} else if taken {
		s.mu.Lock()
		s.staging = nil
		s.mu.Unlock()
	}
	if _, err := s.open(nil); err != nil {
		return none, control.Errorf(control.CodeStorage, "the staging of %s/%d can not be opened: %v", req.Topic, req.Partition, err)
	}
	list, err := a.listing(ctx, req.SourceURL, req.Subject)
	if err != nil {
		return none, err
	}
	if list.FrozenVersion != req.Freeze.Version || list.Process != req.Freeze.Process || list.HighWatermark != req.Freeze.FrozenEnd {
		return none, control.Errorf(control.CodeNotFrozen, "%s/%d is not frozen at version %d any more: freeze it again", req.Topic, req.Partition, req.Freeze.Version)
	}
	tail, err := s.pullBesideLook(ctx, list)
	if err != nil {
		return none, err
	}
	if err := s.staging.Sync(ctx); err != nil {
		return none, control.Errorf(control.CodeStorage, "the tail could not be made durable: %v", err)
	}
	faults.Point("install.before")
	marker := native.Installed{MoveID: req.MoveID, Version: req.Freeze.Version, End: req.Freeze.FrozenEnd, From: s.record.Source, Adopted: s.record.Adopted}
	if err := a.native.Install(ctx, req.Subject, s.staging, marker, list); err != nil {
		return none, control.Errorf(control.CodeStorage, "the copy of %s/%d could not be installed: %v", req.Topic, req.Partition, err)
	}
	s.mu.Lock()
	s.staging = nil // its folder is the partition's now
	s.mu.Unlock()
	s.update(func(st *control.SessionStatus) {
		st.Installed, st.BytesDone, st.BytesTotal = true, st.BytesTotal+tail, st.BytesTotal+tail
	})
	answer.TailBytes, answer.Groups, answer.Producers = tail, list.GroupCount, list.ProducerCount
	faults.Point("drain.after")
	return answer, nil
}

// abandon ends the destination's part of an aborted move. Bytes are deleted only when the move's own row says aborted.
//
// This process dies before it or in it: its next one sees the row without the move and puts the staging away by itself.
// The reply is lost: a repeat finds nothing left to do.
func (a *Agent) abandon(ctx context.Context, req control.AbandonRequest) (struct{}, error) {
	var done struct{}
	if err := a.admit(req.Order); err != nil {
		return done, err
	}
	move, err := a.store.FindMove(ctx, req.MoveID)
	if err != nil {
		return done, control.Errorf(control.CodeMetastoreAway, "the metastore does not answer, so nothing is deleted: %v", err)
	}
	if move == nil || move.Ended() != "aborted" {
		return done, control.Errorf(control.CodeRowMoved, "move %s is not aborted; its copy is not touched", req.MoveID)
	}
	if err := a.native.Suspended(req.Subject); err != nil {
		return done, err
	}
	faults.Point("abandon.before")
	s, err := a.sessions.get(req.MoveID)
	if err != nil && control.CodeOf(err) != control.CodeNotFound {
		return done, err
	}
	staging := filepath.Join(a.cfg.Data, "staging", req.MoveID)
	if s != nil {
		s.close()
		s.work.Lock()
		defer s.work.Unlock()
	}
	var adopted bool
	if s != nil {
		adopted = s.record.Adopted != nil
	}
	if installed := a.native.InstalledOf(req.Subject); installed != nil && installed.Adopted != nil && s == nil {
		return done, nil // the reconciler gives it back to trash, under the record it had
	}
	if s != nil || !req.Keep { // without a session nobody would put the staging away
		if _, err := a.native.Uninstall(ctx, req.Subject, staging); err != nil {
			return done, err
		}
	}
	err = nil
	if !req.Keep && !adopted {
		// The row was seen without the move before this order came: then its copy is in trash already.
		err = errors.Join(os.RemoveAll(staging), a.native.Trash().Drop(req.MoveID))
	} else if s != nil {
		// A former copy that the move had taken over is never deleted with it.
		err = a.sessions.keep(s, "move aborted")
	}
	if err != nil {
		return done, control.Errorf(control.CodeStorage, "the staged copy could not be put away: %v", err)
	}
	a.sessions.end(req.MoveID)
	faults.Point("abandon.after")
	return done, nil
}
