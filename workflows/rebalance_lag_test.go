package workflows

import (
	"strings"
	"testing"
	"time"

	"portage/workflows/protocol"
)

// lag makes a canary of n moves that looks at lags.
func lagCanary(n int, bound int64) *protocol.Canary {
	return &protocol.Canary{Moves: n, Soak: protocol.Duration(10 * time.Minute), Lag: &bound}
}

// groups are the lags of one group on partition 0 of orders.
func groups(lag int64) []protocol.PartitionLags {
	return []protocol.PartitionLags{{LagOf: protocol.LagOf{Topic: "orders", TopicID: "t"}, Groups: []protocol.GroupLag{{Group: "billing", Lag: lag}}}}
}

// The canary's partitions are looked at before its moves begin and at the end of the soak; the rest follows when no group has
// fallen behind by more than the bound.
func TestRebalanceLooksAtTheLagsOfItsCanary(t *testing.T) {
	for _, tc := range []struct {
		name          string
		before, after []protocol.PartitionLags
		bound         int64
		stops         string
	}{
		{"as far behind as before", groups(100), groups(100), 0, ""},
		{"within the bound", groups(100), groups(150), 50, ""},
		{"it has caught up", groups(100), groups(0), 0, ""},
		{"beyond the bound", groups(100), groups(151), 50, "group billing is 151 records behind on orders/0 and was 100 behind"},
		{"its offset is gone", groups(100), []protocol.PartitionLags{{LagOf: protocol.LagOf{Topic: "orders", TopicID: "t"}}}, 50, "group billing has no committed offset on orders/0 any more"},
		{"the topic is gone", groups(100), []protocol.PartitionLags{{LagOf: protocol.LagOf{Topic: "orders", TopicID: "t"}, Gone: true}}, 0, ""},
		{"nobody reads", []protocol.PartitionLags{{LagOf: protocol.LagOf{Topic: "orders", TopicID: "t"}}}, groups(1000), 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRebalancing(t, moves(10), moves(9))
			r.lags = [][]protocol.PartitionLags{tc.before, tc.after}
			result := r.mustRun(protocol.RebalanceInput{Canary: lagCanary(1, tc.bound)})
			if len(r.lagsAsked) != 2 || r.lagsAsked[0].LiveWithin != protocol.Duration(10*time.Minute) || r.lagsAsked[1].LiveWithin != 0 || r.lagsAsked[0].Partitions[0] != (protocol.LagOf{Topic: "orders", TopicID: "t"}) {
				t.Fatalf("asked was %+v", r.lagsAsked)
			}
			switch stopped := len(r.started) == 1; {
			case stopped != (tc.stops != ""):
				t.Errorf("%d moves were started, it ended with %q", len(r.started), result.Ended)
			case stopped && (!strings.HasPrefix(result.Ended, protocol.CodeCanaryFailed) || !strings.Contains(result.Ended, tc.stops)):
				t.Errorf("it ended with %q", result.Ended)
			}
		})
	}
}

// What begins as the canary is what was looked at: an action behind it does not pass one whose broker is busy, and one that a person leaves out is
// not replaced.
func TestRebalanceBeginsWithWhatItsCanaryHasLookedAt(t *testing.T) {
	plan := append(moves(4, "b1", "b2"), swapOf(4, 9, "b3", "b4"))
	r := newRebalancing(t, plan, nil)
	r.lags = [][]protocol.PartitionLags{nil}
	one, left := 1, int32(1)
	r.update(30*time.Second, protocol.UpdateSkip, protocol.Decide{Topic: "orders", Partition: &left, By: "ops", Reason: "hot"})
	r.env.RegisterDelayedCallback(func() {
		if s := r.status(); len(r.started) != 2 || len(r.swaps) != 0 || s.Phase != protocol.PhaseSoaking {
			t.Errorf("%d moves and %d swaps were started, it is %+v", len(r.started), len(r.swaps), s)
		}
	}, 5*time.Minute)
	r.mustRun(protocol.RebalanceInput{Canary: lagCanary(3, 0), Limits: protocol.Limits{TransfersPerBroker: &one}})
	if asked := r.lagsAsked[0].Partitions; len(asked) != 3 || asked[2].Partition != 2 {
		t.Errorf("asked was for %+v", asked)
	}
}
