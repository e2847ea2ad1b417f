package metastore

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Modes of the autobalance.
const (
	AutobalanceOff   = "off"   // nothing moves unless a person says so
	AutobalanceCount = "count" // passes even out the number of partitions, and empty draining brokers
	AutobalanceGoals = "goals" // passes serve all goals of the planner's settings
)

// Autobalance is what the fleet's settings say of it.
type Autobalance struct {
	Mode  string
	Every time.Duration // between two passes for no other reason; 0: none
}

// Autobalance reads the fleet's settings of it.
func (s *Store) Autobalance(ctx context.Context) (Autobalance, error) {
	var a Autobalance
	all, err := s.Settings(ctx)
	if err != nil {
		return a, err
	}
	for _, setting := range all {
		switch setting.Key {
		case SettingAutobalance:
			a.Mode = setting.Value
		case SettingAutobalanceEvery:
			if a.Every, err = ParseRetention(setting.Value); err != nil {
				return a, err
			}
		}
	}
	return a, nil
}

// FleetChange is a broker that the autobalance has not seen as it is.
type FleetChange struct {
	Broker string
	State  string // what MarkBalanced is told once a pass has seen it
	What   string // a sentence without its full stop: what is new about it
}

// brokerState is what of a broker's row a pass is a reason for: its storage, whether it drains, and its capacity. That its
// process restarts is none.
const brokerState = "storage_instance::text || CASE WHEN draining THEN ' draining ' ELSE ' serving ' END || capacity::text"

// FleetChanges are the brokers that registered, came back with other storage, began or ceased to drain, or were given another
// capacity since a pass saw them, by id.
func (s *Store) FleetChanges(ctx context.Context) ([]FleetChange, error) {
	type row struct {
		ID   string `db:"id"`
		Now  string `db:"now"`
		Seen string `db:"seen"`
	}
	rows, err := collect[row](ctx, s.q, "SELECT id, now, seen FROM (SELECT id, "+brokerState+" AS now, balanced_as AS seen FROM brokers WHERE NOT removed) b WHERE now <> seen ORDER BY id")
	if err != nil {
		return nil, err
	}
	var changes []FleetChange
	for _, r := range rows {
		changes = append(changes, FleetChange{Broker: r.ID, State: r.Now, What: r.ID + " " + whatChanged(r.Seen, r.Now)})
	}
	return changes, nil
}

func whatChanged(seen, now string) string {
	was, is := strings.SplitN(seen, " ", 3), strings.SplitN(now, " ", 3)
	switch {
	case len(was) < 3 && is[1] == "draining":
		return "registered and is draining"
	case len(was) < 3:
		return "registered"
	case was[0] != is[0]:
		return "came back with other storage"
	case was[1] != is[1] && is[1] == "draining":
		return "is draining"
	case was[1] != is[1]:
		return "takes partitions again"
	}
	return "has another capacity"
}

// MarkBalanced says that a pass has seen brokers as they were. One that has changed again meanwhile stays a reason for the
// next pass.
//
// The worker dies before it, or half-way: what is not marked is a reason for another pass, which finds little to do. After it, or
// the reply is lost: repeating it changes nothing.
func (s *Store) MarkBalanced(ctx context.Context, changes []FleetChange) error {
	for _, c := range changes { // each by itself: it never holds one broker's row while it waits for another's
		if _, err := s.q.Exec(ctx, "UPDATE brokers SET balanced_as = $2 WHERE id = $1", c.Broker, c.State); err != nil {
			return err
		}
	}
	return nil
}

// autobalanceMode checks the setting.
func autobalanceMode(text string) (string, error) {
	switch text {
	case AutobalanceOff, AutobalanceCount, AutobalanceGoals:
		return text, nil
	}
	return "", fmt.Errorf("%q is none of %s, %s and %s", text, AutobalanceOff, AutobalanceCount, AutobalanceGoals)
}

// autobalanceEvery checks the setting: a pass is not made more often than loads are sampled.
func autobalanceEvery(text string) (string, error) {
	d, err := ParseRetention(text)
	if err != nil || (d != 0 && (d < time.Minute || d > 7*24*time.Hour)) {
		return "", fmt.Errorf("%q is not a time from 1m to 7d, or 0 for no passes but those that a broker gives reason for", text)
	}
	return strings.TrimSpace(text), nil
}
