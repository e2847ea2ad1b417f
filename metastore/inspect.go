package metastore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Look opens the metastore for a command that only looks: no migration is run and no standby is asked for. Writes are
// refused by the same guards as ever; they need the schema that agents and workers have made.
func Look(ctx context.Context, dsn string) (*Store, error) {
	config, err := poolConfig(dsn, Options{MaxConns: 4})
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the metastore: %w", err)
	}
	s := &Store{pool: pool, q: bounded{pool, readTimeout}}
	if err := s.answers(ctx, config.ConnConfig); err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

// Standby is one replica that streams from the primary. State and Sync are empty when the user may not see them (it
// needs pg_monitor).
type Standby struct {
	Name  string `json:"name"`
	State string `json:"state"` // streaming, catchup, ...
	Sync  string `json:"sync"`  // sync, quorum, potential or async
}

// Condition is what Postgres and the schema say of themselves. Nothing is decided on it but what people are told.
type Condition struct {
	Version             string    `json:"version"`
	VersionNum          int       `json:"versionNum"` // 150004 is 15.4
	SynchronousStandbys string    `json:"synchronousStandbyNames"`
	Standbys            []Standby `json:"standbys"`
	Schema              int64     `json:"schema"`     // the newest migration that was applied; 0: none
	WantSchema          int64     `json:"wantSchema"` // the newest that this program knows
	Clock               time.Time `json:"clock"`
}

// Condition asks the primary how it is.
func (s *Store) Condition(ctx context.Context) (Condition, error) {
	var c Condition
	var err error
	if c.WantSchema, err = newestMigration(); err != nil {
		return c, err
	}
	err = s.q.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('server_version_num')::int, current_setting('synchronous_standby_names'), clock_timestamp()`).
		Scan(&c.Version, &c.VersionNum, &c.SynchronousStandbys, &c.Clock)
	if err != nil {
		return c, err
	}
	c.Standbys, err = collect[Standby](ctx, s.q, "SELECT COALESCE(application_name, '') AS name, COALESCE(state, '') AS state, COALESCE(sync_state, '') AS sync FROM pg_stat_replication ORDER BY 1")
	if err != nil {
		return c, err
	}
	err = s.q.QueryRow(ctx, "SELECT COALESCE(max(version_id), 0) FROM portage_schema WHERE is_applied").Scan(&c.Schema)
	var missing *pgconn.PgError
	if errors.As(err, &missing) && missing.Code == "42P01" { // undefined table: nothing was migrated yet
		err = nil
	}
	return c, err
}

func newestMigration() (int64, error) {
	files, err := fs.ReadDir(migrations, "migrations")
	if err != nil {
		return 0, err
	}
	var newest int64
	for _, f := range files {
		number, _, _ := strings.Cut(f.Name(), "_")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("migration %s has no number", f.Name())
		}
		newest = max(newest, n)
	}
	return newest, nil
}

// PartitionMoves lists the moves of one partition, newest first.
func (s *Store) PartitionMoves(ctx context.Context, topicID uuid.UUID, partition int32, limit int) ([]Move, error) {
	return collect[Move](ctx, s.q, "SELECT "+moveColumns+" FROM moves WHERE topic_id = $1 AND partition = $2 ORDER BY started_at DESC LIMIT $3", topicID, partition, limit)
}
