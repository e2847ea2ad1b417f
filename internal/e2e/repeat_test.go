package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"portage/internal/netcut"
)

// wiretap keeps what crosses some links, byte for byte, as whole requests.
type wiretap struct {
	w    *world
	mu   sync.Mutex
	sent map[string]*bytes.Buffer // "b2#7": the bytes of one connection to b2
	from []string                 // in the order the connections were first heard
	taps []*netcut.Proxy
}

// captured is one request as it was sent.
type captured struct {
	to, method, path string
	raw              []byte
}

// tap listens to what the worker and the destination ask from now on. They must have connected before.
func (w *world) tap() *wiretap {
	w.t.Helper()
	t := &wiretap{w: w, sent: map[string]*bytes.Buffer{}}
	for _, ends := range [][2]string{{"worker1", "b1"}, {"worker1", "b2"}, {"b2", "b1"}} {
		link := w.faults.Link(ends[0], ends[1])
		if link == nil {
			w.t.Fatalf("%s has not connected to %s", ends[0], ends[1])
		}
		t.taps = append(t.taps, link)
		link.Hear(func(connection int, request []byte) {
			t.mu.Lock()
			defer t.mu.Unlock()
			key := fmt.Sprintf("%s %s#%d", ends[1], ends[0], connection)
			if t.sent[key] == nil {
				t.sent[key] = &bytes.Buffer{}
				t.from = append(t.from, key)
			}
			t.sent[key].Write(request)
		})
	}
	w.t.Cleanup(t.stop)
	return t
}

func (t *wiretap) stop() {
	for _, link := range t.taps {
		link.Hear(nil)
	}
}

// requests are the whole requests heard so far.
func (t *wiretap) requests() (all []captured) {
	t.w.t.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range t.from {
		sent := t.sent[key].Bytes()
		rest := bytes.NewReader(sent)
		reader := bufio.NewReader(rest)
		for begin := 0; begin < len(sent); {
			req, err := http.ReadRequest(reader)
			if err != nil {
				break // only the beginning of a request was heard
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				break
			}
			end := len(sent) - rest.Len() - reader.Buffered()
			all = append(all, captured{to: key[:2], method: req.Method, path: req.URL.Path, raw: bytes.Clone(sent[begin:end])})
			begin = end
		}
	}
	if len(all) == 0 {
		t.w.t.Fatal("nothing was heard: this test shows nothing")
	}
	return all
}

// repeat sends every request once more, as it was, and says what was refused and what was accepted.
func (w *world) repeat(requests []captured) string {
	w.t.Helper()
	accepted, refused := 0, 0
	for _, r := range requests {
		status, err := w.repeatOne(r)
		switch {
		case err != nil:
			w.t.Errorf("%s %s sent to %s again: %v", r.method, r.path, r.to, err)
		case status/100 == 2:
			accepted++
		default:
			refused++
		}
	}
	return fmt.Sprintf("%d repeated (%d refused)", accepted+refused, refused)
}

func (w *world) repeatOne(r captured) (status int, err error) {
	u, err := url.Parse(w.Agent(r.to).ControlURL)
	if err != nil {
		return 0, err
	}
	conn, err := (&net.Dialer{}).DialContext(w.ctx, "tcp", u.Host)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute)) // a repeated drain may wait for its source
	if _, err := conn.Write(r.raw); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// heardMove runs a move from b1 to b2 with the wire tapped, up to a point or, with none, to its end.
func (w *world) heardMove(at step) (tap *wiretap, run client.WorkflowRun, release func()) {
	w.t.Helper()
	for _, to := range []string{"b2", "b1"} { // everyone has connected to everyone
		w.mustMove(to)
		w.settled(to)
	}
	tap = w.tap()
	if at.point == "" {
		run = w.start("b2")
		w.mustEnd(run)
		w.settled("b2")
		return tap, run, func() {}
	}
	stopped := w.arm(at)
	run = w.start("b2")
	w.must(stopped.Reached(w.ctx))
	return tap, run, func() { w.must(stopped.Continue()) }
}

