package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"

	"portage/brokeragent/control"
	"portage/internal/faults"
	"portage/metastore"
	"portage/planner"
	"portage/workflows/protocol"
)

// Moves are the activities of the Move workflow.
type Moves struct {
	Store  *metastore.Store
	Agents *control.Client
	// Temporal tells whether the workflow that holds a claim still runs, and carries progress signals.
	Temporal client.Client
	// ControllerID names this deployment; all its workers share it. ControllerEpoch is the epoch it took at its start: once
	// another deployment has taken over, this one's claims are refused (R15).
	ControllerID    string
	ControllerEpoch int64
	Logger          *slog.Logger
}

// destinationAway is what a move waits for whose destination does not answer.
const destinationAway = protocol.CodeDestinationUnreachable

// aliveWithin is how long a destination may take to answer that it is there.
const aliveWithin = 2 * time.Second

// Facts gathers what stands for and against a move. It changes nothing; a dry run ends here.
func (m *Moves) Facts(ctx context.Context, topic string, partition int32, to string) (planner.MoveFacts, error) {
	f := planner.MoveFacts{Topic: topic, Partition: partition, To: to, PartitionBytes: -1}
	t, err := m.Store.FindTopic(ctx, topic)
	if err != nil {
		return f, err
	}
	if f.TopicExists = t != nil; !f.TopicExists {
		return f, nil
	}
	f.Internal, f.Partitions = t.Internal || (len(topic) > 1 && topic[:2] == "__"), t.Partitions
	row, err := m.Store.FindAssignment(ctx, topic, partition)
	if err != nil {
		return f, err
	}
	if f.PartitionExists = row != nil; !f.PartitionExists {
		return f, nil
	}
	f.Owner = row.Owner
	if id := row.Moving(); id != "" {
		f.MovingUnder = id
		if other, err := m.Store.FindMove(ctx, id); err != nil {
			return f, err
		} else if other != nil {
			f.MovingUnder = other.WorkflowID
		}
	}
	target, err := m.Store.FindBroker(ctx, to)
	if err != nil {
		return f, err
	}
	if f.TargetExists = target != nil; !f.TargetExists {
		return f, nil
	}
	f.TargetRemoved, f.TargetDraining = target.Removed, target.Draining
	ask, cancel := context.WithTimeout(ctx, aliveWithin)
	defer cancel()
	status, err := m.Agents.Status(ask, target.ControlURL)
	if err != nil && control.CodeOf(err) == "" {
		status, err = m.Agents.Status(ask, target.ControlURL) // one lost answer is not silence
	}
	if err == nil {
		// Former copies make room before a copy is refused for want of it; how many of them may go, only their owners know.
		f.TargetAlive, f.TargetRoomBytes = true, status.DiskFreeBytes-status.ReservedBytes+status.TrashBytes
	}
	if owner, err := m.Store.FindBroker(ctx, row.Owner); err == nil && owner != nil {
		if p, err := m.Agents.Partition(ask, owner.ControlURL, row.TopicID, partition); err == nil {
			f.PartitionBytes = p.Bytes
		}
	}
	return f, nil
}

// Claim checks the request and reserves the partition. A claim whose workflow run is closed is released first: nobody
// else would (design §6).
//
// The worker dies after the write, or its reply is lost: the repeat finds its own claim. Postgres dies: waited for.
func (m *Moves) Claim(ctx context.Context, args protocol.ClaimArgs) (protocol.Claim, error) {
	info := activity.GetInfo(ctx)
	return claiming(ctx, m, fmt.Sprintf("%s/%d", args.Input.Topic, *args.Input.Partition), func(ctx context.Context) (protocol.Claim, error) {
		return m.claimOnce(ctx, args, info.WorkflowExecution.ID, info.WorkflowExecution.RunID)
	})
}

