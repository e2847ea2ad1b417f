package native

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"portage/brokeragent/native/seglog"
	"portage/metastore"
)

func TestDecideOpen(t *testing.T) {
	topic, storage := uuid.New(), uuid.New()
	id := seglog.Identity{TopicID: topic, Topic: "orders", Partition: 3}
	committed, aborted, epoch := metastore.OutcomeCommitted, metastore.OutcomeAborted, int32(5)
	earlier := epoch - 1
	row := metastore.Assignment{TopicID: topic, Topic: "orders", Partition: 3, OwnerStorage: storage, Epoch: epoch, State: metastore.StateOpened, OpenedEpoch: epoch, OpenedEnd: 100}
	whole := localCopy{exists: true, end: 100, identity: id, want: id}
	installed := localCopy{exists: true, end: 100, identity: id, want: id, install: &Installed{MoveID: "m1", End: 100},
		move: &metastore.Move{ID: "m1", Outcome: &committed, CommitEpoch: &epoch}}
	flipped := row
	flipped.OpenedEpoch, flipped.OpenedEnd = epoch-1, 50

	for _, tc := range []struct {
		name   string
		row    metastore.Assignment
		local  localCopy
		change func(row *metastore.Assignment, local *localCopy)
		closed string // "" when it may open
	}{
		{"the owner's own log", row, whole, nil, ""},
		{"a log that grew", row, whole, func(_ *metastore.Assignment, l *localCopy) { l.end = 150 }, ""},
		{"a log shorter than when it was opened", row, whole, func(_ *metastore.Assignment, l *localCopy) { l.end = 99 }, "an old backup"},
		{"a log shorter than was last reported", row, whole, func(_ *metastore.Assignment, l *localCopy) { l.end, l.reported = 149, 150 }, "an old backup"},
		{"a log as long as was last reported", row, whole, func(_ *metastore.Assignment, l *localCopy) { l.end, l.reported = 150, 150 }, ""},
		{"a copy that has served since it was installed, as it is known", row, installed, func(_ *metastore.Assignment, l *localCopy) { l.end, l.reported = 150, 150 }, ""},
		{"an image of the day it was installed", row, installed, func(_ *metastore.Assignment, l *localCopy) { l.reported = 150 }, "an old backup"},
		{"an image from before it was opened again", row, installed, func(r *metastore.Assignment, _ *localCopy) { r.OpenedEnd = 150 }, "an old backup"},
		{"other storage", row, whole, func(r *metastore.Assignment, _ *localCopy) { r.OwnerStorage = uuid.New() }, "other storage"},
		{"other storage of a partition never opened", row, localCopy{want: id}, func(r *metastore.Assignment, _ *localCopy) {
			r.State, r.OwnerStorage = metastore.StateCreated, uuid.New()
		}, "other storage"},
		{"nothing, never opened", row, localCopy{want: id}, func(r *metastore.Assignment, _ *localCopy) { r.State, r.OpenedEpoch = metastore.StateCreated, -1 }, ""},
		{"nothing, opened before", row, localCopy{want: id}, nil, "not in the data folder"},
		{"an empty log made before the opening was acknowledged", row, whole, func(r *metastore.Assignment, l *localCopy) {
			r.State, r.OpenedEpoch, l.end = metastore.StateCreated, -1, 0
		}, ""},
		{"another topic's log", row, whole, func(_ *metastore.Assignment, l *localCopy) { l.identity.TopicID = uuid.New() }, "another topic"},
		{"another partition's log", row, whole, func(_ *metastore.Assignment, l *localCopy) { l.identity.Partition++ }, "another topic"},
		{"another topic's log, never opened", row, whole, func(r *metastore.Assignment, l *localCopy) {
			r.State, l.identity.TopicID = metastore.StateCreated, uuid.New()
		}, "another topic"},
		{"the committed copy", flipped, installed, nil, ""},
		{"the committed copy, opened before its marker went", row, installed, nil, ""},
		{"the committed copy, cut short", flipped, installed, func(_ *metastore.Assignment, l *localCopy) { l.end = 99 }, "lost what was confirmed"},
		{"the copy of an aborted move", flipped, installed, func(_ *metastore.Assignment, l *localCopy) { l.move = &metastore.Move{Outcome: &aborted} }, "not the one that epoch 5"},
		{"the copy of a move that runs", flipped, installed, func(_ *metastore.Assignment, l *localCopy) { l.move = &metastore.Move{} }, "not the one that epoch 5"},
		{"the copy of a move nobody knows", flipped, installed, func(_ *metastore.Assignment, l *localCopy) { l.move = nil }, "not the one that epoch 5"},
		{"the copy of a commit at another epoch", flipped, installed, func(_ *metastore.Assignment, l *localCopy) {
			l.move = &metastore.Move{Outcome: &committed, CommitEpoch: &earlier}
		}, "not the one that epoch 5"},
		{"a former copy, the row names this broker again", flipped, whole, nil, "not the one that epoch 5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			row, local := tc.row, tc.local
			if tc.change != nil {
				tc.change(&row, &local)
			}
			found := decideOpen(&row, local, storage)
			switch {
			case tc.closed == "" && found != nil:
				t.Errorf("stays closed: %+v", found)
			case tc.closed != "" && (found == nil || !strings.Contains(found.reason, tc.closed) || found.code == ""):
				t.Errorf("decided %+v, want it closed because of %q", found, tc.closed)
			}
		})
	}
}

func TestIsAhead(t *testing.T) {
	const highest = 1<<31 - 1
	for _, tc := range []struct {
		sequence, expected int32
		want               bool
	}{
		{1, 0, true}, {5, 4, true}, {3, 4, false}, {0, 1, false},
		{0, highest, true},           // one after the wrap
		{highest, 0, false},          // one before it
		{3, highest - 2, true},       // across it
		{highest - 2, 3, false},      // and back
		{1 << 30, 0, false},          // as far as it is behind
		{1<<30 - 1, 0, true},         // the farthest ahead
		{1<<30 + 1, 1 << 30, true},   //
		{highest, highest - 1, true}, // the last before the wrap
	} {
		if got := isAhead(tc.sequence, tc.expected); got != tc.want {
			t.Errorf("isAhead(%d, %d) is %v", tc.sequence, tc.expected, got)
		}
	}
}
