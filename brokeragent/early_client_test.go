//go:build portage_faults

package brokeragent_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
)

// A client may hear of a flip from the old owner before the new owner has read the row. Sent back, it would wait out a
// back-off or its next metadata refresh.
func TestAClientFasterThanTheRowIsParkedWhereTheCopyIsInstalled(t *testing.T) {
	for _, ending := range []struct {
		name string
		code int16
		end  func(*agenttest.Move, func())
	}{
		{"committed", 0, func(m *agenttest.Move, commit func()) { commit(); m.Confirm() }},
		{"aborted", kerr.NotLeaderForPartition.Code, func(m *agenttest.Move, _ func()) { m.Abort(false) }},
	} {
		t.Run(ending.name, func(t *testing.T) {
			f := agenttest.New(t)
			b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{ParkFor: time.Minute})
			orders := f.CreateTopic("orders", 1, b1)
			b1.Write(orders, 0, "one", "two")
			b2.WaitKnows(orders)
			m := f.Copied(orders, 0, b2)
			frozen, drained := m.Cutover()

			client := b2.Dial()
			request := agenttest.ProduceRequest(orders, 0, agenttest.Record("three"))
			client.Send(request)
			agenttest.Eventually(t, "the early batch is parked", func() bool { return b2.Partition(orders, 0).Parked == 1 })

			ending.end(m, func() { m.Commit(frozen, drained) })
			answer := agenttest.Produced(client.Receive(request))
			if answer.ErrorCode != ending.code || (ending.code == 0 && answer.BaseOffset != frozen.FrozenEnd) {
				t.Fatalf("the early batch was answered with code %d at offset %d", answer.ErrorCode, answer.BaseOffset)
			}
		})
	}
}
