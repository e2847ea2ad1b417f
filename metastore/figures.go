package metastore

import (
	"context"
	"time"
)

// FleetFigures are what the metrics say of the whole fleet. They are rows, so they are right whichever process asks, also just
// after its start.
type FleetFigures struct {
	MovesByPhase map[string]int // moves whose books are open; each side of a swap is one
	Draining     int            // brokers that give away what they have
	Paused       bool
	// Restored: there are rows of another Postgres timeline or server, which decide nothing before `portage reconcile` (R1).
	Restored bool
	// SampleAge is since the newest pass over the loads; nil: there was none.
	SampleAge *time.Duration
}

// Figures reads them from the primary.
func (s *Store) Figures(ctx context.Context) (FleetFigures, error) {
	f := FleetFigures{MovesByPhase: map[string]int{}}
	var age *float64
	err := s.q.QueryRow(ctx, `SELECT (SELECT count(*) FROM brokers WHERE draining AND NOT removed),
		COALESCE((SELECT value #>> '{}' = 'true' FROM settings WHERE key = $1), false),
		EXISTS (SELECT FROM assignments WHERE (timeline, system_id) <> (SELECT portage_timeline(), portage_system())),
		(SELECT extract(epoch FROM now() - max(at))::float8 FROM load_samples)`, SettingPaused).Scan(&f.Draining, &f.Paused, &f.Restored, &age)
	if err != nil {
		return f, err
	}
	if age != nil {
		d := time.Duration(*age * float64(time.Second))
		f.SampleAge = &d
	}
	type row struct {
		Phase string `db:"phase"`
		Moves int    `db:"moves"`
	}
	rows, err := collect[row](ctx, s.q, "SELECT phase, count(*) AS moves FROM moves WHERE finished_at IS NULL AND outcome IS DISTINCT FROM 'aborted' GROUP BY phase")
	for _, r := range rows {
		f.MovesByPhase[r.Phase] = r.Moves
	}
	return f, err
}
