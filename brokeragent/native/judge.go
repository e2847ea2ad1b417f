package native

import (
	"sort"

	"portage/brokeragent/control"
	"portage/internal/faults"
)

// verdict is what a former copy is in the light of the owner's history.
type verdict int

const (
	unjudged verdict = iota // the owner could not be asked, or its answer decides nothing
	within                  // the owner's history has all of it
	diverged                // it holds what the owner's history does not
)

// judge compares a copy with the owner's epochs (R29). The copy diverges where one of its epochs goes on beyond the start of
// the owner's next one, or where an epoch begins that the owner never had. at is the first offset that is this copy's alone.
// An epoch has one owner, so two histories that name it mean the same records up to where the shorter one ends; unless they
// begin it at different places: then a metastore that went back in time gave its number out twice (R1), and from the lower
// start on they have nothing in common.
//
// epochs are the copy's own, oldest first, and end its end; both may be empty or negative when they are not known.
func judge(epochs []control.EpochStart, end int64, owner []control.EpochStart, ownerEnd int64) (at int64, v verdict) {
	if !faults.Enforced("R29") {
		return end, within
	}
	if end == 0 && len(epochs) == 0 {
		return 0, within // nothing is in it
	}
	if end < 0 || len(epochs) == 0 || len(owner) == 0 {
		return 0, unjudged
	}
	for i, e := range epochs {
		ends := end
		if i+1 < len(epochs) {
			ends = epochs[i+1].Start
		}
		n := sort.Search(len(owner), func(i int) bool { return owner[i].Epoch > e.Epoch })
		known := n > 0 && owner[n-1].Epoch == e.Epoch
		if known && owner[n-1].Start != e.Start {
			if at := min(begins(owner[n-1]), begins(e)); end > at {
				return at, diverged
			}
			continue
		}
		switch {
		case n == len(owner) && !known:
			return 0, unjudged // the owner's history ends before this epoch: it is not the later one
		case n == len(owner):
			if ends > ownerEnd {
				return 0, unjudged // both are of the owner's present epoch, and it has less: no later epoch says which counts
			}
		case n == 0:
			if ends > begins(owner[0]) {
				return max(e.Start, begins(owner[0])), diverged
			}
		case !known && ends > e.Start && e.Start < begins(owner[n]):
			return e.Start, diverged // records of an epoch that the owner never had
		case ends > begins(owner[n]):
			return max(e.Start, begins(owner[n])), diverged
		}
	}
	return end, within
}

// begins is where the history before an epoch ends: at its start, or before the offsets that were lost with it (R18).
func begins(e control.EpochStart) int64 { return e.Start - e.Lost }
