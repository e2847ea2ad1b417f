package services

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func startedPostgres(t *testing.T, options PostgresOptions) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func query[T any](t *testing.T, dsn, sql string) (value T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func processesOf(t *testing.T, p *Postgres, postmaster int) []int {
	t.Helper()
	pids, err := postgresProcesses(postmaster, p.data)
	if err != nil {
		t.Fatal(err)
	}
	return pids
}

func TestPostgresKeepsWhatItConfirmedThroughKill(t *testing.T) {
	p := startedPostgres(t, PostgresOptions{})
	dsn, err := p.CreateDatabase(t.Context(), "ledger")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `CREATE TABLE entry (id int); INSERT INTO entry SELECT generate_series(1, 1000)`); err != nil {
		t.Fatal(err)
	}
	// One transaction is open when it dies.
	if _, err := conn.Exec(t.Context(), `BEGIN; INSERT INTO entry VALUES (1001)`); err != nil {
		t.Fatal(err)
	}
	address, postmaster := p.DSN(), p.PID()
	before := processesOf(t, p, postmaster)
	if len(before) < 3 {
		t.Fatalf("a server of %d processes is not what this test is about", len(before))
	}

	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range before {
		if !isGone(pid) {
			t.Errorf("process %d is still there after Kill", pid)
		}
	}
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	if p.DSN() != address {
		t.Errorf("the address changed from %s to %s", address, p.DSN())
	}
	if got := query[int](t, dsn, `SELECT count(*) FROM entry`); got != 1000 {
		t.Errorf("%d entries, want 1000", got)
	}
	log, err := os.ReadFile(p.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "was not properly shut down") {
		t.Error("the log does not speak of a recovery: the kill was no crash")
	}
	for setting, want := range map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"} {
		if got := query[string](t, dsn, "SHOW "+setting); got != want {
			t.Errorf("%s is %s", setting, got)
		}
	}
}

func TestPostgresStopLeavesNothingRunningAndKeepsItsFolder(t *testing.T) {
	dir := reachableFolder(t)
	p := startedPostgres(t, PostgresOptions{Dir: dir})
	dsn, err := p.CreateDatabase(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	pids := processesOf(t, p, p.PID())

	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}

	for _, pid := range pids {
		if !isGone(pid) {
			t.Errorf("process %d is still there after Stop", pid)
		}
	}
	if left := processesOf(t, p, 0); len(left) != 0 {
		t.Errorf("processes %v still work in the data folder", left)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("a second stop: %v", err)
	}

	again := startedPostgres(t, PostgresOptions{Dir: dir})
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	names := query[[]string](t, again.DSN(), `SELECT array_agg(datname::text) FROM pg_database`)
	if !slices.Contains(names, config.Database) {
		t.Errorf("databases %v, without %s of the first run", names, config.Database)
	}
}

func TestPostgresComesBackAfterSomebodyElseKilledItsPostmaster(t *testing.T) {
	p := startedPostgres(t, PostgresOptions{})
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the postmaster is gone", func() bool { return p.PID() == 0 })

	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	if got := query[int](t, p.DSN(), "SELECT 1"); got != 1 {
		t.Errorf("got %d", got)
	}
}

func TestPausedPostgresAnswersNobodyUntilItIsResumed(t *testing.T) {
	p := startedPostgres(t, PostgresOptions{})
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := p.answer(ctx); err == nil {
		t.Error("it answers while it is paused")
	}
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	if got := query[int](t, p.DSN(), "SELECT 1"); got != 1 {
		t.Errorf("got %d", got)
	}
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("stop a paused server: %v", err)
	}
}

func TestPostgresDiesWhenItsParentIsKilled(t *testing.T) {
	dir := reachableFolder(t)
	parent, postmaster := startParent(t, "postgres", "PORTAGE_TEST_DIR="+dir)
	data := filepath.Join(dir, "postgres")
	pids, err := postgresProcesses(postmaster, data)
	if err != nil || len(pids) < 3 {
		t.Fatalf("processes %v, %v", pids, err)
	}

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	for _, pid := range pids {
		waitFor(t, "every process of the server is gone", func() bool { return isGone(pid) })
	}
}

