package fleet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"portage/brokeragent/control"
	"portage/internal/durable"
	"portage/internal/services"
	"portage/metastore"
)

// Options describe a fleet.
type Options struct {
	Dir      string // data of everything; must exist
	Binary   string // the portage binary
	UI       bool   // Temporal's web UI
	Logger   *slog.Logger
	Progress io.Writer // long one-time builds are announced here
	// Own starts a Postgres and a Temporal of its own even where the environment names running ones, so that they can be
	// killed.
	Own bool
	// Postgres and Temporal are used instead of starting any, when set; the caller stops them.
	Postgres *services.Postgres
	Temporal *services.Temporal
	// Standby is a copy of Postgres that everyone turns to when Postgres is lost.
	Standby *services.Postgres
	// Env is added to every process of the binary, AgentArgs to every agent's command line.
	Env       []string
	AgentArgs []string
	TaskQueue string
	// Links, when set, puts a link of its own between each process and Postgres, Temporal, and its clients; the agents'
	// control addresses are named to it.
	Links Links
}

// Links are the network between the processes, for tests that cut it.
type Links interface {
	// Name says who listens at an address.
	Name(who, addr string)
	// Via is the address by which one process reaches another that listens at addr.
	Via(from, to, addr string) (string, error)
}

// The ends of links that are no process of the binary.
const (
	LinkPostgres = "postgres"
	LinkStandby  = "standby"
	LinkTemporal = "temporal"
	LinkClient   = "client"
)

// Fleet is a running fleet.
type Fleet struct {
	Postgres *services.Postgres
	Temporal *services.Temporal
	Store    *metastore.Store
	Client   client.Client
	Agents   *control.Client
	Token    string

	options   Options
	dsn       string
	tokenFile string
	owned     []services.Stopper
	agents    map[string]*Agent
	order     []string
	workers   []*services.Process
}

// Agent is one broker's process.
type Agent struct {
	ID         string
	NodeID     int32
	KafkaAddr  string
	ControlURL string
	Data       string
	Process    *services.Process
}

