//go:build portage_faults

package brokeragent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/control"
	"portage/internal/faults/faultstest"
)

// crash takes an agent back to the folder that a backup holds, as a crash does that loses what was never durable.
func crash(t *testing.T, a *agenttest.Agent, backup string) {
	t.Helper()
	a.Stop()
	if err := os.RemoveAll(a.Data); err != nil {
		t.Fatal(err)
	}
	agenttest.CopyDir(t, backup, a.Data)
	a.Boot()
	a.WaitReady()
}

func backup(t *testing.T, a *agenttest.Agent) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "backup")
	agenttest.CopyDir(t, a.Data, dir)
	return dir
}

// The destination has copied bytes that the source then lost in a crash; the source has written others in their place, as
// many and more. The destination must not resume them for ever.
func TestR25ACopyOfLostBytesIsTruncatedAndConverges(t *testing.T) {
	faultstest.Story(t, "R25", func(t *testing.T) string {
		f, b1, b2, orders := agenttest.Pair(t)
		b1.Write(orders, 0, "one", "two")
		durable := backup(t, b1)
		b1.Write(orders, 0, "lost-3", "lost-4")
		m := f.Copied(orders, 0, b2)

		crash(t, b1, durable)
		b1.Write(orders, 0, "kept-3", "kept-4", "kept-5")
		m.StartCopy()
		seq, differed := int64(0), 0
		for differed < 5 {
			status := m.Session(seq)
			if status.Error != nil {
				t.Fatal(status.Error)
			}
			if status.State == control.CopyReady {
				break
			}
			if status.Seq > seq && status.Blocked == control.CodeDigestMismatch {
				differed++
			}
			seq = status.Seq
		}
		if differed == 5 {
			return "every pass of the copy finds the same bytes different, and fetches none of them again"
		}
		frozen := m.Freeze()
		m.Commit(frozen, m.Drain(frozen))
		m.Confirm()
		want := []string{"one", "two", "kept-3", "kept-4", "kept-5"}
		if values := b2.Values(orders, 0); !slices.Equal(values, want) {
			return fmt.Sprintf("the source had %q, the new owner has %q", want, values)
		}
		return ""
	})
}

// The source lost the bytes and has nothing in their place: the destination holds more than there is.
func TestR25ACopyThatIsLongerThanItsSourceIsCut(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one", "two")
	durable := backup(t, b1)
	b1.Write(orders, 0, "lost-3", "lost-4")
	m := f.Copied(orders, 0, b2)
	crash(t, b1, durable)
	frozen := m.Freeze()
	if frozen.FrozenEnd != 2 {
		t.Fatalf("frozen at %d", frozen.FrozenEnd)
	}
	m.Commit(frozen, m.Drain(frozen))
	m.Confirm()
	if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one", "two"}) {
		t.Errorf("the source had two records, the new owner has %q", values)
	}
}

// A stream names the process that sends it, and only what is durable may be asked for.
func TestR25OnlyDurableBytesAreServedAndTheyNameTheirProcess(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one", "two")
	m := f.Claim(orders, 0, b2)
	list := agenttest.Must(f.Peers.Listing(t.Context(), b1.URL(), m.Subject()))(t)
	status := b1.Partition(orders, 0)
	seg := list.Segments[len(list.Segments)-1]
	if list.HighWatermark != status.DurableEnd || seg.NextOffset != status.DurableEnd {
		t.Errorf("listed up to %d and %d, durable up to %d", list.HighWatermark, seg.NextOffset, status.DurableEnd)
	}
	body, process, err := f.Peers.SegmentBytes(t.Context(), b1.URL(), m.Subject(), seg.Base, 0, seg.Size)
	if err != nil {
		t.Fatal(err)
	}
	body.Close()
	if process != list.Process {
		t.Errorf("the bytes come from process %s, the listing from %s", process, list.Process)
	}
	if _, _, err := f.Peers.SegmentBytes(t.Context(), b1.URL(), m.Subject(), seg.Base, 0, seg.Size+1); control.CodeOf(err) != control.CodeDigestMismatch {
		t.Errorf("asking for a byte more than is durable ended with %v", err)
	}
	b1.Restart()
	after := agenttest.Must(f.Peers.Listing(t.Context(), b1.URL(), m.Subject()))(t)
	if after.Process == list.Process {
		t.Error("the next process goes by the same name")
	}
}
