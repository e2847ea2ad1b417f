package inspect

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"portage/brokeragent/control"
	"portage/metastore"
	"portage/workflows/protocol"
)

// Write tells the explanation to people. Ages are relative to now.
func (x *Explanation) Write(out io.Writer, now time.Time) error {
	var b strings.Builder
	b.WriteString(x.headline() + "\n")
	x.whatBlocks(&b, now)
	x.whereItIs(&b, now)
	x.whereItShouldBe(&b, now)
	x.whatHappened(&b, now)
	if len(x.NotAsked) > 0 {
		b.WriteString("\ncould not ask\n")
		for _, n := range x.NotAsked {
			fmt.Fprintf(&b, "  %s\n", n)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// headline is the whole in one line.
func (x *Explanation) headline() string {
	var line string
	switch {
	case x.Row == nil && x.Move == nil:
		line = x.Partition + ": the metastore does not answer, so nobody can say where it is"
	case x.Row == nil:
		line = fmt.Sprintf("%s is moving to %s; where it is, the metastore would say", x.Partition, x.Move.To)
	case x.Move != nil && x.Should != x.Row.Owner:
		line = fmt.Sprintf("%s is on %s and should be on %s", x.Partition, x.Row.Owner, x.Should)
	default:
		line = fmt.Sprintf("%s is on %s, where it should be", x.Partition, x.Row.Owner)
	}
	if len(x.Blocked) == 0 {
		return line
	}
	return line + "; " + x.Blocked[0].Code
}

func (x *Explanation) whatBlocks(b *strings.Builder, now time.Time) {
	for _, blocked := range x.Blocked {
		fmt.Fprintf(b, "\nblocked: %s", blocked.Code)
		if blocked.Since != nil {
			fmt.Fprintf(b, ", since %s", since(*blocked.Since, now))
		}
		fmt.Fprintf(b, "\n  it means    %s\n", blocked.Means)
		if blocked.Reason != "" {
			fmt.Fprintf(b, "  seen        %s\n", blocked.Reason)
		}
		fmt.Fprintf(b, "  to unblock  %s\n", blocked.Unblock)
	}
}

func (x *Explanation) whereItIs(b *strings.Builder, now time.Time) {
	if x.Row == nil {
		return
	}
	b.WriteString("\nwhere it is\n")
	w := tabwriter.NewWriter(b, 0, 4, 2, ' ', 0)
	claim := "no claim"
	if id := x.Row.Moving(); id != "" {
		claim = "claimed by move " + id
	}
	fmt.Fprintf(w, "  row\towner %s, epoch %d, version %d, %s, %s\n", x.Row.Owner, x.Row.Epoch, x.Row.Version, x.Row.State, claim)
	for _, a := range x.Agents {
		fmt.Fprintf(w, "  %s\t%s\n", a.Broker, a.line(now))
	}
	_ = w.Flush() // into memory
}

// line is what one agent says of the partition.
func (a AgentView) line(now time.Time) string {
	var parts []string
	switch s := a.Status; {
	case a.Error != "":
		parts = append(parts, "does not answer")
	case s == nil && a.Session == nil:
		parts = append(parts, "has nothing of it")
	case s != nil:
		state := s.State
		if s.Reason != "" {
			state += " (" + s.Reason + ")"
		}
		parts = append(parts, state+" since "+since(s.Since, now))
		if s.State != "elsewhere" {
			parts = append(parts, fmt.Sprintf("epoch %d, version %d", s.Epoch, s.Version))
		}
		if s.End > 0 || s.Bytes > 0 {
			parts = append(parts, fmt.Sprintf("offsets %d to %d, %s", s.Start, s.End, protocol.ByteSize(s.Bytes)))
		}
		if s.Parked > 0 {
			parts = append(parts, fmt.Sprintf("%d requests parked", s.Parked))
		}
	}
	if a.Session != nil {
		parts = append(parts, copyLine(a.Session))
	}
	return strings.Join(parts, ", ")
}

func copyLine(s *control.SessionStatus) string {
	if s.Installed {
		return "holds the installed copy"
	}
	line := fmt.Sprintf("a copy is %s, %s of %s", s.State, protocol.ByteSize(s.BytesDone), protocol.ByteSize(s.BytesTotal))
	if s.Blocked != "" {
		line += fmt.Sprintf(", %s: %s", s.Blocked, s.BlockedReason)
	}
	return line
}

func (x *Explanation) whereItShouldBe(b *strings.Builder, now time.Time) {
	if x.Should == "" && x.Move == nil {
		return
	}
	fmt.Fprintf(b, "\nwhere it should be\n  %s: %s\n", orQuestion(x.Should), x.Why)
	m := x.Move
	if m == nil {
		return
	}
	w := tabwriter.NewWriter(b, 0, 4, 2, ' ', 0)
	defer w.Flush() // into memory
	fmt.Fprintf(w, "  asked for by\t%s\n", orQuestion(m.By))
	if m.Reason != "" {
		fmt.Fprintf(w, "  reason\t%s\n", m.Reason)
	}
	fmt.Fprintf(w, "  workflow\t%s (%s), %s\n", m.WorkflowID, m.RunID, m.Workflow)
	if s := m.Status; s != nil {
		fmt.Fprintf(w, "  phase\t%s since %s, attempt %d%s\n", s.Phase, since(s.Since, now), s.Attempt, progress(s))
		if s.LastFailure != "" {
			fmt.Fprintf(w, "  last failure\t%s\n", s.LastFailure)
		}
	}
	for _, p := range m.Pending {
		fmt.Fprintf(w, "  step %s\t%s, attempt %d", p.Type, p.State, p.Attempt)
		if p.NextAt != nil && p.NextAt.After(now) {
			fmt.Fprintf(w, ", next in %s", p.NextAt.Sub(now).Round(time.Second))
		}
		if p.LastFailure != "" {
			fmt.Fprintf(w, ", last failure: %s", p.LastFailure)
		}
		fmt.Fprintln(w)
	}
}

func progress(s *protocol.Status) string {
	if s.BytesTotal == 0 {
		return ""
	}
	text := fmt.Sprintf(", %s of %s", protocol.ByteSize(s.BytesDone), protocol.ByteSize(s.BytesTotal))
	if s.BytesPerSec > 0 {
		text += fmt.Sprintf(" at %s/s", protocol.ByteSize(s.BytesPerSec))
	}
	if eta, ok := s.ETA(); ok {
		text += fmt.Sprintf(", about %s left", eta.Round(time.Second))
	}
	return text
}

func (x *Explanation) whatHappened(b *strings.Builder, now time.Time) {
	w := tabwriter.NewWriter(b, 0, 4, 2, ' ', 0)
	if len(x.Moves) > 0 {
		fmt.Fprint(w, "\nlast moves\n")
		for _, m := range x.Moves {
			fmt.Fprintf(w, "  %s\t%s → %s\t%s\t%s\n", since(m.StartedAt, now), m.FromBroker, m.ToBroker, ending(m), m.ID)
		}
	}
	if len(x.Audit) > 0 {
		fmt.Fprint(w, "\naudit\n")
		for _, a := range x.Audit {
			fmt.Fprintf(w, "  %s\t%s\tby %s\t%s\n", since(a.At, now), a.Action, a.Actor, a.Reason)
		}
	}
	_ = w.Flush() // into memory
}

// ending is how a move ended, or where it is.
func ending(m metastore.Move) string {
	text := m.Phase
	if m.OutcomeReason != nil && *m.OutcomeReason != "" {
		text += ": " + *m.OutcomeReason
	}
	if m.FrozenMS != nil {
		text += fmt.Sprintf(", writes held for %.0f ms", *m.FrozenMS)
	}
	return text
}

// since is a time of day in UTC with its age.
func since(t, now time.Time) string {
	return fmt.Sprintf("%s (%s ago)", t.UTC().Format("2006-01-02T15:04:05Z"), max(0, now.Sub(t)).Round(time.Second))
}

func orQuestion(s string) string {
	if s == "" {
		return "?"
	}
	return s
}
