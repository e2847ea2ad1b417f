//go:build portage_faults

package brokeragent_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/internal/faults/faultstest"
	"portage/metastore"
)

// A source dies before it ever froze. Its copy is promoted: groups must go on where they stood, and a producer that sends a
// batch again must not write it twice.
func TestR3APromotedCopyHasTheGroupsAndTheProducers(t *testing.T) {
	faultstest.Story(t, "R3", func(t *testing.T) string {
		f, b1, b2, orders := agenttest.Pair(t)
		producer := b1.NewProducerID()
		for sequence, value := range []string{"one", "two", "three"} {
			if code, _ := b1.Produce(orders, 0, agenttest.Sequenced(producer, int32(sequence), value)); code != 0 {
				t.Fatalf("code %d", code)
			}
		}
		b1.CommitOffset(orders, 0, "readers", 2)
		m := f.Copied(orders, 0, b2)
		b1.Stop()
		b2.Restart() // what was carried is durable
		if _, err := m.TryPromote(m.Heartbeat()); err != nil {
			t.Fatal(err)
		}
		b2.WaitState(orders, 0, native.StateOpen)
		if code, offset := b2.Produce(orders, 0, agenttest.Sequenced(producer, 2, "three")); code != 0 || offset != 2 {
			return fmt.Sprintf("a batch that was sent again is at offset %d, code %d", offset, code)
		}
		if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one", "two", "three"}) {
			t.Errorf("the new owner has %q", values)
		}
		if code, offset := b2.CommittedOffset(orders, 0, "readers"); code != 0 || offset != 2 {
			return fmt.Sprintf("the group stood at 2 and is found at %d (code %d)", offset, code)
		}
		return ""
	})
}

// What the session has is shown, and says when it is not enough.
func TestR3ACopyThatEndsBeforeWhatItSawIsNotPromoted(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one", "two")
	b1.CommitOffset(orders, 0, "readers", 1)
	m := f.Copied(orders, 0, b2)
	status := m.Session(-1)
	if e := status.Copy; e == nil || !e.SeenSource || e.StagedEnd != 2 || e.HighWatermark != 2 || e.Groups != 1 || e.Missing != "" || e.SnapshotAt.IsZero() {
		t.Fatalf("the session has %+v", status.Copy)
	}
	// The source lists a third record, and dies before it sends it.
	b1.Write(orders, 0, "three")
	b2.Stop()
	saw := agenttest.Must(f.Peers.Listing(t.Context(), b1.URL(), m.Subject()))(t)
	agenttest.WriteJSON(t, filepath.Join(b2.Data, "staging", m.ID, native.SourceFile), saw)
	b1.Stop()
	b2.Boot()
	b2.WaitReady()
	_, err := m.TryInstall()
	if control.CodeOf(err) != control.CodeNotEligible {
		t.Errorf("a copy that lacks a known record: %v", err)
	}
	if e := m.Session(-1).Copy; e == nil || e.StagedEnd != 2 || e.HighWatermark != 3 || e.Missing == "" {
		t.Errorf("the session has %+v", e)
	}
}

// The installed copy survives the death of the destination, and the answer is the same.
func TestR3AnInstalledCopyIsFoundAtBootAndPromoted(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one")
	m := f.Copied(orders, 0, b2)
	b1.Stop()
	first := agenttest.Must(m.TryInstall())(t)
	b2.Restart()
	var again control.PromoteAnswer
	agenttest.Eventually(t, "the installed copy answers", func() (done bool) {
		var err error
		again, err = m.TryInstall()
		return err == nil
	})
	if again.InstalledEnd != first.InstalledEnd || again.Version != first.Version || again.Storage != first.Storage {
		t.Errorf("%+v after %+v", again, first)
	}
	// No drain may take it for the copy of a freeze.
	if _, err := f.Store.CommitOwner(t.Context(), metastore.Commit{MoveID: m.ID, TopicID: orders.ID, From: "b1", To: "b2", Epoch: m.Claimed.Epoch, Version: first.Version + 1}); err == nil {
		t.Error("a commit was taken")
	}
	if _, err := f.Store.ForcePromote(t.Context(), m.Promotion(again, m.Heartbeat())); err != nil {
		t.Fatal(err)
	}
	b2.WaitState(orders, 0, native.StateOpen)
	// The source comes back and sends its clients on.
	b1.Boot()
	b1.WaitReady()
	b1.WaitState(orders, 0, native.StateElsewhere)
	if move := agenttest.Must(f.Store.FindMove(t.Context(), m.ID))(t); !move.Promoted || len(move.Evidence) == 0 {
		t.Errorf("the move is %+v", move)
	}
}
