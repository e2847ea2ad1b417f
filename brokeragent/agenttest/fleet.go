package agenttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"portage/brokeragent"
	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/internal/durable"
	"portage/internal/services"
	"portage/internal/services/servicestest"
	"portage/metastore"
)

// Token is the secret of every fleet here.
const Token = "test-token"

// patience bounds every wait for an event. It is long, because a test fails on it only when the event never comes.
const patience = 30 * time.Second

// Main runs the tests of one package against one Postgres: that of the environment, or one started for them all.
func Main(m *testing.M) {
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

// Fleet is a set of agents in this process over one metastore.
type Fleet struct {
	T     testing.TB
	Store *metastore.Store // the test's own way to the metastore, never cut
	SQL   *pgxpool.Pool    // for locks that make a write wait, and for what no guarded write does
	Peers *control.Client

	dsn    string
	agents map[string]*Agent
	log    *slog.Logger
}

// New makes a metastore without agents.
func New(t testing.TB) *Fleet {
	t.Helper()
	dsn := servicestest.Database(t, servicestest.Postgres(t))
	f := &Fleet{T: t, dsn: dsn, agents: map[string]*Agent{}, Peers: control.NewClient(Token), log: logger(t)}
	f.Store = f.open(dsn)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	f.SQL = pool
	return f
}

func (f *Fleet) open(dsn string) *metastore.Store {
	f.T.Helper()
	store, err := metastore.Open(f.T.Context(), dsn, metastore.Options{SingleNode: true, Logger: f.log})
	if err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(store.Close)
	return store
}

// logger shows what the agents said when the test fails.
func logger(t testing.TB) *slog.Logger {
	sink := &sink{}
	t.Cleanup(func() {
		sink.mu.Lock()
		defer sink.mu.Unlock()
		if t.Failed() {
			t.Logf("the agents' log:\n%s", sink.text[max(0, len(sink.text)-16<<10):])
		}
		sink.text = nil
	})
	return slog.New(slog.NewTextHandler(sink, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

type sink struct {
	mu   sync.Mutex
	text []byte
}

var _ io.Writer = (*sink)(nil)

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, p...)
	return len(p), nil
}

// Agent is one agent of the fleet, running or stopped.
type Agent struct {
	ID        string
	NodeID    int32
	Data      string
	Metastore *Proxy
	Config    brokeragent.Config // what the next start runs with

	fleet *Fleet
	store *metastore.Store
	agent *brokeragent.Agent
	stop  context.CancelFunc
	ended chan error
}

// Start runs a new agent with the given limits and waits until it is ready.
func (f *Fleet) Start(id string, limits native.Limits) *Agent {
	f.T.Helper()
	u, err := url.Parse(f.dsn)
	if err != nil {
		f.T.Fatal(err)
	}
	a := &Agent{ID: id, NodeID: int32(len(f.agents) + 1), Data: f.T.TempDir(), fleet: f, Metastore: NewProxy(f.T, u.Host)}
	u.Host = a.Metastore.Addr()
	a.store = f.open(u.String())
	a.Config = brokeragent.Config{BrokerID: id, NodeID: a.NodeID, KafkaListen: "127.0.0.1:0", ControlListen: "127.0.0.1:0", Data: a.Data, Token: Token,
		Limits: limits, MaxTransfers: 2, Logger: f.log}
	f.agents[id] = a
	f.T.Cleanup(func() {
		if a.agent != nil {
			a.Stop()
		}
	})
	a.Boot()
	a.WaitReady()
	return a
}

// Pair is a fleet of two agents, b1 and b2, and the topic orders whose one partition is on b1.
func Pair(t testing.TB) (f *Fleet, b1, b2 *Agent, orders *metastore.Topic) {
	t.Helper()
	f = New(t)
	b1, b2 = f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	return f, b1, b2, f.CreateTopic("orders", 1, b1)
}

// Boot starts the agent's next process; it does not wait for it to be ready.
func (a *Agent) Boot() {
	a.fleet.T.Helper()
	agent, err := brokeragent.New(a.Config, a.store)
	if err != nil {
		a.fleet.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.agent, a.stop, a.ended = agent, cancel, make(chan error, 1)
	ended, watched := a.ended, make(chan struct{})
	go func() { defer close(watched); a.watch(ctx, agent.ControlURL()) }()
	go func() {
		err := agent.Run(ctx)
		cancel() // also of one that stops by itself: its address may become another's
		<-watched
		ended <- err
	}()
}

// watch reads everything the agent shows, over and over, as dashboards and sweeps do, so that the race detector sees
// whatever is shown without the lock that guards it.
func (a *Agent) watch(ctx context.Context, url string) {
	peers := a.fleet.Peers
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		status, err := peers.Status(ctx, url)
		if err != nil {
			continue // it stops
		}
		_, _ = peers.Rows(ctx, url)
		_, _ = peers.Retained(ctx, url)
		for _, p := range status.Partitions {
			_, _ = peers.Partition(ctx, url, p.TopicID, p.Partition)
		}
		for _, move := range status.Moves {
			_, _ = peers.Session(ctx, url, move, 0, 0)
		}
	}
}

// Stop ends the agent's process and waits for its end.
func (a *Agent) Stop() {
	a.fleet.T.Helper()
	a.stop()
	if err := <-a.ended; err != nil && !errors.Is(err, context.Canceled) {
		a.fleet.T.Errorf("agent %s ended with: %v", a.ID, err)
	}
	a.agent = nil
}

// Ended waits for an agent that stops by itself, and returns why.
func (a *Agent) Ended() error {
	a.fleet.T.Helper()
	select {
	case err := <-a.ended:
		a.agent = nil
		return err
	case <-time.After(patience):
		a.fleet.T.Fatalf("agent %s runs on", a.ID)
		return nil
	}
}

// Restart is the next process of the same agent over the same folder.
func (a *Agent) Restart() {
	a.fleet.T.Helper()
	a.Stop()
	a.Boot()
	a.WaitReady()
}

// WaitReady waits until the agent says that it serves all it is to serve.
func (a *Agent) WaitReady() {
	a.fleet.T.Helper()
	Eventually(a.fleet.T, a.ID+" is ready", func() bool {
		status, err := a.fleet.Peers.Status(a.fleet.T.Context(), a.URL())
		return err == nil && status.Ready
	})
}

// URL is where its control API listens.
func (a *Agent) URL() string { return a.agent.ControlURL() }

// Registry is what its /metrics shows.
func (a *Agent) Registry() prometheus.Gatherer { return a.agent.Registry() }

// Kafka is where its clients connect.
func (a *Agent) Kafka() string { return a.agent.KafkaAddr() }

// PartitionDir is where it keeps a partition.
func (a *Agent) PartitionDir(topic *metastore.Topic, partition int32) string {
	return filepath.Join(a.Data, "partitions", topic.ID.String(), fmt.Sprint(partition))
}

// Partition is what it says of a partition; the state is "" when it knows nothing of it.
func (a *Agent) Partition(topic *metastore.Topic, partition int32) control.PartitionStatus {
	a.fleet.T.Helper()
	status, err := a.fleet.Peers.Partition(a.fleet.T.Context(), a.URL(), topic.ID, partition)
	if err != nil && control.CodeOf(err) != control.CodeNotFound {
		a.fleet.T.Fatal(err)
	}
	return status
}

// WaitState waits for a partition to come to a state.
func (a *Agent) WaitState(topic *metastore.Topic, partition int32, state native.State) control.PartitionStatus {
	a.fleet.T.Helper()
	var status control.PartitionStatus
	Eventually(a.fleet.T, fmt.Sprintf("%s/%d is %s on %s", topic.Name, partition, state, a.ID), func() bool {
		status = a.Partition(topic, partition)
		return status.State == string(state)
	})
	return status
}

// CreateTopic makes a topic with all its partitions on the given agent, and waits until they are open there.
func (f *Fleet) CreateTopic(name string, partitions int32, on *Agent) *metastore.Topic {
	f.T.Helper()
	placement := map[int32]string{}
	for p := range partitions {
		placement[p] = on.ID
	}
	topic, err := f.Store.CreateTopic(f.T.Context(), metastore.NewTopic{Name: name, Partitions: partitions, Placement: placement, By: "test"})
	if err != nil {
		f.T.Fatal(err)
	}
	for p := range partitions {
		on.WaitState(topic, p, native.StateOpen)
	}
	for _, a := range f.agents {
		if a.agent != nil {
			a.WaitKnows(topic)
		}
	}
	return topic
}

// WaitKnows waits until an agent routes clients of the topic.
func (a *Agent) WaitKnows(topic *metastore.Topic) {
	a.fleet.T.Helper()
	Eventually(a.fleet.T, a.ID+" knows "+topic.Name, func() bool { return a.leaderOf(topic, 0) >= 0 })
}

// Row is a partition's row as it stands.
func (f *Fleet) Row(topic *metastore.Topic, partition int32) *metastore.Assignment {
	f.T.Helper()
	row, err := f.Store.ReadAssignment(f.T.Context(), topic.ID, partition)
	if err != nil {
		f.T.Fatal(err)
	}
	return row
}

// WaitRow waits until a partition's row satisfies what is asked of it.
func (f *Fleet) WaitRow(topic *metastore.Topic, partition int32, what string, is func(*metastore.Assignment) bool) *metastore.Assignment {
	f.T.Helper()
	var row *metastore.Assignment
	Eventually(f.T, what, func() bool { row = f.Row(topic, partition); return row != nil && is(row) })
	return row
}

// Hold runs a statement in a transaction of its own and keeps what it locked until the returned function is called.
func (f *Fleet) Hold(sql string, args ...any) (release func()) {
	f.T.Helper()
	tx, err := f.SQL.Begin(f.T.Context())
	if err != nil {
		f.T.Fatal(err)
	}
	if _, err := tx.Exec(f.T.Context(), sql, args...); err != nil {
		f.T.Fatal(err)
	}
	var once sync.Once
	release = func() {
		once.Do(func() {
			if err := tx.Commit(context.WithoutCancel(f.T.Context())); err != nil {
				f.T.Error(err)
			}
		})
	}
	f.T.Cleanup(release)
	return release
}

// WaitBlocked waits until a statement that contains text waits for a lock.
func (f *Fleet) WaitBlocked(text string) {
	f.T.Helper()
	Eventually(f.T, "a statement with "+text+" waits for a lock", func() bool {
		var n int
		err := f.SQL.QueryRow(f.T.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'", text).Scan(&n)
		if err != nil {
			f.T.Fatal(err)
		}
		return n > 0
	})
}

// Exec runs a statement that no guarded write does.
func (f *Fleet) Exec(sql string, args ...any) {
	f.T.Helper()
	if _, err := f.SQL.Exec(f.T.Context(), sql, args...); err != nil {
		f.T.Fatal(err)
	}
}

// Eventually waits for an event that can not be subscribed to.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Must stops the test on an error.
func Must[V any](v V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// CopyDir copies a folder's files: a backup, or what a crash left.
func CopyDir(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// Files counts the files below a folder; 0 when it is missing.
func Files(dir string) (n int) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			n++
		}
		return nil
	})
	return n
}

// ID is a fresh name for a move.
func ID() string { return "move-" + uuid.NewString() }

// WriteJSON puts a file where a process of the test would have.
func WriteJSON(t testing.TB, path string, v any) {
	t.Helper()
	if err := durable.WriteJSON(path, v); err != nil {
		t.Fatal(err)
	}
}

// Twin is a second agent under the same broker id over another folder, as when a machine was copied. It is not started.
func (a *Agent) Twin(data string) *Agent {
	twin := &Agent{ID: a.ID, NodeID: a.NodeID, Data: data, Metastore: a.Metastore, Config: a.Config, fleet: a.fleet, store: a.store}
	twin.Config.Data = data
	a.fleet.T.Cleanup(func() {
		if twin.agent != nil {
			twin.Stop()
		}
	})
	return twin
}

// ReadJSON reads a file that a process wrote.
func ReadJSON(t testing.TB, path string, v any) {
	t.Helper()
	if err := durable.ReadJSON(path, v); err != nil {
		t.Fatal(err)
	}
}
