package workflows

import (
	"errors"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"portage/workflows/protocol"
)

// fitsOnlyAsTwoMoves reports whether the swap was refused for too little room and may be done as two moves instead.
func (s *swap) fitsOnlyAsTwoMoves(ctx workflow.Context, err error) bool {
	return s.in.TwoMoves && !s.status.Committed && ctx.Err() == nil && lacksRoom(err)
}

func lacksRoom(err error) bool {
	var failure *temporal.ApplicationError
	var code string
	return errors.As(err, &failure) && failure.Type() == protocol.ErrRefused && failure.HasDetails() && failure.Details(&code) == nil && code == protocol.CodeTooLittleRoom
}

// twoMoves moves one partition and then the other, each as a Move of its own under its partition's workflow id: first one
// that has room where it goes, which makes room for the other. They do not flip together: when the second can not follow, the
// first stays moved, and the error says so.
//
// Whoever dies: each Move goes on as any other. A cancel cancels the one that runs.
func (s *swap) twoMoves(ctx workflow.Context, refused error) (*protocol.SwapResult, error) {
	var failure *temporal.ApplicationError
	if errors.As(refused, &failure) {
		s.status.LastFailure = failure.Message()
	}
	s.status.MoveID = ""
	s.enter(ctx, protocol.PhaseTwoMoves)
	var owners protocol.SwapOwners
	if err := start(ctx, protocol.ActivitySwapOwners, fmt.Sprintf("where %s and %s are", s.in.A, s.in.B), s.in).Get(ctx, &owners); err != nil {
		return nil, err
	}
	result := &protocol.SwapResult{How: protocol.SwapTwoMoves, Attempts: s.status.Attempt}
	first := 0
	err := s.moveSide(ctx, first, owners, &result.Sides[first])
	if lacksRoom(err) && ctx.Err() == nil {
		first = 1
		err = s.moveSide(ctx, first, owners, &result.Sides[first])
	}
	if err != nil {
		return nil, err
	}
	second := 1 - first
	s.half = fmt.Sprintf("half of the swap is done, as two moves: %s is on %s, %s stays on %s; move the one back or the other on", s.in.Sides()[first], owners.Brokers[second],
		s.in.Sides()[second], owners.Brokers[second])
	if err := s.moveSide(ctx, second, owners, &result.Sides[second]); err != nil {
		return nil, temporal.NewNonRetryableApplicationError(fmt.Sprintf("%s (%s)", s.half, reasonOf(err)), protocol.ErrRefused, err)
	}
	return result, nil
}

// moveSide moves one partition to where the other is, or was.
func (s *swap) moveSide(ctx workflow.Context, side int, owners protocol.SwapOwners, result *protocol.MoveResult) error {
	p := s.in.Sides()[side]
	child := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: protocol.PartitionWorkflowID(p.Topic, *p.Partition), WaitForCancellation: true,
		ParentClosePolicy: enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL, // a swap that is terminated leaves no move half done
		StaticSummary:     fmt.Sprintf("move %s to %s, one of two moves", p, owners.Brokers[1-side])})
	in := s.in.MoveTo(side, owners.Brokers[1-side])
	in.OnSourceLoss = "" // a move of its own asks, as any other
	return workflow.ExecuteChildWorkflow(child, protocol.WorkflowMove, in).Get(ctx, result)
}
