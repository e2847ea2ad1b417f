package agenttest

import (
	"context"
	"time"

	"portage/brokeragent/control"
	"portage/metastore"
)

// ControllerID is who the moves' orders come from.
const ControllerID = "test-controller"

// Move drives one move as the activities do, one step at a time.
type Move struct {
	ID              string
	Topic           *metastore.Topic
	Partition       int32
	From, To        *Agent
	Claimed         *metastore.Assignment // the row as the claim left it
	ControllerEpoch int64
	Attempt         int32 // of the next orders; raise it for a retry

	fleet *Fleet
}

// TryClaim asks for a claim under the given move id.
func (f *Fleet) TryClaim(id string, topic *metastore.Topic, partition int32, to *Agent) (*Move, error) {
	f.T.Helper()
	return f.tryClaim(id, topic, partition, to, "", 0)
}

// ClaimAuto reserves a partition for a new move that may promote over its source by itself.
func (f *Fleet) ClaimAuto(topic *metastore.Topic, partition int32, to *Agent, promoteAfter time.Duration) *Move {
	f.T.Helper()
	return Must(f.tryClaim(ID(), topic, partition, to, metastore.LossAuto, promoteAfter))(f.T)
}

func (f *Fleet) tryClaim(id string, topic *metastore.Topic, partition int32, to *Agent, onSourceLoss string, promoteAfter time.Duration) (*Move, error) {
	f.T.Helper()
	epoch, err := f.Store.HoldController(f.T.Context(), ControllerID)
	if err != nil {
		f.T.Fatal(err)
	}
	row, _, err := f.Store.ClaimMove(f.T.Context(), metastore.ClaimRequest{MoveID: id, Kind: "move", Topic: topic.Name, Partition: partition, To: to.ID,
		WorkflowID: "workflow-of-" + id, RunID: "run", ControllerEpoch: epoch, RequestedBy: "test",
		OnSourceLoss: onSourceLoss, PromoteAfter: promoteAfter})
	if err != nil {
		return nil, err
	}
	return &Move{ID: id, Topic: topic, Partition: partition, From: f.agents[row.Owner], To: to, Claimed: row, ControllerEpoch: epoch, Attempt: 1, fleet: f}, nil
}

// Claim reserves a partition for a new move.
func (f *Fleet) Claim(topic *metastore.Topic, partition int32, to *Agent) *Move {
	f.T.Helper()
	return Must(f.TryClaim(ID(), topic, partition, to))(f.T)
}

// Copied claims a partition and copies it up to its tail.
func (f *Fleet) Copied(topic *metastore.Topic, partition int32, to *Agent) *Move {
	f.T.Helper()
	m := f.Claim(topic, partition, to)
	m.Ensure()
	m.Copy()
	return m
}

// Order is the authority and the subject of the move's next order.
func (m *Move) Order(phase int32) control.Order {
	return control.Order{
		Authority: control.Authority{ControllerEpoch: m.ControllerEpoch, ControllerID: ControllerID,
			Token: control.Token{Version: m.Claimed.Version, Phase: phase, Attempt: m.Attempt}},
		Subject: m.Subject(),
	}
}

// Subject names the move and its partition.
func (m *Move) Subject() control.Subject {
	return control.Subject{MoveID: m.ID, TopicID: m.Topic.ID, Topic: m.Topic.Name, Partition: m.Partition, Epoch: m.Claimed.Epoch}
}

func (m *Move) ctx() context.Context { return m.fleet.T.Context() }

// patiently repeats a step while the agents say that it only has to wait.
func (m *Move) patiently(what string, step func() error) {
	m.fleet.T.Helper()
	var last error
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		if last = step(); last == nil {
			return
		}
		switch control.CodeOf(last) {
		case control.CodeBusy, control.CodeNotOpen, control.CodeSourceAway, control.CodeMetastoreAway, control.CodeDigestMismatch, control.CodeRowMoved, control.CodeNotFrozen:
			time.Sleep(10 * time.Millisecond)
		default:
			m.fleet.T.Fatalf("%s: %v", what, last)
		}
	}
	m.fleet.T.Fatalf("%s: still %v", what, last)
}

