package activities

import (
	"context"
	"time"

	"portage/workflows/protocol"
)

// WentOn is one look at whether a destination that does not answer was left behind.
func (m *Moves) WentOn(ctx context.Context, c protocol.Claim, silence error) (protocol.FinishResult, error) {
	return m.wentOn(ctx, c, silence)
}

// MarkUsedEvery lets running rebalances mark their plans as used so often. No method: those are activities.
func MarkUsedEvery(p *Plans, d time.Duration) { p.usedEvery = d }

// SummaryOf is for tests of what a workflow carries of a plan.
var SummaryOf = summaryOf
