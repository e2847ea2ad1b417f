package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// swap is the state of one Swap workflow. Index 0 is side a, 1 is side b.
type swap struct {
	stage
	in      protocol.SwapInput
	claims  [2]protocol.Claim
	claimed bool
	round   int32
	copied  [2]protocol.CopyResult
	waits   [2]protocol.Progress // what each side's step waits for
	waiting int                  // the side that what is shown as blocking is about
	half    string               // what of two moves is done, once it is
}

func newSwap(ctx workflow.Context, in protocol.SwapInput) *swap {
	s := &swap{in: in, stage: stage{telling: workflow.NewMutex(ctx), status: protocol.Status{Topic: in.A.Topic, Partition: *in.A.Partition, Phase: protocol.PhaseClaim, Since: workflow.Now(ctx), By: in.By, Reason: in.Reason}}}
	for _, side := range in.Sides() {
		s.status.Sides = append(s.status.Sides, protocol.SideStatus{Topic: side.Topic, Partition: *side.Partition})
	}
	if e := in.Earlier; e != nil {
		s.status.Attempt, s.status.LastFailure, s.held, s.in.Earlier = e.Attempts, e.LastFailure, e.Held, nil
	}
	s.of = s
	return s
}

// beginAttempt takes a new swap id, and with it new ids for both sides: ended ones are dead for ever (R7).
func (s *swap) beginAttempt(ctx workflow.Context) {
	s.status.Attempt++
	s.round, s.claimed, s.copied = 0, false, [2]protocol.CopyResult{}
	s.told, s.toldPace = false, nil
	s.status.MoveID = fmt.Sprintf("%s.%d", workflow.GetInfo(ctx).WorkflowExecution.RunID, s.status.Attempt)
	for i, side := range s.in.Sides() {
		s.claims[i] = protocol.Claim{MoveID: protocol.SwapSideID(s.status.MoveID, i), Topic: side.Topic, Partition: *side.Partition}
		s.status.Sides[i].MoveID = s.claims[i].MoveID
	}
}

// enter shows the next phase, and who is part of the swap once that is known.
func (s *swap) enter(ctx workflow.Context, phase string) {
	s.waits, s.waiting = [2]protocol.Progress{}, 0
	var who []temporal.SearchAttributeUpdate
	if phase == protocol.PhaseClaim && s.status.Attempt == 1 {
		who = append(who, topicKey.ValueSet(s.in.A.Topic), partitionKey.ValueSet(int64(*s.in.A.Partition)))
	}
	if phase == protocol.PhaseEnsure {
		for i, claim := range s.claims {
			s.status.Sides[i].From, s.status.Sides[i].To = claim.From, claim.To
		}
		s.status.From, s.status.To = s.claims[0].From, s.claims[0].To
		who = append(who, sourceKey.ValueSet(s.status.From), targetKey.ValueSet(s.status.To))
	}
	s.stage.enter(ctx, phase, who...)
}

func (s *swap) progress(ctx workflow.Context, p protocol.Progress) {
	s.status.Took(p)
	for i := range s.claims {
		if p.MoveID == s.claims[i].MoveID {
			s.waits[i] = p
		}
	}
	s.waiting = 0
	if p.MoveID != "" {
		if s.waits[0].Blocked == "" && s.waits[1].Blocked != "" {
			s.waiting = 1
		}
		p = s.waits[s.waiting]
	}
	if s.held != nil && p.Blocked == "" {
		return // that is what it waits for
	}
	s.blockedNow(ctx, p.Blocked, p.BlockedReason)
}

// hasCopied keeps what one catch-up of a side reached.
func (s *swap) hasCopied(i int, adopted bool) {
	c := &s.copied[i]
	c.Adopted = adopted
	s.status.Sides[i].Converged = &c.Converged
	s.status.Took(protocol.Progress{MoveID: s.claims[i].MoveID, BytesDone: c.BytesTotal, BytesTotal: c.BytesTotal})
}

// unconverged says which copy is not near its tail; "" when both are.
func (s *swap) unconverged() string {
	for i, c := range s.copied {
		if !c.Converged {
			return fmt.Sprintf("the copy of %s on %s does not come near its tail, and a swap freezes nothing before both copies have; lower the write rate or lift the limit", s.in.Sides()[i], s.claims[i].To)
		}
	}
	return ""
}

