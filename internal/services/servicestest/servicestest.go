// Package servicestest hands the services to tests: started, and gone when the test ends. The log of
// a service is shown when its test fails.
package servicestest

import (
	"context"
	"os"
	"testing"
	"time"

	"portage/internal/services"
)

const shownLogBytes = 4 << 10

// Postgres returns the server that the environment names, or starts one for this test.
func Postgres(t testing.TB) *services.Postgres {
	t.Helper()
	p, err := services.OpenPostgres(t.Context(), services.PostgresOptions{})
	return ready(t, p, err)
}

// KillablePostgres starts a server for this test, whatever the environment names.
func KillablePostgres(t testing.TB) *services.Postgres {
	t.Helper()
	p, err := services.StartPostgres(t.Context(), services.PostgresOptions{})
	return ready(t, p, err)
}

// Database returns the address of a new, empty database that is dropped when the test ends.
func Database(t testing.TB, p *services.Postgres) (dsn string) {
	t.Helper()
	dsn, err := p.CreateDatabase(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.Owned() {
			return // it goes with the server, which the test may have left killed
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := p.DropDatabase(ctx, dsn); err != nil {
			t.Error(err)
		}
	})
	return dsn
}

// Temporal returns the server that the environment names, or starts one for this test.
func Temporal(t testing.TB) *services.Temporal {
	t.Helper()
	s, err := services.OpenTemporal(t.Context(), services.TemporalOptions{Progress: os.Stderr})
	return ready(t, s, err)
}

// KillableTemporal starts a server for this test, whatever the environment names.
func KillableTemporal(t testing.TB) *services.Temporal {
	t.Helper()
	s, err := services.StartTemporal(t.Context(), services.TemporalOptions{Progress: os.Stderr})
	return ready(t, s, err)
}

type service interface {
	Close() error
	LogFile() string
}

func ready[S service](t testing.TB, s S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && s.LogFile() != "" {
			if log, err := os.ReadFile(s.LogFile()); err == nil {
				t.Logf("the end of %s:\n%s", s.LogFile(), log[max(0, len(log)-shownLogBytes):])
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
