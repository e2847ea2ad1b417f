package metastore

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
)

// Plan is a plan as it is kept: what was planned, of what, for whom and why.
type Plan struct {
	ID          string     `db:"id" json:"id"`
	Rebalance   string     `db:"rebalance" json:"rebalance,omitempty"` // first run id of the workflow it was made for
	Hash        string     `db:"hash" json:"hash"`
	Actions     int        `db:"actions" json:"actions"`
	Bytes       int64      `db:"bytes" json:"bytes"`
	RequestedBy string     `db:"requested_by" json:"requestedBy,omitempty"`
	Reason      string     `db:"reason" json:"reason,omitempty"`
	ApprovedBy  *string    `db:"approved_by" json:"approvedBy,omitempty"`
	ApprovedAt  *time.Time `db:"approved_at" json:"approvedAt,omitempty"`
	MadeAt      time.Time  `db:"made_at" json:"madeAt"`
	MaxInFlight *int       `db:"max_in_flight" json:"maxInFlight,omitempty"` // see LimitPlan; nil: any number
	Body        []byte     `db:"body" json:"-"`                              // JSON
	Snapshot    []byte     `db:"snapshot" json:"-"`                          // as planner.Snapshot.WriteTo writes it; nil when it was not kept
}

const planColumns = "id, rebalance, hash, actions, bytes, requested_by, reason, approved_by, approved_at, made_at, max_in_flight"

// SavePlan keeps a plan with the snapshot it was made of. Repeated under the same id it keeps the first.
//
// Everyone dies before it: there is no plan, it is made again under the same id. After it, or the reply is lost: the repeat
// finds it.
func (s *Store) SavePlan(ctx context.Context, p Plan) error {
	body, err := compress(p.Body)
	if err != nil {
		return err
	}
	snapshot, err := compress(p.Snapshot)
	if err != nil {
		return err
	}
	return s.guarded(ctx, "SavePlan", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `INSERT INTO plans (id, rebalance, hash, actions, bytes, body, snapshot, requested_by, reason, max_in_flight) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
			ON CONFLICT (id) DO NOTHING`, p.ID, p.Rebalance, p.Hash, p.Actions, p.Bytes, body, snapshot, p.RequestedBy, p.Reason, p.MaxInFlight)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return auditEntry{action: "make_plan", actor: p.RequestedBy, reason: p.Reason, after: map[string]any{"plan": p.ID, "hash": p.Hash, "actions": p.Actions}}.write(ctx, tx)
	})
}

// FindPlan reads a plan with its body, not its snapshot; nil when there is none by that id.
func (s *Store) FindPlan(ctx context.Context, id string) (*Plan, error) {
	return s.onePlan(ctx, "SELECT "+planColumns+", body, NULL::bytea AS snapshot FROM plans WHERE id = $1", id)
}

// PlanHash reads the hash of a plan; "" when there is none by that id.
func (s *Store) PlanHash(ctx context.Context, id string) (string, error) {
	hashes, err := s.q.Query(ctx, "SELECT hash FROM plans WHERE id = $1", id)
	if err != nil {
		return "", err
	}
	hash, err := pgx.CollectOneRow(hashes, pgx.RowTo[string])
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return hash, err
}

// FindPlanByHash reads the newest plan of a hash, or of a beginning of one of at least 8 characters; nil when there is none.
func (s *Store) FindPlanByHash(ctx context.Context, hash string) (*Plan, error) {
	if len(hash) < 8 {
		return nil, nil
	}
	return s.onePlan(ctx, "SELECT "+planColumns+", body, NULL::bytea AS snapshot FROM plans WHERE starts_with(hash, $1) ORDER BY made_at DESC LIMIT 1", hash)
}

// PlanSnapshot is the snapshot a plan was made of; nil when it was not kept.
func (s *Store) PlanSnapshot(ctx context.Context, id string) ([]byte, error) {
	p, err := s.onePlan(ctx, "SELECT "+planColumns+", body, snapshot FROM plans WHERE id = $1", id)
	if err != nil || p == nil {
		return nil, err
	}
	return p.Snapshot, nil
}

func (s *Store) onePlan(ctx context.Context, sql string, args ...any) (*Plan, error) {
	rows, err := s.q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	p, err := oneOrNil[Plan](rows)
	if err != nil || p == nil {
		return nil, err
	}
	if p.Body, err = decompress(p.Body); err != nil {
		return nil, fmt.Errorf("the body of plan %s: %w", p.ID, err)
	}
	if p.Snapshot, err = decompress(p.Snapshot); err != nil {
		return nil, fmt.Errorf("the snapshot of plan %s: %w", p.ID, err)
	}
	return p, nil
}

