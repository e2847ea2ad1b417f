package native

import (
	"testing"

	"portage/brokeragent/control"
)

func TestR29JudgeFindsTheFirstOffsetTheOwnerDoesNotHave(t *testing.T) {
	type pair struct {
		epoch int32
		start int64
	}
	starts := func(pairs []pair) (all []control.EpochStart) {
		for _, p := range pairs {
			all = append(all, control.EpochStart{Epoch: p.epoch, Start: p.start})
		}
		return all
	}
	for _, tc := range []struct {
		name     string
		epochs   []pair
		end      int64
		owner    []pair
		ownerEnd int64
		at       int64
		want     verdict
	}{
		{"a move that drained everything", []pair{{0, 0}}, 100, []pair{{0, 0}, {1, 100}}, 150, 100, within},
		{"promoted over, nothing more", []pair{{0, 0}}, 100, []pair{{0, 0}, {1, 100}}, 100, 100, within},
		{"promoted over with more", []pair{{0, 0}}, 130, []pair{{0, 0}, {1, 100}}, 150, 100, diverged},
		{"promoted over, many epochs ago", []pair{{0, 0}}, 130, []pair{{0, 0}, {1, 100}, {2, 120}, {3, 500}}, 900, 100, diverged},
		{"several epochs of its own", []pair{{0, 0}, {2, 50}, {4, 90}}, 130, []pair{{0, 0}, {2, 50}, {4, 90}, {5, 130}}, 200, 130, within},
		{"the last of several goes on too far", []pair{{0, 0}, {2, 50}, {4, 90}}, 131, []pair{{0, 0}, {2, 50}, {4, 90}, {5, 130}}, 200, 130, diverged},
		{"an epoch the owner never had", []pair{{0, 0}, {1, 100}}, 120, []pair{{0, 0}, {2, 150}}, 200, 100, diverged},
		{"an epoch the owner never had, empty", []pair{{0, 0}, {1, 100}}, 100, []pair{{0, 0}, {2, 150}}, 200, 100, within},
		{"beyond the start of an epoch it does not know", []pair{{0, 0}, {1, 100}}, 120, []pair{{0, 0}, {2, 80}}, 200, 80, diverged},
		{"the owner is at the copy's epoch", []pair{{0, 0}, {1, 50}}, 90, []pair{{0, 0}, {1, 50}}, 90, 90, within},
		{"the owner is at the copy's epoch and has less", []pair{{0, 0}, {1, 50}}, 91, []pair{{0, 0}, {1, 50}}, 90, 0, unjudged},
		{"the owner is older", []pair{{0, 0}, {3, 50}}, 90, []pair{{0, 0}, {2, 50}}, 90, 0, unjudged},
		{"its end is not known", []pair{{0, 0}}, -1, []pair{{0, 0}, {1, 100}}, 150, 0, unjudged},
		{"its epochs are not known", nil, 100, []pair{{0, 0}, {1, 100}}, 150, 0, unjudged},
		{"a number given out twice, the owner's later", []pair{{5, 0}, {6, 1000}}, 1500, []pair{{5, 0}, {6, 2000}}, 2500, 1000, diverged},
		{"a number given out twice, the owner's earlier", []pair{{5, 0}, {6, 2000}}, 2500, []pair{{5, 0}, {6, 1000}}, 3000, 1000, diverged},
		{"a number given out twice, nothing in it", []pair{{5, 0}, {6, 1000}}, 1000, []pair{{5, 0}, {6, 2000}}, 2500, 1000, within},
		{"nothing is in it", nil, 0, []pair{{0, 0}, {1, 100}}, 150, 0, within},
		{"the owner says nothing of epochs", []pair{{0, 0}}, 100, nil, 150, 0, unjudged},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if at, got := judge(starts(tc.epochs), tc.end, starts(tc.owner), tc.ownerEnd); got != tc.want || at != tc.at {
				t.Errorf("diverges at %d, verdict %d; want %d, %d", at, got, tc.at, tc.want)
			}
		})
	}
}
