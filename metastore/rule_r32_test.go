//go:build portage_faults

package metastore_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"portage/internal/faults/faultstest"
	"portage/metastore"
)

// One source was restarted after its freeze, so the evidence of its side is stale.
func TestR32ASwapFlipsBothOrNeither(t *testing.T) {
	faultstest.Story(t, "R32", func(t *testing.T) string {
		f := swapFixture(t)
		c := f.swapEvidence("s1", f.claimSwap("s1"))
		payments := f.rowOf("payments")
		if _, err := f.OpenOwner(t.Context(), metastore.OpenRequest{TopicID: payments.TopicID, Broker: "b2", Epoch: payments.Epoch, Storage: f.brokers["b2"].Storage,
			Process: f.brokers["b2"].Process, LogEnd: 100}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.CommitSwap(t.Context(), c); !refusedFor(err, metastore.CodeRowMoved) {
			t.Errorf("the stale side was answered %v", err)
		}
		if owners := f.owners(); owners != "b1 b2" {
			return "the swap is half done: the owners are " + owners
		}
		return ""
	})
}

// The lease of one side ends, and its source takes the swap back.
func TestR32AnAbortOfOneSideEndsTheSwap(t *testing.T) {
	faultstest.Story(t, "R32", func(t *testing.T) string {
		f := swapFixture(t)
		f.claimSwap("s1")
		if _, err := f.AbortMove(t.Context(), metastore.SwapSide("s1", 1), "b2", "the freeze's lease ended"); err != nil {
			t.Fatal(err)
		}
		if f.rowOf("payments").Moving() != "" {
			t.Error("the side that was named still carries its move")
		}
		if orders := f.rowOf("orders"); orders.Moving() != "" {
			return fmt.Sprintf("orders/0 stays frozen for move %s, which can not be committed any more", orders.Moving())
		}
		return ""
	})
}

// Two swaps name the same partitions the other way round, and both wait for the first row.
func TestR32BothRowsAreLockedInOneOrder(t *testing.T) {
	faultstest.Story(t, "R32", func(t *testing.T) string {
		f := swapFixture(t)
		holder, err := f.sql.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := holder.Exec(t.Context(), "SELECT 1 FROM assignments WHERE topic_id = $1 AND partition = 0 FOR UPDATE", f.topic.ID); err != nil {
			t.Fatal(err)
		}
		ask := [2]metastore.SwapRequest{f.swapRequest("s1"), f.swapRequest("s2")}
		ask[1].Sides[0], ask[1].Sides[1] = ask[1].Sides[1], ask[1].Sides[0]
		var errs [2]error
		var group sync.WaitGroup
		for i := range ask {
			group.Go(func() { _, errs[i] = f.ClaimSwap(t.Context(), ask[i]) })
			f.awaitBlocked(i + 1)
		}
		if err := holder.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		group.Wait()
		for _, err := range errs {
			if metastore.IsUnknown(err) {
				return "two swaps waited for each other: " + err.Error()
			}
		}
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("not one of two won: %v, %v", errs[0], errs[1])
		}
		return ""
	})
}

// awaitBlocked waits until so many connections wait for a lock.
func (f *fixture) awaitBlocked(want int) {
	f.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var n int
		if err := f.sql.QueryRow(f.t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n); err != nil {
			f.t.Fatal(err)
		}
		if n >= want {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%d connections wait for a lock, want %d", n, want)
		}
	}
}

// crossing runs a write while another transaction has made a change and not ended yet: the write must wait for it. The answer
// is what the write said once the change was committed.
func (f *fixture) crossing(write func() error, change string, args ...any) error {
	f.t.Helper()
	other, err := f.sql.Begin(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	defer other.Rollback(f.t.Context()) // once it is committed there is nothing to roll back
	if _, err := other.Exec(f.t.Context(), change, args...); err != nil {
		f.t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() { answer <- write() }()
	f.awaitBlocked(1)
	if err := other.Commit(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	return <-answer
}

// The source of one side is gone, and a person tells the copy to become the partition.
func TestR32ASideOfASwapIsNeverPromoted(t *testing.T) {
	faultstest.Story(t, "R32", func(t *testing.T) string {
		f := swapFixture(t)
		claimed := f.claimSwap("s1")
		_, err := f.ForcePromote(t.Context(), f.promotion(claimed[0].Move.ID, claimed[0].Row))
		if owners := f.owners(); owners != "b1 b2" {
			return "the swap is half done: the owners are " + owners
		}
		if !refusedFor(err, metastore.CodePartOfSwap) {
			t.Errorf("the promotion ended with %v", err)
		}
		return ""
	})
}

// A worker that takes a side of a swap for a move can not commit it alone.
func TestR32ASideIsNotCommittedAlone(t *testing.T) {
	faultstest.Story(t, "R32", func(t *testing.T) string {
		f := swapFixture(t)
		c := f.swapEvidence("s1", f.claimSwap("s1"))
		_, err := f.CommitOwner(t.Context(), c.Sides[0])
		if owners := f.owners(); owners != "b1 b2" {
			return "the swap is half done: the owners are " + owners
		}
		if !refusedFor(err, metastore.CodePartOfSwap) {
			t.Errorf("the commit ended with %v", err)
		}
		return ""
	})
}