// repeatedAt are the moments at which every request of a move is sent again.
var repeatedAt = []struct {
	moment string
	run    func(w *world, load *load, before func()) string
}{
	{"while the move stands before its commit", func(w *world, _ *load, before func()) string {
		tap, run, release := w.heardMove(step{point: "commit.before", by: worker})
		before()
		said := w.repeat(tap.requests())
		release()
		w.mustEnd(run)
		w.settled("b2")
		return said
	}},
	{"after the move", func(w *world, _ *load, before func()) string {
		tap, _, _ := w.heardMove(step{})
		before()
		version := w.row().Version
		said := w.repeat(tap.requests())
		if now := w.row().Version; now != version {
			w.t.Errorf("the row changed from version %d to %d", version, now)
		}
		w.settled("b2")
		return said
	}},
	{"after the move was cancelled", func(w *world, load *load, before func()) string {
		tap, run, release := w.heardMove(step{point: "cutover.after", by: worker})
		w.cancel(run)
		release()
		if _, err := w.end(run); !temporal.IsCanceledError(err) {
			w.t.Fatalf("the cancelled move ended with %v", err)
		}
		w.settled("b1")
		before()
		said := w.repeat(tap.requests())
		load.acknowledge(loadPerSecond / 4)
		w.settled("b1")
		w.mustMove("b2")
		w.settled("b2")
		return said
	}},
	{"while the next move copies", func(w *world, _ *load, before func()) string {
		return w.repeatIntoNext(step{point: "cutover.before", by: worker}, before)
	}},
	{"while the next move is frozen", func(w *world, _ *load, before func()) string {
		return w.repeatIntoNext(step{point: "cutover.frozen", by: worker}, before)
	}},
	{"while the next move stands before its commit", func(w *world, _ *load, before func()) string {
		return w.repeatIntoNext(step{point: "commit.before", by: worker}, before)
	}},
	{"after the move back", func(w *world, load *load, before func()) string {
		tap, _, _ := w.heardMove(step{})
		w.mustMove("b1")
		w.settled("b1")
		before()
		said := w.repeat(tap.requests())
		load.acknowledge(loadPerSecond / 4)
		w.settled("b1")
		return said
	}},
}

// repeatIntoNext repeats what a cancelled move had asked while the next move of the partition stands at a point.
func (w *world) repeatIntoNext(at step, before func()) string {
	w.t.Helper()
	tap, run, release := w.heardMove(step{point: "cutover.after", by: worker})
	w.cancel(run)
	release()
	if _, err := w.end(run); !temporal.IsCanceledError(err) {
		w.t.Fatalf("the cancelled move ended with %v", err)
	}
	w.settled("b1")
	tap.stop()
	stopped := w.arm(at)
	next := w.start("b2")
	w.must(stopped.Reached(w.ctx))
	before()
	said := w.repeat(tap.requests())
	w.must(stopped.Continue())
	w.mustEnd(next)
	w.settled("b2")
	return said
}

// A control request that the network delivers twice, or late, does no harm: the repeat comes byte for byte from outside, at
// whatever moment, to agents that remember the tokens they have seen and to agents that were started again since.
func TestRepeatedRequestsDoNoHarm(t *testing.T) {
	t.Parallel()
	cells := matrix.table("when every request of a move was sent again, to whom, and what was refused:", []string{"the same agents", "restarted agents"},
		"after the move was cancelled/the same agents", "while the next move is frozen/the same agents", "after the move back/restarted agents")
	for _, c := range repeatedAt {
		for _, column := range []string{"the same agents", "restarted agents"} {
			cells.run(t, c.moment, column, func(t *testing.T) string {
				w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease})
				load := w.startLoad()
				said := c.run(w, load, func() {
					if column == "restarted agents" {
						w.must(w.RestartAgent(w.ctx, "b1"))
						w.must(w.RestartAgent(w.ctx, "b2"))
					}
				})
				load.acknowledge(loadPerSecond / 4)
				load.finish()
				w.endedTruthfully()
				return said + ", " + load.verdict
			})
		}
	}
}
