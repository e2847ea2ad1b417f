package metastore_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"portage/internal/netcut"
	"portage/metastore"
)

// A network that swallows packets answers nothing and breaks nothing. Every plain statement gives up by itself; nobody has
// to hang for as long as the kernel tries.
func TestPlainStatementsEndWhenNothingAnswers(t *testing.T) {
	f := newFixture(t)
	u, err := url.Parse(f.dsn)
	if err != nil {
		t.Fatal(err)
	}
	link, err := netcut.New(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.Close() })
	u.Host = link.Addr()
	s, err := metastore.Open(t.Context(), u.String(), metastore.Options{SingleNode: true, ReadTimeout: 200 * time.Millisecond, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	link.Set(netcut.BlackHole)
	b1 := f.brokers["b1"]
	for name, ask := range map[string]func(context.Context) error{
		"a heartbeat": func(ctx context.Context) error {
			_, err := s.Heartbeat(ctx, metastore.HeartbeatReport{Broker: "b1", Process: b1.Process, Storage: b1.Storage})
			return err
		},
		"one row": func(ctx context.Context) error { _, err := s.ReadAssignment(ctx, f.topic.ID, 0); return err },
		"a ping":  s.Ping,
	} {
		if err := ask(t.Context()); err == nil { // a call that hangs is ended by the test's own bound
			t.Errorf("%s was answered through a network that swallows everything", name)
		}
	}
	link.Set(netcut.Reset) // or closing the store waits for the connections that were given up
}
