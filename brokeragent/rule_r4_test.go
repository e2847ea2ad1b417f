//go:build portage_faults

package brokeragent_test

import (
	"fmt"
	"testing"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
	"portage/internal/faults/faultstest"
	"portage/metastore"
)

// The source restarts between drain and commit and reads a row that still names it. If that read were enough to serve, it
// would confirm a record that the commit prepared against its dead freeze then leaves behind.
func TestR4AFreezeLostInARestartIsNotFlippedOver(t *testing.T) {
	faultstest.Story(t, "R4", func(t *testing.T) string {
		f, b1, b2, orders := agenttest.Pair(t)
		b1.Write(orders, 0, "one", "two")
		m := f.Copied(orders, 0, b2)
		frozen, drained := m.Cutover()

		b1.Restart()
		b1.Write(orders, 0, "three")
		_, err := m.TryCommit(frozen, drained)
		if _, refused := metastore.RefusedWith(err, metastore.CodeRowMoved); refused {
			return ""
		}
		if err != nil {
			t.Fatal(err)
		}
		b2.WaitState(orders, 0, native.StateOpen)
		if values := b2.Values(orders, 0); len(values) != 3 {
			return fmt.Sprintf("three records were confirmed, the new owner has %q", values)
		}
		return ""
	})
}

// An owner comes back, reads its row, and its OpenOwner does not get through. The row changes hands meanwhile.
func TestR4AnAgentWhoseOpeningIsNotAcknowledgedDoesNotServe(t *testing.T) {
	faultstest.Story(t, "R4", func(t *testing.T) string {
		f, b1, b2, orders := agenttest.Pair(t)
		b1.Write(orders, 0, "one")
		m := f.Copied(orders, 0, b2)
		frozen, drained := m.Cutover()
		b1.Stop()

		// Guarded writes on the partition wait; reads do not.
		release := f.Hold("SELECT 1 FROM assignments WHERE topic_id = $1 FOR UPDATE", orders.ID)
		b1.Boot()
		agenttest.Eventually(t, "b1 has read its row", func() bool {
			return b1.Partition(orders, 0).State != "" && b1.Partition(orders, 0).State != string(native.StateElsewhere)
		})
		code, _ := b1.Produce(orders, 0, agenttest.Record("two"))
		_, values, _ := b1.Fetch(orders, 0, 0)
		// Cut off for good, the opening in flight comes to nothing, and the commit wins.
		b1.Metastore.Cut()
		release()
		if code == 0 || len(values) > 0 {
			return fmt.Sprintf("before any acknowledgement it answered a produce with code %d and a fetch with %q", code, values)
		}
		m.Commit(frozen, drained)
		b2.WaitState(orders, 0, native.StateOpen)
		if code, _ := b1.Produce(orders, 0, agenttest.Record("two")); code == 0 {
			t.Error("two brokers accept writes of one partition")
		}
		b2.Write(orders, 0, "three")
		return ""
	})
}

// Postgres is away when an owner restarts: it sends clients on by the routing table it kept, and serves nothing.
func TestR4AnAgentRestartedWithoutPostgresAnswersAsANonOwner(t *testing.T) {
	f := agenttest.New(t)
	b1 := f.Start("b1", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	b1.Metastore.Cut()
	b1.Stop()
	b1.Boot()
	code, _ := b1.Produce(orders, 0, agenttest.Record("two"))
	fetched, values, _ := b1.Fetch(orders, 0, 0)
	if code != notLeader || fetched != notLeader || len(values) > 0 {
		t.Errorf("produce was answered with code %d, fetch with %d and %q; want %d without records", code, fetched, values, notLeader)
	}
	b1.Metastore.Mend()
	b1.WaitReady()
	b1.Write(orders, 0, "two")
	if values := b1.Values(orders, 0); len(values) != 2 {
		t.Errorf("after Postgres is back the partition holds %q", values)
	}
}
