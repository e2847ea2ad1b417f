package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"portage/internal/operate"
	"portage/workflows/protocol"
)

// line is the move in one line.
func line(v operate.MoveView) string {
	s := v.Status
	var b strings.Builder
	sides := []string{fmt.Sprintf("%s/%d  %s → %s", s.Topic, s.Partition, dash(s.From), s.To)}
	if len(s.Sides) > 0 {
		sides = nil
		for _, side := range s.Sides {
			sides = append(sides, fmt.Sprintf("%s  %s → %s", side, dash(side.From), dash(side.To)))
		}
	}
	fmt.Fprintf(&b, "%s  %s", strings.Join(sides, ", "), s.Phase)
	if s.BytesTotal > 0 {
		fmt.Fprintf(&b, "  %s of %s (%d %%)", protocol.ByteSize(s.BytesDone), protocol.ByteSize(s.BytesTotal), s.BytesDone*100/s.BytesTotal)
		if s.BytesPerSec > 0 && s.Phase == protocol.PhaseCopy {
			fmt.Fprintf(&b, "  %s/s", protocol.ByteSize(s.BytesPerSec))
		}
		if eta, ok := s.ETA(); ok && s.Phase == protocol.PhaseCopy {
			fmt.Fprintf(&b, "  %s left", eta.Round(time.Second))
		}
	}
	if s.Blocked != "" {
		fmt.Fprintf(&b, "  blocked: %s (%s)", s.Blocked, s.BlockedReason)
	} else if v.Retrying != "" && v.Running {
		fmt.Fprintf(&b, "  retrying: %s", v.Retrying)
	} else if !v.Running && !s.Committed && s.LastFailure != "" {
		fmt.Fprintf(&b, "  because %s", s.LastFailure)
	}
	return b.String()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// watch shows a move until it ends: a bar that is redrawn on a terminal, a line a change when piped. Where no worker ever answered, it does not
// wait.
func watch(ctx context.Context, fleet *operate.Fleet, id, run string, asJSON bool) error {
	done := make(chan error, 1)
	var result json.RawMessage
	handle := fleet.Temporal.GetWorkflow(ctx, id, run)
	go func() { done <- handle.Get(ctx, &result) }()
	terminal := term.IsTerminal(int(os.Stdout.Fd())) && !asJSON
	ticker := time.NewTicker(300 * time.Millisecond)
	defer ticker.Stop()
	var last string
	began, heard := time.Now(), false
	for {
		select {
		case err := <-done:
			if terminal && last != "" {
				fmt.Print("\r\033[K")
			}
			if err != nil {
				return operate.MoveOutcome(err)
			}
			if asJSON {
				return printJSON(result)
			}
			return tell(result)
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			view, err := fleet.Look(ctx, id, run)
			if operate.NoWorker(err) && !heard && time.Since(began) >= unheardFor {
				return operate.Queued(err, "it", operate.Started{WorkflowID: id, RunID: run})
			}
			if heard = heard || err == nil; err != nil || asJSON {
				continue
			}
			if terminal {
				fmt.Printf("\r\033[K%s", clip(bar(view), terminalWidth()))
				last = "bar"
			} else if now := line(view); now != last {
				fmt.Println(now)
				last = now
			}
		}
	}
}

// tell says how a Move or a Swap ended.
func tell(raw json.RawMessage) error {
	var result struct {
		protocol.MoveResult
		How   string                `json:"how"`
		Sides []protocol.MoveResult `json:"sides"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return fmt.Errorf("the result can not be read: %w", err)
	}
	if len(result.Sides) == 0 {
		result.Sides = []protocol.MoveResult{result.MoveResult}
	} else if result.How == protocol.SwapFull {
		fmt.Println("changed places together:")
	} else {
		fmt.Println("changed places as two moves, one after the other:")
	}
	for _, m := range result.Sides {
		fmt.Printf("%s/%d moved from %s to %s: %s copied, writes held for %.0f ms\n", m.Topic, m.Partition, m.From, m.To, protocol.ByteSize(m.Bytes), m.FrozenMS)
		if m.WentOn != "" {
			fmt.Println(m.WentOn)
		}
	}
	if result.TooLate != "" {
		fmt.Println(result.TooLate)
	}
	return nil
}

// bar is the line with a bar of the copied part.
func bar(v operate.MoveView) string {
	const width = 24
	filled := 0
	if v.Status.BytesTotal > 0 {
		filled = int(v.Status.BytesDone * width / v.Status.BytesTotal)
	}
	return "[" + strings.Repeat("#", filled) + strings.Repeat(".", width-filled) + "] " + line(v)
}

func terminalWidth() int {
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && width > 10 {
		return width - 1
	}
	return 79
}

func clip(s string, width int) string {
	runes := []rune(s)
	if len(runes) <= width {
		return s
	}
	return string(runes[:width-1]) + "…"
}
