package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"portage/brokeragent/control"
	"portage/metastore"
	"portage/workflows/protocol"
)

// Explanation is all that is known of one partition.
type Explanation struct {
	Partition string                 `json:"partition"`
	Row       *metastore.Assignment  `json:"row,omitempty"` // nil when the metastore is away
	Agents    []AgentView            `json:"agents"`        // the owner first
	Move      *MoveView              `json:"move,omitempty"`
	Should    string                 `json:"shouldBeOn,omitempty"`
	Why       string                 `json:"why,omitempty"`
	Blocked   []Blocker              `json:"blocked"`
	Moves     []metastore.Move       `json:"lastMoves"`
	Audit     []metastore.AuditEntry `json:"audit"`
	NotAsked  []string               `json:"notAsked"` // what could not be asked, and why
}

// AgentView is what one agent says of the partition. Exactly one of Status and Error is set, except for an agent that
// answers and knows nothing of the partition.
type AgentView struct {
	Broker  string                   `json:"broker"`
	Owner   bool                     `json:"owner"`
	Status  *control.PartitionStatus `json:"status,omitempty"`
	Session *control.SessionStatus   `json:"session,omitempty"` // the destination's view of the move
	Error   string                   `json:"error,omitempty"`
}

// MoveView is the move in progress: its claim, and the workflow behind it.
type MoveView struct {
	MoveID     string            `json:"moveId,omitempty"` // empty while the workflow holds no claim
	WorkflowID string            `json:"workflowId"`
	RunID      string            `json:"runId"`
	To         string            `json:"to"`
	By         string            `json:"by,omitempty"`
	Reason     string            `json:"reason,omitempty"`
	Since      time.Time         `json:"since"`
	Workflow   string            `json:"workflow"`         // running, how it ended, or that it is not known
	Status     *protocol.Status  `json:"status,omitempty"` // nil when no worker answers
	Pending    []PendingActivity `json:"pending"`
}

// PendingActivity is a step that Temporal has handed out, or will again.
type PendingActivity struct {
	Type        string     `json:"type"`
	State       string     `json:"state"`
	Attempt     int32      `json:"attempt"`
	NextAt      *time.Time `json:"nextAttemptAt,omitempty"`
	LastFailure string     `json:"lastFailure,omitempty"`
}

