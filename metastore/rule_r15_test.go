//go:build portage_faults

package metastore_test

import (
	"fmt"
	"testing"

	"portage/internal/faults/faultstest"
	"portage/metastore"
)

// Every pass of the same deployment takes the controller epoch again: were it to rise, the moves that an earlier pass has
// started could claim nothing.
func TestR15PassesOfOneControllerDoNotFenceItsMoves(t *testing.T) {
	faultstest.Story(t, "R15", func(t *testing.T) string {
		f := newFixture(t)
		first := f.epoch
		for range 3 {
			epoch, err := f.HoldController(t.Context(), "controller")
			if err != nil {
				t.Fatal(err)
			}
			if epoch != first {
				return fmt.Sprintf("the epoch rose from %d to %d with the same holder, and fences its own moves", first, epoch)
			}
		}
		f.claim("m", "b2")
		return ""
	})
}

// A deployment that was superseded claims nothing more; what it had claimed goes on under its move id.
func TestR15ASupersededControllerClaimsNothingMore(t *testing.T) {
	faultstest.Story(t, "R15", func(t *testing.T) string {
		f := newFixture(t)
		row := f.claim("m1", "b2")
		if _, err := f.HoldController(t.Context(), "another"); err != nil {
			t.Fatal(err)
		}
		if _, err := f.CommitOwner(t.Context(), f.evidence("m1", row)); err != nil {
			t.Errorf("a claimed move is fenced: %v", err)
		}
		_, _, err := f.ClaimMove(t.Context(), f.claimRequest("m2", "b3"))
		if err == nil {
			return "two deployments claim at once"
		} else if _, refused := metastore.RefusedWith(err, metastore.CodeStaleController); !refused {
			t.Error(err)
		}
		return ""
	})
}

// Another deployment takes over in a transaction that is not over when the old one claims: the claim waits for it.
func TestR15AClaimWaitsForATakeover(t *testing.T) {
	f := newFixture(t)
	f.refused(metastore.CodeStaleController, func() error {
		return f.crossing(func() error {
			_, _, err := f.ClaimMove(t.Context(), f.claimRequest("m", "b2"))
			return err
		}, "UPDATE controller SET epoch = epoch + 1, holder = 'another'")
	})
	if row := f.row(); row.Moving() != "" {
		t.Errorf("the claim left %+v", row)
	}
}