// Plans lists the newest plans without bodies; with a rebalance only its own, the oldest first.
func (s *Store) Plans(ctx context.Context, rebalance string, limit int) ([]Plan, error) {
	if rebalance != "" {
		return collect[Plan](ctx, s.pool, "SELECT "+planColumns+", NULL::bytea AS body, NULL::bytea AS snapshot FROM plans WHERE rebalance = $1 ORDER BY made_at LIMIT $2", rebalance, limit)
	}
	return collect[Plan](ctx, s.pool, "SELECT "+planColumns+", NULL::bytea AS body, NULL::bytea AS snapshot FROM plans ORDER BY made_at DESC LIMIT $1", limit)
}

// ApprovePlan records who let a plan be carried out; the first approval stays.
func (s *Store) ApprovePlan(ctx context.Context, id, by, reason string) error {
	return s.guarded(ctx, "ApprovePlan", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "UPDATE plans SET approved_by = $2, approved_at = now() WHERE id = $1 AND approved_at IS NULL", id, by)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return auditEntry{action: "approve_plan", actor: by, reason: reason, after: map[string]string{"plan": id}}.write(ctx, tx)
	})
}

// usedEnough is how old the mark of a plan's use may be; below it, a use is not worth a write.
const usedEnough = 10 * time.Minute

// UsePlan marks a plan as used now, as everyone does who carries it out: retention counts its age from there. Nothing is
// decided on it but that, so it is not guarded and leaves no line in the audit. A plan that is gone stays gone.
func (s *Store) UsePlan(ctx context.Context, id string) error {
	_, err := s.q.Exec(ctx, "UPDATE plans SET used_at = now() WHERE id = $1 AND used_at < now() - $2::interval", id, usedEnough)
	return err
}

// UsePlans marks all plans of a rebalance as used, as long as it runs: what its earlier ones have moved can be taken back by
// them.
func (s *Store) UsePlans(ctx context.Context, rebalance string) error {
	_, err := s.q.Exec(ctx, "UPDATE plans SET used_at = now() WHERE rebalance = $1 AND rebalance <> '' AND used_at < now() - $2::interval", rebalance, usedEnough)
	return err
}

// ActionEnd is how one action of a plan ended.
type ActionEnd struct {
	Seq       int    `db:"seq" json:"seq"`
	Topic     string `db:"topic" json:"topic"`
	Partition int32  `db:"partition" json:"partition"`
	State     string `db:"state" json:"state"`
	Code      string `db:"code" json:"code,omitempty"`
	Reason    string `db:"reason" json:"reason,omitempty"`
}

// RecordActions keeps how actions of a plan ended. For people: nothing is decided on it. A repeat changes nothing.
func (s *Store) RecordActions(ctx context.Context, plan string, ends []ActionEnd) error {
	return s.guarded(ctx, "RecordActions", func(ctx context.Context, tx pgx.Tx) error {
		for _, e := range ends {
			if _, err := tx.Exec(ctx, `INSERT INTO plan_actions (plan, seq, topic, partition, state, code, reason) SELECT $1, $2, $3, $4, $5, $6, $7 WHERE EXISTS (SELECT FROM plans WHERE id = $1)
				ON CONFLICT (plan, seq) DO UPDATE SET state = EXCLUDED.state, code = EXCLUDED.code, reason = EXCLUDED.reason`, plan, e.Seq, e.Topic, e.Partition, e.State, e.Code, e.Reason); err != nil {
				return err
			}
		}
		return nil
	})
}

// PlanActions lists how the actions of a plan ended, as far as that was recorded.
func (s *Store) PlanActions(ctx context.Context, plan string) ([]ActionEnd, error) {
	return collect[ActionEnd](ctx, s.pool, "SELECT seq, topic, partition, state, code, reason FROM plan_actions WHERE plan = $1 ORDER BY seq", plan)
}

// RebalanceMoves lists the committed moves that the plans of one rebalance led to, the newest first.
func (s *Store) RebalanceMoves(ctx context.Context, rebalance string) ([]Move, error) {
	return collect[Move](ctx, s.pool, "SELECT "+moveColumns+` FROM moves WHERE outcome = 'committed' AND plan IN (SELECT id FROM plans WHERE rebalance = $1) ORDER BY ended_at DESC, id`, rebalance)
}

func compress(raw []byte) ([]byte, error) {
	if raw == nil {
		return nil, nil
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err == nil {
		_, err = w.Write(raw)
	}
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}

func decompress(packed []byte) ([]byte, error) {
	if packed == nil {
		return nil, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
