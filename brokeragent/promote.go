package brokeragent

import (
	"context"
	"errors"

	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/internal/faults"
)

// promote installs the staged copy of a move whose source is gone. The copy must be, by digest, what the source listed at the
// last look; offsets and producers are those of that look (R3). It opens nothing: ForcePromote must be won first, and the
// marker names the version it must name.
//
// This process dies before the install's rename: the staging is there, and the order is repeated. After it: the installed copy
// is found at boot and waits. The reply is lost: a repeat answers from the marker. The source comes back meanwhile: ForcePromote
// is refused, the move is aborted, and the copy goes to trash.
func (a *Agent) promote(ctx context.Context, req control.PromoteRequest) (control.PromoteAnswer, error) {
	var none control.PromoteAnswer
	if err := a.admit(req.Order); err != nil {
		return none, err
	}
	s, err := a.sessions.get(req.MoveID)
	if err != nil {
		return none, err
	}
	s.stopCopy()
	s.work.Lock()
	defer s.work.Unlock()
	answer := func(m *native.Installed) control.PromoteAnswer {
		return control.PromoteAnswer{Version: m.Version, InstalledEnd: m.End, Storage: a.root.identity.Storage, Copy: *s.installedEvidence(m)}
	}
	// A copy that was drained under a freeze at this very version is more than a promotion needs: the source died after it.
	if installed := a.native.InstalledOf(req.Subject); installed != nil && installed.Version == req.Version {
		return answer(installed), nil
	}
	if a.native.Unchecked(req.Subject, req.Version) {
		return none, control.Errorf(control.CodeBusy, "the copy that was installed before this agent's restart is being checked")
	}
	// A cutover may have installed a copy for an earlier freeze, whose version the row has passed.
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
	evidence := s.evidence()
	if evidence.Missing != "" {
		return none, control.Errorf(control.CodeNotEligible, "%s/%d can not be promoted on %s: %s", req.Topic, req.Partition, a.cfg.BrokerID, evidence.Missing)
	}
	faults.Point("promote.before")
	if err := s.staging.Sync(ctx); err != nil {
		return none, control.Errorf(control.CodeStorage, "the copy could not be made durable: %v", err)
	}
	marker := native.Installed{MoveID: req.MoveID, Version: req.Version, End: evidence.HighWatermark, From: s.record.Source, Promotion: evidence, Adopted: s.record.Adopted}
	if err := a.native.Install(ctx, req.Subject, s.staging, marker, s.seen.Listing); err != nil {
		var refusal *control.Error
		if errors.As(err, &refusal) {
			return none, refusal
		}
		return none, control.Errorf(control.CodeStorage, "the copy of %s/%d could not be installed: %v", req.Topic, req.Partition, err)
	}
	s.mu.Lock()
	s.staging = nil // its folder is the partition's now
	s.mu.Unlock()
	s.update(func(st *control.SessionStatus) { st.Installed = true })
	faults.Point("promote.after")
	return answer(&marker), nil
}
