package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"portage/internal/operate"
	"portage/metastore"
	"portage/workflows/protocol"
)

// nowhere is a Temporal that does not answer: what is refused there was refused before it was asked.
var nowhere = []string{"--temporal-address", "127.0.0.1:1"}

// said runs a command and gives its exit code with all it says.
func said(t *testing.T, ctx context.Context, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	stdout, stderr, _ = capture(t, func() error { code = run(ctx, args); return nil })
	return code, stdout, stderr
}

// capture gives what is written while something is done.
func capture(t *testing.T, do func() error) (stdout, stderr string, err error) {
	t.Helper()
	outs, wasOut, wasErr := [2]*os.File{}, os.Stdout, os.Stderr
	for i := range outs {
		f, err := os.CreateTemp(t.TempDir(), "said")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		outs[i] = f
	}
	os.Stdout, os.Stderr = outs[0], outs[1]
	err = do()
	os.Stdout, os.Stderr = wasOut, wasErr
	text := func(f *os.File) string {
		raw, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	return text(outs[0]), text(outs[1]), err
}

func TestARebalanceIsCheckedWholeBeforeItIsStarted(t *testing.T) {
	for _, c := range []struct{ flags, says string }{
		{"--reason x --window-zone Europe/Berlin", "a window needs both"},
		{"--reason x --window-for 4h", "a window needs both"},
		{"--reason x --window * --window-for 4h", "cron"},
		{"--reason x --canary=0", "--canary 0 is no canary"},
		{"--reason x --canary=-1", "--canary -1 is no canary"},
		{"--reason x --soak 1m", "say with --canary"},
		{"--reason x --canary-lag 5", "say with --canary"},
		{"--reason x --canary 21 --canary-lag 5", "at most 20"},
		{"--reason x --deadline 2020-01-01T00:00:00Z", "has passed"},
		{"--dry-run --deadline 2020-01-01T00:00:00Z", "has passed"},
		{"--reason x --max-in-flight=-1", "maxInFlight"},
		{"--reason x --approve zzz", "fewer than 8"},
		{"--reason x --approve 0123456789 --count-only", "exclude each other"},
		{"", "say why with --reason"},
		{"--undo some", "say why with --reason"},
		{"--reason=", "it says nothing"},
		{"--reason=\u2003", "it says nothing"},
	} {
		t.Run(c.flags, func(t *testing.T) {
			args := append([]string{"rebalance"}, strings.Fields(strings.ReplaceAll(c.flags, "\u2003", "\x00"))...)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "\x00", "  ")
			}
			if code, _, stderr := said(t, t.Context(), append(args, nowhere...)...); code != exitUsage || !strings.Contains(stderr, c.says) {
				t.Errorf("exit code %d, and %q does not say %q", code, stderr, c.says)
			}
		})
	}
	// What is right gets as far as Temporal.
	if code, _, stderr := said(t, t.Context(), append([]string{"rebalance", "--reason", "x", "--canary", "1", "--window", "0 1 * * *", "--window-for", "4h"}, nowhere...)...); code != exitUnreachable || !strings.Contains(stderr, "("+operate.CodeTemporalDown+")") {
		t.Errorf("exit code %d: %q", code, stderr)
	}
}

func TestWhatChangesSomethingNeedsAReason(t *testing.T) {
	for _, command := range []string{"rebalance tune --max-in-flight 1", "rebalance pause", "rebalance resume", "rebalance skip orders/1", "rebalance cancel", "swap orders/1 orders/2",
		"cluster decommission b1", "cluster decommission b1 --cancel", "cluster pause", "cluster resume", "broker drain b1", "broker remove b1", "broker set b1 --weight 2"} {
		t.Run(command, func(t *testing.T) {
			args := strings.Fields(command)
			if args[0] == "broker" || args[1] == "pause" && args[0] == "cluster" || args[1] == "resume" && args[0] == "cluster" {
				args = append(args, "--dsn", "postgres://127.0.0.1:1/none")
			} else {
				args = append(args, nowhere...)
			}
			for _, more := range [][]string{nil, {"--reason", " "}} {
				if code, _, stderr := said(t, t.Context(), append(slices.Clone(args), more...)...); code != exitUsage || !strings.Contains(stderr, "--reason") {
					t.Errorf("with %q: exit code %d, %q", more, code, stderr)
				}
			}
		})
	}
}

