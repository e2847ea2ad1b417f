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

// A lease ends and takes the move back; the source confirms more records; the workflow retries under the same move id and
// the destination, which did not hear of the abort, answers from the copy it had installed.
func TestR7MoveIDEndsWithItsAbort(t *testing.T) {
	faultstest.Story(t, "R7", func(t *testing.T) string {
		f := agenttest.New(t)
		b1, b2 := f.Start("b1", native.Limits{FreezeLease: 300 * time.Millisecond}), f.Start("b2", native.Limits{})
		orders := f.CreateTopic("orders", 1, b1)
		b1.Write(orders, 0, "one", "two")
		m := f.Copied(orders, 0, b2)
		frozen := m.Freeze()
		m.Drain(frozen)
		b2.Metastore.Cut()
		b1.WaitState(orders, 0, native.StateOpen) // the lease ended in AbortMove
		b1.Write(orders, 0, "three", "four")

		again, err := f.TryClaim(m.ID, orders, 0, b2)
		if _, refused := metastore.RefusedWith(err, metastore.CodeMoveEnded); refused {
			return ""
		}
		if err != nil {
			t.Fatal(err)
		}
		b2.Metastore.Mend()
		agenttest.Eventually(t, "b2 has read the row again", func() bool { return b2.Partition(orders, 0).Version == again.Claimed.Version })
		frozen = again.Freeze()
		again.Commit(frozen, again.Drain(frozen))
		b2.WaitState(orders, 0, native.StateOpen)
		if values := b2.Values(orders, 0); len(values) != 4 {
			return fmt.Sprintf("four records were confirmed, the new owner has %q", values)
		}
		return ""
	})
}

// The same worker, slower: it commits with the evidence of the freeze whose lease has ended.
func TestR7EvidenceOfAnAbortedFreezeIsRefused(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{FreezeLease: 300 * time.Millisecond}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one", "two")
	m := f.Copied(orders, 0, b2)
	frozen, drained := m.Cutover()
	b1.WaitState(orders, 0, native.StateOpen)
	b1.Write(orders, 0, "three")
	if _, err := m.TryCommit(frozen, drained); !refusedWith(err, metastore.CodeMoveEnded) {
		t.Errorf("the commit of an aborted move ended with %v", err)
	}
	if _, err := m.TryFreeze(f.Row(orders, 0).Version); control.CodeOf(err) != control.CodeRowMoved {
		t.Errorf("a freeze for an aborted move ended with %v", err)
	}
	// A new claim takes over what was copied, and carries everything.
	f.Move(orders, 0, b2)
	if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one", "two", "three"}) {
		t.Errorf("the new owner has %q", values)
	}
}

// The source restarts under a claim: its opening raises the version. The freeze that follows has another version, and what
// was installed for the former one does not answer for it.
func TestR7ACopyInstalledForAnOlderVersionIsDrainedAgain(t *testing.T) {
	faultstest.Story(t, "R7", func(t *testing.T) string {
		f, b1, b2, orders := agenttest.Pair(t)
		b1.Write(orders, 0, "one")
		m := f.Copied(orders, 0, b2)
		first := m.Freeze()
		older := m.Drain(first)
		b1.Restart()
		b1.Write(orders, 0, "two")
		second := m.Freeze()
		if second.Version <= first.Version || second.FrozenEnd != 2 {
			t.Fatalf("the second freeze answers %+v after %+v", second, first)
		}
		if _, err := m.TryCommit(first, older); !refusedWith(err, metastore.CodeRowMoved) && err != nil {
			t.Errorf("the commit of the first freeze ended with %v", err)
		} else if err == nil {
			return "the commit of a freeze that died with its process was done"
		}
		if _, err := m.TryCommit(second, older); !refusedWith(err, metastore.CodeEndsDiffer) {
			t.Errorf("the commit of the second freeze with the first copy ended with %v", err)
		}
		m.Commit(second, m.Drain(second))
		b2.WaitState(orders, 0, native.StateOpen)
		if values := b2.Values(orders, 0); len(values) != 2 {
			return fmt.Sprintf("two records were confirmed, the new owner has %q", values)
		}
		return ""
	})
}

func refusedWith(err error, code string) bool {
	_, ok := metastore.RefusedWith(err, code)
	return ok
}
