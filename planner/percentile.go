package planner

import "slices"

// percentile of samples, which it may reorder (M37): the value at rank p·(n-1)+1 of the sorted samples, interpolated
// between neighbours. Of none it is 0, of one that one. p is within 0 to 1.
func percentile(samples []float32, p float64) float64 {
	n := len(samples)
	if n == 0 {
		return 0
	}
	at := p * float64(n-1)
	low := int(at)
	if low >= n-1 {
		return float64(slices.Max(samples))
	}
	var a, b float32 // the values of rank low and low+1 from below
	if fromTop := n - low; fromTop <= maxKept {
		a, b = fromAbove(samples, fromTop)
	} else {
		slices.Sort(samples)
		a, b = samples[low], samples[low+1]
	}
	return float64(a) + (float64(b)-float64(a))*(at-float64(low))
}

// maxKept is up to which rank from the top a pass that keeps the largest is quicker than a sort.
const maxKept = 16

// fromAbove are the k-th and the (k-1)-th largest of samples; k is 2 to maxKept. One pass that keeps the k largest: most
// samples fall below the smallest kept and cost one comparison.
func fromAbove(samples []float32, k int) (kth, above float32) {
	var kept [maxKept]float32 // ascending
	copy(kept[:k], samples[:k])
	slices.Sort(kept[:k])
	for _, v := range samples[k:] {
		if v <= kept[0] {
			continue
		}
		i := 1
		for i < k && kept[i] < v {
			kept[i-1] = kept[i]
			i++
		}
		kept[i-1] = v
	}
	return kept[0], kept[1]
}
