package metastore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// claimsOfPlans is the advisory lock under which moves in flight are counted and one more begins, so that two claims never
// take the same last place. It is taken before any row, and whoever waits for a row holds nothing that this waits for.
const claimsOfPlans = 0x706c616e // "plan"

// PlanLimit is what the claims of a plan's moves look at.
type PlanLimit struct {
	MaxInFlight int  // moves in the whole fleet below which another begins; 0: none begins
	Held        bool // none begins, and those that have copy nothing: they take nobody's place
	Over        bool // none begins any more
}

// LimitPlan sets the limit of a plan; it ends no move. The last writer wins, and the rebalance that carries the plan out is
// the only one; a plan that is gone stays gone.
//
// Everyone dies before it: the former limit holds until the rebalance is back and says it again. After it, or the reply is
// lost: the repeat writes the same.
func (s *Store) LimitPlan(ctx context.Context, id string, l PlanLimit) error {
	return s.guarded(ctx, "LimitPlan", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE plans SET max_in_flight = $2, held = $3, over = $4 WHERE id = $1", id, l.MaxInFlight, l.Held, l.Over)
		return err
	})
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
func findPlaces(ctx context.Context, tx pgx.Tx, req ClaimRequest, row *Assignment) error {
	if req.Plan == "" || req.places == 0 {
		return nil
	}
	var most *int
	var held, over bool
	err := tx.QueryRow(ctx, "SELECT max_in_flight, held, over FROM plans WHERE id = $1", req.Plan).Scan(&most, &held, &over)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	case over:
		return &Refused{Code: CodePlanOver, Row: row, Reason: fmt.Sprintf("the deadline of the rebalance passed while %s waited for its move to begin; it stays on %s", row.Name(), row.Owner)}
	case held:
		return &Refused{Code: CodePlanHeld, Row: row, Reason: fmt.Sprintf("the rebalance that moves %s is paused or outside its window", row.Name())}
	case most == nil:
		return nil
	}
	var running int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM moves m WHERE m.finished_at IS NULL AND m.outcome IS NULL
		AND NOT EXISTS (SELECT FROM plans p WHERE p.id = m.plan AND p.held)`).Scan(&running); err != nil {
		return err
	}
	if running+req.places <= *most || (running == 0 && *most > 0) {
		return nil
	}
	return &Refused{Code: CodeFleetBusy, Row: row, Reason: fmt.Sprintf("%d moves are in flight in the fleet, and the rebalance begins another only below %d; %s begins when one has ended", running, *most, row.Name())}
}