// Start brings up Postgres, Temporal and the metastore; agents and workers are started by their own calls.
func Start(ctx context.Context, options Options) (_ *Fleet, err error) {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.TaskQueue == "" {
		options.TaskQueue = "portage"
	}
	f := &Fleet{options: options, agents: map[string]*Agent{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := f.loadToken(); err != nil {
		return nil, err
	}
	if err := f.startPostgres(ctx); err != nil {
		return nil, err
	}
	if err := f.startTemporal(ctx); err != nil {
		return nil, err
	}
	if f.Store, err = metastore.Open(ctx, f.dsn, metastore.Options{SingleNode: true, Logger: options.Logger}); err != nil {
		return nil, err
	}
	f.Agents = control.NewClient(f.Token)
	f.Client, err = client.DialContext(ctx, client.Options{HostPort: f.Temporal.Address(), Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	return f, err
}

func (f *Fleet) loadToken() error {
	f.tokenFile = filepath.Join(f.options.Dir, "token")
	content, err := os.ReadFile(f.tokenFile)
	if errors.Is(err, os.ErrNotExist) {
		secret := make([]byte, 32)
		_, _ = rand.Read(secret)
		content = []byte(hex.EncodeToString(secret))
		err = os.WriteFile(f.tokenFile, content, 0o600)
	}
	f.Token = string(content)
	return err
}

func (f *Fleet) startPostgres(ctx context.Context) (err error) {
	f.Postgres = f.options.Postgres
	if f.Postgres == nil {
		open := services.OpenPostgres
		if f.options.Own {
			open = services.StartPostgres
		}
		if f.Postgres, err = open(ctx, services.PostgresOptions{Dir: f.options.Dir, Logger: f.options.Logger}); err != nil {
			return err
		}
		f.owned = append(f.owned, f.Postgres)
	}
	// A folder keeps its database; a new one gets a database of its own.
	file := filepath.Join(f.options.Dir, "database")
	kept, err := os.ReadFile(file)
	if err == nil && f.Postgres.Owned() && f.options.Postgres == nil {
		f.dsn, err = withDatabase(f.Postgres.DSN(), string(kept))
		return err
	}
	if f.dsn, err = f.Postgres.CreateDatabase(ctx, ""); err != nil {
		return err
	}
	if f.options.Standby != nil {
		if f.dsn, err = withStandby(f.dsn, f.options.Standby.DSN()); err != nil {
			return err
		}
	}
	return durable.WriteFile(file, []byte(databaseOf(f.dsn)))
}

func (f *Fleet) startTemporal(ctx context.Context) (err error) {
	if f.Temporal = f.options.Temporal; f.Temporal != nil {
		return nil
	}
	open := services.OpenTemporal
	if f.options.Own {
		open = services.StartTemporal
	}
	f.Temporal, err = open(ctx, services.TemporalOptions{Dir: f.options.Dir, UI: f.options.UI, Logger: f.options.Logger, Progress: f.options.Progress})
	if err == nil {
		f.owned = append(f.owned, f.Temporal)
	}
	return err
}

// DSN is the address of the fleet's metastore.
func (f *Fleet) DSN() string { return f.dsn }

// TokenFile holds the secret that agents and workers share.
func (f *Fleet) TokenFile() string { return f.tokenFile }

// AddAgent starts broker b<n> on free ports and waits until it is ready.
func (f *Fleet) AddAgent(ctx context.Context, n int, extra ...string) (*Agent, error) {
	ports, err := services.FreePorts(2)
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("b%d", n)
	a := &Agent{ID: id, NodeID: int32(n), KafkaAddr: fmt.Sprintf("127.0.0.1:%d", ports[0]), ControlURL: fmt.Sprintf("http://127.0.0.1:%d", ports[1]), Data: filepath.Join(f.options.Dir, id)}
	listen, control, dsn := a.KafkaAddr, fmt.Sprintf("127.0.0.1:%d", ports[1]), f.dsn
	if f.options.Links != nil {
		f.options.Links.Name(id, control)
		if dsn, err = f.dsnVia(id); err != nil {
			return nil, err
		}
		if a.KafkaAddr, err = f.options.Links.Via(LinkClient, id, listen); err != nil {
			return nil, err
		}
		extra = append([]string{"--kafka-advertise", a.KafkaAddr}, extra...)
	}
	args := []string{"agent", "--id", id, "--node-id", strconv.Itoa(n), "--kafka-listen", listen, "--control-listen", control,
		"--data", a.Data, "--dsn", dsn, "--single-node-metastore", "--token-file", f.tokenFile}
	args = append(append(args, f.options.AgentArgs...), extra...)
	a.Process, err = services.StartProcess(services.Command{Name: id, Path: f.options.Binary, Args: args, Env: f.options.Env, LogFile: filepath.Join(f.options.Dir, id+".log")})
	if err != nil {
		return nil, err
	}
	f.agents[id] = a
	f.order = append(f.order, id)
	return a, f.WaitReady(ctx, id)
}

// dsnVia is the metastore's address as one process sees it.
func (f *Fleet) dsnVia(process string) (string, error) {
	u, err := url.Parse(f.dsn)
	if err != nil {
		return "", err
	}
	hosts := strings.Split(u.Host, ",") // Postgres and, where there is one, its standby
	for i, name := range []string{LinkPostgres, LinkStandby}[:len(hosts)] {
		if hosts[i], err = f.options.Links.Via(process, name, hosts[i]); err != nil {
			return "", err
		}
	}
	u.Host = strings.Join(hosts, ",")
	return u.String(), nil
}

// Agent returns one agent by broker id; nil when there is none.
func (f *Fleet) Agent(id string) *Agent { return f.agents[id] }

// WaitReady waits until an agent serves everything it owns.
func (f *Fleet) WaitReady(ctx context.Context, id string) error {
	a := f.agents[id]
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.ControlURL+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("agent %s did not become ready; its log is %s: %w", id, a.Process.LogFile(), ctx.Err())
		case <-a.Process.Exited():
			return fmt.Errorf("agent %s ended; its log is %s", id, a.Process.LogFile())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// KillAgent is kill -9.
func (f *Fleet) KillAgent(id string) error { return f.agents[id].Process.Kill() }

// StartAgent starts a killed or stopped agent again, at the same addresses on the same data. It does not wait.
func (f *Fleet) StartAgent(id string) (err error) {
	f.agents[id].Process, err = f.agents[id].Process.Restart()
	return err
}

// RestartAgent kills an agent, starts it again and waits until it is ready.
func (f *Fleet) RestartAgent(ctx context.Context, id string) error {
	if err := f.KillAgent(id); err != nil {
		return err
	}
	if err := f.StartAgent(id); err != nil {
		return err
	}
	return f.WaitReady(ctx, id)
}

// AddWorker starts a worker and returns its index.
func (f *Fleet) AddWorker(extra ...string) (int, error) {
	n := len(f.workers)
	name := fmt.Sprintf("worker%d", n+1)
	dsn, temporal, err := f.dsn, f.Temporal.Address(), error(nil)
	if f.options.Links != nil {
		if dsn, err = f.dsnVia(name); err != nil {
			return 0, err
		}
		if temporal, err = f.options.Links.Via(name, LinkTemporal, temporal); err != nil {
			return 0, err
		}
	}
	args := []string{"worker", "--dsn", dsn, "--single-node-metastore", "--token-file", f.tokenFile, "--temporal-address", temporal, "--task-queue", f.options.TaskQueue}
	p, err := services.StartProcess(services.Command{Name: name, Path: f.options.Binary, Env: f.options.Env, LogFile: filepath.Join(f.options.Dir, name+".log"),
		Args: append(args, extra...)})
	if err != nil {
		return 0, err
	}
	f.workers = append(f.workers, p)
	return n, nil
}

// Worker returns a worker's process.
func (f *Fleet) Worker(n int) *services.Process { return f.workers[n] }

// Workers is how many workers were started.
func (f *Fleet) Workers() int { return len(f.workers) }

// KillWorker is kill -9.
func (f *Fleet) KillWorker(n int) error { return f.workers[n].Kill() }

// StartWorker starts a killed or stopped worker again. It does not wait.
func (f *Fleet) StartWorker(n int) (err error) {
	f.workers[n], err = f.workers[n].Restart()
	return err
}

// RestartWorker kills a worker and starts it again.
func (f *Fleet) RestartWorker(n int) error {
	if err := f.KillWorker(n); err != nil {
		return err
	}
	return f.StartWorker(n)
}

// AgentIDs lists the brokers in the order they were added.
func (f *Fleet) AgentIDs() []string { return slices.Clone(f.order) }

// TaskQueue is the workers' queue.
func (f *Fleet) TaskQueue() string { return f.options.TaskQueue }

// Bootstrap is every broker's client address.
func (f *Fleet) Bootstrap() []string {
	var all []string
	for _, id := range f.order {
		all = append(all, f.agents[id].KafkaAddr)
	}
	return all
}

// CreateTopic creates a topic; owners, when given, place partition i on owners[i].
func (f *Fleet) CreateTopic(ctx context.Context, topic string, partitions int32, owners ...string) error {
	if len(owners) > 0 {
		placement := map[int32]string{}
		for i, owner := range owners {
			placement[int32(i)] = owner
		}
		if _, err := f.Store.CreateTopic(ctx, metastore.NewTopic{Name: topic, Partitions: partitions, Placement: placement, Candidates: f.order, By: "fleet"}); err != nil {
			return err
		}
		return f.WaitTopic(ctx, topic)
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(f.Bootstrap()...))
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := kadm.NewClient(c).CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	return f.WaitTopic(ctx, topic)
}

// WaitTopic waits until every partition of a topic is open at its owner.
func (f *Fleet) WaitTopic(ctx context.Context, topic string) error {
	for {
		snapshot, err := f.Store.ReadSnapshot(ctx)
		open, all := 0, 0
		if err == nil {
			for _, a := range snapshot.Assignments {
				if a.Topic == topic {
					all++
					if a.State == metastore.StateOpened && a.OpenedEpoch == a.Epoch {
						open++
					}
				}
			}
			if all > 0 && open == all {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("topic %s: %d of %d partitions opened: %w", topic, open, all, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Close stops everything the fleet started, last first.
func (f *Fleet) Close() error {
	var all []error
	if f.Client != nil {
		f.Client.Close()
	}
	if f.Store != nil {
		f.Store.Close()
	}
	started := append([]services.Stopper(nil), f.owned...)
	for _, id := range f.order {
		started = append(started, f.agents[id].Process)
	}
	for _, w := range f.workers {
		started = append(started, w)
	}
	all = append(all, services.StopAll(started...))
	return errors.Join(all...)
}