// claiming repeats a claim until it is made or refused, and releases what closed workflow runs left in its way.
func claiming[C any](ctx context.Context, m *Moves, what string, once func(context.Context) (C, error)) (C, error) {
	return patiently(ctx, m, protocol.CodeMetastoreUnreachable, func(ctx context.Context) (C, error) {
		for {
			claim, err := once(ctx)
			if holder, ok := metastore.RefusedWith(err, metastore.CodeAlreadyMoving); ok && holder.Move != nil {
				released, releaseErr := m.releaseOrphan(ctx, holder.Move)
				if releaseErr != nil {
					return claim, releaseErr
				}
				if released {
					continue
				}
			}
			if _, ended := metastore.RefusedWith(err, metastore.CodeMoveEnded, metastore.CodeRowMoved); ended {
				return claim, lostClaim(what)
			}
			return claim, err
		}
	})
}

func lostClaim(what string) error {
	return moveLost(fmt.Sprintf("the claim on %s was ended by another hand", what))
}

func (m *Moves) claimOnce(ctx context.Context, args protocol.ClaimArgs, workflowID, runID string) (protocol.Claim, error) {
	// A claim whose reply was lost is found again whatever has changed since: what stands against a move is asked before it.
	known, err := m.Store.FindMove(ctx, args.MoveID)
	if err != nil {
		return protocol.Claim{}, &metastore.Unknown{Write: "reading the move", Cause: err}
	}
	if known == nil {
		if err := m.place(ctx, args.Input.Plan, args.Attempt, 1); err != nil {
			return protocol.Claim{}, err
		}
		if err := m.objections(ctx, args); err != nil {
			return protocol.Claim{}, err
		}
	}
	return m.writeClaim(ctx, args, workflowID, runID)
}

// place waits for a place in the fleet before anything else is asked: what stands against a move that has not begun is of
// interest only once it could. One that starts over has its place.
func (m *Moves) place(ctx context.Context, plan string, attempt, moves int) error {
	if attempt > 1 {
		return nil
	}
	err := m.Store.FindPlace(ctx, plan, moves)
	if _, refused := metastore.RefusedWith(err); err != nil && !refused {
		return &metastore.Unknown{Write: "looking for a place in the fleet", Cause: err}
	}
	return err
}

// objections refuses a move that can not start.
func (m *Moves) objections(ctx context.Context, args protocol.ClaimArgs) error {
	in := args.Input
	facts, err := m.Facts(ctx, in.Topic, *in.Partition, in.To)
	if err != nil {
		return &metastore.Unknown{Write: "reading the move's facts", Cause: err}
	}
	return objection(planner.CheckMove(facts), args.Attempt)
}

// objection is the first that stands against a claim.
func objection(against []planner.Objection, attempt int) error {
	for _, o := range against {
		switch {
		case o.Code == metastore.CodeAlreadyMoving: // the claim itself knows whose it is
		case o.Code == planner.CodeBrokerDead && attempt > 1:
			return control.Errorf(destinationAway, "%s", o.Reason) // it was there when the move began: waited for
		default:
			return refused(o.Code, o.Reason)
		}
	}
	return nil
}

func (m *Moves) writeClaim(ctx context.Context, args protocol.ClaimArgs, workflowID, runID string) (protocol.Claim, error) {
	in := args.Input
	row, move, err := m.Store.ClaimMove(ctx, metastore.ClaimRequest{MoveID: args.MoveID, Kind: metastore.KindMove, Topic: in.Topic, Partition: *in.Partition, To: in.To,
		WorkflowID: workflowID, RunID: runID, ControllerEpoch: m.ControllerEpoch, RequestedBy: in.By, Reason: in.Reason,
		OnSourceLoss: in.Policy(), PromoteAfter: in.SilentFor(), Expect: expected(in.Expect, args.Attempt), Plan: in.Plan, PlanSeq: in.PlanSeq, Again: args.Attempt > 1})
	if err != nil {
		return protocol.Claim{}, err
	}
	return m.claimOf(row, move), nil
}

func (m *Moves) claimOf(row *metastore.Assignment, move *metastore.Move) protocol.Claim {
	return protocol.Claim{MoveID: move.ID, TopicID: row.TopicID, Topic: row.Topic, Partition: row.Partition, From: move.FromBroker, To: move.ToBroker,
		Epoch: row.Epoch, Version: move.ClaimVersion, ControllerEpoch: m.ControllerEpoch, ControllerID: m.ControllerID}
}

