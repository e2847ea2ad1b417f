package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
	"portage/internal/services/servicestest"
	"portage/metastore"
)

// rig is a worker as it runs in production, over a real Postgres, a real Temporal and two agents. It reaches both systems by
// links that a test may cut.
type rig struct {
	t                  *testing.T
	fleet              *agenttest.Fleet
	b1, b2             *agenttest.Agent
	postgres, temporal *agenttest.Proxy
	http, metrics      string // base addresses
	registry           *prometheus.Registry
	stop               context.CancelFunc
	ended              chan error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, fleet: agenttest.New(t)}
	g.b1, g.b2 = g.fleet.Start("b1", native.Limits{}), g.fleet.Start("b2", native.Limits{})
	dsn, err := url.Parse(g.fleet.SQL.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	g.postgres = agenttest.NewProxy(t, dsn.Host)
	dsn.Host = g.postgres.Addr()
	quiet := slog.New(slog.DiscardHandler)
	store, err := metastore.Open(t.Context(), dsn.String(), metastore.Options{SingleNode: true, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	g.temporal = agenttest.NewProxy(t, servicestest.Temporal(t).Address())
	g.registry = NewRegistry()
	temporal, err := client.DialContext(t.Context(), client.Options{HostPort: g.temporal.Addr(), Logger: log.NewStructuredLogger(quiet), MetricsHandler: TemporalMetrics(g.registry)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(temporal.Close)
	listening := make(chan [2]string, 2)
	ctx, cancel := context.WithCancel(context.Background())
	g.stop, g.ended = cancel, make(chan error, 1)
	queue := "worker-" + agenttest.ID()
	go func() {
		g.ended <- Run(ctx, Config{TaskQueue: queue, Namespace: "default", ControllerID: agenttest.ControllerID, Token: agenttest.Token, MetricsListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0",
			Listening: func(what, address string) { listening <- [2]string{what, address} }, Store: store, Temporal: temporal, Logger: quiet, Registry: g.registry, SuperviseEvery: time.Second})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-g.ended; err != nil {
			t.Errorf("the worker ended with: %v", err)
		}
	})
	for range 2 {
		select {
		case at := <-listening:
			if at[0] == "http" {
				g.http = "http://" + at[1]
			} else {
				g.metrics = "http://" + at[1]
			}
		case err := <-g.ended:
			t.Fatalf("the worker does not start: %v", err)
		}
	}
	return g
}

// call is one call with the token, or with another Authorization.
func (g *rig) send(method, path, authorization, key, body string) (int, []byte) {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), method, g.http+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return answer.StatusCode, raw
}

// answered makes a call, insists on its status, and reads the answer strictly: what is not in the Go type is an error.
func answered[A any](g *rig, status int, call, body string) A {
	g.t.Helper()
	return answeredUnder[A](g, status, "", call, body)
}

func answeredUnder[A any](g *rig, status int, key, call, body string) (answer A) {
	g.t.Helper()
	method, path, _ := strings.Cut(call, " ")
	got, raw := g.send(method, path, "Bearer "+agenttest.Token, key, body)
	if got != status {
		g.t.Fatalf("%s %s: %d, not %d: %s", call, body, got, status, raw)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&answer); err != nil {
		g.t.Fatalf("%s: %v in %s", call, err, raw)
	}
	return answer
}

// refusedWith insists that a call is refused with a status and a code, in a sentence.
func (g *rig) refusedWith(status int, code, call, body string) Refusal {
	g.t.Helper()
	r := answered[Refusal](g, status, call, body)
	if r.Code != code || r.Message == "" {
		g.t.Fatalf("%s %s: %+v, want the code %s", call, body, r, code)
	}
	return r
}

// signed is a body with who and why.
func signed(fields string) string {
	return fmt.Sprintf(`{"by":"ci","reason":"the test"%s}`, fields)
}
