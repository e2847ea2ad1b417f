package activities_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
	"portage/workflows/protocol"
)

// The owner says how far each group is behind what is confirmed. One that has not committed for long counts only when it has
// nothing left to read; a partition that is gone, or is another topic's now, has no groups.
func TestTheOwnerTellsHowFarGroupsAreBehind(t *testing.T) {
	f := agenttest.New(t)
	b1 := f.Start("b1", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "o1", "o2", "o3")
	for group, offset := range map[string]int64{"behind": 1, "done": 3, "new": 0} {
		if code := b1.CommitOffset(orders, 0, group, offset); code != 0 {
			t.Fatalf("the commit of %s is answered %d", group, code)
		}
	}
	l := newLeaver(t, f)
	ask := func(within protocol.Duration, of protocol.LagOf) (lags []protocol.PartitionLags) {
		t.Helper()
		value, err := l.env.ExecuteActivity(protocol.ActivityGroupLags, protocol.LagArgs{Partitions: []protocol.LagOf{of}, LiveWithin: within})
		if err == nil {
			err = value.Get(&lags)
		}
		if err != nil || len(lags) != 1 || lags[0].LagOf != of {
			t.Fatalf("the lags of %s are %+v (%v)", of, lags, err)
		}
		return lags
	}
	here := protocol.LagOf{Topic: "orders", TopicID: orders.ID.String()}
	for within, want := range map[protocol.Duration][]protocol.GroupLag{0: {{Group: "behind", Lag: 2}, {Group: "done"}, {Group: "new", Lag: 3}}, 1: {{Group: "done"}}} {
		if lags := ask(within, here); lags[0].Gone || !slices.Equal(lags[0].Groups, want) {
			t.Errorf("within %d they are %+v, want %v", within, lags, want)
		}
	}
	for _, gone := range []protocol.LagOf{{Topic: "orders", TopicID: uuid.NewString()}, {Topic: "nowhere"}} {
		if lags := ask(0, gone); !lags[0].Gone || len(lags[0].Groups) != 0 {
			t.Errorf("of what is gone they are %+v", lags)
		}
	}
}