// Blocker is one thing that stands in the way, with the way out.
type Blocker struct {
	Code    string     `json:"code"`
	Means   string     `json:"means"`
	Reason  string     `json:"reason,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	Unblock string     `json:"unblock"`
}

// Unknown says that there is no such partition; it is one sentence.
type Unknown struct{ sentence string }

func (u *Unknown) Error() string { return u.sentence }

const (
	shownMoves = 5
	shownAudit = 8
)

// Explain gathers what the metastore, the agents and Temporal say of one partition. The error is an *Unknown when the
// metastore knows no such partition; whatever does not answer is named in NotAsked and is no error.
func Explain(ctx context.Context, s Sources, topic string, partition int32) (*Explanation, error) {
	x := &Explanation{Partition: fmt.Sprintf("%s/%d", topic, partition), Agents: []AgentView{}, Blocked: []Blocker{}, Moves: []metastore.Move{}, Audit: []metastore.AuditEntry{}, NotAsked: []string{}}
	var holder *metastore.Move
	if err := x.askMetastore(ctx, s, topic, partition, &holder); err != nil {
		return nil, err
	}
	if x.Row != nil {
		x.askAgents(ctx, s, holder)
	}
	x.askTemporal(ctx, s, topic, partition, holder)
	x.conclude()
	return x, nil
}

func (x *Explanation) askMetastore(ctx context.Context, s Sources, topic string, partition int32, holder **metastore.Move) error {
	away := func(why string) {
		x.NotAsked = append(x.NotAsked, "the metastore: "+why)
		x.block(control.CodeMetastoreAway, why, nil)
	}
	if s.Store == nil {
		away(s.StoreAway)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, AskFor)
	defer cancel()
	known, err := s.Store.FindTopic(ctx, topic)
	if err == nil && known == nil {
		return &Unknown{fmt.Sprintf("there is no topic %q; check the name", topic)}
	}
	var row *metastore.Assignment
	if err == nil {
		row, err = s.Store.FindAssignment(ctx, topic, partition)
	}
	if err == nil && row == nil {
		return &Unknown{fmt.Sprintf("topic %q has partitions 0 to %d, there is no %d", topic, known.Partitions-1, partition)}
	}
	if err != nil {
		away(oneLine(err))
		return nil
	}
	x.Row = row
	if id := row.Moving(); id != "" {
		if *holder, err = s.Store.FindMove(ctx, id); err != nil {
			away(oneLine(err))
			return nil
		}
	}
	if moves, err := s.Store.PartitionMoves(ctx, row.TopicID, partition, shownMoves); err != nil {
		away(oneLine(err))
	} else {
		x.Moves = append(x.Moves, moves...)
	}
	if audit, err := s.Store.Audit(ctx, row.TopicID, partition, shownAudit); err != nil {
		away(oneLine(err))
	} else {
		x.Audit = append(x.Audit, audit...)
	}
	return nil
}

// askAgents asks every agent whether it has something of the partition, and the destination how its copy goes.
func (x *Explanation) askAgents(ctx context.Context, s Sources, holder *metastore.Move) {
	if s.Agents == nil {
		x.NotAsked = append(x.NotAsked, "the agents: "+s.AgentsAway)
		return
	}
	list, cancel := context.WithTimeout(ctx, AskFor)
	defer cancel()
	brokers, err := s.Store.Brokers(list)
	if err != nil {
		x.NotAsked = append(x.NotAsked, "the agents: "+oneLine(err))
		return
	}
	for _, a := range s.askAgents(ctx, brokers) {
		view := AgentView{Broker: a.broker.ID, Owner: a.broker.ID == x.Row.Owner}
		target := holder != nil && a.broker.ID == holder.ToBroker
		if a.err != nil {
			x.NotAsked = append(x.NotAsked, fmt.Sprintf("the agent of %s: it does not answer at %s", a.broker.ID, a.broker.ControlURL))
			view.Error = oneLine(a.err)
			if view.Owner || target {
				x.Agents = append(x.Agents, view)
			}
			continue
		}
		for _, p := range a.status.Partitions {
			if p.TopicID == x.Row.TopicID && p.Partition == x.Row.Partition {
				view.Status = &p
			}
		}
		if target && slices.Contains(a.status.Moves, holder.ID) {
			ask, cancel := context.WithTimeout(ctx, AskFor)
			if session, err := s.Agents.Session(ask, a.broker.ControlURL, holder.ID, 0, 0); err == nil {
				view.Session = &session
			}
			cancel()
		}
		if view.Owner || target || view.Status != nil {
			x.Agents = append(x.Agents, view)
		}
	}
	slices.SortStableFunc(x.Agents, func(a, b AgentView) int {
		switch {
		case a.Owner == b.Owner:
			return 0
		case a.Owner:
			return -1
		}
		return 1
	})
}

// askTemporal finds the workflow behind the claim or, without a claim, one that runs under the partition's id: between two
// claims a move holds none.
func (x *Explanation) askTemporal(ctx context.Context, s Sources, topic string, partition int32, holder *metastore.Move) {
	view := MoveView{WorkflowID: protocol.PartitionWorkflowID(topic, partition), Pending: []PendingActivity{}}
	if holder != nil {
		view = MoveView{MoveID: holder.ID, WorkflowID: holder.WorkflowID, RunID: holder.RunID, To: holder.ToBroker, By: holder.RequestedBy, Reason: holder.Reason,
			Since: holder.StartedAt, Pending: []PendingActivity{}}
		x.Move = &view
	}
	state, described, err := s.workflowState(ctx, view.WorkflowID, view.RunID)
	view.Workflow = state
	if err != nil {
		x.NotAsked = append(x.NotAsked, "Temporal: "+err.Error())
		if holder != nil {
			x.block(CodeTemporalUnreachable, err.Error(), nil)
		}
		return
	}
	if state != WorkflowRunning {
		return
	}
	x.Move = &view
	view.RunID = described.WorkflowExecution.RunID
	if view.Since.IsZero() {
		view.Since = described.WorkflowStartTime
	}
	view.Pending = pending(described)
	status, err := s.queryStatus(ctx, view.WorkflowID, view.RunID)
	if err != nil {
		x.NotAsked = append(x.NotAsked, "the move itself: no worker answers for its workflow")
		x.block(CodeNoWorker, "no worker answers for workflow "+view.WorkflowID, nil)
		return
	}
	live(status, described)
	*status = status.SeenFrom(topic, partition)
	view.Status, view.To, view.By, view.Reason = status, status.To, status.By, status.Reason
	if view.MoveID == "" {
		view.MoveID = status.MoveID
	}
}

// pending lists the steps under way and their last failures.
func pending(described *client.WorkflowExecutionDescription) []PendingActivity {
	all := []PendingActivity{}
	for _, a := range described.RawResponse.GetPendingActivities() {
		p := PendingActivity{Type: a.GetActivityType().GetName(), State: activityState(a.GetState().String()), Attempt: a.GetAttempt()}
		if at := a.GetNextAttemptScheduleTime(); at != nil {
			t := at.AsTime()
			p.NextAt = &t
		}
		if failure := a.GetLastFailure(); failure != nil {
			p.LastFailure = failure.GetMessage()
		}
		all = append(all, p)
	}
	return all
}

func activityState(s string) string {
	if s == "Started" {
		return "running"
	}
	return "waiting for a worker or its next attempt"
}

// live puts the bytes of the running activity's heartbeat into the status, which hears of them only now and then.
func live(status *protocol.Status, described *client.WorkflowExecutionDescription) {
	for _, a := range described.RawResponse.GetPendingActivities() {
		var p protocol.Progress
		if converter.GetDefaultDataConverter().FromPayloads(a.GetHeartbeatDetails(), &p) == nil && p.BytesTotal > 0 {
			status.Took(p)
		}
	}
}

// conclude says where the partition should be and why, and what blocks it beside what the move itself says.
func (x *Explanation) conclude() {
	if x.Row != nil {
		x.Should, x.Why = x.Row.Owner, "nothing asks for it elsewhere"
	}
	if m := x.Move; m != nil {
		switch {
		case orphaned(m.Workflow):
			x.Why = fmt.Sprintf("a move to %s left its claim on the row: its workflow run is %s", m.To, m.Workflow)
			x.block(CodeClaimOrphaned, fmt.Sprintf("the claim's workflow run is closed (%s)", m.Workflow), &m.Since)
		case m.Status != nil:
			x.Should, x.Why = m.Status.ShouldBeOn, "a move is in progress"
			if with := m.Status.With(); with != "" {
				x.Why = "a swap with " + with + " is in progress"
			}
		case m.To != "":
			x.Should, x.Why = m.To, "a move is in progress"
		}
		if s := m.Status; s != nil && s.Blocked != "" {
			x.block(s.Blocked, s.BlockedReason, s.BlockedSince)
		}
	}
	for _, a := range x.Agents {
		switch {
		case !a.Owner:
		case a.Error != "":
			x.block(CodeOwnerUnreachable, fmt.Sprintf("the agent of %s does not answer", a.Broker), nil)
		case a.Status == nil:
			x.block(control.CodeNotOpen, fmt.Sprintf("%s has not looked at the row yet", a.Broker), nil)
		case a.Status.State != "open" && a.Status.State != "frozen":
			reason := fmt.Sprintf("it is %s on %s", a.Status.State, a.Broker)
			if a.Status.Reason != "" {
				reason += ": " + a.Status.Reason
			}
			code := a.Status.ReasonCode
			if code == "" {
				code = control.CodeNotOpen
			}
			x.block(code, reason, &a.Status.Since)
		}
	}
	for _, a := range x.Agents {
		if a.Status != nil && a.Status.Suspended != "" {
			x.block(a.Status.Suspended, fmt.Sprintf("%s says: %s", a.Broker, a.Status.SuspendedReason), nil)
		}
	}
	if x.Row != nil && x.Row.PendingRecovery != nil {
		x.block(metastore.CodeRecoveryPending, *x.Row.PendingRecovery, nil)
	}
}

// block adds what blocks once; the first to say so knows best.
func (x *Explanation) block(code, reason string, since *time.Time) {
	for _, b := range x.Blocked {
		if b.Code == code {
			return
		}
	}
	at := protocol.Place{Partition: x.Partition}
	if x.Row != nil {
		at.From = x.Row.Owner
	}
	if x.Move != nil {
		at.To = x.Move.To
		if s := x.Move.Status; s != nil && s.From != "" {
			at.From = s.From
		}
	}
	x.Blocked = append(x.Blocked, Blocker{Code: code, Means: protocol.Means(code, at), Reason: reason, Since: since, Unblock: protocol.Unblock(code, at)})
}
