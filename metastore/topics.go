package metastore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sort"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const topicColumns = `id, name, partitions, replication_factor, write_policy, produce_policy, internal, config`

// MaxPartitions bounds the partitions of one topic (requirements M4).
const MaxPartitions = 1024

var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// NewTopic describes a topic to create.
type NewTopic struct {
	Name       string
	Partitions int32
	Config     map[string]string
	// Candidates are the brokers believed alive by the caller; partitions are spread over those that are registered and
	// not draining. Placement overrides them: partition number to broker id.
	Candidates []string
	Placement  map[int32]string
	By         string
	CheckOnly  bool
}

// CreateTopic creates a topic with one row a partition in state created. Owners are the candidates with the fewest
// partitions, so that creating topics keeps a fleet balanced by count.
func (s *Store) CreateTopic(ctx context.Context, n NewTopic) (*Topic, error) {
	if !topicName.MatchString(n.Name) || n.Name == "." || n.Name == ".." {
		return nil, &Refused{Write: "CreateTopic", Code: CodeInvalidTopic, Reason: fmt.Sprintf("%q is not a topic name: use 1 to 249 of a-z A-Z 0-9 . _ -", n.Name)}
	}
	if n.Partitions < 1 || n.Partitions > MaxPartitions {
		return nil, &Refused{Write: "CreateTopic", Code: CodeInvalidTopic, Reason: fmt.Sprintf("a topic has 1 to %d partitions, not %d", MaxPartitions, n.Partitions)}
	}
	topic := &Topic{ID: uuid.New(), Name: n.Name, Partitions: n.Partitions, ReplicationFactor: 1, WritePolicy: "all", ProducePolicy: "hold", Config: n.Config}
	if topic.Config == nil {
		topic.Config = map[string]string{}
	}
	checked := errors.New("checked only")
	err := s.guarded(ctx, "CreateTopic", func(ctx context.Context, tx pgx.Tx) error {
		owners, err := s.placement(ctx, tx, 0, n)
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `INSERT INTO topics (id, name, partitions, replication_factor, write_policy, produce_policy, config)
			VALUES ($1, $2, $3, 1, $4, $5, $6) ON CONFLICT (name) DO NOTHING`, topic.ID, topic.Name, topic.Partitions, topic.WritePolicy, topic.ProducePolicy, topic.Config)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return &Refused{Code: CodeTopicExists, Reason: fmt.Sprintf("topic %q exists already", n.Name)}
		}
		if n.CheckOnly {
			return checked
		}
		for number, owner := range owners {
			if err := addRow(ctx, tx, topic.ID, int32(number), owner); err != nil {
				return err
			}
		}
		return auditEntry{action: "create_topic", actor: n.By, topicID: &topic.ID, topic: topic.Name, after: topic}.write(ctx, tx)
	})
	if errors.Is(err, checked) {
		return topic, nil
	}
	if err != nil {
		return nil, err
	}
	return topic, nil
}

// placement chooses an owner for each partition from first on: the given one, else the candidate that owns least.
func (s *Store) placement(ctx context.Context, tx pgx.Tx, first int32, n NewTopic) ([]Broker, error) {
	rows, err := tx.Query(ctx, "SELECT "+brokerColumns+" FROM brokers WHERE NOT removed AND NOT draining ORDER BY id FOR SHARE")
	if err != nil {
		return nil, err
	}
	brokers, err := pgx.CollectRows(rows, pgx.RowToStructByName[Broker])
	if err != nil {
		return nil, err
	}
	byID := map[string]Broker{}
	for _, b := range brokers {
		byID[b.ID] = b
	}
	owned := map[string]int{}
	counts, err := tx.Query(ctx, "SELECT owner, count(*) FROM assignments GROUP BY owner")
	if err != nil {
		return nil, err
	}
	var id string
	var count int
	if _, err := pgx.ForEachRow(counts, []any{&id, &count}, func() error { owned[id] = count; return nil }); err != nil {
		return nil, err
	}
	candidates := make([]string, 0, len(n.Candidates))
	for _, c := range n.Candidates {
		if _, ok := byID[c]; ok {
			candidates = append(candidates, c)
		}
	}
	owners := make([]Broker, n.Partitions)
	for number := first; number < n.Partitions; number++ {
		if placed, ok := n.Placement[number]; ok {
			b, known := byID[placed]
			if !known {
				return nil, &Refused{Code: CodeUnknownBroker, Reason: fmt.Sprintf("broker %q can take no partition: it is not registered, draining or removed", placed)}
			}
			owners[number] = b
			continue
		}
		if len(candidates) == 0 {
			return nil, &Refused{Code: CodeNoBroker, Reason: "no live broker can take the partitions; start an agent, or wait for one to be seen alive"}
		}
		sort.SliceStable(candidates, func(i, j int) bool {
			a, b := owned[candidates[i]], owned[candidates[j]]
			return a < b || (a == b && candidates[i] < candidates[j])
		})
		owners[number] = byID[candidates[0]]
		owned[candidates[0]]++
	}
	return owners, nil
}

// DeleteTopic removes a topic, its rows and, with them, every claim on its partitions: moves that were running end as
// aborted in the same transaction, which also keeps the proof of the deletion. Agents move the data to trash when they see
// the topic id gone and that proof.
func (s *Store) DeleteTopic(ctx context.Context, name string, id uuid.UUID, by string) error {
	return s.guarded(ctx, "DeleteTopic", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "SELECT "+topicColumns+" FROM topics WHERE (name = $1 OR ($1 = '' AND id = $2)) FOR UPDATE", name, id)
		if err != nil {
			return err
		}
		topic, err := oneOrNil[Topic](rows)
		if err != nil {
			return err
		}
		if topic == nil {
			return &Refused{Code: CodeUnknownTopic, Reason: fmt.Sprintf("there is no topic %q", name)}
		}
		if topic.Internal {
			return &Refused{Code: CodeInternalTopic, Reason: fmt.Sprintf("topic %q is internal and can not be deleted", name)}
		}
		// The rows' locks come first, as in every guarded write, so that a commit in flight is either before or after.
		if _, err := tx.Exec(ctx, "SELECT 1 FROM assignments WHERE topic_id = $1 ORDER BY partition FOR UPDATE", topic.ID); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE moves SET outcome = 'aborted', outcome_by = $2, outcome_reason = 'topic deleted', phase = 'aborted', ended_at = now()
			WHERE topic_id = $1 AND outcome IS NULL`, topic.ID, by); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO deleted_topics (topic_id, name, deleted_by) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", topic.ID, topic.Name, by); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM topics WHERE id = $1", topic.ID); err != nil {
			return err
		}
		return auditEntry{action: "delete_topic", actor: by, topicID: &topic.ID, topic: topic.Name, before: topic}.write(ctx, tx)
	})
}

// SetInternal marks a topic as the fleet's own, so that it never moves.
func (s *Store) SetInternal(ctx context.Context, name string, internal bool) error {
	tag, err := s.q.Exec(ctx, "UPDATE topics SET internal = $2 WHERE name = $1", name, internal)
	if err == nil && tag.RowsAffected() == 0 {
		return fmt.Errorf("there is no topic %q", name)
	}
	return err
}
