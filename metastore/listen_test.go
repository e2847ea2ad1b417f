package metastore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"portage/internal/services/servicestest"
	"portage/metastore"
)

func TestMigrationsOfManyProcessesRunOnce(t *testing.T) {
	dsn := servicestest.Database(t, servicestest.Postgres(t))
	var group sync.WaitGroup
	fleets := make([]uuid.UUID, 5)
	errs := make([]error, len(fleets))
	for i := range fleets {
		group.Go(func() {
			s, err := metastore.Open(t.Context(), dsn, metastore.Options{SingleNode: true, Logger: quiet})
			if err != nil {
				errs[i] = err
				return
			}
			defer s.Close()
			fleets[i], errs[i] = s.FleetID(t.Context())
		})
	}
	group.Wait()
	for i := range fleets {
		if errs[i] != nil || fleets[i] != fleets[0] || fleets[i] == uuid.Nil {
			t.Errorf("process %d: fleet %s, %v", i, fleets[i], errs[i])
		}
	}
}

func TestOpenRefusesAPostgresWithoutAStandby(t *testing.T) {
	dsn := servicestest.Database(t, servicestest.Postgres(t))
	if s, err := metastore.Open(t.Context(), dsn, metastore.Options{Logger: quiet}); err == nil {
		s.Close()
		t.Error("a Postgres without a synchronous standby was accepted unasked")
	}
	if _, err := metastore.Open(t.Context(), "not a dsn", metastore.Options{Logger: quiet}); err == nil {
		t.Error("accepted")
	}
}

// listening collects what Listen tells.
func listening(t *testing.T, s *metastore.Store, poll time.Duration) <-chan metastore.Change {
	t.Helper()
	changes := make(chan metastore.Change, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Listen(ctx, poll, func(c metastore.Change) { changes <- c }) }()
	t.Cleanup(func() { cancel(); <-done })
	return changes
}

func await(t *testing.T, changes <-chan metastore.Change, what string, is func(metastore.Change) bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case c := <-changes:
			if is(c) {
				return
			}
		case <-deadline:
			t.Fatalf("was not told of %s", what)
		}
	}
}

func all(c metastore.Change) bool { return c.All }

func TestListenTellsOfEveryRowThatChanges(t *testing.T) {
	f := newFixture(t)
	changes := listening(t, f.Store, time.Hour)
	await(t, changes, "the connection", all)
	f.claim("m1", "b2")
	await(t, changes, "the claim", func(c metastore.Change) bool { return c == metastore.Change{TopicID: f.topic.ID, Partition: 0} })
	f.createTopic("events")
	await(t, changes, "the new topic", all)
}

func TestListenPollsWhenNothingIsTold(t *testing.T) {
	f := newFixture(t)
	changes := listening(t, f.Store, 20*time.Millisecond)
	for range 3 {
		await(t, changes, "a poll", all)
	}
}

func TestHeartbeatsWakeNobody(t *testing.T) {
	f := newFixture(t)
	changes := listening(t, f.Store, time.Hour)
	await(t, changes, "the connection", all)
	if _, err := f.Heartbeat(t.Context(), metastore.HeartbeatReport{Broker: "b1", Process: f.brokers["b1"].Process}); err != nil {
		t.Fatal(err)
	}
	f.claim("m1", "b2")
	// Notifications keep their order: the first must be the claim's.
	select {
	case c := <-changes:
		if c.All || c.TopicID != f.topic.ID {
			t.Errorf("told of %+v first", c)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("was told of nothing")
	}
}

// Postgres is killed: the listener comes back by itself, says All, for it may have missed something, and hears again. What
// was acknowledged is there; a write that met the dead server is unknown, and done when it is repeated.
func TestListenAndWritesSurviveTheDeathOfPostgres(t *testing.T) {
	postgres := servicestest.KillablePostgres(t)
	s := open(t, servicestest.Database(t, postgres))
	r := metastore.Registration{ID: "b1", NodeID: 1, ControlURL: "http://b1", ClientHost: "b1", ClientPort: 1, Storage: uuid.New(), Process: uuid.New()}
	if _, err := s.RegisterBroker(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	changes := listening(t, s, time.Hour)
	await(t, changes, "the connection", all)
	topic, err := s.CreateTopic(t.Context(), metastore.NewTopic{Name: "orders", Partitions: 1, Candidates: []string{"b1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := postgres.Kill(); err != nil {
		t.Fatal(err)
	}
	o := metastore.OpenRequest{TopicID: topic.ID, Broker: "b1", Storage: r.Storage, Process: r.Process}
	if _, err := s.OpenOwner(t.Context(), o); !metastore.IsUnknown(err) {
		t.Errorf("a write without Postgres ended with %v; want unknown", err)
	}
	for len(changes) > 0 {
		<-changes
	}
	if err := postgres.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, changes, "the reconnect", all)
	for {
		row, err := s.OpenOwner(t.Context(), o)
		if err == nil {
			if row.State != metastore.StateOpened {
				t.Errorf("%+v", row)
			}
			break
		}
		if !metastore.IsUnknown(err) {
			t.Fatal(err)
		}
	}
	await(t, changes, "the opening", func(c metastore.Change) bool { return c.TopicID == topic.ID })
}
