package services

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// BaseBackup copies the running server into a temporary folder: as a standby that streams from it, or as a backup of this
// moment. The copy has an address of its own and does not run; [Postgres.Restart] starts it, Close removes it.
func (p *Postgres) BaseBackup(ctx context.Context, standby bool) (_ *Postgres, err error) {
	if err := p.mustOwn("copy"); err != nil {
		return nil, err
	}
	user, err := postgresUser()
	if err != nil {
		return nil, err
	}
	dir, err := user.temporaryFolder("portage-postgres-copy-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	data := filepath.Join(dir, "postgres")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	if err := user.own(data); err != nil {
		return nil, err
	}
	args := []string{"-D", data, "-d", p.dsn, "-X", "stream", "-c", "fast", "--no-sync"}
	if standby {
		args = append(args, "-R")
	}
	err = runToEnd(ctx, Command{Name: "pg_basebackup", Path: p.tool("pg_basebackup"), Args: args, Dir: data, Env: []string{"LC_ALL=C"},
		LogFile: filepath.Join(dir, "basebackup.log"), Credential: user.credential})
	if err != nil {
		return nil, fmt.Errorf("copy Postgres: %w", err)
	}
	copied, err := preparePostgres(ctx, PostgresOptions{Dir: dir, Logger: p.logger})
	if err != nil {
		return nil, err
	}
	copied.remove = dir
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	copied.setPort(port)
	return copied, nil
}

// tool is a program that comes with the server: beside it, where a link to it leads, or on the search path.
func (p *Postgres) tool(name string) string {
	places := []string{filepath.Dir(p.command.Path)}
	if real, err := filepath.EvalSymlinks(p.command.Path); err == nil {
		places = append(places, filepath.Dir(real))
	}
	for _, place := range places {
		if _, err := os.Stat(filepath.Join(place, name)); err == nil {
			return filepath.Join(place, name)
		}
	}
	if found, err := exec.LookPath(name); err == nil {
		return found
	}
	return filepath.Join(places[0], name)
}

// Promote ends a standby's recovery: it goes on by itself, on a timeline of its own.
func (p *Postgres) Promote(ctx context.Context) error {
	return p.connected(ctx, func(conn *pgx.Conn) error {
		var done bool
		if err := conn.QueryRow(ctx, "SELECT pg_promote()").Scan(&done); err != nil {
			return fmt.Errorf("promote Postgres: %w", err)
		}
		if !done {
			return errors.New("promote Postgres: it did not end its recovery in a minute")
		}
		return nil
	})
}

// WaitReplayed waits until a standby shows everything that its primary has committed by now.
func (p *Postgres) WaitReplayed(ctx context.Context, primary *Postgres) error {
	var want string
	err := primary.connected(ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&want) })
	if err != nil {
		return err
	}
	return p.connected(ctx, func(conn *pgx.Conn) error {
		for {
			var there bool
			if err := conn.QueryRow(ctx, "SELECT coalesce(pg_last_wal_replay_lsn() >= $1::pg_lsn, false)", want).Scan(&there); err != nil || there {
				return err
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the standby does not come to %s: %w", want, ctx.Err())
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
}

// MoveTo gives a copy that does not run yet the address of another one, which is never started.
func (p *Postgres) MoveTo(address *Postgres) error {
	u, err := url.Parse(address.dsn)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return err
	}
	p.setPort(port)
	return nil
}
