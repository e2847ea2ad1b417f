package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"portage/internal/operate"
	"portage/workflows/protocol"
)

type rebalanceStatusCmd struct {
	temporalFlags
	outputFlags
}

// Run shows the fleet's rebalance.
func (c *rebalanceStatusCmd) Run(ctx context.Context) error {
	fleet, stop, err := c.fleet(ctx)
	if err != nil {
		return err
	}
	defer stop()
	s, err := fleet.RebalanceStatus(ctx)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s)
	}
	fmt.Print(rebalanceText(s))
	return nil
}

// phaseOf is the phase as people see it: what is paused does not do what its phase says.
func phaseOf(s protocol.RebalanceStatus) string {
	switch p := s.Paused; {
	case p == nil || p.Code != "" || s.Phase == protocol.PhaseReport || s.Phase == protocol.PhaseCancelled:
		return s.Phase
	case p.By != "":
		return fmt.Sprintf("paused by %s (%s)", p.By, s.Phase)
	}
	return fmt.Sprintf("paused (%s)", s.Phase)
}

// countsOf are how its actions ended so far.
func countsOf(s protocol.RebalanceStatus) string {
	text := fmt.Sprintf("%d moved (%s), %d failed, %d held, %d skipped", s.Counts.Moved, protocol.ByteSize(s.Counts.Bytes), s.Counts.Failed, s.Counts.Held, s.Counts.Skipped)
	if s.Counts.Cancelled > 0 {
		text += fmt.Sprintf(", %d cancelled", s.Counts.Cancelled)
	}
	return text
}

// left is how many of the plan's actions have not begun.
func left(s protocol.RebalanceStatus) int {
	if s.Plan == nil {
		return s.Waiting
	}
	return s.Waiting + max(0, s.Plan.Actions-s.Next)
}

// rebalanceText is the whole status.
func rebalanceText(s protocol.RebalanceStatus) string {
	over := s.Phase == protocol.PhaseReport || s.Phase == protocol.PhaseCancelled || s.Ended != ""
	var b strings.Builder
	fmt.Fprintf(&b, "%s since %s: %s, %d in flight", phaseOf(s), s.Since.Format(time.RFC3339), countsOf(s), len(s.InFlight))
	if !over {
		fmt.Fprintf(&b, ", %d waiting", left(s))
	}
	fmt.Fprintf(&b, "\nid %s\n", s.ID)
	if s.Ended != "" {
		fmt.Fprintf(&b, "%s\n", s.Ended)
	}
	if s.By != "" || s.Reason != "" {
		fmt.Fprintf(&b, "asked for by %s: %s\n", dash(s.By), dash(s.Reason))
	}
	for _, line := range s.InFlight {
		fmt.Fprintln(&b, "in flight:", line)
	}
	for _, trouble := range s.Troubles {
		fmt.Fprintln(&b, trouble)
	}
	if s.Blocked != "" {
		fmt.Fprintf(&b, "blocked (%s): %s\n%s\n", s.Blocked, s.BlockedReason, s.Unblock)
	}
	if s.Window != nil && s.Window.Open {
		fmt.Fprintln(&b, "its window closes at", s.Window.Until.Format(time.RFC3339))
	}
	if !over {
		if s.Plan != nil {
			fmt.Fprintln(&b, "limits:", limitsText(s.Limits))
		}
		if s.ETA != nil && s.Plan != nil && s.Plan.Actions > 0 {
			fmt.Fprintln(&b, "it is done at about", s.ETA.Format(time.RFC3339))
		}
	}
	if s.Deadline != nil {
		fmt.Fprintln(&b, "deadline:", s.Deadline.Format(time.RFC3339))
	}
	if s.Late != "" {
		fmt.Fprintln(&b, "late:", s.Late)
	}
	b.WriteString(leftText(s.Plan))
	return b.String()
}

// limitsText are limits in force.
func limitsText(l protocol.PlanLimits) string {
	rate := func(r protocol.ByteSize) string {
		if r == 0 {
			return "no limit"
		}
		return r.String() + "/s"
	}
	return fmt.Sprintf("%d moves in flight in the fleet, %d copies a broker gives and takes, %s of a move, %s of a broker", l.MaxInFlight, l.TransfersPerBroker, rate(l.MoveRate), rate(l.BrokerRate))
}

// leftText says which brokers stay above their bands although a plan was made.
func leftText(p *protocol.PlanSummary) string {
	if p == nil {
		return ""
	}
	var b strings.Builder
	for _, line := range p.Left {
		fmt.Fprintln(&b, line)
	}
	if more := p.LeftCount - len(p.Left); more > 0 {
		fmt.Fprintf(&b, "and %d more; `portage plan` names all\n", more)
	}
	return b.String()
}

