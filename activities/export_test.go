package activities

import (
	"context"

	"portage/workflows/protocol"
)

// WentOn is one look at whether a destination that does not answer was left behind.
func (m *Moves) WentOn(ctx context.Context, c protocol.Claim, silence error) (protocol.FinishResult, error) {
	return m.wentOn(ctx, c, silence)
}
