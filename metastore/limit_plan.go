package metastore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// claimsOfPlans is the advisory lock under which moves in flight are counted and one more begins, so that two claims never
// take the same last place. See lockMove for the order of locks.
const claimsOfPlans = 0x706c616e // "plan"

// PlanLimit is what the claims of a plan's moves look at.
type PlanLimit struct {
	MaxInFlight int       // moves in the whole fleet below which another begins; 0: none begins
	Held        string    // the code of what holds the plan: none begins, and those that have take nobody's place; empty: nothing
	Over        bool      // none begins any more
	At          time.Time // when that was decided; what is older than what is written already changes nothing
}

// LimitPlan sets the limit of a plan; it ends no move. A plan that is gone stays gone.
//
// Everyone dies before it: the former limit holds until the rebalance is back and says it again. After it, or the reply is
// lost: the repeat writes the same. An attempt that was given up arrives late: it is older than what is there.
func (s *Store) LimitPlan(ctx context.Context, id string, l PlanLimit) error {
	return s.guarded(ctx, "LimitPlan", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE plans SET max_in_flight = $2, held = $3, over = $4, limited_at = $5 WHERE id = $1 AND limited_at <= $5", id, l.MaxInFlight, l.Held, l.Over, l.At)
		return err
	})
}

// FindPlace refuses as a claim does for which the fleet has no place, without any lock: who waits for a place looks here
// again and again, and claims only once there is one. A swap is two moves.
func (s *Store) FindPlace(ctx context.Context, plan string, moves int) error {
	err := findPlaces(ctx, s.q, plan, moves)
	var refused *Refused
	if errors.As(err, &refused) {
		refused.Write = "FindPlace"
	}
	return err
}

// lockPlaces makes this claim the only one of a plan that counts moves in flight.
func lockPlaces(ctx context.Context, tx pgx.Tx, plan string) error {
	if plan == "" {
		return nil
	}
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", claimsOfPlans)
	return err
}

// findPlaces refuses moves of a plan that is held or over, or while as many moves are in flight in the fleet as its rebalance
// allows: its own, those of others, and those that a person started, which wait for nobody. A swap is two, and runs alone
// where only one may.
func findPlaces(ctx context.Context, q querier, plan string, moves int) error {
	if plan == "" || moves == 0 {
		return nil
	}
	rows, err := q.Query(ctx, `SELECT max_in_flight, held, over,
		(SELECT count(*) FROM moves m WHERE m.outcome IS NULL AND NOT EXISTS (SELECT FROM plans h WHERE h.id = m.plan AND h.held <> '')) AS running
		FROM plans WHERE id = $1`, plan)
	if err != nil {
		return err
	}
	type limit struct {
		Most    *int   `db:"max_in_flight"`
		Held    string `db:"held"`
		Over    bool   `db:"over"`
		Running int    `db:"running"`
	}
	l, err := oneOrNil[limit](rows)
	switch {
	case err != nil:
		return err
	case l == nil:
		return nil
	case l.Over:
		return &Refused{Code: CodePlanOver, Reason: "the deadline of the rebalance passed while the move waited to begin; the partition stays where it is"}
	case l.Held != "":
		return &Refused{Code: l.Held, Reason: "the rebalance is held, so none of its moves begins"}
	case l.Most == nil, l.Running+moves <= *l.Most, l.Running == 0 && *l.Most > 0:
		return nil
	case *l.Most == 0:
		return &Refused{Code: CodePlanNone, Reason: "the limit of the rebalance is 0 moves in flight, so none begins"}
	}
	return &Refused{Code: CodeFleetBusy, Reason: fmt.Sprintf("%d moves are in flight in the fleet, and the limit of the rebalance is %d", l.Running, *l.Most)}
}
