//go:build portage_faults

package brokeragent_test

import (
	"fmt"
	"testing"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/internal/faults/faultstest"
)

// The first attempt of a cutover hung in the network; the second one was seen. Then the first one arrives.
func TestR16AnOlderAttemptIsRefused(t *testing.T) {
	faultstest.Story(t, "R16", func(t *testing.T) string {
		f, b1, b2, orders := agenttest.Pair(t)
		m := f.Claim(orders, 0, b2)
		m.Ensure()
		version := f.Row(orders, 0).Version
		m.Attempt = 2
		if _, err := f.Peers.Look(t.Context(), b1.URL(), control.LookRequest{Order: m.Order(control.PhaseCutover)}); err != nil {
			t.Fatal(err)
		}
		m.Attempt = 1
		_, err := m.TryFreeze(version)
		if err == nil {
			return "a left-over attempt froze the partition"
		}
		if control.CodeOf(err) != control.CodeStaleToken {
			t.Errorf("the left-over attempt ended with %v", err)
		}
		return ""
	})
}

// A copy order that hung arrives when the cutover is done: it must not start to write again.
func TestR16AnOlderPhaseIsRefused(t *testing.T) {
	faultstest.Story(t, "R16", func(t *testing.T) string {
		f, b1, b2, orders := agenttest.Pair(t)
		b1.Write(orders, 0, "one")
		m := f.Copied(orders, 0, b2)
		m.Drain(m.Freeze())
		status, err := f.Peers.StartCopy(t.Context(), b2.URL(), control.CopyRequest{Order: m.Order(control.PhaseCopy), SourceURL: b1.URL(), Source: "b1"})
		if err == nil {
			return fmt.Sprintf("a left-over order started a copy beside the installed one: %+v", status)
		}
		if control.CodeOf(err) != control.CodeStaleToken {
			t.Errorf("the left-over order ended with %v", err)
		}
		return ""
	})
}

// Temporal counts attempts anew for each activity, and a run that was reset claims anew. Neither may be taken for older.
func TestR16AttemptsThatRestartAtOneAreAdmitted(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one")
	m := f.Claim(orders, 0, b2)
	m.Attempt = 7
	m.Ensure()
	m.Attempt = 3
	m.Copy()
	m.Attempt = 1
	m.Drain(m.Freeze())
	m.Attempt = 5
	m.Abort(true)
	b1.WaitState(orders, 0, native.StateOpen)
	f.Move(orders, 0, b2) // a new claim, from attempt 1
}

// The epoch is checked beside the token, and is on disk: a restart does not let an older controller in.
func TestR16AControllerThatWasSupersededIsRefused(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 2, b1)
	older := f.Claim(orders, 0, b2) // goes on under whatever epoch, for the row carries it (R15)
	older.Ensure()
	newer := f.Claim(orders, 1, b2)
	newer.ControllerEpoch++
	newer.Ensure()
	b2.Restart() // the epoch is on disk
	fresh := *newer
	fresh.ID = agenttest.ID()
	fresh.ControllerEpoch--
	if _, err := f.Peers.Ensure(t.Context(), b2.URL(), control.EnsureRequest{Order: fresh.Order(control.PhaseEnsure), SourceURL: b1.URL(), Source: "b1"}); control.CodeOf(err) != control.CodeStaleController {
		t.Errorf("a new move under an older controller epoch ended with %v", err)
	}
	older.Ensure()
}