// tune changes a running swap: what follows uses the new values, and copies that are under way are told at once.
func (s *swap) tune(ctx workflow.Context, t protocol.Tune) (protocol.Status, error) {
	if t.Force != nil {
		s.in.Force = *t.Force
	}
	if t.Limit == nil {
		return s.status, nil
	}
	s.in.Limit = *t.Limit
	if !s.claimed {
		return s.status, nil
	}
	return s.status, s.tunePace(ctx)
}

func (s *swap) pace() protocol.ByteSize { return s.paced(s.in.Limit) }

// setPace tells both copies what they may take now.
func (s *swap) setPace(ctx workflow.Context, pace protocol.ByteSize, within time.Duration) error {
	told := []workflow.Future{setPace(ctx, s.claims[0], pace, within), setPace(ctx, s.claims[1], pace, within)}
	err := told[0].Get(ctx, nil)
	if other := told[1].Get(ctx, nil); err == nil {
		err = other
	}
	return err
}

// adjust takes what the rebalance that started the swap changes of it.
func (s *swap) adjust(ctx workflow.Context, a protocol.Adjust) (tell bool) {
	if a.Limit != nil {
		s.in.Limit = *a.Limit
	}
	return s.adjusted(ctx, a)
}

func (s *swap) step(i int) protocol.StepArgs {
	return protocol.StepArgs{Claim: s.claims[i], Attempt: s.status.Attempt, Input: s.in.MoveTo(i, s.claims[i].To), Round: s.round, PartOfSwap: true}
}

func (s *swap) place() protocol.Place {
	side := s.status.Sides[s.waiting]
	return protocol.Place{Partition: side.String(), From: side.From, To: side.To}
}

func (s *swap) title() string {
	var sides []string
	for _, side := range s.status.Sides {
		sides = append(sides, fmt.Sprintf("**%s**: %s → **%s**", side, orUnknown(side.From), orUnknown(side.To)))
	}
	return "swap " + strings.Join(sides, ", ")
}

func (s *swap) where() string {
	var sides []string
	for i := range s.status.Sides {
		side := &s.status.Sides[i]
		side.IsOn, side.ShouldBeOn = side.From, side.To
		if s.status.Committed {
			side.IsOn = side.To
		} else if s.givenBack() {
			side.ShouldBeOn = side.From
		}
		sides = append(sides, fmt.Sprintf("%s is on **%s** and should be on **%s**", side, orUnknown(side.IsOn), orUnknown(side.ShouldBeOn)))
	}
	s.status.IsOn, s.status.ShouldBeOn = s.status.Sides[0].IsOn, s.status.Sides[0].ShouldBeOn
	return strings.Join(sides, "; ")
}

func (s *swap) toUndo() string { return fmt.Sprintf("swap %s and %s again to undo it", s.in.A, s.in.B) }

func (s *swap) stays() string {
	if s.half != "" {
		return s.half
	}
	return fmt.Sprintf("%s stays on %s and %s on %s", s.in.A, orUnknown(s.status.Sides[0].From), s.in.B, orUnknown(s.status.Sides[1].From))
}

// result gathers what a finished swap reports.
func (s *swap) result(e protocol.SwapEvidence, committed protocol.SwapCommitted, finished [2]protocol.FinishResult) *protocol.SwapResult {
	r := &protocol.SwapResult{SwapID: s.status.MoveID, How: protocol.SwapFull, Attempts: s.status.Attempt, TooLate: s.status.TooLate}
	for i, claim := range s.claims {
		r.Sides[i] = protocol.MoveResult{MoveID: claim.MoveID, Topic: claim.Topic, Partition: claim.Partition, From: claim.From, To: claim.To, Epoch: committed.Epochs[i],
			End: e.Sides[i].InstalledEnd, Bytes: s.copied[i].BytesCopied + e.Sides[i].TailBytes, Converged: s.copied[i].Converged, Adopted: s.copied[i].Adopted,
			FrozenMS: finished[i].FrozenMS, TotalMS: finished[i].TotalMS, Parked: finished[i].Parked, Attempts: s.status.Attempt, WentOn: finished[i].WentOn}
	}
	return r
}
