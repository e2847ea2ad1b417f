//go:build portage_faults

package brokeragent_test

import (
	"slices"
	"strings"
	"testing"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
)

// A partition leaves while its former owner is down; the owner finds the copy at its next start, retires it, and a move
// back takes it over.
func TestAFormerCopyFoundAtBootIsAdopted(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one", "two")
	m := f.Copied(orders, 0, b2)
	frozen, drained := m.Cutover()
	b1.Stop()
	m.Commit(frozen, drained)
	b1.Boot()
	b1.WaitReady()
	b2.WaitState(orders, 0, native.StateOpen)
	b2.Write(orders, 0, "three")

	back := f.Claim(orders, 0, b1)
	if answer := back.Ensure(); !answer.Adopted {
		t.Errorf("the former copy was not taken over: %+v", answer)
	}
	back.Copy()
	frozen = back.Freeze()
	back.Commit(frozen, back.Drain(frozen))
	back.Confirm()
	if values := b1.Values(orders, 0); !slices.Equal(values, []string{"one", "two", "three"}) {
		t.Errorf("after the way back the partition holds %q", values)
	}
}

// A destination that restarts between drain and abort still knows what it installed, and puts it away.
func TestAnInstalledCopyIsPutAwayAfterARestart(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one")
	m := f.Copied(orders, 0, b2)
	m.Drain(m.Freeze())
	b2.Restart()
	m.Abort(true)
	b1.WaitState(orders, 0, native.StateOpen)
	b1.Write(orders, 0, "two")
	f.Move(orders, 0, b2)
	if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one", "two"}) {
		t.Errorf("the new owner has %q", values)
	}
}

// The destination restarts after the drain, before its answer arrives: the repeat is answered from the installed copy, within
// the same freeze.
func TestADrainRepeatedAfterARestartAnswersFromTheInstalledCopy(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one", "two")
	m := f.Copied(orders, 0, b2)
	frozen := m.Freeze()
	first := m.Drain(frozen)
	b2.Restart()
	again := m.Drain(frozen) // it waits while the agent still looks at what it finds at its start
	if again.InstalledEnd != first.InstalledEnd || again.Version != first.Version || again.Storage != first.Storage {
		t.Errorf("the repeat answers %+v after %+v", again, first)
	}
	m.Commit(frozen, again)
	m.Confirm()
	if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one", "two"}) {
		t.Errorf("the new owner has %q", values)
	}
}

// The destination restarts between commit and opening: it finds the committed row and opens by itself.
func TestADestinationThatRestartsAfterTheCommitOpensByItself(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one", "two")
	m := f.Copied(orders, 0, b2)
	frozen, drained := m.Cutover()
	b2.Stop()
	m.Commit(frozen, drained)
	b1.WaitState(orders, 0, native.StateElsewhere)
	b2.Boot()
	b2.WaitState(orders, 0, native.StateOpen)
	b2.Write(orders, 0, "three")
	if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one", "two", "three"}) {
		t.Errorf("the new owner has %q", values)
	}
}

// A folder whose storage the metastore does not know for this broker: the agent says so and stops.
func TestAnAgentOnUnknownStorageStopsWithAReason(t *testing.T) {
	f := agenttest.New(t)
	b1 := f.Start("b1", native.Limits{})
	b1.Stop()
	b1.Config.Data = t.TempDir()
	b1.Boot()
	if err := b1.Ended(); err == nil || !strings.Contains(err.Error(), "other storage") {
		t.Errorf("it ended with %v", err)
	}
}
