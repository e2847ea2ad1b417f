package planner

// BrokerScore is how loaded a broker is, part by part (F25). Each part is what the broker has per unit of its capacity and
// weight, in terms of the fleet's mean: 1 is average. Total is the weighted mean of the parts of which the fleet has anything.
// It orders brokers that a goal finds equal: who sheds first, who takes first.
type BrokerScore struct {
	Total    float64 `json:"total"`
	Owned    float64 `json:"owned"`    // partitions it owns, or will once the moves in flight are over
	Followed float64 `json:"followed"` // partitions it follows
	History  float64 `json:"history"`  // sum of h/(h+k): many partitions of any size cost more than one large
	Traffic  float64 `json:"traffic"`  // bytes a second in and out
	Sync     float64 `json:"sync"`     // copies it gives and takes now: passing, so it orders nothing

	lasting float64 // Total without Sync
}

const scoreParts = 5

// scores are those of all brokers, with every partition at the broker `at` names. Without sync, what passes is left out.
// Sums are made in the order of partitions, so that equal states have equal scores to the last bit.
func scores(s *Snapshot, settings *ScoreSettings, at []int32, sync bool) []BrokerScore {
	n := len(s.Brokers)
	var raw [scoreParts][]float64
	for i := range raw {
		raw[i] = make([]float64, n)
	}
	k := float64(settings.HistoryHalf)
	for i := range int32(s.Len()) {
		if s.flags[i]&internal != 0 {
			continue
		}
		b := at[i]
		h := float64(s.load[Disk][i])
		raw[0][b]++
		raw[2][b] += h / (h + k)
		raw[3][b] += float64(s.load[NWIn][i] + s.load[NWOut][i])
		if sync && s.target[i] != none {
			raw[4][s.owner[i]]++
			raw[4][s.target[i]]++
		}
	}
	for _, f := range s.followers {
		raw[1][f.broker]++
	}
	shares := [scoreParts][]float64{sharesFor(s, PartitionCount), sharesFor(s, PartitionCount), sharesFor(s, Disk), sharesFor(s, NWIn), sharesFor(s, PartitionCount)}
	weights := [scoreParts]float64{settings.Owned, settings.Followed, settings.History, settings.Traffic, settings.Sync}
	result := make([]BrokerScore, n)
	all, lasting := 0.0, 0.0 // the weights of the parts
	for part := range raw {
		total, share := 0.0, 0.0
		for b := range n {
			total, share = total+raw[part][b], share+shares[part][b]
		}
		if total == 0 {
			continue
		}
		passes := part == scoreParts-1
		for b := range n {
			value := 0.0
			if shares[part][b] > 0 {
				value = raw[part][b] / total * share / shares[part][b]
			}
			*result[b].part(part) = value
			result[b].Total += weights[part] * value
			if !passes {
				result[b].lasting += weights[part] * value
			}
		}
		all += weights[part]
		if !passes {
			lasting += weights[part]
		}
	}
	for b := range result {
		result[b].Total, result[b].lasting = ratio(result[b].Total, all), ratio(result[b].lasting, lasting)
	}
	return result
}

// ratio is 0 of nothing.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func (s *BrokerScore) part(i int) *float64 {
	return [scoreParts]*float64{&s.Owned, &s.Followed, &s.History, &s.Traffic, &s.Sync}[i]
}

// Scores are the scores of all brokers of a snapshot, in the order of Brokers.
func Scores(s *Snapshot, settings Settings) []BrokerScore {
	at := make([]int32, s.Len())
	for i := range at {
		at[i] = s.countedAt(int32(i))
	}
	return scores(s, &settings.Score, at, true)
}
