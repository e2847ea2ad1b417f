package reconcile

import (
	"testing"

	"github.com/google/uuid"

	"portage/metastore"
)

func TestReconcileTakesTheHighestRowThatAnyAgentHolds(t *testing.T) {
	topic := metastore.Topic{ID: uuid.New(), Name: "orders", Partitions: 1}
	at := func(owner string, epoch int32, version int64, change ...func(*metastore.Assignment)) metastore.Assignment {
		row := metastore.Assignment{TopicID: topic.ID, Topic: "orders", Owner: owner, Epoch: epoch, Version: version, OpenedEpoch: epoch}
		for _, c := range change {
			c(&row)
		}
		return row
	}
	restored := func(row *metastore.Assignment) { row.Restored = true }
	moving := func(id string) func(*metastore.Assignment) {
		return func(row *metastore.Assignment) { row.MoveID = &id }
	}
	moved := func(id string) func(*metastore.Assignment) {
		return func(row *metastore.Assignment) { row.LastMove = &id }
	}
	openedBy := func(process uuid.UUID) func(*metastore.Assignment) {
		return func(row *metastore.Assignment) { row.OpenedProcess = &process }
	}
	first, second := uuid.New(), uuid.New()
	type held = map[string]metastore.Assignment
	for _, tc := range []struct {
		name    string
		row     *metastore.Assignment
		held    held
		serving string
		deleted bool
		action  string // "" for nothing to do
		owner   string
		epoch   int32
		version int64
		by      string
	}{
		{name: "nobody contradicts", row: ptr(at("b1", 0, 5)), held: held{"b1": at("b1", 0, 5), "b2": at("b1", 0, 4)}},
		{name: "the row is newer than all", row: ptr(at("b1", 0, 5)), held: held{"b1": at("b1", 0, 4)}},
		{name: "another lineage, nobody contradicts", row: ptr(at("b1", 0, 5, restored)), held: held{"b1": at("b1", 0, 5)}, action: ActionAdvance, owner: "b1", version: 6, by: "b1"},
		{name: "another lineage, nobody holds it", row: ptr(at("b1", 0, 5, restored)), action: ActionAdvance, owner: "b1", version: 6},
		{name: "a lost commit", row: ptr(at("b1", 0, 5, restored, moving("m1"))), held: held{"b1": at("b1", 0, 5, moving("m1")), "b2": at("b2", 1, 7, moved("m1"))},
			action: ActionCorrect, owner: "b2", epoch: 1, version: 8, by: "b2"},
		{name: "a lost commit under the same timeline", row: ptr(at("b1", 0, 9)), held: held{"b2": at("b2", 1, 7)}, action: ActionCorrect, owner: "b2", epoch: 1, version: 10, by: "b2"},
		{name: "the version is above every one seen", row: ptr(at("b1", 0, 5, restored)), held: held{"b1": at("b1", 0, 20), "b2": at("b2", 1, 7)}, action: ActionCorrect, owner: "b2", epoch: 1, version: 21, by: "b2"},
		{name: "a missing row", held: held{"b1": at("b1", 2, 5)}, action: ActionRecreate, owner: "b1", epoch: 2, version: 6, by: "b1"},
		{name: "a deleted topic", held: held{"b1": at("b1", 2, 5)}, deleted: true},
		{name: "two histories of one version: whoever serves", row: ptr(at("b1", 1, 5)), held: held{"b2": at("b2", 1, 5), "b1": at("b1", 1, 5)}, serving: "b2", action: ActionCorrect, owner: "b2", epoch: 1, version: 6, by: "b2"},
		{name: "two histories of one version: nobody serves by the other", row: ptr(at("b1", 1, 5)), held: held{"b2": at("b2", 1, 5), "b3": at("b1", 1, 5)}, action: ActionAdvance, owner: "b1", epoch: 1, version: 6, by: "b2"},
		{name: "two openings of one version", row: ptr(at("b1", 3, 21, openedBy(first))), held: held{"b1": at("b1", 3, 21, openedBy(second))}, action: ActionAdvance, owner: "b1", epoch: 3, version: 22, by: "b1"},
		{name: "two openings of one version, and the other serves", row: ptr(at("b1", 3, 21, openedBy(first))), held: held{"b1": at("b1", 3, 21, openedBy(second))}, serving: "b1", action: ActionCorrect, owner: "b1", epoch: 3, version: 22, by: "b1"},
		{name: "one opening", row: ptr(at("b1", 3, 21, openedBy(first))), held: held{"b1": at("b1", 3, 21, openedBy(first))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			snapshot := &metastore.Snapshot{}
			if tc.row != nil {
				snapshot.Assignments = []metastore.Assignment{*tc.row}
			}
			var agents []HeldByAgent
			for broker, row := range tc.held {
				agents = append(agents, HeldByAgent{Broker: broker, Rows: []HeldRow{{Row: row, Serving: tc.serving == broker}}, Topics: []metastore.Topic{topic}})
			}
			all := Reconcile(snapshot, agents, map[uuid.UUID]bool{topic.ID: tc.deleted})
			if tc.action == "" {
				if len(all) != 0 {
					t.Errorf("decided %+v", all)
				}
				return
			}
			if len(all) != 1 {
				t.Fatalf("decided %+v", all)
			}
			r := all[0]
			if w := r.Write.Row; r.Action != tc.action || w.Owner != tc.owner || w.Epoch != tc.epoch || w.Version != tc.version || r.HeldBy != tc.by {
				t.Errorf("decided %s: owner %s, epoch %d, version %d, by %s", r.Action, w.Owner, w.Epoch, w.Version, r.HeldBy)
			}
			if (r.Write.Expect == nil) != (tc.row == nil) {
				t.Errorf("expects %+v", r.Write.Expect)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }
