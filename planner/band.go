package planner

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"portage/internal/units"
)

// band is what one goal asks of every broker: how much is its share, and above what it sheds. It rests on the
// fleet's total, which no move changes.
type band struct {
	goal     Goal
	inEffect bool
	whyNot   string
	average  float64   // total / brokers in service
	mean     []float64 // of each broker: its share of the total
	upper    []int64   // mean * (1 + deviation): where the band ends
	trigger  []int64   // upper and the margin: above it a broker sheds, until it is at upper
	uniform  bool      // all shares are equal
}

// bands are made for every goal, those that are off too, so that a plan can tell all.
func bands(s *Snapshot, settings *Settings, load *[numGoals][]int64) [numGoals]band {
	var all [numGoals]band
	for g := range Goal(numGoals) {
		all[g] = newBand(s, settings, g, load[g])
	}
	return all
}

func newBand(s *Snapshot, settings *Settings, g Goal, load []int64) band {
	of := settings.Goals[g]
	n := len(s.Brokers)
	b := band{goal: g, mean: make([]float64, n), upper: make([]int64, n), trigger: make([]int64, n), uniform: true}
	shares, total, sum, receivers := sharesFor(s, g), int64(0), 0.0, 0
	var first float64
	for i := range s.Brokers {
		total += load[i]
		if share := shares[i]; share > 0 {
			if receivers == 0 {
				first = share
			}
			sum += share
			receivers++
			b.uniform = b.uniform && share == first
		}
	}
	if receivers > 0 {
		b.average = float64(total) / float64(receivers)
	}
	for i, share := range shares {
		if share > 0 {
			b.mean[i] = float64(total) * share / sum
			b.upper[i] = int64(math.Floor(b.mean[i] * (1 + of.Deviation)))
			b.trigger[i] = max(b.upper[i], int64(math.Floor(b.mean[i]*(1+of.Deviation+settings.Margin))))
		}
	}
	switch {
	case !of.Enabled:
		b.whyNot = "it is switched off"
	case receivers < 2:
		b.whyNot = fmt.Sprintf("%d brokers are in service; a balance needs 2", receivers)
	case b.average < float64(of.DetectThreshold):
		b.whyNot = fmt.Sprintf("the mean of %s is below the threshold of %s", figure(g, int64(b.average)), figure(g, int64(of.DetectThreshold)))
	case total == 0:
		b.whyNot = "there is no load"
	default:
		b.inEffect = true
	}
	return b
}

// sharesFor are the weights by which a goal's total is divided: capacity times weight; 0 for what receives nothing. A
// capacity counts only when that of every broker in service is known, else units would mix.
func sharesFor(s *Snapshot, g Goal) []float64 {
	capacity := func(b *Broker) int64 {
		switch g {
		case NWIn, NWOut:
			return b.NetBytesPerSec
		case Disk:
			return b.DiskBytes
		}
		return 0
	}
	known := true
	for i := range s.Brokers {
		known = known && (!s.Brokers[i].receives() || capacity(&s.Brokers[i]) > 0)
	}
	shares := make([]float64, len(s.Brokers))
	for i := range s.Brokers {
		b := &s.Brokers[i]
		switch {
		case !b.receives():
		case known:
			shares[i] = float64(capacity(b)) * b.weight()
		default:
			shares[i] = b.weight()
		}
	}
	return shares
}

// figure writes a load as people read it.
func figure(g Goal, load int64) string { return string(appendFigure(nil, g, load)) }

func appendFigure(text []byte, g Goal, load int64) []byte {
	if g == PartitionCount {
		return append(strconv.AppendInt(text, load, 10), " partitions"...)
	}
	text = units.ByteSize(load).Append(text)
	if g != Disk {
		text = append(text, "/s"...)
	}
	return text
}

// loadsBy adds up each broker's loads, with every partition at the broker `at` names.
func (s *Snapshot) loadsBy(at []int32) (load [numGoals][]int64) {
	for g := range load {
		load[g] = make([]int64, len(s.Brokers))
	}
	for i := range int32(s.Len()) {
		if s.flags[i]&internal != 0 || !s.Brokers[at[i]].Alive {
			continue
		}
		b := at[i]
		load[NWIn][b] += s.load[NWIn][i]
		load[NWOut][b] += s.load[NWOut][i]
		load[Disk][b] += s.load[Disk][i]
		load[PartitionCount][b]++
	}
	return load
}

// loadsAfter are each broker's loads with every partition at the broker `at` names, of what they are with them at `start`.
func (s *Snapshot) loadsAfter(before *[numGoals][]int64, start, at []int32) (load [numGoals][]int64) {
	for g := range load {
		load[g] = slices.Clone(before[g])
	}
	for i, to := range at {
		from := start[i]
		if from == to {
			continue
		}
		for g := range Goal(numGoals) {
			amount := s.loadOf(g, int32(i))
			load[g][from] -= amount
			load[g][to] += amount
		}
	}
	return load
}