// Ensure makes the destination ready.
func (m *Move) Ensure() (answer control.EnsureAnswer) {
	m.fleet.T.Helper()
	m.patiently("ensure", func() (err error) {
		answer, err = m.fleet.Peers.Ensure(m.ctx(), m.To.URL(), control.EnsureRequest{Order: m.Order(control.PhaseEnsure), SourceURL: m.From.URL(), Source: m.From.ID})
		return err
	})
	return answer
}

// StartCopy starts the copy and returns at once.
func (m *Move) StartCopy() {
	m.fleet.T.Helper()
	_, err := m.fleet.Peers.StartCopy(m.ctx(), m.To.URL(), control.CopyRequest{Order: m.Order(control.PhaseCopy), SourceURL: m.From.URL(), Source: m.From.ID})
	if err != nil {
		m.fleet.T.Fatal(err)
	}
}

// Session is the next view of the copy after seq.
func (m *Move) Session(seq int64) control.SessionStatus {
	m.fleet.T.Helper()
	return Must(m.fleet.Peers.Session(m.ctx(), m.To.URL(), m.ID, seq, time.Second))(m.fleet.T)
}

// Copy runs the copy until the tail is near.
func (m *Move) Copy() control.SessionStatus {
	m.fleet.T.Helper()
	m.StartCopy()
	deadline := time.Now().Add(patience)
	for status := m.Session(0); ; status = m.Session(status.Seq) {
		switch {
		case status.Error != nil:
			m.fleet.T.Fatalf("the copy failed: %v", status.Error)
		case status.State == control.CopyReady:
			return status
		case time.Now().After(deadline):
			m.fleet.T.Fatalf("the copy does not end: %+v", status)
		}
	}
}

// TryFreeze asks the source to freeze at a row version.
func (m *Move) TryFreeze(version int64) (control.FreezeAnswer, error) {
	return m.fleet.Peers.Freeze(m.ctx(), m.From.URL(), control.FreezeRequest{Order: m.Order(control.PhaseCutover), Version: version})
}

// Freeze freezes at the row as it stands.
func (m *Move) Freeze() (answer control.FreezeAnswer) {
	m.fleet.T.Helper()
	m.patiently("freeze", func() (err error) {
		answer, err = m.TryFreeze(m.fleet.Row(m.Topic, m.Partition).Version)
		return err
	})
	return answer
}

// TryDrain asks the destination to fetch the tail and install.
func (m *Move) TryDrain(frozen control.FreezeAnswer) (control.DrainAnswer, error) {
	return m.fleet.Peers.Drain(m.ctx(), m.To.URL(), control.DrainRequest{Order: m.Order(control.PhaseCutover), SourceURL: m.From.URL(), Freeze: frozen})
}

// Drain fetches the tail of a freeze and installs the copy.
func (m *Move) Drain(frozen control.FreezeAnswer) (answer control.DrainAnswer) {
	m.fleet.T.Helper()
	m.patiently("drain", func() (err error) {
		answer, err = m.TryDrain(frozen)
		return err
	})
	return answer
}

// Cutover freezes the source and drains its tail.
func (m *Move) Cutover() (control.FreezeAnswer, control.DrainAnswer) {
	m.fleet.T.Helper()
	frozen := m.Freeze()
	return frozen, m.Drain(frozen)
}

// Evidence is what CommitOwner is given.
func (m *Move) Evidence(frozen control.FreezeAnswer, drained control.DrainAnswer) metastore.Commit {
	return metastore.Commit{MoveID: m.ID, TopicID: m.Topic.ID, Partition: m.Partition, From: m.From.ID, To: m.To.ID, Epoch: m.Claimed.Epoch, Version: frozen.Version,
		ToStorage: drained.Storage, FrozenEnd: frozen.FrozenEnd, InstalledEnd: drained.InstalledEnd, InstalledVersion: drained.Version}
}