// expected is what the claim expects of its row. The claims of earlier attempts have changed its version.
func expected(e *protocol.Expect, attempt int) *metastore.ExpectedRow {
	if e == nil {
		return nil
	}
	row := &metastore.ExpectedRow{Owner: e.From}
	row.TopicID, _ = uuid.Parse(e.TopicID) // what is no id is not compared
	if attempt <= 1 {
		row.Version = e.Version
	}
	return row
}

// Ensure makes the destination ready: vacant, with room, its staging open, a former copy adopted where digests match.
//
// The destination dies: waited for. Its reply is lost: repeated.
func (m *Moves) Ensure(ctx context.Context, args protocol.StepArgs) (protocol.CopyResult, error) {
	ctx = telling(ctx, args.Claim.MoveID)
	answer, err := patiently(ctx, m, destinationAway, func(ctx context.Context) (control.EnsureAnswer, error) {
		source, target, err := m.brokers(ctx, args.Claim)
		if err != nil {
			return control.EnsureAnswer{}, err
		}
		answer, err := m.Agents.Ensure(ctx, target.ControlURL, control.EnsureRequest{Order: m.order(ctx, args, control.PhaseEnsure), SourceURL: source.ControlURL,
			Source: source.ID, LimitPerSec: float64(args.Input.Limit)})
		if err != nil {
			if lost := m.stillClaimed(ctx, args.Claim); lost != nil {
				return answer, lost // what it waits for may be a topic that was deleted
			}
		}
		if control.CodeOf(err) == control.CodeNoRoom && args.Attempt > 1 {
			err = control.Errorf(control.CodeDiskFull, "%v", err) // there was room when the move began: waited for
		}
		return answer, err
	})
	return protocol.CopyResult{BytesTotal: answer.TotalBytes, Adopted: answer.Adopted}, err
}

// copyPoll is how long one look at the destination's progress waits for a change.
const copyPoll = time.Second

// Copy runs the catch-up at the destination and tells how it goes. The bytes never pass through here.
//
// The worker dies: the destination copies on, the next attempt joins it. The destination dies: its staging is on disk,
// the copy is started again and resumes by digest. The source dies: the destination waits for it, visibly.
func (m *Moves) Copy(ctx context.Context, args protocol.StepArgs) (protocol.CopyResult, error) {
	ctx = telling(ctx, args.Claim.MoveID)
	teller := newTeller(m, ctx)
	var quiet silence
	status, err := patiently(ctx, m, destinationAway, func(ctx context.Context) (control.SessionStatus, error) {
		source, target, err := m.brokers(ctx, args.Claim)
		if err != nil {
			return control.SessionStatus{}, err
		}
		order := m.order(ctx, args, control.PhaseCopy)
		status, err := m.Agents.StartCopy(ctx, target.ControlURL, control.CopyRequest{Order: order, SourceURL: source.ControlURL, Source: source.ID,
			LagBytes: int64(args.Input.Lag), MaxPasses: args.Input.MaxPasses, LimitPerSec: float64(args.Input.Limit)})
		for err == nil && (status.State == control.CopyRunning || status.State == control.CopyWaiting) {
			teller.tell(ctx, status)
			select {
			case <-activity.GetWorkerStopChannel(ctx): // the copy goes on without a worker; the next one finds it where it is
				return status, errWorkerStopping()
			default:
			}
			if status.State == control.CopyWaiting {
				if lost := m.stillClaimed(ctx, args.Claim); lost != nil {
					return status, lost
				}
			}
			if status.State == control.CopyWaiting && status.Blocked == control.CodeSourceAway {
				if lost := m.lost(ctx, &quiet, args); lost != nil {
					return status, lost
				}
				if now, _, err := m.brokers(ctx, args.Claim); err == nil && now.ControlURL != source.ControlURL {
					return status, errors.New("the source is back at another address") // asked again, the running copy learns it
				}
			}
			status, err = m.Agents.Session(ctx, target.ControlURL, args.Claim.MoveID, status.Seq, copyPoll)
		}
		switch {
		case err != nil:
			return status, err
		case status.State == control.CopyIdle:
			return status, errors.New("the destination was restarted during the copy")
		case status.Error != nil:
			if lost := m.stillClaimed(ctx, args.Claim); lost != nil {
				return status, lost
			}
			return status, status.Error
		}
		return status, nil
	})
	return protocol.CopyResult{BytesTotal: status.BytesTotal, BytesCopied: status.CopiedBytes, Passes: status.Passes, Converged: status.Converged, ExpectedFreeze: status.ExpectedFreeze}, err
}

