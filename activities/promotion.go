package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"portage/brokeragent/control"
	"portage/internal/faults"
	"portage/metastore"
	"portage/workflows/protocol"
)

// silence is how long a source has said nothing: its heartbeat counter unchanged on this process's monotonic clock, while
// this process's own reads of the metastore succeeded (R21). No times of two machines are compared.
type silence struct {
	counter int64
	since   time.Time
}

// hears takes one successful read and returns how long the counter has stood still.
func (s *silence) hears(counter int64, now time.Time) time.Duration {
	if s.since.IsZero() || counter != s.counter {
		s.counter, s.since = counter, now
	}
	return now.Sub(s.since)
}

// blind forgets what was heard: while the metastore did not answer here, the source may not have reached it either.
func (s *silence) blind() { s.since = time.Time{} }

// lost reports that the source is to be taken for gone: silent for promoteAfter, and its agent does not answer here.
func (m *Moves) lost(ctx context.Context, s *silence, args protocol.StepArgs) error {
	if args.PartOfSwap {
		return nil // never promoted (R32), so there is nothing to do but to wait
	}
	source, err := m.Store.FindBroker(ctx, args.Claim.From)
	if err != nil || source == nil {
		s.blind()
		return nil
	}
	if s.hears(source.Heartbeat, time.Now()) < args.Input.SilentFor() || m.answers(ctx, source) {
		return nil
	}
	return temporal.NewApplicationErrorWithOptions(fmt.Sprintf("%s has said nothing for %s", source.ID, args.Input.SilentFor()), protocol.ErrSourceLost,
		temporal.ApplicationErrorOptions{NonRetryable: true, Category: temporal.ApplicationErrorCategoryBenign, Details: []any{source.Heartbeat}})
}

func (m *Moves) answers(ctx context.Context, b *metastore.Broker) bool {
	ask, cancel := context.WithTimeout(ctx, aliveWithin)
	defer cancel()
	_, err := m.Agents.Status(ask, b.ControlURL)
	return err == nil || control.CodeOf(err) != ""
}

// watchEvery is how often a lost source is looked for.
const watchEvery = time.Second

// WatchSource waits until a lost source is back, or until what is known of the destination's copy is no longer what the
// workflow shows. It keeps the destination's copy going, so that it resumes by itself when the source does.
//
// The worker dies: the next attempt watches on. The destination dies: what is missing says so until it is back.
func (m *Moves) WatchSource(ctx context.Context, args protocol.WatchArgs) (protocol.SourceLoss, error) {
	return patiently(ctx, m, destinationAway, func(ctx context.Context) (protocol.SourceLoss, error) {
		for {
			loss, settled, err := m.lookAtLoss(ctx, args)
			if err != nil || settled {
				return loss, err
			}
			select {
			case <-ctx.Done():
				return loss, ctx.Err()
			case <-activity.GetWorkerStopChannel(ctx):
				return loss, errWorkerStopping()
			case <-time.After(watchEvery):
			}
		}
	})
}

func (m *Moves) lookAtLoss(ctx context.Context, args protocol.WatchArgs) (loss protocol.SourceLoss, settled bool, err error) {
	row, err := m.Store.ReadAssignment(ctx, args.Claim.TopicID, args.Claim.Partition)
	if err != nil {
		return loss, false, &metastore.Unknown{Write: "reading the row", Cause: err}
	}
	if row == nil || row.Moving() != args.Claim.MoveID {
		return loss, false, lostClaim(fmt.Sprintf("%s/%d", args.Claim.Topic, args.Claim.Partition))
	}
	source, target, err := m.brokers(ctx, args.Claim)
	if err != nil {
		return loss, false, err
	}
	back := source.Heartbeat != args.Heartbeat || m.answers(ctx, source)
	p := protocol.Promotion{Heartbeat: args.Heartbeat, Warning: protocol.PromotionWarning}
	status, err := m.Agents.Session(ctx, target.ControlURL, args.Claim.MoveID, -1, 0)
	switch {
	case back && err == nil && status.Installed:
		// The copy that was installed to be promoted belongs to this claim; a new claim takes it over by digest.
		return loss, false, moveLost(source.ID + " is back before its copy was promoted")
	case back:
		return protocol.SourceLoss{Back: true}, true, nil
	case control.CodeOf(err) != "":
		p.Missing = err.Error()
	case err != nil:
		p.Missing = fmt.Sprintf("the destination %s does not answer, so nobody knows what its copy has", target.ID)
	default:
		if p, err = m.weigh(ctx, args.StepArgs, target, status, row, args.Heartbeat); err != nil {
			return loss, false, err
		}
	}
	return protocol.SourceLoss{Promotion: p}, !p.Same(args.Known), nil
}

