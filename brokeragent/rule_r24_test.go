//go:build portage_faults

package brokeragent_test

import (
	"fmt"
	"testing"

	"portage/brokeragent/agenttest"
	"portage/internal/faults/faultstest"
)

// A group stood at 3 when the partition left; at the new owner an operator rewinds it to 0; the move back takes over the
// former copy, whose table still says 3.
func TestR24ARewindSurvivesTheWayBack(t *testing.T) {
	faultstest.Story(t, "R24", func(t *testing.T) string {
		f, b1, b2, orders := agenttest.Pair(t)
		b1.Write(orders, 0, "one", "two", "three")
		commit := func(a *agenttest.Agent, group string, offset int64) {
			t.Helper()
			if code := a.CommitOffset(orders, 0, group, offset); code != 0 {
				t.Fatalf("committing %s at %d: code %d", group, offset, code)
			}
		}
		commit(b1, "readers", 3)
		commit(b1, "others", 1)
		f.Move(orders, 0, b2)
		if code, offset := b2.CommittedOffset(orders, 0, "readers"); code != 0 || offset != 3 {
			t.Fatalf("the new owner has the group at %d, code %d", offset, code)
		}
		commit(b2, "readers", 0)
		commit(b2, "late", 2)

		back := f.Claim(orders, 0, b1)
		if answer := back.Ensure(); !answer.Adopted {
			t.Fatalf("the former copy was not taken over: %+v", answer)
		}
		back.Copy()
		frozen := back.Freeze()
		back.Commit(frozen, back.Drain(frozen))
		back.Confirm()
		for group, want := range map[string]int64{"readers": 0, "others": 1, "late": 2} {
			if code, offset := b1.CommittedOffset(orders, 0, group); code != 0 || offset != want {
				return fmt.Sprintf("group %s was left at %d and is found at %d (code %d)", group, want, offset, code)
			}
		}
		return ""
	})
}
