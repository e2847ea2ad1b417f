//go:build portage_faults

package brokeragent_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/internal/faults/faultstest"
	"portage/metastore"
)

// The worker has lost the reply of its commit, which is still in flight. A read shows the old row; the control call tells
// the source to look; its lease ends. If any of that were taken for proof, the source would confirm records that the
// commit, landing later, leaves behind.
func TestR6ASourceDoesNotThawOnAReadWhileACommitIsInFlight(t *testing.T) {
	faultstest.Story(t, "R6", func(t *testing.T) string {
		f := agenttest.New(t)
		b1, b2 := f.Start("b1", native.Limits{FreezeLease: 300 * time.Millisecond, ParkFor: 400 * time.Millisecond}), f.Start("b2", native.Limits{})
		orders := f.CreateTopic("orders", 1, b1)
		b1.Write(orders, 0, "one")
		m := f.Copied(orders, 0, b2)
		release := f.Hold("SELECT 1 FROM moves WHERE id = $1 FOR UPDATE", m.ID)
		frozen, drained := m.Cutover()
		committed := make(chan error, 1)
		go func() { _, err := m.TryCommit(frozen, drained); committed <- err }()
		f.WaitBlocked("FROM moves WHERE id")
		if row := f.Row(orders, 0); row.Owner != "b1" || row.Moving() != m.ID {
			t.Fatalf("the commit is in flight, but the row shows %+v", row)
		}
		_, err := f.Peers.Look(t.Context(), b1.URL(), control.LookRequest{Order: m.Order(control.PhaseAbort)})
		if err != nil {
			t.Fatal(err)
		}

		// More than a lease of writes.
		confirmed := []string{"one"}
		for i := range 3 {
			value := fmt.Sprintf("late-%d", i)
			if code, _ := b1.Produce(orders, 0, agenttest.Record(value)); code == 0 {
				confirmed = append(confirmed, value)
			}
		}
		release()
		if err := <-committed; err != nil {
			t.Fatal(err)
		}
		b2.WaitState(orders, 0, native.StateOpen)
		if values := b2.Values(orders, 0); !slices.Equal(values, confirmed) {
			return fmt.Sprintf("confirmed were %q, the new owner has %q", confirmed, values)
		}
		b1.WaitState(orders, 0, native.StateElsewhere)
		return ""
	})
}

// A late worker repeats its commit after the partition has moved on: the proof is the move's own row, not the last move.
func TestR6ALateWorkerLearnsThatItsCommitWasDone(t *testing.T) {
	faultstest.Story(t, "R6", func(t *testing.T) string {
		f, b1, b2, orders := agenttest.Pair(t)
		b1.Write(orders, 0, "one")
		m := f.Copied(orders, 0, b2)
		frozen, drained := m.Cutover()
		m.Commit(frozen, drained)
		m.Confirm()
		f.Move(orders, 0, b1)

		before := f.Row(orders, 0)
		_, err := m.TryCommit(frozen, drained)
		if refused, ok := metastore.RefusedWith(err); ok {
			return "the committed move is told that it was not: " + refused.Reason
		}
		if err != nil {
			t.Fatal(err)
		}
		if after := f.Row(orders, 0); after.Version != before.Version || after.Owner != "b1" {
			t.Errorf("the repeat changed the row from %+v to %+v", before, after)
		}
		return ""
	})
}

// The lease ends with no commit in flight: the source wins AbortMove itself, and only then writes again.
func TestR6ASourceThawsByItsOwnGuardedWrite(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{FreezeLease: 200 * time.Millisecond}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	m := f.Claim(orders, 0, b2)
	m.Ensure()
	frozen := m.Freeze()
	b1.WaitState(orders, 0, native.StateOpen)
	move := agenttest.Must(f.Store.FindMove(t.Context(), m.ID))(t)
	if move.Ended() != metastore.OutcomeAborted || *move.OutcomeBy != "b1" {
		t.Errorf("the source is open again while its move is %q by %v", move.Ended(), move.OutcomeBy)
	}
	if row := f.Row(orders, 0); row.Version < frozen.Version+2 {
		t.Errorf("version %d after a freeze at %d: abort and opening each raise it", row.Version, frozen.Version)
	}
	b1.Write(orders, 0, "one")
}