func printLeft(p *protocol.PlanSummary) { fmt.Print(leftText(p)) }

// printReport tells how a rebalance ended.
func printReport(r protocol.RebalanceResult) {
	for _, trouble := range r.Troubles {
		fmt.Println(trouble)
	}
	for _, b := range r.Blocked {
		fmt.Printf("%s/%d can not leave %s: %s\n", b.Topic, b.Partition, b.Owner, b.Reason)
	}
	fmt.Printf("%s: %d moved (%s), %d failed, %d held, %d skipped, in %d plans\n", r.Ended, r.Counts.Moved, protocol.ByteSize(r.Counts.Bytes), r.Counts.Failed, r.Counts.Held, r.Counts.Skipped, r.Plans)
	if r.Counts.Moved > 0 {
		fmt.Printf("undo: portage rebalance --undo %s --reason TEXT\n", r.ID)
	}
}

func printPlan(p *protocol.PlanSummary) {
	if p == nil {
		return
	}
	for _, line := range p.Text {
		fmt.Println(line)
	}
	if p.Held != nil {
		fmt.Println("held:", p.Held.Reason)
	}
	for _, b := range p.Blocked {
		fmt.Printf("%s/%d can not leave %s: %s\n", b.Topic, b.Partition, b.Owner, b.Reason)
	}
	printLeft(p)
	fmt.Printf("plan %s: %d moves, %s to copy, at least %s\nhash %s\n", p.ID, p.Moves, protocol.ByteSize(p.Bytes), time.Duration(p.ETA).Round(time.Second), p.Hash)
}

// rebalanceLine is what of a rebalance is worth a line once it changes.
func rebalanceLine(s protocol.RebalanceStatus) string {
	if s.Phase == "" {
		return ""
	}
	text := phaseOf(s) + ": " + countsOf(s)
	if len(s.InFlight) > 0 {
		text += "; in flight: " + some(s.InFlight)
	}
	if s.Blocked != "" {
		text += fmt.Sprintf("; blocked: %s (%s)", s.BlockedReason, s.Blocked)
	}
	if s.Ended != "" {
		text += "; " + s.Ended
	}
	return text
}

// decommissionLine is the same of a decommission, and of the rebalance that empties the broker.
func decommissionLine(d protocol.DecommissionStatus, shed *protocol.RebalanceStatus) string {
	if d.Phase == "" {
		return ""
	}
	counts := d.Counts
	var more string
	if shed != nil {
		counts.Moved += shed.Counts.Moved
		counts.Bytes += shed.Counts.Bytes
		counts.Failed += shed.Counts.Failed
		if len(shed.InFlight) > 0 {
			more += "; in flight: " + some(shed.InFlight)
		}
		if shed.Blocked != "" && shed.Blocked != d.Blocked { // else it is said already
			more += fmt.Sprintf("; blocked: %s (%s)", shed.BlockedReason, shed.Blocked)
		}
		if n := len(shed.Troubles); n > 0 {
			more += "; " + shed.Troubles[n-1].String()
		}
	}
	text := fmt.Sprintf("%s: %d moved (%s), %d failed", d.Phase, counts.Moved, protocol.ByteSize(counts.Bytes), counts.Failed)
	if d.Blocked != "" || d.BlockedReason != "" {
		text += fmt.Sprintf("; waits: %s (%s)", d.BlockedReason, dash(d.Blocked))
	}
	return text + more
}

// some names a few of many.
func some(lines []string) string {
	const named = 4
	if len(lines) <= named {
		return strings.Join(lines, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(lines[:named], ", "), len(lines)-named)
}

// followEvery is how often something is looked at that is waited for.
const followEvery = time.Second

// unheardFor is how long a worker may take to take up what was started.
const unheardFor = 10 * time.Second

// follow waits for the end of something, and tells on stderr what changes meanwhile; that no worker answers, too. Where none ever did, it does
// not wait.
func follow(ctx context.Context, end func(context.Context) error, look func(context.Context) (string, error)) error {
	waiting, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	ended := make(chan struct{})
	go func() { defer close(ended); done <- end(waiting) }()
	defer func() { stop(); <-ended }()
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	var last string
	began, heard := time.Now(), false
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			line, err := look(waiting)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err == nil:
				heard = true
			case operate.NoWorker(err) && !heard && time.Since(began) < unheardFor:
				line = ""
			case operate.NoWorker(err) && !heard:
				return err
			default:
				line = err.Error()
			}
			if line != "" && line != last {
				fmt.Fprintln(os.Stderr, line)
				last = line
			}
		}
	}
}
