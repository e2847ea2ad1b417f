package planner

import (
	"testing"
	"time"

	"portage/internal/units"
)

// The estimate is what the slowest of all limits asks: the fleet's slots, or those of one broker that gives or takes.
func TestAPlanTakesAsLongAsItsBusiestBroker(t *testing.T) {
	// Each of four legs takes 1 s and 10 MiB at 1 MiB/s: 11 s.
	way := func(brokers ...int32) (all []Action) {
		for i := 0; i < len(brokers); i += 2 {
			all = append(all, Action{Kind: ActionMove, Legs: []Leg{{from: brokers[i], to: brokers[i+1], Bytes: 10 << 20}}})
		}
		return all
	}
	apart := way(0, 1, 2, 3, 4, 5, 6, 7)
	for _, tc := range []struct {
		name    string
		actions []Action
		set     func(s *Settings)
		want    time.Duration
	}{
		{"each on brokers of its own", apart, nil, 11 * time.Second},
		{"one broker gives all", way(0, 1, 0, 2, 0, 3, 0, 4), nil, 44 * time.Second},
		{"one broker takes all", way(1, 0, 2, 0, 3, 0, 4, 0), nil, 44 * time.Second},
		{"one gives and takes, which is not the same", way(0, 1, 0, 2, 3, 0, 4, 0), nil, 22 * time.Second},
		{"one gives all, two at once", way(0, 1, 0, 2, 0, 3, 0, 4), func(s *Settings) { s.TransfersPerBroker = 2 }, 22 * time.Second},
		{"the fleet has one slot", apart, func(s *Settings) { s.MaxInFlight = 1 }, 44 * time.Second},
		{"a move is slower than assumed", apart, func(s *Settings) { s.MoveRate = 1 << 19 }, 21 * time.Second},
		{"a broker is slower", apart, func(s *Settings) { s.BrokerRate = 1 << 19 }, 21 * time.Second},
		{"nothing", nil, nil, 0},
	} {
		s := DefaultSettings()
		s.AssumedRate, s.MoveOverhead, s.MaxInFlight, s.TransfersPerBroker = 1<<20, units.Duration(time.Second), 8, 1
		if tc.set != nil {
			tc.set(&s)
		}
		if got := eta(&s, tc.actions, 8); got == nil || time.Duration(*got) != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	s := DefaultSettings()
	s.MaxInFlight = 0
	if got := eta(&s, apart, 8); got != nil {
		t.Errorf("with limits that start nothing it takes %v", got)
	}
}