// weigh says what the destination's copy has and whether it can be promoted.
func (m *Moves) weigh(ctx context.Context, args protocol.StepArgs, target *metastore.Broker, status control.SessionStatus, row *metastore.Assignment, heartbeat int64) (protocol.Promotion, error) {
	p := protocol.Promotion{Heartbeat: heartbeat, Warning: protocol.PromotionWarning}
	if status.State == control.CopyIdle && !status.Installed {
		// A destination that was restarted opens its staging again, and goes on by itself when the source is back.
		_, err := m.Agents.StartCopy(ctx, target.ControlURL, control.CopyRequest{Order: m.order(ctx, args, control.PhaseCopy), Source: args.Claim.From,
			LagBytes: int64(args.Input.Lag), MaxPasses: args.Input.MaxPasses, LimitPerSec: float64(args.Input.Limit)})
		if err != nil {
			return p, err
		}
	}
	if status.Copy == nil {
		p.Missing = fmt.Sprintf("the copy on %s is not open yet", target.ID)
		return p, nil
	}
	known, err := m.Store.LastKnownEnd(ctx, row)
	if err != nil {
		return p, &metastore.Unknown{Write: "reading what is known of the log's end", Cause: err}
	}
	c := status.Copy
	p.StagedEnd, p.HighWatermark, p.SnapshotAt, p.Groups, p.Producers = c.StagedEnd, max(c.HighWatermark, known), c.SnapshotAt, c.Groups, c.Producers
	p.Missing = c.Missing
	if p.Missing == "" && p.StagedEnd < p.HighWatermark {
		p.Missing = fmt.Sprintf("the copy ends at %d, %s had %d: %d offsets are not in it", p.StagedEnd, args.Claim.From, p.HighWatermark, p.HighWatermark-p.StagedEnd)
	}
	p.Eligible = p.Missing == ""
	return p, nil
}

