package workflows

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"go.temporal.io/sdk/temporal"

	"portage/workflows/protocol"
)

// nights is open from 01:00 to 05:00 of the clock in Berlin.
func nights() *protocol.Window {
	return &protocol.Window{Cron: "0 1 * * *", For: protocol.Duration(4 * time.Hour), Zone: "Europe/Berlin"}
}

// from lets the test's clock begin at a moment, and does something at others.
func (r *rebalancing) from(begin string) (at func(moment string, do func())) {
	r.t.Helper()
	parse := func(text string) time.Time {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			r.t.Fatal(err)
		}
		return t
	}
	started := parse(begin)
	r.env.SetStartTime(started)
	return func(moment string, do func()) { r.env.RegisterDelayedCallback(do, parse(moment).Sub(started)) }
}

// It waits for its window before it plans, holds what is in flight when that closes, and when it opens again lets that end and
// plans anew. On this night the clock leaps from 02:00 to 03:00: the window closes three hours after it has opened.
func TestRebalanceKeepsToItsWindowOnADayThatSkipsAnHour(t *testing.T) {
	r := newRebalancing(t, moves(20), moves(3))
	r.lasts = 170 * time.Minute
	at := r.from("2026-03-28T18:00:00Z")
	held := func(n int) bool { return len(r.adjusted) == n && r.adjusted[n-1].Held.Paused }
	at("2026-03-28T23:59:00Z", func() {
		s := r.status()
		if len(r.made) != 0 || s.Phase != protocol.PhaseWindow || s.Blocked != protocol.CodeOutsideWindow || !strings.Contains(s.BlockedReason, "which opens at 2026-03-29T01:00:00+01:00") || s.Unblock == "" {
			t.Errorf("before the window it is %+v", s)
		}
	})
	at("2026-03-29T00:01:00Z", func() {
		if s := r.status(); len(r.started) != 8 || s.Blocked != "" || s.Window == nil || s.Window.Until.Format(time.RFC3339) != "2026-03-29T05:00:00+02:00" {
			t.Errorf("in the window it is %+v, %d started", s, len(r.started))
		}
	})
	at("2026-03-29T02:59:00Z", func() { // 04:59: the second eight run since 02:50
		if len(r.adjusted) != 0 || len(r.started) != 16 {
			t.Errorf("a minute before its end %d were told %+v", len(r.started), r.adjusted)
		}
	})
	at("2026-03-29T03:01:00Z", func() {
		if s := r.status(); !held(8) || r.adjusted[0].Held.Code != protocol.CodeOutsideWindow || s.Blocked != protocol.CodeOutsideWindow || !strings.Contains(s.BlockedReason, "2026-03-30T01:00:00+02:00") {
			t.Errorf("after the window it is %+v, the moves were told %+v", s, r.adjusted)
		}
	})
	at("2026-03-29T12:00:00Z", func() {
		if len(r.started) != 16 || len(r.made) != 1 {
			t.Errorf("outside the window %d moves were started, %d plans made", len(r.started), len(r.made))
		}
	})
	result := r.mustRun(protocol.RebalanceInput{Window: nights()})
	if result.Counts.Moved != 19 || result.Plans != 3 { // the four that had not begun were planned anew, as three
		t.Errorf("the report is %+v", result)
	}
}

// What is in flight when the window closes is let go when it opens again. On this night the hour from 02:00 comes twice: the
// window lasts five hours.
func TestRebalanceLetsItsMovesGoWhenTheWindowOpensAgain(t *testing.T) {
	r := newRebalancing(t, moves(8), nil)
	r.lasts = 30 * time.Hour
	at := r.from("2026-10-24T23:00:00Z") // 01:00
	told := func(moment string, n int, paused bool) {
		at(moment, func() {
			if len(r.adjusted) != n || (n > 0 && r.adjusted[n-1].Held.Paused != paused) {
				t.Errorf("at %s the moves were told %+v", moment, r.adjusted)
			}
		})
	}
	told("2026-10-25T03:59:00Z", 0, false) // 04:59
	told("2026-10-25T04:01:00Z", 8, true)
	told("2026-10-25T23:59:00Z", 8, true) // 00:59
	told("2026-10-26T00:01:00Z", 16, false)
	if result := r.mustRun(protocol.RebalanceInput{Window: nights()}); result.Counts.Moved != 8 {
		t.Errorf("the report is %+v", result)
	}
}

// An approved plan waits for the window as it is, and is carried out over several nights as it is. Its approval does not wait.
func TestRebalanceCarriesOutAnApprovedPlanOverSeveralNights(t *testing.T) {
	r := newRebalancing(t, moves(20), moves(3))
	r.lasts = 150 * time.Minute
	at := r.from("2026-01-10T12:00:00Z")
	at("2026-01-10T13:00:00Z", func() {
		if s := r.status(); s.Phase != protocol.PhaseApproval || s.Blocked != protocol.CodeNeedsApproval {
			t.Errorf("it waits as %+v", s)
		}
	})
	r.update(2*time.Hour, protocol.UpdateApprove, protocol.Decide{Hash: "00000000", By: "ops"})
	at("2026-01-10T23:00:00Z", func() {
		if s := r.status(); s.Phase != protocol.PhaseMoving || s.Blocked != protocol.CodeOutsideWindow || len(r.started) != 0 {
			t.Errorf("approved and outside its window it is %+v", s)
		}
	})
	at("2026-01-11T12:00:00Z", func() {
		if len(r.started) != 16 {
			t.Errorf("%d were started in the first night", len(r.started))
		}
	})
	if result := r.mustRun(protocol.RebalanceInput{Approve: true, Window: nights()}); result.Counts.Moved != 20 || result.Plans != 1 {
		t.Errorf("the report is %+v", result)
	}
}

