package native

import (
	"cmp"
	"slices"
	"time"

	"portage/brokeragent/control"
)

// groupLags are how far the groups are behind what is confirmed of an open partition, by group; nil of one that is not open. A
// group whose offset is below the log's start is behind all of the log. It runs under mu.
func (p *Partition) groupLags(now time.Time) []control.GroupLag {
	if p.state != StateOpen || p.log == nil || p.offsets == nil {
		return nil
	}
	start, end := p.log.Start(), p.log.DurableEnd()
	var lags []control.GroupLag
	for _, e := range p.offsets.All() {
		lags = append(lags, control.GroupLag{Group: e.Group, Lag: max(0, end-max(start, e.Offset)), IdleFor: max(0, now.Sub(e.CommittedAt))})
	}
	if len(lags) > control.MostGroupLags {
		slices.SortFunc(lags, func(a, b control.GroupLag) int { return cmp.Compare(a.IdleFor, b.IdleFor) })
		lags = lags[:control.MostGroupLags]
	}
	slices.SortFunc(lags, func(a, b control.GroupLag) int { return cmp.Compare(a.Group, b.Group) })
	return lags
}