// Pace changes the pace of a running copy. It changes nothing that a crash could leave half done.
//
// The destination has no session of the move (yet): it learns the pace from its orders.
func (m *Moves) Pace(ctx context.Context, args protocol.PaceArgs) error {
	_, target, err := m.brokers(ctx, args.Claim)
	if err != nil {
		return err
	}
	err = m.Agents.SetLimit(ctx, target.ControlURL, args.Claim.MoveID, float64(args.Limit))
	if control.CodeOf(err) == control.CodeNotFound {
		return nil
	}
	return err
}

// stillClaimed says when the row no longer carries the move.
func (m *Moves) stillClaimed(ctx context.Context, c protocol.Claim) error {
	row, err := m.Store.ReadAssignment(ctx, c.TopicID, c.Partition)
	if err != nil {
		return nil // not known is not lost
	}
	if row == nil || row.Moving() != c.MoveID {
		return lostClaim(fmt.Sprintf("%s/%d", c.Topic, c.Partition))
	}
	return nil
}

// Cutover freezes the source and drains the tail into the destination, offsets and producer state included. It begins
// with a round trip to Postgres: without it no freeze could end (R22).
//
// The worker dies: the freeze ends by its lease, or the next attempt repeats freeze and drain, which answer the same. The
// source dies: its next process opens at a higher version, so the freeze is asked for again. The destination dies: the
// lease ends and the move starts over; what was copied stays.
func (m *Moves) Cutover(ctx context.Context, args protocol.CutoverArgs) (protocol.Evidence, error) {
	var quiet silence
	return patiently(ctx, m, protocol.CodeParticipantUnreachable, func(ctx context.Context) (protocol.Evidence, error) {
		var e protocol.Evidence
		c, err := m.beginCutover(ctx, args)
		if err != nil {
			return e, err
		}
		faults.Point("cutover.before")
		if err := c.freeze(ctx, m.Agents); err != nil {
			return e, m.orLost(ctx, &quiet, args.StepArgs, err)
		}
		faults.Point("cutover.frozen")
		if e, err = c.drain(ctx, m.Agents); err != nil {
			return e, m.orLost(ctx, &quiet, args.StepArgs, err)
		}
		faults.Point("cutover.after")
		return e, nil
	})
}

// cutover is the way of one partition through freeze and drain.
type cutover struct {
	args           protocol.CutoverArgs
	order          control.Order
	version        int64 // of the row before the freeze
	source, target *metastore.Broker
	frozen         control.FreezeAnswer
}

// beginCutover reads what the freeze must name. It is the round trip to Postgres without which no freeze could end (R22).
func (m *Moves) beginCutover(ctx context.Context, args protocol.CutoverArgs) (*cutover, error) {
	c := cutover{args: args, order: m.order(ctx, args.StepArgs, control.PhaseCutover)}
	row, err := m.Store.ReadAssignment(ctx, args.Claim.TopicID, args.Claim.Partition)
	if err != nil {
		return nil, &metastore.Unknown{Write: "reading the row before the freeze", Cause: err}
	}
	if row == nil || row.Moving() != args.Claim.MoveID {
		return nil, lostClaim(fmt.Sprintf("%s/%d", args.Claim.Topic, args.Claim.Partition))
	}
	c.version = row.Version
	c.source, c.target, err = m.brokers(ctx, args.Claim)
	return &c, err
}

// freeze freezes the source; a repeat is answered with the same freeze.
func (c *cutover) freeze(ctx context.Context, agents *control.Client) (err error) {
	c.frozen, err = agents.Freeze(ctx, c.source.ControlURL, control.FreezeRequest{Order: c.order, Version: c.version, ExpectedFreeze: c.args.ExpectedFreeze, Force: c.args.Input.Force})
	if control.CodeOf(err) == control.CodeRowMoved {
		return errChanged // the row changed since it was read (a restarted source opened): read it again
	}
	return err
}

