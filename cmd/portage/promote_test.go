package main

import (
	"errors"
	"strings"
	"testing"

	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/metastore"
	"portage/workflows/protocol"
)

func TestNothingIsPromotedOverAnOwnerThatServes(t *testing.T) {
	for _, tc := range []struct {
		name    string
		status  control.PartitionStatus
		err     error
		refused bool
	}{
		{"open", control.PartitionStatus{State: string(native.StateOpen)}, nil, true},
		{"frozen", control.PartitionStatus{State: string(native.StateFrozen)}, nil, true},
		{"opening", control.PartitionStatus{State: string(native.StateOpening)}, nil, true},
		{"closed", control.PartitionStatus{State: string(native.StateClosed)}, nil, false},
		{"it does not answer", control.PartitionStatus{}, errors.New("connection refused"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := promotionReport{Partition: "orders/3", Owner: "b1"}
			r.ownerSays(tc.status, tc.err)
			if err := r.againstPromoting(); (err != nil) != tc.refused {
				t.Errorf("refused with %v", err)
			}
			if (r.Warning == protocol.PromotionWarning) != (tc.err != nil) {
				t.Errorf("the warning is %q", r.Warning)
			}
		})
	}
}

// A backup that was restored at the owner is a copy like any other.
func TestTheCopyInPlaceAtAClosedOwnerIsACandidate(t *testing.T) {
	for code, offered := range map[string]bool{native.CodeDataOlder: true, native.CodeOtherEpoch: true, metastore.CodeStorageChanged: true, native.CodeForeignData: false,
		native.CodeDataMissing: false, metastore.CodeMetastoreOlder: false} {
		r := promotionReport{Partition: "orders/3", Owner: "b1"}
		r.ownerSays(control.PartitionStatus{State: string(native.StateClosed), ReasonCode: code, End: 40}, nil)
		c := promoteCmd{From: "b1"}
		chosen, err := c.choose(&r)
		if offered != (err == nil) || offered && (chosen.ID != control.CopyInPlace || chosen.End != 40) {
			t.Errorf("%s: chosen is %+v (%v)", code, chosen, err)
		}
		c.Empty = true
		if _, err := c.choose(&r); offered != (err != nil) {
			t.Errorf("%s: an empty log: %v", code, err)
		}
	}
}

func TestAnEmptyLogNeedsTheWordOfEveryBroker(t *testing.T) {
	for _, tc := range []struct {
		name    string
		silent  []string
		without []string
		refused string
	}{
		{"all answer", nil, nil, ""},
		{"the owner is silent", []string{"b1"}, nil, ""},
		{"another one is silent", []string{"b1", "b3"}, nil, "--without b3"},
		{"another one is given up", []string{"b1", "b3"}, []string{"b3"}, ""},
		{"one of two is given up", []string{"b3", "b4"}, []string{"b3"}, "--without b4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := promoteCmd{From: "b2", Empty: true, Without: tc.without}
			_, err := c.choose(&promotionReport{Partition: "orders/3", Owner: "b1", Silent: tc.silent})
			if (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("it says %v", err)
			}
		})
	}
}
