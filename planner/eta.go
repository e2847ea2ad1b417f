package planner

import (
	"slices"
	"time"

	"portage/internal/units"
)

// Estimate is how long the plan takes at least under the limits of other settings than it was made with.
func (p *Plan) Estimate(settings Settings) *units.Duration {
	index := map[string]int32{}
	at := func(broker string) int32 {
		i, known := index[broker]
		if !known {
			i = int32(len(index))
			index[broker] = i
		}
		return i
	}
	actions := make([]Action, len(p.Actions))
	for i, a := range p.Actions {
		actions[i].Legs = slices.Clone(a.Legs)
		for n := range a.Legs {
			leg := &actions[i].Legs[n]
			leg.from, leg.to = at(leg.From), at(leg.To)
		}
	}
	return eta(&settings, actions, len(index))
}

// eta is how long the actions take at least under the limits: what the fleet's slots, and the busiest broker's in each
// direction, need for all of theirs. Nil when the limits start nothing.
func eta(settings *Settings, actions []Action, brokers int) *units.Duration {
	if len(actions) > 0 && (settings.MaxInFlight == 0 || settings.TransfersPerBroker == 0) {
		return nil
	}
	rate := float64(settings.AssumedRate)
	if settings.MoveRate > 0 {
		rate = min(rate, float64(settings.MoveRate))
	}
	slots := float64(settings.TransfersPerBroker)
	if settings.BrokerRate > 0 {
		rate = min(rate, float64(settings.BrokerRate)/min(slots, float64(settings.MaxInFlight)))
	}
	overhead := time.Duration(settings.MoveOverhead).Seconds()
	var longest, sum float64
	out, in := make([]float64, brokers), make([]float64, brokers)
	for i := range actions {
		for _, l := range actions[i].Legs {
			seconds := overhead + float64(l.Bytes)/rate
			sum += seconds
			out[l.from] += seconds
			in[l.to] += seconds
			longest = max(longest, seconds)
		}
	}
	longest = max(longest, sum/float64(max(1, settings.MaxInFlight)))
	for _, side := range [][]float64{out, in} {
		for _, busy := range side {
			longest = max(longest, busy/slots)
		}
	}
	d := units.Duration(longest * float64(time.Second))
	return &d
}
