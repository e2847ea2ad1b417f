package activities

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"

	"portage/internal/window"
	"portage/workflows/protocol"
)

// Window says whether a window is open at a moment, and until when. It asks nobody and changes nothing; it is an activity because
// zones are data of this binary, which another worker may have in another edition.
func (p *Plans) Window(_ context.Context, args protocol.WindowArgs) (protocol.WindowState, error) {
	w, err := CheckWindow(args.Window)
	if err != nil {
		return protocol.WindowState{}, temporal.NewNonRetryableApplicationError(err.Error(), protocol.ErrInvalidInput, nil)
	}
	return protocol.WindowState(w.At(args.Now)), nil
}

// CheckWindow refuses what is no window, every fault named.
func CheckWindow(in protocol.Window) (*window.Window, error) {
	w, err := window.New(in.Cron, time.Duration(in.For), in.Zone)
	if err != nil {
		return nil, fmt.Errorf("the window of the rebalance is wrong: %w", err)
	}
	return w, nil
}
