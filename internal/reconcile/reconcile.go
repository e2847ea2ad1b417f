package reconcile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"portage/metastore"
)

// HeldByAgent is what one agent holds of the metastore's rows.
type HeldByAgent struct {
	Broker string
	Rows   []HeldRow
	Topics []metastore.Topic
}

// HeldRow is one row an agent holds.
type HeldRow struct {
	Row     metastore.Assignment
	Serving bool // it has the partition open at the row's epoch
}

// Actions of a reconciliation.
const (
	ActionAdvance  = "advance"  // the row stands: it is stamped with the present lineage, under a version above every one seen
	ActionCorrect  = "correct"  // an agent holds a newer row: that one is written
	ActionRecreate = "recreate" // the metastore lacks the row
)

// Reconciliation is what is to be done about one partition.
type Reconciliation struct {
	Topic     string                `json:"topic"`
	Partition int32                 `json:"partition"`
	Action    string                `json:"action"`
	Why       string                `json:"why"`
	Row       *metastore.Assignment `json:"row,omitempty"`  // as the metastore has it
	Held      *metastore.Assignment `json:"held,omitempty"` // the highest that an agent holds
	HeldBy    string                `json:"heldBy,omitempty"`
	Serving   bool                  `json:"serving,omitempty"` // that agent has it open
	Write     metastore.Reconciled  `json:"-"`
}

// partitionKey is one partition.
type partitionKey struct {
	topicID   uuid.UUID
	partition int32
}

// Reconcile decides what the rows of a metastore that went back in time are to become: for each partition the highest
// (epoch, version) that any agent holds, under a version above every one seen (R1). Rows of the present lineage that no
// agent contradicts are left alone, so that a second run has nothing to do. Topics whose deletion is proved are left to
// their agents.
func Reconcile(s *metastore.Snapshot, agents []HeldByAgent, deleted map[uuid.UUID]bool) []Reconciliation {
	now := map[partitionKey]*metastore.Assignment{}
	seen := map[partitionKey]bool{}
	for i := range s.Assignments {
		row := &s.Assignments[i]
		now[partitionKey{row.TopicID, row.Partition}] = row
		seen[partitionKey{row.TopicID, row.Partition}] = true
	}
	topics := map[uuid.UUID]metastore.Topic{}
	held := map[partitionKey][]candidate{}
	for _, agent := range agents {
		for _, t := range agent.Topics {
			if known, ok := topics[t.ID]; !ok || known.Partitions < t.Partitions {
				topics[t.ID] = t
			}
		}
		for i := range agent.Rows {
			row := &agent.Rows[i].Row
			k := partitionKey{row.TopicID, row.Partition}
			if !deleted[row.TopicID] {
				held[k] = append(held[k], candidate{broker: agent.Broker, row: row, serving: agent.Rows[i].Serving})
				seen[k] = true
			}
		}
	}
	var all []Reconciliation
	for k := range seen {
		var topic *metastore.Topic
		if t, ok := topics[k.topicID]; ok {
			topic = &t
		}
		if r := reconcileOne(now[k], held[k], topic); r != nil {
			all = append(all, *r)
		}
	}
	slices.SortFunc(all, func(a, b Reconciliation) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Write.Row.TopicID.String(), b.Write.Row.TopicID.String()))
	})
	return all
}

// candidate is one agent's copy of a row.
type candidate struct {
	broker  string
	row     *metastore.Assignment
	serving bool
}

// highest is the newest copy; of equal ones that of the agent that serves by it, whose clients rest on it.
func highest(held []candidate) *candidate {
	var best *candidate
	for i := range held {
		c := &held[i]
		switch {
		case best == nil, c.row.Newer(best.row):
			best = c
		case best.row.Newer(c.row):
		case c.serving && !best.serving, c.serving == best.serving && c.broker < best.broker:
			best = c
		}
	}
	return best
}

// contradicting is an agent whose copy came to the row's version by another write; nil when there is none. It waits until the
// version is above both.
func contradicting(row *metastore.Assignment, held []candidate) *candidate {
	for i := range held {
		if row != nil && row.Contradicts(held[i].row) {
			return &held[i]
		}
	}
	return nil
}

func reconcileOne(row *metastore.Assignment, held []candidate, topic *metastore.Topic) *Reconciliation {
	best, other := highest(held), contradicting(row, held)
	r := &Reconciliation{Row: row, Action: ActionAdvance}
	basis := row
	switch {
	case row == nil:
		r.Action, r.Why = ActionRecreate, fmt.Sprintf("the metastore does not know it, %s does", best.broker)
	case best != nil && row.Older(metastore.HeldOf(best.row)):
		r.Action, r.Why = ActionCorrect, fmt.Sprintf("%s holds a newer row", best.broker)
	case best != nil && row.Contradicts(best.row) && best.serving:
		r.Action, r.Why = ActionCorrect, fmt.Sprintf("%s serves by another row of the same version", best.broker)
	case other != nil:
		r.Why = fmt.Sprintf("%s holds another row of the same version and serves nothing by it", other.broker)
	case row.Restored:
		r.Why = "written on another Postgres timeline or server; no agent holds a newer row"
	default:
		return nil
	}
	if r.Action != ActionAdvance {
		basis = best.row
	}
	version := basis.Version
	if row != nil {
		version = max(version, row.Version)
		expect := metastore.HeldOf(row)
		r.Write.Expect = &expect
	}
	for _, c := range held {
		version = max(version, c.row.Version)
		// A commit leaves its id behind with its destination as owner, an abort with the source; which of the two it was, the
		// move's own row tells when it names its destination.
		if c.row.LastMove != nil {
			r.Write.Proofs = append(r.Write.Proofs, metastore.CommitProof{MoveID: *c.row.LastMove, Owner: c.row.Owner, Epoch: c.row.Epoch, Unopened: c.row.OpenedEpoch < c.row.Epoch})
		}
	}
	if best != nil {
		r.Held, r.HeldBy, r.Serving = best.row, best.broker, best.serving
	}
	r.Topic, r.Partition = basis.Topic, basis.Partition
	if claim := claimOf(row, basis); claim != "" {
		r.Why += "; its move is ended or recorded as committed"
	}
	r.Write.Topic, r.Write.Row, r.Write.Reason = topic, *basis, r.Why
	r.Write.Row.Version = version + 1
	return r
}

func claimOf(row, basis *metastore.Assignment) string {
	if row != nil && row.Moving() != "" {
		return row.Moving()
	}
	return basis.Moving()
}
