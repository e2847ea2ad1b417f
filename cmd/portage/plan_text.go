package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"portage/internal/units"
	"portage/planner"
)

// shownActions is how many actions a table has unless all are asked for.
const shownActions = 40

// writePlan tells a plan as a person reads it: what is done and why, what it leads to, what it can not do.
func writePlan(to io.Writer, p *planner.Plan, all bool) error {
	w := tabwriter.NewWriter(to, 0, 4, 2, ' ', 0)
	if p.Held != nil {
		fmt.Fprintf(w, "nothing is planned: %s (%s)\n\n", p.Held.Reason, p.Held.Code)
	}
	if len(p.Actions) > 0 {
		fmt.Fprintln(w, "#\tACTION\tPARTITION\tFROM\tTO\tCOPIES\tFOR\tBECAUSE")
	}
	for n := range p.Actions {
		if n == shownActions && !all {
			fmt.Fprintf(w, "... and %d more; --all lists them\n", len(p.Actions)-n)
			break
		}
		a := &p.Actions[n]
		for i, l := range a.Legs {
			number, kind, goal, reason := fmt.Sprint(n+1), a.Kind, a.Goal, a.Reason
			if i > 0 {
				number, kind, goal, reason = "", "  and", "", ""
			}
			fmt.Fprintf(w, "%s\t%s\t%s/%d\t%s\t%s\t%s\t%s\t%s\n", number, kind, l.Topic, l.Partition, l.From, l.To, units.ByteSize(l.Bytes), goal, reason)
		}
	}
	if len(p.Actions) > 0 {
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, summary(p))
	fmt.Fprintln(w)
	writeBrokers(w, p)
	writeGoals(w, p)
	for i, b := range p.Blocked {
		if i == shownActions && !all {
			fmt.Fprintf(w, "... and %d more; --all lists them\n", len(p.Blocked)-i)
			break
		}
		fmt.Fprintf(w, "%s/%d stays on %s, which is draining: %s (%s)\n", b.Topic, b.Partition, b.Owner, b.Reason, b.Code)
	}
	return w.Flush()
}

// summary is a plan in one line.
func summary(p *planner.Plan) string {
	if len(p.Actions) == 0 {
		return "nothing to move"
	}
	text := fmt.Sprintf("%d partitions move, %s are copied (any plan copies at least %s)", p.Moves(), units.ByteSize(p.BytesMoved), units.ByteSize(p.BytesFloor))
	if p.ETA != nil {
		text += fmt.Sprintf(", in %s at the earliest", time.Duration(*p.ETA).Round(time.Second))
	} else {
		text += "; the limits start none of them"
	}
	if p.Capped {
		text += "; there is more to do than maxActions allows, plan again afterwards"
	}
	return text + "; plan " + p.Hash[:12]
}

func writeBrokers(w io.Writer, p *planner.Plan) {
	fmt.Fprintln(w, "BROKER\tSTATE\tPARTITIONS\tDISK\tIN\tOUT\tMOVES IN/OUT\tROOM AFTER\tSCORE")
	for _, b := range p.Brokers {
		change := func(g planner.Goal) string {
			before, after := amount(g, b.Before.Of(g)), amount(g, b.After.Of(g))
			if before == after {
				return before
			}
			return before + " > " + after
		}
		room := units.ByteSize(b.RoomBytes).String()
		if b.RoomUnknown {
			room = "unknown"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d/%d\t%s\t%.2f > %.2f\n", b.ID, b.State, change(planner.PartitionCount), change(planner.Disk), change(planner.NWIn), change(planner.NWOut),
			b.Inbound, b.Outbound, room, b.Score.Total, b.ScoreAfter)
	}
	fmt.Fprintln(w)
}

func writeGoals(w io.Writer, p *planner.Plan) {
	fmt.Fprintln(w, "GOAL\tMEAN\tBAND\tABOVE IT\tPEAK\tSTATE")
	for _, g := range p.Goals {
		state := "met"
		switch {
		case !g.InEffect:
			state = "not in effect: " + g.WhyNot
		case g.OverAfter > 0:
			state = fmt.Sprintf("%s stay above the band", amount(g.Goal, g.ExcessAfter))
		}
		fmt.Fprintf(w, "%s\t%s\t+%.0f %%\t%d > %d brokers\t%.2f > %.2f\t%s\n", g.Goal, meanOf(g), g.Deviation*100, g.OverBefore, g.OverAfter, g.PeakBefore, g.PeakAfter, state)
	}
	fmt.Fprintln(w)
	for _, g := range p.Goals {
		for _, l := range g.Left {
			fmt.Fprintf(w, "%s stays above its band of %s, at %s of %s: %s\n", l.Broker, g.Goal, amount(g.Goal, l.Load), amount(g.Goal, l.Upper), l.Reason)
		}
	}
}

func amount(g planner.Goal, load int64) string {
	switch g {
	case planner.PartitionCount:
		return fmt.Sprint(load)
	case planner.Disk:
		return units.ByteSize(load).String()
	}
	return units.ByteSize(load).String() + "/s"
}

func meanOf(g planner.GoalReport) string {
	if g.Goal == planner.PartitionCount {
		return fmt.Sprintf("%.1f", g.Mean)
	}
	return amount(g.Goal, int64(g.Mean))
}