func TestEveryTestGetsADatabaseOfItsOwn(t *testing.T) {
	p := startedPostgres(t, PostgresOptions{})
	first, err := p.CreateDatabase(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	second, err := p.CreateDatabase(t.Context(), `with "quotes" and spaces`)
	if err != nil {
		t.Fatal(err)
	}
	if got := query[string](t, second, "SELECT current_database()"); got != `with "quotes" and spaces` {
		t.Errorf("connected to %s", got)
	}
	if first == second {
		t.Error("one database for two")
	}
	if _, err := p.CreateDatabase(t.Context(), `with "quotes" and spaces`); err == nil {
		t.Error("a name that is taken was given again")
	}
	if err := p.DropDatabase(t.Context(), second); err != nil {
		t.Error(err)
	}
	if err := FromDSN(p.DSN()).answer(t.Context()); err != nil {
		t.Errorf("by address: %v", err)
	}
}

func TestPostgresOfTheEnvironmentIsUsedAndNeverStopped(t *testing.T) {
	p := startedPostgres(t, PostgresOptions{})
	t.Setenv(DSNVariable, p.DSN())
	other, err := OpenPostgres(t.Context(), PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if other.Owned() || other.DSN() != p.DSN() {
		t.Errorf("got %s, owned %v", other.DSN(), other.Owned())
	}
	if err := other.Kill(); err == nil || !strings.Contains(err.Error(), DSNVariable) {
		t.Errorf("kill: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if p.PID() == 0 {
		t.Error("the server was stopped")
	}
}

func TestAFolderThatPostgresCannotEnterIsNamed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs Postgres as another user")
	}
	closed := filepath.Join(reachableFolder(t), "closed")
	inside := filepath.Join(closed, "inside")
	if err := os.MkdirAll(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}

	_, err := StartPostgres(t.Context(), PostgresOptions{Dir: inside})

	if err == nil || !strings.Contains(err.Error(), "cannot enter "+closed+":") {
		t.Errorf("got %v", err)
	}
}

func TestChoiceOfAnInstallation(t *testing.T) {
	both := []postgresInstallation{{"/new", 17}, {"/old", 15}}
	for _, test := range []struct {
		name    string
		found   []postgresInstallation
		data    int
		want    string
		wantErr string
	}{
		{"the newest", both, 0, "/new", ""},
		{"the one that made the data", both, 15, "/old", ""},
		{"none", nil, 0, "", "apt-get install postgresql"},
		{"too old", []postgresInstallation{{"/ancient", 12}}, 0, "", "needs 15 or newer"},
		{"none that can read the data", both, 16, "", "made by Postgres 16"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := choosePostgres(test.found, test.data)
			if got.bin != test.want && test.wantErr == "" {
				t.Errorf("got %v", got)
			}
			if (err == nil) != (test.wantErr == "") || err != nil && !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("got error %v, want %q", err, test.wantErr)
			}
		})
	}
}

func TestAddressOfAnotherDatabase(t *testing.T) {
	for _, test := range []struct{ dsn, want string }{
		{"postgres://u:p@h:1/old?sslmode=require", "new one"},
		{"postgresql://u@h", "new one"},
		{"host=h user=u dbname=old", "new one"},
	} {
		got, err := withDatabase(test.dsn, "new one")
		if err != nil {
			t.Fatal(err)
		}
		config, err := pgx.ParseConfig(got)
		if err != nil {
			t.Fatal(err)
		}
		if config.Database != test.want || config.Host != "h" || config.User != "u" {
			t.Errorf("%s became %s", test.dsn, got)
		}
	}
}

// reachableFolder is a temporary folder that the user of Postgres can enter, unlike that of t.
func reachableFolder(t *testing.T) string {
	t.Helper()
	user, err := postgresUser()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := user.temporaryFolder("portage-services-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}
