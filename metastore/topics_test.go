package metastore_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"portage/metastore"
)

func TestCreateTopicSpreadsPartitionsOverTheCandidatesThatOwnLeast(t *testing.T) {
	f := newFixture(t) // b1 owns two partitions already
	topic, err := f.CreateTopic(t.Context(), metastore.NewTopic{Name: "events", Partitions: 4, Candidates: []string{"b3", "b2", "b1", "b9"}, By: "test"})
	if err != nil {
		t.Fatal(err)
	}
	owned := map[string]int{}
	for n := range topic.Partitions {
		row, err := f.FindAssignment(t.Context(), "events", n)
		if err != nil || row == nil || row.State != metastore.StateCreated || row.OwnerStorage != f.brokers[row.Owner].Storage || row.Epoch != 0 {
			t.Fatalf("partition %d: %+v (%v)", n, row, err)
		}
		owned[row.Owner]++
	}
	if owned["b1"] != 0 || owned["b2"] != 2 || owned["b3"] != 2 {
		t.Errorf("owned are %v", owned)
	}
}

func TestCreateTopicRefusals(t *testing.T) {
	f := newFixture(t)
	must(t, f.SetDraining(t.Context(), "b3", true, "test", ""))
	for _, tc := range []struct {
		code string
		ask  metastore.NewTopic
	}{
		{metastore.CodeInvalidTopic, metastore.NewTopic{Name: "", Partitions: 1, Candidates: []string{"b1"}}},
		{metastore.CodeInvalidTopic, metastore.NewTopic{Name: "..", Partitions: 1, Candidates: []string{"b1"}}},
		{metastore.CodeInvalidTopic, metastore.NewTopic{Name: "a/b", Partitions: 1, Candidates: []string{"b1"}}},
		{metastore.CodeInvalidTopic, metastore.NewTopic{Name: strings.Repeat("x", 250), Partitions: 1, Candidates: []string{"b1"}}},
		{metastore.CodeInvalidTopic, metastore.NewTopic{Name: "events", Partitions: 0, Candidates: []string{"b1"}}},
		{metastore.CodeInvalidTopic, metastore.NewTopic{Name: "events", Partitions: metastore.MaxPartitions + 1, Candidates: []string{"b1"}}},
		{metastore.CodeTopicExists, metastore.NewTopic{Name: "orders", Partitions: 1, Candidates: []string{"b1"}}},
		{metastore.CodeNoBroker, metastore.NewTopic{Name: "events", Partitions: 1}},
		{metastore.CodeNoBroker, metastore.NewTopic{Name: "events", Partitions: 1, Candidates: []string{"b3"}}},
		{metastore.CodeUnknownBroker, metastore.NewTopic{Name: "events", Partitions: 1, Placement: map[int32]string{0: "b3"}}},
		{metastore.CodeUnknownBroker, metastore.NewTopic{Name: "events", Partitions: 1, Placement: map[int32]string{0: "b9"}}},
	} {
		f.refused(tc.code, func() error { _, err := f.CreateTopic(t.Context(), tc.ask); return err })
	}
	if err := f.unchanged("a check", func() error {
		_, err := f.CreateTopic(t.Context(), metastore.NewTopic{Name: "events", Partitions: 1, Candidates: []string{"b1"}, CheckOnly: true})
		return err
	}); err != nil {
		t.Error(err)
	}
	if topic, err := f.FindTopic(t.Context(), "events"); topic != nil || err != nil {
		t.Errorf("the refused topic is there: %+v (%v)", topic, err)
	}
}

func TestOneOfManyConcurrentCreationsWins(t *testing.T) {
	f := newFixture(t)
	var group sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		group.Go(func() {
			_, errs[i] = f.CreateTopic(t.Context(), metastore.NewTopic{Name: "events", Partitions: 3, Candidates: []string{"b1", "b2"}, By: fmt.Sprint(i)})
		})
	}
	group.Wait()
	won := 0
	for _, err := range errs {
		if _, exists := metastore.RefusedWith(err, metastore.CodeTopicExists); err == nil {
			won++
		} else if !exists {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d creations won", won)
	}
}

func TestDeleteTopicEndsItsRunningMoves(t *testing.T) {
	f := newFixture(t)
	row := f.claim("m1", "b2")
	c := f.evidence("m1", row)
	lines := f.audits()
	if err := f.DeleteTopic(t.Context(), "orders", uuid.Nil, "test"); err != nil {
		t.Fatal(err)
	}
	if f.audits() != lines+1 || f.row() != nil {
		t.Errorf("%d lines in the audit, row %+v", f.audits()-lines, f.row())
	}
	if move, err := f.FindMove(t.Context(), "m1"); err != nil || move.Ended() != metastore.OutcomeAborted {
		t.Errorf("the move of the deleted topic is %+v (%v)", move, err)
	}
	f.refused(metastore.CodeMoveEnded, func() error { _, err := f.CommitOwner(t.Context(), c); return err })
	if row, err := f.AbortMove(t.Context(), "m1", "b1", ""); row != nil || err != nil {
		t.Errorf("its abort ended with %+v and %v", row, err)
	}
	f.refused(metastore.CodeUnknownTopic, func() error { return f.DeleteTopic(t.Context(), "orders", uuid.Nil, "test") })
	// The name comes back with another id, and the old id does not.
	if again := f.createTopic("orders"); again.ID == f.topic.ID {
		t.Error("the new topic has the old one's id")
	}
	if _, err := f.OpenOwner(t.Context(), metastore.OpenRequest{TopicID: f.topic.ID, Broker: "b1", Storage: f.brokers["b1"].Storage}); !refusedFor(err, metastore.CodeUnknownPartition) {
		t.Errorf("opening a partition of the deleted topic ended with %v", err)
	}
}

func TestDeleteTopicByIDAndItsRefusals(t *testing.T) {
	f := newFixture(t)
	must(t, f.SetInternal(t.Context(), "orders", true))
	f.refused(metastore.CodeInternalTopic, func() error { return f.DeleteTopic(t.Context(), "orders", uuid.Nil, "test") })
	must(t, f.SetInternal(t.Context(), "orders", false))
	f.refused(metastore.CodeUnknownTopic, func() error { return f.DeleteTopic(t.Context(), "", uuid.New(), "test") })
	if err := f.DeleteTopic(t.Context(), "", f.topic.ID, "test"); err != nil {
		t.Error(err)
	}
}

// A deletion and a commit meet: whichever comes second finds the other's outcome, and none deadlocks.
func TestDeletionAndCommitDoNotBothWinHalf(t *testing.T) {
	f := newFixture(t)
	for i := range 30 {
		name := fmt.Sprintf("topic-%d", i)
		f.topic = f.createTopic(name)
		id := "move-" + name
		c := f.evidence(id, f.claim(id, "b2"))
		var group sync.WaitGroup
		var commitErr, deleteErr error
		group.Go(func() { _, commitErr = f.CommitOwner(t.Context(), c) })
		group.Go(func() { deleteErr = f.DeleteTopic(t.Context(), name, uuid.Nil, "test") })
		group.Wait()
		move, err := f.FindMove(t.Context(), id)
		if err != nil || deleteErr != nil {
			t.Fatalf("deletion ended with %v, reading with %v", deleteErr, err)
		}
		if ended := move.Ended(); (commitErr == nil) != (ended == metastore.OutcomeCommitted) || ended == "" || metastore.IsUnknown(commitErr) {
			t.Fatalf("the commit ended with %v, the move is %q", commitErr, ended)
		}
	}
}

func refusedFor(err error, code string) bool {
	_, ok := metastore.RefusedWith(err, code)
	return ok
}