// Promote makes the destination's copy the partition, because the source is gone: the destination installs what it has staged,
// then ForcePromote, which names the heartbeat counter that was seen standing still. It is the point of no return.
//
// The worker dies anywhere in it, or a reply is lost: the next attempt finds the installed copy and the move's own row (R6).
// The destination dies: waited for, for as long as the source is silent and nobody gives the move up; what it installed is
// found at its boot. The source comes back: the move is settled and starts over. Postgres dies: repeated until it answers.
func (m *Moves) Promote(ctx context.Context, args protocol.PromoteArgs) (protocol.PromoteResult, error) {
	return patiently(ctx, m, destinationAway, func(ctx context.Context) (protocol.PromoteResult, error) {
		var none protocol.PromoteResult
		c := args.Claim
		move, err := m.Store.FindMove(ctx, c.MoveID)
		if err != nil {
			return none, &metastore.Unknown{Write: "reading the move", Cause: err}
		}
		if move != nil && move.Ended() == metastore.OutcomeCommitted {
			return promoted(move)
		}
		if args.Settle {
			return m.settlePromotion(ctx, c, "the move was given up before its copy was promoted")
		}
		row, err := m.Store.ReadAssignment(ctx, c.TopicID, c.Partition)
		if err != nil {
			return none, &metastore.Unknown{Write: "reading the row before the promotion", Cause: err}
		}
		if row == nil || row.Moving() != c.MoveID {
			return m.settlePromotion(ctx, c, fmt.Sprintf("the claim on %s/%d was ended by another hand", c.Topic, c.Partition))
		}
		source, target, err := m.brokers(ctx, c)
		if err != nil {
			return none, err
		}
		if source.Heartbeat != args.Heartbeat || m.answers(ctx, source) {
			return m.settlePromotion(ctx, c, source.ID+" is back before its copy was promoted")
		}
		status, err := m.Agents.Session(ctx, target.ControlURL, c.MoveID, -1, 0)
		if err != nil {
			return none, err
		}
		p, err := m.weigh(ctx, args.StepArgs, target, status, row, args.Heartbeat)
		if err != nil {
			return none, err
		}
		if !p.Eligible {
			return protocol.PromoteResult{Refused: p.Missing, Promotion: p}, nil
		}
		faults.Point("promotion.before")
		installed, err := m.Agents.Promote(ctx, target.ControlURL, control.PromoteRequest{Order: m.order(ctx, args.StepArgs, control.PhaseCopy), Version: row.Version})
		if control.CodeOf(err) == control.CodeNotEligible {
			return protocol.PromoteResult{Refused: err.Error(), Promotion: p}, nil
		}
		if err != nil {
			return none, err
		}
		faults.Point("promotion.installed")
		evidence := protocol.PromotionEvidence{Promotion: p, Policy: args.Input.Policy(), PromoteAfter: protocol.Duration(args.Input.SilentFor()), From: c.From, By: args.By, Reason: args.Reason}
		_, err = m.Store.ForcePromote(ctx, metastore.Promotion{MoveID: c.MoveID, TopicID: c.TopicID, Partition: c.Partition, From: c.From, To: c.To, Epoch: c.Epoch,
			Version: installed.Version, ToStorage: installed.Storage, Heartbeat: args.Heartbeat, StagedEnd: installed.InstalledEnd, HighWatermark: installed.Copy.HighWatermark,
			Decided: args.By != protocol.ByPolicy, By: args.By, Reason: args.Reason, Evidence: evidence})
		if r, ok := metastore.RefusedWith(err, metastore.CodeCopyBehind, metastore.CodeNoFence); ok {
			return protocol.PromoteResult{Refused: r.Reason, NeedsPerson: true, Promotion: p}, nil
		}
		if _, wait := metastore.RefusedWith(err, metastore.CodeMetastoreRestored, metastore.CodeMetastoreOlder); wait {
			return none, err
		}
		if r, ok := metastore.RefusedWith(err); ok {
			return none, moveLost(r.Reason)
		}
		if err != nil {
			return none, err
		}
		faults.Point("promotion.after")
		return protocol.PromoteResult{Epoch: c.Epoch + 1, End: installed.InstalledEnd, Promotion: p}, nil // this move's own epoch; the row may have moved on
	})
}

// settlePromotion ends a promotion that is not to be done any more. An earlier attempt may have asked for it, and only winning
// AbortMove shows that it was not done and never will be (R6); when AbortMove is too late, the next look finds the promotion.
func (m *Moves) settlePromotion(ctx context.Context, c protocol.Claim, reason string) (protocol.PromoteResult, error) {
	_, err := m.Store.AbortMove(ctx, c.MoveID, m.ControllerID, reason)
	if _, late := metastore.RefusedWith(err, metastore.CodeMoveCommitted); late {
		return protocol.PromoteResult{}, errChanged
	}
	if err != nil {
		return protocol.PromoteResult{}, err
	}
	return protocol.PromoteResult{}, moveLost(reason)
}

// promoted reads back a promotion whose reply was lost.
func promoted(move *metastore.Move) (protocol.PromoteResult, error) {
	var kept protocol.PromotionEvidence
	if len(move.Evidence) > 0 {
		if err := json.Unmarshal(move.Evidence, &kept); err != nil {
			return protocol.PromoteResult{}, fmt.Errorf("the evidence of move %s can not be read: %w", move.ID, err)
		}
	}
	if move.CommitEpoch == nil || move.FrozenEnd == nil {
		return protocol.PromoteResult{}, errors.New("the committed move names no epoch")
	}
	return protocol.PromoteResult{Epoch: *move.CommitEpoch, End: *move.FrozenEnd, Promotion: kept.Promotion}, nil
}

// orLost is the error of a step that did not reach the source, or that the source is to be taken for gone.
func (m *Moves) orLost(ctx context.Context, s *silence, args protocol.StepArgs, err error) error {
	if code := control.CodeOf(err); code != "" && code != control.CodeSourceAway {
		return err
	}
	if lost := m.lost(ctx, s, args); lost != nil {
		return lost
	}
	return err
}
