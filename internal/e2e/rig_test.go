package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"portage/internal/faults/faultctl"
	"portage/internal/fleet"
	"portage/internal/services"
)

// rig is one running fleet whose every process can be halted, killed and cut off. Starting one costs more than most tests
// need it for, so tests whose fleets come out of them as they went in hand them on to the next.
type rig struct {
	*fleet.Fleet
	faults *faultctl.Ctl
	setup  setup
	dir    string
}

// setup is the fleet a test needs.
type setup struct {
	brokers, workers int
	agentArgs        []string
	workerArgs       []string
	// alone says that the test leaves the fleet unlike it was: nobody uses it afterwards.
	alone bool
	// postgres is used instead of one of the fleet's own, and standby named beside it.
	postgres, standby *services.Postgres
	env               []string // of every process
	binary            string   // the program; empty: the one under test
}

func (s setup) same(other setup) bool {
	return !s.shared() && s.brokers == other.brokers && s.workers == other.workers && slices.Equal(s.agentArgs, other.agentArgs) && slices.Equal(s.workerArgs, other.workerArgs)
}

// shared reports whether something of the fleet is the test's and ends with it.
func (s setup) shared() bool { return s.alone || s.postgres != nil || len(s.env) > 0 }

// rigs are the fleets that no test uses at the moment.
var rigs pool

type pool struct {
	mu   sync.Mutex // guards everything below
	idle []*rig     // the longest unused first
}

// maxIdle bounds what idle fleets cost.
const maxIdle = parallel

var rigsStarted atomic.Int64

// take hands out a fleet as a test needs it: an idle one, or a new one.
func (p *pool) take(ctx context.Context, s setup) (*rig, error) {
	p.mu.Lock()
	if !s.shared() {
		for i, r := range p.idle {
			if r.setup.same(s) {
				p.idle = append(p.idle[:i:i], p.idle[i+1:]...)
				p.mu.Unlock()
				return r, nil
			}
		}
	}
	p.mu.Unlock()
	return startRig(ctx, s)
}

// giveBack keeps a fleet for the next test, or ends it after a test that failed or changed it.
func (p *pool) giveBack(r *rig, failed bool) error {
	if failed || r.setup.shared() || !r.whole() {
		return r.close()
	}
	r.faults.Disarm()
	r.faults.Mend()
	p.mu.Lock()
	p.idle = append(p.idle, r)
	var tooMany *rig
	if len(p.idle) > maxIdle {
		tooMany, p.idle = p.idle[0], p.idle[1:]
	}
	p.mu.Unlock()
	if tooMany != nil {
		return tooMany.close()
	}
	return nil
}

// whole reports whether the fleet is as it was made: as many processes, and every one of them runs.
func (r *rig) whole() bool {
	if len(r.AgentIDs()) != r.setup.brokers || r.Workers() != r.setup.workers {
		return false
	}
	for _, id := range r.AgentIDs() {
		if !r.Agent(id).Process.Running() {
			return false
		}
	}
	for n := range r.Workers() {
		if !r.Worker(n).Running() {
			return false
		}
	}
	return true
}

// close ends every idle fleet.
func (p *pool) close() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.idle {
		err = errors.Join(err, r.close())
	}
	p.idle = nil
	return err
}

func startRig(ctx context.Context, s setup) (_ *rig, err error) {
	r := &rig{setup: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.dir, err = os.MkdirTemp("", "portage-rig"); err != nil {
		return nil, err
	}
	if err := os.Chmod(r.dir, 0o755); err != nil { // Postgres runs as another user when the tests run as root
		return nil, err
	}
	if r.faults, err = faultctl.New(); err != nil {
		return nil, err
	}
	r.Fleet, err = fleet.Start(ctx, fleet.Options{Dir: r.dir, Binary: cmp.Or(s.binary, binary), Progress: os.Stderr, Own: true, Postgres: s.postgres, Standby: s.standby, Env: append([]string{r.faults.Env()}, s.env...), AgentArgs: s.agentArgs,
		TaskQueue: fmt.Sprintf("e2e-%d", rigsStarted.Add(1)), Links: r.faults})
	if err != nil {
		return nil, err
	}
	for n := range s.brokers {
		if _, err := r.AddAgent(ctx, n+1); err != nil {
			return nil, err
		}
	}
	for range s.workers {
		if _, err := r.AddWorker(s.workerArgs...); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *rig) close() (err error) {
	if r.faults != nil {
		r.faults.Mend()
	}
	if r.Fleet != nil {
		err = r.Fleet.Close()
	}
	if r.faults != nil {
		err = errors.Join(err, r.faults.Close())
	}
	return errors.Join(err, os.RemoveAll(filepath.Clean(r.dir)))
}

// ownPostgres is a Postgres that ends with the test.
func ownPostgres(t testing.TB) *services.Postgres {
	t.Helper()
	p, err := services.StartPostgres(t.Context(), services.PostgresOptions{})
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