// drain takes the tail of the frozen source to the destination, which installs the copy.
func (c *cutover) drain(ctx context.Context, agents *control.Client) (e protocol.Evidence, err error) {
	drained, err := agents.Drain(ctx, c.target.ControlURL, control.DrainRequest{Order: c.order, SourceURL: c.source.ControlURL, Freeze: c.frozen})
	if code := control.CodeOf(err); code == control.CodeRowMoved || code == control.CodeNotFrozen {
		return e, errChanged
	}
	if err != nil {
		return e, err
	}
	return protocol.Evidence{Version: c.frozen.Version, FrozenEnd: c.frozen.FrozenEnd, InstalledEnd: drained.InstalledEnd, InstalledVersion: drained.Version,
		Storage: drained.Storage, TailBytes: drained.TailBytes, Groups: drained.Groups, Producers: drained.Producers}, nil
}

var errChanged = errors.New("the row changed under the cutover")

// Commit is the point of no return: CommitOwner, named with what the source acknowledged and what the destination
// installed. It returns the new epoch.
//
// The reply is lost: repeated; the move's own row says whether it was done (R6). Refused: surely not done, the claim is
// settled by Abort. The hints to the agents afterwards may be lost: both act on the row by themselves.
func (m *Moves) Commit(ctx context.Context, args protocol.CommitArgs) (int32, error) {
	c, e := args.Claim, args.Evidence
	_, err := patiently(ctx, m, protocol.CodeMetastoreUnreachable, func(ctx context.Context) (struct{}, error) {
		faults.Point("commit.before")
		_, err := m.Store.CommitOwner(ctx, commitOf(c, e))
		return struct{}{}, orSettled(err)
	})
	if err != nil {
		return 0, err
	}
	faults.Point("commit.after")
	return c.Epoch + 1, nil // this move's own; the row may have moved on, or be gone with its topic
}

func commitOf(c protocol.Claim, e protocol.Evidence) metastore.Commit {
	return metastore.Commit{MoveID: c.MoveID, TopicID: c.TopicID, Partition: c.Partition, From: c.From, To: c.To, Epoch: c.Epoch,
		Version: e.Version, ToStorage: e.Storage, FrozenEnd: e.FrozenEnd, InstalledEnd: e.InstalledEnd, InstalledVersion: e.InstalledVersion}
}

// orSettled turns the refusal of a commit into the end of its claim: it was surely not done. A row that waits for
// `portage reconcile` is waited for.
func orSettled(err error) error {
	if _, wait := metastore.RefusedWith(err, metastore.CodeMetastoreRestored, metastore.CodeMetastoreOlder); wait {
		return err
	}
	if r, ok := metastore.RefusedWith(err); ok {
		return moveLost(r.Reason)
	}
	return err
}

// Finish waits until the destination is open and the source has handed its clients over, and records how it went.
//
// The destination dies: its next process finds the committed row and opens by itself; until then this waits, visibly, unless a
// later decision, as `portage promote` over a destination that is gone for good, has given the partition to another broker. The
// worker dies, or a reply is lost: asked again; the source may have forgotten the frozen time by then, nothing else.
func (m *Moves) Finish(ctx context.Context, args protocol.FinishArgs) (protocol.FinishResult, error) {
	ctx = telling(ctx, args.Claim.MoveID)
	result, err := patiently(ctx, m, destinationAway, func(ctx context.Context) (protocol.FinishResult, error) {
		var none protocol.FinishResult
		_, target, err := m.brokers(ctx, args.Claim)
		if err != nil {
			return none, err
		}
		status, err := m.Agents.Look(ctx, target.ControlURL, control.LookRequest{Order: m.order(ctx, args.StepArgs, control.PhaseConfirm), WaitOpen: true})
		if err != nil {
			return m.wentOn(ctx, args.Claim, err)
		}
		if status.State == "open" || status.State == "frozen" {
			return none, nil
		}
		if status.Suspended != "" {
			return none, control.Errorf(status.Suspended, "%s", status.SuspendedReason)
		}
		if status.Owner != args.Claim.To {
			return none, m.stillCommitted(ctx, args.Claim) // on its way again, unless the commit was lost
		}
		return none, control.Errorf(control.CodeNotOpen, "%s/%d is %s on %s: %s", args.Claim.Topic, args.Claim.Partition, status.State, args.Claim.To, status.Reason)
	})
	if err != nil {
		return protocol.FinishResult{}, err
	}
	faults.Point("finish.opened")
	if result.WentOn == "" {
		result = m.releaseSource(ctx, args.StepArgs)
	}
	progress := metastore.MoveProgress{MoveID: args.Claim.MoveID, Phase: "done", BytesCopied: args.Copy.BytesCopied, Converged: &args.Copy.Converged, Finished: true}
	if result.FrozenMS > 0 {
		progress.FrozenMS = &result.FrozenMS
	}
	_, err = patiently(ctx, m, protocol.CodeMetastoreUnreachable, func(ctx context.Context) (struct{}, error) {
		if err := m.Store.ReportMove(ctx, progress); err != nil {
			return struct{}{}, &metastore.Unknown{Write: "recording the end of the move", Cause: err}
		}
		return struct{}{}, nil
	})
	faults.Point("finish.after")
	return result, err
}

