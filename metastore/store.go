package metastore

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Options configures a store.
type Options struct {
	// SingleNode accepts a Postgres without a synchronous standby: fine for demo and tests. In production a lost primary
	// could otherwise take an acknowledged change of owner with it (R1).
	SingleNode bool
	// MaxConns bounds the pool; 0 means 8.
	MaxConns int32
	// ReadTimeout bounds one plain statement, its reading included; 0 means 8 s. Guarded writes have a bound of their own.
	ReadTimeout time.Duration
	Logger      *slog.Logger
}

// Store is a handle on the metastore. Safe for concurrent use.
type Store struct {
	pool   *pgxpool.Pool
	q      bounded // the same, for everything that is no guarded write
	logger *slog.Logger
}

// Open connects, runs the embedded migrations under an advisory lock, and checks what the safety of a fleet rests on.
// Errors say what the operator can do.
func Open(ctx context.Context, dsn string, opts Options) (*Store, error) {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	config, err := poolConfig(dsn, opts)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the metastore: %w", err)
	}
	s := &Store{pool: pool, q: bounded{pool, cmp.Or(opts.ReadTimeout, readTimeout)}, logger: opts.Logger}
	if err := s.prepare(ctx, config.ConnConfig, opts); err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

func poolConfig(dsn string, opts Options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("the metastore address is not a Postgres DSN (postgres://user@host:port/database): %w", err)
	}
	config.MaxConns = opts.MaxConns
	if config.MaxConns == 0 {
		config.MaxConns = 8
	}
	config.MinConns = 1
	config.ConnConfig.ConnectTimeout = 5 * time.Second
	// R1: never read an owner from a standby.
	config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	config.ConnConfig.OnNotice = rememberWarning
	return config, nil
}

func (s *Store) answers(ctx context.Context, config *pgx.ConnConfig) error {
	if err := s.pool.Ping(ctx); err != nil {
		return fmt.Errorf("the metastore at %s:%d does not answer; start Postgres or correct --dsn: %w", config.Host, config.Port, oneLine{err})
	}
	return nil
}

func (s *Store) prepare(ctx context.Context, config *pgx.ConnConfig, opts Options) error {
	if err := s.answers(ctx, config); err != nil {
		return err
	}
	if err := migrate(ctx, config); err != nil {
		return err
	}
	if !opts.SingleNode {
		var standbys string
		if err := s.pool.QueryRow(ctx, "SHOW synchronous_standby_names").Scan(&standbys); err != nil {
			return fmt.Errorf("check the metastore's standby: %w", err)
		}
		if standbys == "" {
			return errors.New("the metastore has no synchronous standby, so a lost Postgres could take a confirmed move with it; " +
				"set synchronous_standby_names, or pass --single-node-metastore where that risk is acceptable")
		}
	}
	return nil
}

// oneLine shows an error without its line breaks: a failed connection lists every address it tried.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLine) Unwrap() error { return e.error }

func migrate(ctx context.Context, config *pgx.ConnConfig) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return err
	}
	db := sql.OpenDB(stdlib.GetConnector(*config))
	defer db.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker), goose.WithTableName("portage_schema"))
	if err != nil {
		return fmt.Errorf("prepare the metastore's migrations: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate the metastore (the user needs CREATE on its schema): %w", err)
	}
	return nil
}

// Close releases all connections.
func (s *Store) Close() { s.pool.Close() }

// FleetID is the id this metastore was born with; an agent's data folder is bound to it.
func (s *Store) FleetID(ctx context.Context) (uuid.UUID, error) {
	var id uuid.UUID
	err := s.q.QueryRow(ctx, "SELECT id FROM fleet").Scan(&id)
	return id, err
}

// Ping reports whether the primary answers.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.q.bound)
	defer cancel()
	return s.pool.Ping(ctx)
}
