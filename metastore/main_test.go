package metastore_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"portage/internal/services"
	"portage/internal/services/servicestest"
	"portage/metastore"
)

// TestMain runs all tests against one Postgres; each has a database of its own.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		postgres, err := services.OpenPostgres(context.Background(), services.PostgresOptions{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer postgres.Close()
		os.Setenv(services.DSNVariable, postgres.DSN())
		return m.Run()
	}())
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// fixture is a metastore with brokers b1 to b3 and topic orders, whose two partitions b1 owns.
type fixture struct {
	*metastore.Store
	t       *testing.T
	sql     *pgxpool.Pool
	dsn     string
	brokers map[string]metastore.Registration
	topic   *metastore.Topic
	epoch   int64 // of the controller
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureOn(t, servicestest.Postgres(t))
}

// newFixtureOn is newFixture on a server of the test's own.
func newFixtureOn(t *testing.T, server *services.Postgres) *fixture {
	t.Helper()
	dsn := servicestest.Database(t, server)
	f := &fixture{t: t, dsn: dsn, Store: open(t, dsn), brokers: map[string]metastore.Registration{}}
	sql, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sql.Close)
	f.sql = sql
	for n := int32(1); n <= 3; n++ {
		f.register(fmt.Sprintf("b%d", n), n)
	}
	f.topic = f.createTopic("orders")
	if f.epoch, err = f.HoldController(t.Context(), "controller"); err != nil {
		t.Fatal(err)
	}
	return f
}

func open(t *testing.T, dsn string) *metastore.Store {
	t.Helper()
	s, err := metastore.Open(t.Context(), dsn, metastore.Options{SingleNode: true, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func (f *fixture) register(id string, node int32) {
	f.t.Helper()
	r := metastore.Registration{ID: id, NodeID: node, ControlURL: "http://" + id, ClientHost: id, ClientPort: 9092, Storage: uuid.New(), Process: uuid.New()}
	if _, err := f.RegisterBroker(f.t.Context(), r); err != nil {
		f.t.Fatal(err)
	}
	f.brokers[id] = r
}

func (f *fixture) createTopic(name string) *metastore.Topic {
	f.t.Helper()
	topic, err := f.CreateTopic(f.t.Context(), metastore.NewTopic{Name: name, Partitions: 2, Placement: map[int32]string{0: "b1", 1: "b1"}, By: "test"})
	if err != nil {
		f.t.Fatal(err)
	}
	return topic
}

func (f *fixture) row() *metastore.Assignment {
	f.t.Helper()
	row, err := f.ReadAssignment(f.t.Context(), f.topic.ID, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	return row
}

func (f *fixture) claimRequest(id, to string) metastore.ClaimRequest {
	return metastore.ClaimRequest{MoveID: id, Kind: "move", Topic: f.topic.Name, Partition: 0, To: to, WorkflowID: "workflow-of-" + id, RunID: "run", ControllerEpoch: f.epoch}
}

func (f *fixture) claim(id, to string) *metastore.Assignment {
	f.t.Helper()
	row, _, err := f.ClaimMove(f.t.Context(), f.claimRequest(id, to))
	if err != nil {
		f.t.Fatal(err)
	}
	return row
}

// evidence is what a good cutover of the claimed row proves.
func (f *fixture) evidence(id string, row *metastore.Assignment) metastore.Commit {
	return metastore.Commit{MoveID: id, TopicID: row.TopicID, Partition: row.Partition, From: row.Owner, To: *row.Target, Epoch: row.Epoch, Version: row.Version,
		ToStorage: f.brokers[*row.Target].Storage, FrozenEnd: 100, InstalledEnd: 100, InstalledVersion: row.Version}
}

func (f *fixture) openRequest() metastore.OpenRequest {
	row := f.row()
	owner := f.brokers[row.Owner]
	return metastore.OpenRequest{TopicID: row.TopicID, Partition: row.Partition, Broker: owner.ID, Epoch: row.Epoch, Storage: owner.Storage, Process: owner.Process, LogEnd: 100}
}

// audits counts the audit's lines.
func (f *fixture) audits() (n int) {
	f.t.Helper()
	if err := f.sql.QueryRow(f.t.Context(), "SELECT count(*) FROM audit").Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// changedOnce runs a write that must be done: the row's version rises by one, and the newest line of the audit, one more
// than before, is of the same transaction as the row.
func (f *fixture) changedOnce(action string, write func() (*metastore.Assignment, error)) *metastore.Assignment {
	f.t.Helper()
	before, lines := f.row(), f.audits()
	after, err := write()
	if err != nil {
		f.t.Fatalf("%s: %v", action, err)
	}
	if after.Version != before.Version+1 {
		f.t.Errorf("%s took the version from %d to %d", action, before.Version, after.Version)
	}
	if stored := f.row(); stored.Version != after.Version || stored.Owner != after.Owner || stored.Epoch != after.Epoch || stored.Moving() != after.Moving() {
		f.t.Errorf("%s returned %+v, stored is %+v", action, after, stored)
	}
	if n := f.audits(); n != lines+1 {
		f.t.Errorf("%s left %d lines in the audit", action, n-lines)
	}
	var same bool
	var got string
	err = f.sql.QueryRow(f.t.Context(), `SELECT u.action, u.xmin = a.xmin FROM audit u, assignments a WHERE a.topic_id = $1 AND a.partition = 0 ORDER BY u.id DESC LIMIT 1`, f.topic.ID).Scan(&got, &same)
	if err != nil || got != action || !same {
		f.t.Errorf("the newest audit line is %q, in the row's transaction: %v (%v); want %q", got, same, err, action)
	}
	return after
}

// unchanged runs a write that must leave row and audit as they are: a repeat, or a refusal.
func (f *fixture) unchanged(what string, write func() error) error {
	f.t.Helper()
	before, lines := f.row(), f.audits()
	err := write()
	after := f.row()
	if before != nil && (after == nil || after.Version != before.Version) {
		f.t.Errorf("%s changed the row from %+v to %+v", what, before, after)
	}
	if n := f.audits(); n != lines {
		f.t.Errorf("%s left %d lines in the audit", what, n-lines)
	}
	return err
}

// refused runs a write that must be refused with a code and, unless there is none, with the row as it stands.
func (f *fixture) refused(code string, write func() error) *metastore.Refused {
	f.t.Helper()
	err := f.unchanged(code, write)
	refused, ok := metastore.RefusedWith(err, code)
	if !ok {
		f.t.Errorf("got %v, want a refusal with %s", err, code)
		return &metastore.Refused{}
	}
	if row := f.row(); refused.Row != nil && row != nil && refused.Row.Version != row.Version {
		f.t.Errorf("%s carries version %d, the row is at %d", code, refused.Row.Version, row.Version)
	}
	if refused.Reason == "" || refused.Write == "" {
		f.t.Errorf("%s says nothing: %+v", code, refused)
	}
	return refused
}
