package metastore_test

import (
	"testing"

	"github.com/google/uuid"

	"portage/metastore"
)

// reconciled is the claimed row of the fixture, corrected to what b2 holds of the commit that the metastore lost.
func reconciled(f *fixture, row *metastore.Assignment, move string) metastore.Reconciled {
	expect := metastore.HeldOf(row)
	want := *row
	want.Owner, want.OwnerStorage, want.Epoch, want.Version, want.LastMove = "b2", f.brokers["b2"].Storage, row.Epoch+1, row.Version+3, &move
	want.State, want.OpenedEpoch, want.OpenedEnd = metastore.StateOpened, row.Epoch+1, 100
	return metastore.Reconciled{Row: want, Expect: &expect, Proofs: []metastore.CommitProof{{MoveID: move, Owner: "b2", Epoch: row.Epoch + 1}}, By: "test", Reason: "b2 holds a newer row"}
}

func TestReconcileRowRecordsTheCommitThatAnAgentProves(t *testing.T) {
	f := newFixture(t)
	row := f.claim("m1", "b2")
	f.exec("UPDATE assignments SET timeline = 0")
	r := reconciled(f, row, "m1")
	for range 2 { // done twice is done
		after, err := f.ReconcileRow(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if after.Owner != "b2" || after.Epoch != row.Epoch+1 || after.Version != row.Version+3 || after.Moving() != "" || after.Restored {
			t.Errorf("the row is %+v", after)
		}
	}
	move, err := f.FindMove(t.Context(), "m1")
	if err != nil || move.Ended() != metastore.OutcomeCommitted || *move.CommitEpoch != row.Epoch+1 {
		t.Errorf("the move is %+v (%v)", move, err)
	}
	if _, err := f.OpenOwner(t.Context(), f.openRequest()); err != nil {
		t.Errorf("opening after it: %v", err)
	}
}

func TestReconcileRowEndsAMoveThatNobodyProves(t *testing.T) {
	f := newFixture(t)
	row := f.claim("m1", "b2")
	f.exec("UPDATE assignments SET timeline = 0")
	r := reconciled(f, row, "m1")
	r.Row.Owner, r.Row.OwnerStorage, r.Row.Epoch, r.Row.LastMove = "b1", f.brokers["b1"].Storage, row.Epoch, nil
	// An aborted move leaves its id behind, too, with its source as the owner.
	r.Proofs = []metastore.CommitProof{{MoveID: "m1", Owner: "b1", Epoch: row.Epoch}}
	if _, err := f.ReconcileRow(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if move, err := f.FindMove(t.Context(), "m1"); err != nil || move.Ended() != metastore.OutcomeAborted {
		t.Errorf("the move is %+v (%v)", move, err)
	}
	if _, _, err := f.ClaimMove(t.Context(), f.claimRequest("m2", "b2")); err != nil {
		t.Errorf("the next claim: %v", err)
	}
}

func TestReconcileRowMakesAMissingTopicWithItsID(t *testing.T) {
	f := newFixture(t)
	row := f.row()
	topic := *f.topic
	f.exec("ALTER TABLE topics DISABLE TRIGGER topics_deleted")
	f.exec("DELETE FROM topics")
	r := metastore.Reconciled{Topic: &topic, Row: *row, By: "test"}
	r.Row.Epoch, r.Row.Version, r.Row.State, r.Row.OpenedEpoch = 3, 9, metastore.StateOpened, 2
	move := "lost"
	r.Row.LastMove = &move
	r.Proofs = []metastore.CommitProof{{MoveID: move, Owner: row.Owner, Epoch: 3, Unopened: true}}
	if _, err := f.ReconcileRow(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if after := f.row(); after == nil || after.Epoch != 3 || after.Version != 9 || after.Owner != row.Owner {
		t.Errorf("the row is %+v", after)
	}
	// The destination that had not opened yet finds the proof of its commit.
	if found, err := f.FindMove(t.Context(), "lost"); err != nil || found.Ended() != metastore.OutcomeCommitted || *found.CommitEpoch != 3 {
		t.Errorf("the move is %+v (%v)", found, err)
	}
}

func TestReconcileRowRefusals(t *testing.T) {
	for _, tc := range []struct {
		code   string
		setup  func(f *fixture)
		change func(r *metastore.Reconciled)
	}{
		{metastore.CodeRowMoved, nil, func(r *metastore.Reconciled) { r.Expect.Version-- }},
		{metastore.CodeRowMoved, nil, func(r *metastore.Reconciled) { r.Expect = nil }},
		{metastore.CodeUnknownBroker, nil, func(r *metastore.Reconciled) { r.Row.Owner = "b9" }},
		{metastore.CodeUnknownTopic, nil, func(r *metastore.Reconciled) { r.Row.TopicID, r.Expect = uuid.New(), nil }},
		{metastore.CodeTopicExists, nil, func(r *metastore.Reconciled) {
			r.Row.TopicID, r.Expect = uuid.New(), nil
			r.Topic = &metastore.Topic{ID: r.Row.TopicID, Name: "orders", Partitions: 2, ReplicationFactor: 1, WritePolicy: "all", ProducePolicy: "hold"}
		}},
	} {
		f := newFixture(t)
		row := f.claim("m1", "b2")
		f.exec("UPDATE assignments SET timeline = 0")
		r := reconciled(f, row, "m1")
		tc.change(&r)
		f.refused(tc.code, func() error { _, err := f.ReconcileRow(t.Context(), r); return err })
	}
	f := newFixture(t)
	row := f.row()
	must(t, f.DeleteTopic(t.Context(), "orders", uuid.Nil, "test"))
	_, err := f.ReconcileRow(t.Context(), metastore.Reconciled{Topic: f.topic, Row: *row, By: "test"})
	if !refusedFor(err, metastore.CodeUnknownTopic) {
		t.Errorf("a deleted topic: %v", err)
	}
}

func TestReplaceStorageOfABrokerThatStandsStill(t *testing.T) {
	f := newFixture(t)
	b1 := f.brokers["b1"]
	if _, err := f.OpenOwner(t.Context(), f.openRequest()); err != nil {
		t.Fatal(err)
	}
	seen, err := f.FindBroker(t.Context(), "b1")
	must(t, err)
	replace := metastore.ReplaceStorage{Broker: "b1", Old: b1.Storage, New: uuid.New(), Heartbeat: seen.Heartbeat, By: "test"}
	if _, err := f.Heartbeat(t.Context(), metastore.HeartbeatReport{Broker: "b1", Process: b1.Process, Storage: b1.Storage}); err != nil {
		t.Fatal(err)
	}
	f.refused(metastore.CodeBrokerAlive, func() error { _, err := f.ReplaceStorage(t.Context(), replace); return err })
	replace.Heartbeat++
	for range 2 {
		if owned, err := f.ReplaceStorage(t.Context(), replace); owned != 1 || err != nil {
			t.Fatal(owned, err)
		}
	}
	// The new folder registers, the opened partition stays with the storage it names, the one never opened goes along.
	next := b1
	next.Storage, next.Process = replace.New, uuid.New()
	if _, err := f.RegisterBroker(t.Context(), next); err != nil {
		t.Error(err)
	}
	if row := f.row(); row.OwnerStorage != b1.Storage {
		t.Errorf("the opened row is %+v", row)
	}
	if fresh, err := f.ReadAssignment(t.Context(), f.topic.ID, 1); err != nil || fresh.OwnerStorage != replace.New {
		t.Errorf("the row never opened is %+v (%v)", fresh, err)
	}
	if _, err := f.RegisterBroker(t.Context(), b1); !refusedFor(err, metastore.CodeStorageChanged) {
		t.Errorf("the old folder: %v", err)
	}
}
