//go:build portage_faults

package brokeragent_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/internal/faults/faultstest"
)

// R23: a cancelled move gives back the former copy it had taken over, under the record it had, drained or not.
func TestR23ACancelledMoveGivesTheFormerCopyBack(t *testing.T) {
	for _, drained := range []bool{false, true} {
		t.Run(fmt.Sprintf("drained %v", drained), func(t *testing.T) {
			f, b1, b2, orders := agenttest.Pair(t)
			b1.Write(orders, 0, "one", "two")
			f.Move(orders, 0, b2)
			var before []control.RetainedCopy
			agenttest.Eventually(t, "the former copy is in trash", func() bool { before = keptBy(t, f, b1); return len(before) == 1 })
			back := f.Claim(orders, 0, b1)
			if !back.Ensure().Adopted {
				t.Fatal("the former copy was not taken over")
			}
			back.Copy()
			if drained {
				back.Drain(back.Freeze())
			}
			back.Abort(false)
			agenttest.Eventually(t, "the copy is in trash again", func() bool { return len(keptBy(t, f, b1)) == 1 })
			after := keptBy(t, f, b1)[0]
			if after.ID != before[0].ID || after.Reason != before[0].Reason || !after.At.Equal(before[0].At) || after.End != 2 {
				t.Errorf("it was %+v and is %+v", before[0], after)
			}
			again := f.Claim(orders, 0, b1)
			if !again.Ensure().Adopted {
				t.Error("the next move does not take it over")
			}
		})
	}
}

// A move's row is gone and nobody tells the agents: its staging becomes trash by itself, and the next move takes it over.
// Without that it would lie there for ever, under an id that no retry may use, and everything would be copied again.
func TestR23TheStagingOfAGoneMoveIsTakenOverByTheNext(t *testing.T) {
	faultstest.Story(t, "R23", func(t *testing.T) string {
		f, b1, b2, orders := agenttest.Pair(t)
		b1.Write(orders, 0, "one", "two")
		m := f.Copied(orders, 0, b2)
		if _, err := f.Store.AbortMove(t.Context(), m.ID, "test", ""); err != nil {
			t.Fatal(err)
		}
		if !f.Claim(orders, 0, b2).Ensure().Adopted {
			return fmt.Sprintf("the next move copies everything again, and %d files of the gone one are left", agenttest.Files(filepath.Join(b2.Data, "staging", m.ID)))
		}
		return ""
	})
}

// R23: what a move leaves behind when its row is gone becomes trash, and its pins go: staging, an installed copy, the source's pins.
func TestR23WhatAGoneMoveLeavesBecomesTrash(t *testing.T) {
	for _, installed := range []bool{false, true} {
		t.Run(fmt.Sprintf("installed %v", installed), func(t *testing.T) {
			f, b1, b2, orders := agenttest.Pair(t)
			b1.Write(orders, 0, "one", "two")
			m := f.Copied(orders, 0, b2)
			if installed {
				m.Drain(m.Freeze())
			}
			// Nobody tells the agents.
			if _, err := f.Store.AbortMove(t.Context(), m.ID, "test", ""); err != nil {
				t.Fatal(err)
			}
			agenttest.Eventually(t, "the copy is in trash and judged", func() bool { all := keptBy(t, f, b2); return len(all) == 1 && all[0].Judged && all[0].End == 2 })
			agenttest.Eventually(t, "nothing of the move is left", func() bool {
				status := agenttest.Must(f.Peers.Status(t.Context(), b2.URL()))(t)
				return len(status.Moves) == 0 && status.ReservedBytes == 0 && agenttest.Files(filepath.Join(b2.Data, "staging"))+agenttest.Files(filepath.Join(b2.Data, "sessions")) == 0
			})
			b1.WaitState(orders, 0, native.StateOpen)
			b1.Write(orders, 0, "three")
			next := f.Claim(orders, 0, b2)
			if !next.Ensure().Adopted {
				t.Error("the next move does not take the copy over")
			}
		})
	}
}

// Two copies may come of one that was taken over and given back, with one date: neither is in the other's way.
func TestR23CopiesOfOneDateAreBothKept(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one")
	f.Move(orders, 0, b2)
	agenttest.Eventually(t, "the copy is in trash", func() bool { return len(keptBy(t, f, b1)) == 1 })
	id := keptBy(t, f, b1)[0].ID
	back := f.Copied(orders, 0, b1)
	// What a repeated order left behind, under the name that the copy is to have again.
	agenttest.CopyDir(t, filepath.Join(b1.Data, "staging", back.ID), filepath.Join(b1.Data, "trash", id))
	back.Abort(true)
	b2.WaitState(orders, 0, native.StateOpen)
	f.Move(orders, 0, b1)
}