// wentOn tells a destination that is to come back from one that the partition has left behind: its row names a later epoch of
// another owner, or its topic's deletion is proved. Otherwise the destination's silence is what the move waits for.
func (m *Moves) wentOn(ctx context.Context, c protocol.Claim, silence error) (protocol.FinishResult, error) {
	var result protocol.FinishResult
	row, err := m.Store.ReadAssignment(ctx, c.TopicID, c.Partition)
	if err != nil {
		return result, silence
	}
	if row == nil {
		gone, err := m.Store.DeletedTopics(ctx, []uuid.UUID{c.TopicID})
		if err != nil || len(gone) == 0 {
			return result, silence // absent is not deleted
		}
		result.WentOn = fmt.Sprintf("topic %s was deleted before %s was seen to have %s/%d open", c.Topic, c.To, c.Topic, c.Partition)
		return result, nil
	}
	if row.Restored || row.Owner == c.To {
		return result, silence
	}
	if err := m.stillCommitted(ctx, c); err != nil {
		return result, err
	}
	if row.Epoch <= c.Epoch+1 {
		return result, silence
	}
	result.Owner = row.Owner
	result.WentOn = fmt.Sprintf("%s was not seen to have %s/%d open before it went on to %s, at epoch %d", c.To, c.Topic, c.Partition, row.Owner, row.Epoch)
	return result, nil
}

// stillCommitted tells a move that was followed by another from one whose commit is gone: acknowledged by a Postgres that
// was lost, seen by no agent, and ended by `portage reconcile` (R1).
func (m *Moves) stillCommitted(ctx context.Context, c protocol.Claim) error {
	move, err := m.Store.FindMove(ctx, c.MoveID)
	switch {
	case err != nil:
		return &metastore.Unknown{Write: "reading the move", Cause: err}
	case move != nil && move.Ended() == metastore.OutcomeCommitted:
		return nil
	case move != nil && move.Ended() == "":
		return control.Errorf(metastore.CodeMetastoreOlder, "the metastore has lost the commit of this move; look at what `portage reconcile` would do, then let it")
	}
	return refused(protocol.CodeCommitLost, fmt.Sprintf("the commit of this move was lost with the metastore, and no agent had seen it: %s/%d stays on %s; move it again", c.Topic, c.Partition, c.From))
}

