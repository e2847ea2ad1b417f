package operate

import (
	"context"
	"errors"

	"portage/internal/fleetview"
	"portage/planner"
)

// PlanOptions are what may differ in a plan that is only looked at.
type PlanOptions struct {
	CountOnly  bool // balance the number of partitions alone
	MaxActions int  // below 0: as the settings say; 0: no cap
}

// Plan says what should move in the fleet as it is. It keeps nothing and changes nothing; a plan that is to be approved is a dry
// run of a rebalance.
func (f *Fleet) Plan(ctx context.Context, o PlanOptions) (*planner.Plan, error) {
	settings, err := fleetview.Settings(ctx, f.Store, nil)
	if err != nil {
		return nil, ofPlanning(err)
	}
	if o.MaxActions >= 0 {
		settings.MaxActions = o.MaxActions
	}
	snapshot, err := fleetview.Read(ctx, f.Store, f.Agents, settings)
	if err != nil {
		return nil, ofPlanning(err)
	}
	return Decide(snapshot, settings, o.CountOnly)
}

// Decide plans on a snapshot.
func Decide(s *planner.Snapshot, settings planner.Settings, countOnly bool) (*planner.Plan, error) {
	decide := planner.MakePlan
	if countOnly {
		decide = planner.BalanceCounts
	}
	plan, err := decide(s, settings)
	if err != nil {
		err = because(err, Refused, CodeFailed, "%v", err)
	}
	return plan, err
}

// ofPlanning is an error of a look at the fleet: settings that are none, or a metastore that does not answer.
func ofPlanning(err error) error {
	if errors.Is(err, fleetview.ErrInvalid) {
		return because(err, Refused, CodeInvalidSetting, "%v", err)
	}
	return ofStore(err)
}

// InvalidSetting is the error of settings that are none.
func InvalidSetting(cause error) error {
	return because(cause, Invalid, CodeInvalidSetting, "%v", cause)
}
