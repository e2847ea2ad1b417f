package metastore

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// MorePartitions describes partitions to add to a topic.
type MorePartitions struct {
	Topic string
	Total int32 // how many the topic has afterwards
	// Candidates and Placement choose the owners of the new ones, as in NewTopic.
	Candidates []string
	Placement  map[int32]string
	By         string
	CheckOnly  bool
}

// AddPartitions adds partitions to a topic, each a new row in state created. No row that is there changes, so a move of
// another partition of the topic neither waits for it nor is disturbed. It returns the topic's id.
//
// Refused: CodeUnknownTopic, CodeInternalTopic, CodeTopicExists when there are as many already, CodeInvalidTopic when there
// are more, or too many are asked for, CodeUnknownBroker, CodeNoBroker. The reply is lost: a repeat is refused with
// CodeTopicExists, for there are as many.
func (s *Store) AddPartitions(ctx context.Context, m MorePartitions) (id uuid.UUID, err error) {
	checked := errors.New("checked only")
	err = s.guarded(ctx, "AddPartitions", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "SELECT "+topicColumns+" FROM topics WHERE name = $1 FOR UPDATE", m.Topic)
		if err != nil {
			return err
		}
		topic, err := oneOrNil[Topic](rows)
		switch {
		case err != nil:
			return err
		case topic == nil:
			return &Refused{Code: CodeUnknownTopic, Reason: fmt.Sprintf("there is no topic %q", m.Topic)}
		case topic.Internal:
			return &Refused{Code: CodeInternalTopic, Reason: fmt.Sprintf("topic %q is internal and can not be changed", m.Topic)}
		case m.Total == topic.Partitions:
			return &Refused{Code: CodeTopicExists, Reason: fmt.Sprintf("topic %q has %d partitions already", m.Topic, topic.Partitions)}
		case m.Total < topic.Partitions:
			return &Refused{Code: CodeInvalidTopic, Reason: fmt.Sprintf("topic %q has %d partitions, and their number can only grow", m.Topic, topic.Partitions)}
		case m.Total > MaxPartitions:
			return &Refused{Code: CodeInvalidTopic, Reason: fmt.Sprintf("a topic has 1 to %d partitions, not %d", MaxPartitions, m.Total)}
		}
		id = topic.ID
		owners, err := s.placement(ctx, tx, topic.Partitions, NewTopic{Partitions: m.Total, Candidates: m.Candidates, Placement: m.Placement})
		if err != nil {
			return err
		}
		if m.CheckOnly {
			return checked
		}
		if _, err := tx.Exec(ctx, "UPDATE topics SET partitions = $2 WHERE id = $1", topic.ID, m.Total); err != nil {
			return err
		}
		for number := topic.Partitions; number < m.Total; number++ {
			if err := addRow(ctx, tx, topic.ID, number, owners[number]); err != nil {
				return err
			}
		}
		after := *topic
		after.Partitions = m.Total
		return auditEntry{action: "add_partitions", actor: m.By, topicID: &topic.ID, topic: topic.Name, before: topic, after: after}.write(ctx, tx)
	})
	if errors.Is(err, checked) {
		err = nil
	}
	return id, err
}

// addRow adds one partition that has never been opened.
func addRow(ctx context.Context, tx pgx.Tx, topicID uuid.UUID, number int32, owner Broker) error {
	_, err := tx.Exec(ctx, `INSERT INTO assignments (topic_id, partition, owner, owner_storage) VALUES ($1, $2, $3, $4)`, topicID, number, owner.ID, owner.StorageInstance)
	return err
}