// releaseSource ends the source's part. It is best effort: a source that is down has nothing to release.
func (m *Moves) releaseSource(ctx context.Context, args protocol.StepArgs) protocol.FinishResult {
	var result protocol.FinishResult
	source, _, err := m.brokers(ctx, args.Claim)
	if err != nil {
		return result
	}
	ask, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	status, err := m.Agents.Look(ask, source.ControlURL, control.LookRequest{Order: m.order(ctx, args, control.PhaseConfirm), WaitOpen: true, Release: true})
	if err != nil || status.LastFreeze == nil || status.LastFreeze.MoveID != args.Claim.MoveID {
		return result
	}
	return protocol.FinishResult{FrozenMS: ms(status.LastFreeze.Frozen), TotalMS: ms(status.LastFreeze.Total), Parked: status.LastFreeze.Parked}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Abort settles the move before its point of no return and restores what it touched: AbortMove comes before anything is
// thawed or dropped (R6). It finds out when it comes too late.
//
// Anyone dies: repeated. The source is away: it thaws by itself when it is back. The destination is away: it puts the
// staging away by itself when it sees the row.
func (m *Moves) Abort(ctx context.Context, args protocol.AbortArgs) (protocol.AbortResult, error) {
	return patiently(ctx, m, protocol.CodeMetastoreUnreachable, func(ctx context.Context) (protocol.AbortResult, error) {
		faults.Point("abort.before")
		_, err := m.Store.AbortMove(ctx, args.Claim.MoveID, m.ControllerID, args.Reason)
		if _, missing := metastore.RefusedWith(err, metastore.CodeUnknownMove); missing {
			// It never came to a claim, or the claim is still on its way: then it must find the id dead (R7).
			err := m.bury(ctx, args)
			return protocol.AbortResult{}, err
		}
		if _, committed := metastore.RefusedWith(err, metastore.CodeMoveCommitted); committed {
			return protocol.AbortResult{Committed: true}, nil
		}
		if err != nil {
			return protocol.AbortResult{}, err
		}
		faults.Point("abort.after")
		m.restore(ctx, args)
		return protocol.AbortResult{}, nil
	})
}

// bury ends a move id that has claimed nothing. A claim that came first after all is aborted by the next attempt.
func (m *Moves) bury(ctx context.Context, args protocol.AbortArgs) error {
	err := m.Store.BuryMove(ctx, args.Claim.MoveID, args.Claim.Topic, args.Claim.Partition, args.Claim.To, m.ControllerID, args.Reason)
	if _, claimed := metastore.RefusedWith(err, metastore.CodeAlreadyMoving); claimed {
		return errChanged
	}
	return err
}

// restore hints both sides at the aborted row. What it does not reach, the agents do by themselves.
func (m *Moves) restore(ctx context.Context, args protocol.AbortArgs) {
	if args.Claim.From == "" {
		return // the claim's reply never came; the agents see the row
	}
	source, target, err := m.brokers(ctx, args.Claim)
	if err != nil {
		return
	}
	ask, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	order := m.order(ctx, args.StepArgs, control.PhaseAbort)
	if _, err := m.Agents.Look(ask, source.ControlURL, control.LookRequest{Order: order, WaitOpen: true, Release: true}); err != nil {
		m.Logger.Warn("the source was not told of the abort; it acts on the row", "move", args.Claim.MoveID, "error", err)
	}
	if err := m.Agents.Abandon(ask, target.ControlURL, control.AbandonRequest{Order: order, Keep: args.KeepStaging}); err != nil {
		m.Logger.Warn("the destination was not told of the abort; it acts on the row", "move", args.Claim.MoveID, "error", err)
	}
}

// brokers reads where both sides are now; an agent may have come back at another address.
func (m *Moves) brokers(ctx context.Context, c protocol.Claim) (source, target *metastore.Broker, err error) {
	if source, err = m.Store.FindBroker(ctx, c.From); err == nil {
		target, err = m.Store.FindBroker(ctx, c.To)
	}
	if err != nil {
		return nil, nil, &metastore.Unknown{Write: "reading the brokers", Cause: err}
	}
	if source == nil || target == nil {
		return nil, nil, moveLost("a broker of the move is no longer registered")
	}
	return source, target, nil
}

// roundTokens leaves room for this many attempts of one activity before the next round's tokens begin.
const roundTokens = 100_000

func (m *Moves) order(ctx context.Context, args protocol.StepArgs, phase int32) control.Order {
	c := args.Claim
	if args.Round > 0 && phase < control.PhaseCutover {
		// The agents may have seen this claim's cutover: from the first repeated phase on the rounds alone order the steps.
		phase = control.PhaseCutover
	}
	return control.Order{
		Authority: control.Authority{ControllerEpoch: c.ControllerEpoch, ControllerID: c.ControllerID,
			Token: control.Token{Version: c.Version, Phase: phase, Attempt: args.Round*roundTokens + activity.GetInfo(ctx).Attempt}},
		Subject: control.Subject{MoveID: c.MoveID, TopicID: c.TopicID, Topic: c.Topic, Partition: c.Partition, Epoch: c.Epoch},
	}
}
