package metastore_test

import (
	"testing"

	"portage/metastore"
)

// Partitions are new rows: what is there, a claim too, stays as it is.
func TestAddedPartitionsAreNewRows(t *testing.T) {
	f := newFixture(t)
	before, err := f.FindAssignment(t.Context(), "orders", 0)
	must(t, err)
	id, err := f.AddPartitions(t.Context(), metastore.MorePartitions{Topic: "orders", Total: 4, Candidates: []string{"b1", "b2"}, Placement: map[int32]string{3: "b3"}, By: "test"})
	must(t, err)
	if id != f.topic.ID {
		t.Errorf("the topic's id is %s, not %s", id, f.topic.ID)
	}
	topic, err := f.FindTopic(t.Context(), "orders")
	must(t, err)
	if topic.Partitions != 4 {
		t.Errorf("the topic has %d partitions", topic.Partitions)
	}
	for number, owner := range map[int32]string{2: "b2", 3: "b3"} {
		row, err := f.FindAssignment(t.Context(), "orders", number)
		if err != nil || row == nil || row.Owner != owner || row.State != metastore.StateCreated || row.OwnerStorage != f.brokers[owner].Storage {
			t.Errorf("partition %d: %+v (%v), want %s", number, row, err, owner)
		}
	}
	after, err := f.FindAssignment(t.Context(), "orders", 0)
	must(t, err)
	if after.Version != before.Version || after.Owner != before.Owner {
		t.Errorf("partition 0 was %+v and is %+v", before, after)
	}
}

func TestAddPartitionsRefusals(t *testing.T) {
	f := newFixture(t)
	for _, tc := range []struct {
		code string
		ask  metastore.MorePartitions
	}{
		{metastore.CodeUnknownTopic, metastore.MorePartitions{Topic: "events", Total: 3, Candidates: []string{"b1"}}},
		{metastore.CodeTopicExists, metastore.MorePartitions{Topic: "orders", Total: 2, Candidates: []string{"b1"}}},
		{metastore.CodeInvalidTopic, metastore.MorePartitions{Topic: "orders", Total: 1, Candidates: []string{"b1"}}},
		{metastore.CodeInvalidTopic, metastore.MorePartitions{Topic: "orders", Total: metastore.MaxPartitions + 1, Candidates: []string{"b1"}}},
		{metastore.CodeNoBroker, metastore.MorePartitions{Topic: "orders", Total: 3}},
		{metastore.CodeUnknownBroker, metastore.MorePartitions{Topic: "orders", Total: 3, Placement: map[int32]string{2: "b9"}}},
	} {
		f.refused(tc.code, func() error { _, err := f.AddPartitions(t.Context(), tc.ask); return err })
	}
	if err := f.unchanged("a check", func() error {
		_, err := f.AddPartitions(t.Context(), metastore.MorePartitions{Topic: "orders", Total: 3, Candidates: []string{"b1"}, CheckOnly: true})
		return err
	}); err != nil {
		t.Error(err)
	}
}