// A pause outlasts the window's opening, and the window the pause's end.
func TestRebalanceIsHeldByItsPauseAndByItsWindow(t *testing.T) {
	r := newRebalancing(t, moves(8), nil)
	r.lasts = 40 * time.Hour
	at := r.from("2026-01-11T00:30:00Z") // 01:30
	blocked := func(moment, code string) {
		at(moment, func() {
			last := r.adjusted[len(r.adjusted)-1].Held
			if s := r.status(); s.Blocked != code || last.Paused != (code != "") || (last.Paused && last.Blocks() != code) {
				t.Errorf("at %s it is blocked by %q, not by %q; the moves were told %+v", moment, s.Blocked, code, last)
			}
		})
	}
	blocked("2026-01-11T05:00:00Z", protocol.CodeOutsideWindow)
	var early *error
	at("2026-01-11T05:30:00Z", func() { early = r.update(0, protocol.UpdateResume, protocol.Decide{By: "ops", Reason: "now"}) })
	at("2026-01-11T06:00:00Z", func() { r.update(0, protocol.UpdatePause, protocol.Decide{By: "ops", Reason: "peak"}) })
	blocked("2026-01-11T06:30:00Z", protocol.CodePaused)
	blocked("2026-01-12T02:00:00Z", protocol.CodePaused)
	at("2026-01-12T06:00:00Z", func() { r.update(0, protocol.UpdateResume, protocol.Decide{By: "ops", Reason: "over"}) })
	blocked("2026-01-12T06:30:00Z", protocol.CodeOutsideWindow)
	if result := r.mustRun(protocol.RebalanceInput{Window: nights()}); result.Counts.Moved != 8 {
		t.Errorf("the report is %+v", result)
	}
	if early == nil || *early == nil || !strings.Contains((*early).Error(), "which opens at") {
		t.Errorf("a resume outside the window was answered %v", early)
	}
}

func TestRebalanceWhoseDeadlinePassesOutsideItsWindowEnds(t *testing.T) {
	r := newRebalancing(t, moves(8))
	r.from("2026-01-11T12:00:00Z")
	deadline := time.Date(2026, 1, 11, 20, 0, 0, 0, time.UTC)
	if result := r.mustRun(protocol.RebalanceInput{Window: nights(), Deadline: &deadline}); len(r.made) != 0 || !strings.Contains(result.Ended, "before its window opened") {
		t.Errorf("the report is %+v", result)
	}
}

// The hours in which the window is closed count: a deadline that can not be met because of them is said early.
func TestRebalanceCountsTheHoursThatItsWindowIsClosed(t *testing.T) {
	r := newRebalancing(t, moves(20))
	r.from("2026-01-11T03:30:00Z") // half an hour before it closes; the plan takes an hour
	deadline := time.Date(2026, 1, 11, 20, 0, 0, 0, time.UTC)
	r.env.RegisterDelayedCallback(func() {
		if s := r.status(); s.ETA == nil || !s.ETA.Equal(time.Date(2026, 1, 12, 0, 30, 0, 0, time.UTC)) || s.Late == "" {
			t.Errorf("it says %+v", s)
		}
		r.env.CancelWorkflow()
	}, time.Second)
	if _, err := r.run(protocol.RebalanceInput{Window: nights(), Deadline: &deadline}); !temporal.IsCanceledError(err) {
		t.Errorf("it ended with %v", err)
	}
}

func TestRebalanceIsCancelledOutsideItsWindow(t *testing.T) {
	for _, begin := range []string{"2026-01-11T12:00:00Z", "2026-01-11T03:30:00Z"} { // waiting for it, and holding moves
		r := newRebalancing(t, moves(3))
		r.lasts = 100 * time.Hour
		r.from(begin)
		r.env.RegisterDelayedCallback(r.env.CancelWorkflow, 2*time.Hour)
		if _, err := r.run(protocol.RebalanceInput{Window: nights()}); !temporal.IsCanceledError(err) || r.running != 0 {
			t.Errorf("it ended with %v, %d run", err, r.running)
		}
	}
}

// A rebalance that goes on in a new run looks at its window there before it starts anything.
func TestRebalanceKeepsToItsWindowInANewRun(t *testing.T) {
	plan := &protocol.PlanSummary{ID: "plan0", Hash: "00000000hash", Actions: 8, Wave: 50, Limits: protocol.PlanLimits{MaxInFlight: 8, TransfersPerBroker: 2}}
	r := newRebalancing(t, moves(8))
	at := r.from("2026-01-11T12:00:00Z")
	at("2026-01-11T23:00:00Z", func() {
		if s := r.status(); len(r.started) != 0 || s.Blocked != protocol.CodeOutsideWindow {
			t.Errorf("it is %+v, %d were started", s, len(r.started))
		}
	})
	result := r.mustRun(protocol.RebalanceInput{Hash: "00000000", Window: nights(), Carried: &protocol.RebalanceCarried{ID: "first", Plan: plan, Plans: 1, Counts: protocol.RebalanceCounts{Moved: 250}}})
	if result.Counts.Moved != 258 || result.Plans != 1 {
		t.Errorf("the report is %+v", result)
	}
}

func TestWindowReadsAsPeopleSayIt(t *testing.T) {
	var said []string
	for _, w := range []protocol.Window{*nights(), {Cron: "0 1 * * *", For: protocol.Duration(90 * time.Minute)}} {
		said = append(said, fmt.Sprint(w))
	}
	if want := []string{"0 1 * * * for 4h, Europe/Berlin", "0 1 * * * for 1h30m, UTC"}; !slices.Equal(said, want) {
		t.Errorf("they read %q", said)
	}
}