// TryCommit names the evidence of a cutover at the point of no return.
func (m *Move) TryCommit(frozen control.FreezeAnswer, drained control.DrainAnswer) (*metastore.Assignment, error) {
	return m.fleet.Store.CommitOwner(m.ctx(), m.Evidence(frozen, drained))
}

// Commit makes the destination the owner.
func (m *Move) Commit(frozen control.FreezeAnswer, drained control.DrainAnswer) *metastore.Assignment {
	m.fleet.T.Helper()
	return Must(m.TryCommit(frozen, drained))(m.fleet.T)
}

// Heartbeat is the source's counter as it stands.
func (m *Move) Heartbeat() int64 {
	m.fleet.T.Helper()
	return Must(m.fleet.Store.FindBroker(m.ctx(), m.From.ID))(m.fleet.T).Heartbeat
}

// TryInstall asks the destination to install what it has staged, without a freeze.
func (m *Move) TryInstall() (control.PromoteAnswer, error) {
	m.fleet.T.Helper()
	return m.fleet.Peers.Promote(m.ctx(), m.To.URL(), control.PromoteRequest{Order: m.Order(control.PhaseCutover), Version: m.fleet.Row(m.Topic, m.Partition).Version})
}

// Promotion is what ForcePromote is given for an installed copy, with the source's counter as it was seen standing still.
func (m *Move) Promotion(installed control.PromoteAnswer, heartbeat int64) metastore.Promotion {
	return metastore.Promotion{MoveID: m.ID, TopicID: m.Topic.ID, Partition: m.Partition, From: m.Claimed.Owner, To: m.To.ID, Epoch: m.Claimed.Epoch, Version: installed.Version,
		ToStorage: installed.Storage, Heartbeat: heartbeat, StagedEnd: installed.InstalledEnd, HighWatermark: installed.Copy.HighWatermark, By: "test", Evidence: installed.Copy}
}

// TryPromote installs the staged copy and promotes it over the source.
func (m *Move) TryPromote(heartbeat int64) (*metastore.Assignment, error) {
	m.fleet.T.Helper()
	installed := Must(m.TryInstall())(m.fleet.T)
	return m.fleet.Store.ForcePromote(m.ctx(), m.Promotion(installed, heartbeat))
}

// Confirm waits until the destination is open and the source sends clients there.
func (m *Move) Confirm() {
	m.fleet.T.Helper()
	m.To.WaitState(m.Topic, m.Partition, "open")
	_, err := m.fleet.Peers.Look(m.ctx(), m.From.URL(), control.LookRequest{Order: m.Order(control.PhaseConfirm), WaitOpen: true, Release: true})
	if err != nil && control.CodeOf(err) != control.CodeNotFound {
		m.fleet.T.Fatal(err)
	}
}

// Abort ends the move before its commit and tells both sides.
func (m *Move) Abort(keep bool) {
	m.fleet.T.Helper()
	if _, err := m.fleet.Store.AbortMove(m.ctx(), m.ID, "test", "the test says so"); err != nil {
		m.fleet.T.Fatal(err)
	}
	order := m.Order(control.PhaseAbort)
	if _, err := m.fleet.Peers.Look(m.ctx(), m.From.URL(), control.LookRequest{Order: order, WaitOpen: true, Release: true}); err != nil {
		m.fleet.T.Fatal(err)
	}
	if err := m.fleet.Peers.Abandon(m.ctx(), m.To.URL(), control.AbandonRequest{Order: order, Keep: keep}); err != nil {
		m.fleet.T.Fatal(err)
	}
}

// Move carries a partition all the way.
func (f *Fleet) Move(topic *metastore.Topic, partition int32, to *Agent) *Move {
	f.T.Helper()
	m := f.Claim(topic, partition, to)
	m.Ensure()
	m.Copy()
	frozen := m.Freeze()
	m.Commit(frozen, m.Drain(frozen))
	m.Confirm()
	return m
}