func TestARefusalIsASentenceWithItsCode(t *testing.T) {
	refused := &metastore.Refused{Write: "SetCapacity", Code: metastore.CodeUnknownBroker, Reason: `there is no broker "b9"`}
	for name, c := range map[string]struct {
		err                 error
		text, code, message string
	}{
		"an order":         {&operate.Error{Kind: operate.Refused, Code: "same_owner", Message: "both are on b1"}, "portage: both are on b1 (same_owner)\n", "same_owner", "both are on b1"},
		"it names it":      {&operate.Error{Kind: operate.Refused, Code: "a", Message: "x (a); y (b)"}, "portage: x (a); y (b)\n", "a", "x (a); y (b)"},
		"the metastore":    {refused, "portage: there is no broker \"b9\" (unknown_broker)\n", "unknown_broker", `there is no broker "b9"`},
		"a command line":   {&exitError{exitUsage, errors.New("give one")}, "portage: give one\n", "usage", "give one"},
		"something silent": {unreachable(errors.New("b1 is silent")), "portage: b1 is silent (unreachable)\n", "unreachable", "b1 is silent"},
		"anything":         {errors.New("broken"), "portage: broken\n", "failed", "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			var text, asJSON bytes.Buffer
			complain(&text, c.err, false)
			complain(&asJSON, c.err, true)
			var said struct {
				Error struct{ Code, Message string }
			}
			if err := json.Unmarshal(asJSON.Bytes(), &said); err != nil {
				t.Fatal(err)
			}
			if text.String() != c.text || said.Error.Code != c.code || said.Error.Message != c.message {
				t.Errorf("%q and %s", text.String(), &asJSON)
			}
		})
	}
	if _, stdout, stderr := said(t, t.Context(), append([]string{"rebalance", "status", "--json"}, nowhere...)...); stdout != "" || !strings.HasPrefix(stderr, `{"error":{"code":"temporal_unreachable"`) {
		t.Errorf("with --json it says %q and %q", stdout, stderr)
	}
}

func TestAnInterruptedWaitIsNothingElse(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code, _, stderr := said(t, ctx, append([]string{"rebalance", "status"}, nowhere...)...); code != exitInterrupted || stderr != "" {
		t.Errorf("interrupted, it exits with %d and says %q", code, stderr)
	}
}

func TestTheStatusSaysWhatWaitsAndUntilWhen(t *testing.T) {
	at := time.Date(2026, 11, 30, 4, 0, 0, 0, time.UTC)
	s := protocol.RebalanceStatus{ID: "r", Phase: protocol.PhaseMoving, Since: at, Waiting: 3, Next: 10, Plan: &protocol.PlanSummary{Actions: 15, Left: []string{"b1 stays above its band of DISK: it cools"}, LeftCount: 2},
		Limits: protocol.PlanLimits{MaxInFlight: 8, TransfersPerBroker: 2, MoveRate: 1 << 20}, Paused: &protocol.Pause{Paused: true, By: "ops"}, ETA: &at, Deadline: &at, Late: "it takes longer"}
	text := rebalanceText(s)
	for _, words := range []string{"paused by ops (moving)", "8 waiting", "8 moves in flight in the fleet, 2 copies a broker gives and takes, 1.0 MiB/s of a move, no limit of a broker", "done at about 2026-11-30T04:00:00Z", "deadline: 2026-11-30T04:00:00Z",
		"late: it takes longer", "b1 stays above its band", "and 1 more"} {
		if !strings.Contains(text, words) {
			t.Errorf("it does not say %q:\n%s", words, text)
		}
	}
	ended := rebalanceText(protocol.RebalanceStatus{Phase: protocol.PhaseTerminated, Ended: "the rebalance was terminated (ops: in the way)"})
	if !strings.HasPrefix(ended, "terminated since") || !strings.Contains(ended, "in the way") || strings.Contains(ended, "waiting") {
		t.Errorf("of one that was terminated it says\n%s", ended)
	}
}

func TestWhatIsWaitedForTellsEachChangeOnce(t *testing.T) {
	lines := []string{"", "shedding: 0 moved", "shedding: 0 moved", "shedding: 0 moved; waits: b1 does not answer (broker_dead)"}
	said := make(chan struct{})
	n := 0
	stdout, stderr, err := capture(t, func() error {
		return follow(t.Context(), func(context.Context) error { <-said; return nil }, func(context.Context) (string, error) {
			line := lines[min(n, len(lines)-1)]
			if n++; n == len(lines)+1 {
				close(said)
			}
			return line, nil
		})
	})
	if want := lines[1] + "\n" + lines[3] + "\n"; err != nil || stderr != want || stdout != "" {
		t.Errorf("it tells %q, and on stdout %q", stderr, stdout)
	}
	d := protocol.DecommissionStatus{Phase: protocol.PhaseShedding, Blocked: "broker_dead", BlockedReason: "b1 does not answer"}
	shed := &protocol.RebalanceStatus{InFlight: []string{"orders/1 b1 → b2"}, Blocked: d.Blocked, BlockedReason: d.BlockedReason}
	if line := decommissionLine(d, shed); strings.Count(line, "b1 does not answer (broker_dead)") != 1 || !strings.Contains(line, "orders/1 b1 → b2") {
		t.Errorf("the line is %q", line)
	}
}

func TestNothingIsOfferedForUndoThatMovedNothing(t *testing.T) {
	for moved, want := range map[int]bool{0: false, 2: true} {
		stdout, _, _ := capture(t, func() error {
			printReport(protocol.RebalanceResult{ID: "r", Ended: "there was nothing to do", Counts: protocol.RebalanceCounts{Moved: moved}})
			return nil
		})
		if strings.Contains(stdout, "undo:") != want {
			t.Errorf("after %d moved it says %q", moved, stdout)
		}
	}
}
