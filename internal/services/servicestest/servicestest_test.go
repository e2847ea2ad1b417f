package servicestest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"portage/internal/services/servicestest"
)

func TestADatabaseForATest(t *testing.T) {
	dsn := servicestest.Database(t, servicestest.KillablePostgres(t))
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
