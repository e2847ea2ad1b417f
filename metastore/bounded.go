package metastore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// readTimeout bounds one plain statement, its reading included. Postgres answers in milliseconds or is not there: a cut that
// swallows packets would otherwise hold a heartbeat, or a partition that is to open, for as long as the kernel tries.
const readTimeout = 8 * time.Second

// bounded is the pool for everything that is no guarded write. Safe for concurrent use.
type bounded struct {
	pool  *pgxpool.Pool
	bound time.Duration
}

// Query implements querier; the bound ends with the rows.
func (b bounded) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, cancel := context.WithTimeout(ctx, b.bound)
	rows, err := b.pool.Query(ctx, sql, args...)
	if err != nil {
		cancel()
		return rows, err
	}
	return &boundedRows{rows, cancel}, nil
}

// QueryRow implements rowQuerier; the bound ends with the scan.
func (b bounded) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	ctx, cancel := context.WithTimeout(ctx, b.bound)
	return boundedRow{b.pool.QueryRow(ctx, sql, args...), cancel}
}

// Exec runs one statement.
func (b bounded) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	ctx, cancel := context.WithTimeout(ctx, b.bound)
	defer cancel()
	return b.pool.Exec(ctx, sql, args...)
}

type boundedRows struct {
	pgx.Rows
	cancel context.CancelFunc
}

func (r *boundedRows) Close() { r.Rows.Close(); r.cancel() }

type boundedRow struct {
	row    pgx.Row
	cancel context.CancelFunc
}

func (r boundedRow) Scan(dest ...any) error {
	defer r.cancel()
	return r.row.Scan(dest...)
}
