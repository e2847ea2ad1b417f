package brokeragent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/brokeragent/native/wire"
	"portage/metastore"
)

const (
	// pollEvery is the fall-back of the row notifications.
	pollEvery    = 3 * time.Second
	putAwayEvery = 5 * time.Second
	drainFor     = 10 * time.Second
)

// Agent is one broker's process.
type Agent struct {
	cfg      Config
	logger   *slog.Logger
	store    *metastore.Store
	peers    *control.Client
	root     *dataRoot
	fence    *fence
	process  uuid.UUID
	native   *native.Broker
	sessions *sessions
	registry *prometheus.Registry

	kafka, http        net.Listener
	limitIn, limitOut  *throttle
	incoming, outgoing *semaphore.Weighted
	sweeping           pace // of former copies, when the disk is nearly full

	unfenced, sentBytes, copiedBytes prometheus.Counter
	fsynced                          prometheus.Histogram
	beatAt                           atomic.Pointer[time.Time] // when the last heartbeat was acknowledged
	aside                            atomic.Pointer[aside]

	registered atomic.Bool
	moved      chan struct{} // a row changed: a move may be over
	ctx        context.Context
	work       sync.WaitGroup
}

// New opens the data folder and the listeners. Nothing is served before Run.
func New(cfg Config, store *metastore.Store) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.DiskFloorBytes <= 0 {
		cfg.DiskFloorBytes = 64 << 20
	}
	a := &Agent{cfg: cfg, logger: cfg.Logger.With("broker", cfg.BrokerID), store: store, peers: control.NewClient(cfg.Token), process: uuid.New(), moved: make(chan struct{}, 1),
		registry: prometheus.NewRegistry(), limitIn: newThrottle(cfg.LimitInPerSec), limitOut: newThrottle(cfg.LimitOutPerSec),
		incoming: semaphore.NewWeighted(int64(cfg.MaxTransfers)), outgoing: semaphore.NewWeighted(int64(cfg.MaxTransfers))}
	a.sessions = &sessions{agent: a, byID: map[string]*session{}}
	a.metrics()
	var err error
	if a.root, err = openDataRoot(cfg.Data, cfg.BrokerID); err != nil {
		return nil, err
	}
	for _, dir := range []string{"staging", "sessions"} {
		if err := os.MkdirAll(filepath.Join(cfg.Data, dir), 0o755); err != nil {
			return nil, err
		}
	}
	if a.fence, err = openFence(cfg.Data); err != nil {
		return nil, err
	}
	cfg.Log.Logger, cfg.Log.Synced = a.logger, func(took time.Duration) { a.fsynced.Observe(took.Seconds()) }
	a.cfg.Log = cfg.Log
	a.native, err = native.NewBroker(native.Config{BrokerID: cfg.BrokerID, NodeID: cfg.NodeID, Storage: a.root.identity.Storage, Process: a.process, Root: cfg.Data,
		Rows: store, Peers: a.peers, Logger: cfg.Logger, Log: cfg.Log, Limits: cfg.Limits, Metrics: native.NewMetrics(a.registry)})
	if err != nil {
		return nil, err
	}
	if a.kafka, err = net.Listen("tcp", cfg.KafkaListen); err != nil {
		return nil, fmt.Errorf("--kafka-listen %s: %w", cfg.KafkaListen, err)
	}
	if a.http, err = net.Listen("tcp", cfg.ControlListen); err != nil {
		return nil, fmt.Errorf("--control-listen %s: %w", cfg.ControlListen, err)
	}
	return a, nil
}

// KafkaAddr is where clients connect.
func (a *Agent) KafkaAddr() string {
	if a.cfg.KafkaAdvertise != "" {
		return a.cfg.KafkaAdvertise
	}
	return a.kafka.Addr().String()
}

// ControlURL is where workers and other agents connect.
func (a *Agent) ControlURL() string {
	if a.cfg.ControlAdvertise != "" {
		return a.cfg.ControlAdvertise
	}
	return "http://" + a.http.Addr().String()
}

// Run serves until ctx ends, then drains: no new connections, requests in hand are answered, logs are closed whole.
func (a *Agent) Run(ctx context.Context) error {
	defer a.root.close()
	// What must outlive the drain (row reads for requests in hand) runs under its own context.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	a.ctx = serving
	if err := a.native.Start(serving); err != nil {
		return err
	}
	kafka := wire.NewServer(a.native, wire.Options{Logger: a.logger})
	var inHand requests
	control := &http.Server{Handler: inHand.take(a.handler()), ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(a.logger.Handler(), slog.LevelDebug)}
	var group errgroup.Group
	failed := make(chan error, 1)
	fail := func(err error) {
		select {
		case failed <- err:
		default:
		}
	}
	// Clients are answered from the start. Until the metastore knows this process no row is read, so nothing opens and every
	// answer is a non-owner's (R4); the kept routing table sends clients on while the metastore is away.
	group.Go(func() error {
		if err := a.register(serving); err != nil {
			if serving.Err() == nil {
				fail(err)
			}
			return nil
		}
		group.Go(func() error { return a.beat(serving, fail) })
		a.store.Listen(serving, pollEvery, func(c metastore.Change) {
			a.native.RowsChanged(serving, c)
			select {
			case a.moved <- struct{}{}:
			default:
			}
		})
		return nil
	})
	group.Go(func() error { a.putAwayLoop(serving); return nil })
	group.Go(func() error {
		if err := control.Serve(a.http); !errors.Is(err, http.ErrServerClosed) {
			fail(err)
		}
		return nil
	})
	group.Go(func() error {
		if err := kafka.Serve(serving, a.kafka); err != nil && serving.Err() == nil {
			fail(err)
		}
		return nil
	})
	a.logger.Info("agent is up", "kafka", a.KafkaAddr(), "control", a.ControlURL(), "process", a.process, "storage", a.root.identity.Storage)

	var cause error
	select {
	case <-ctx.Done():
		a.logger.Info("draining")
	case cause = <-failed:
		a.logger.Error("stopping", "error", cause)
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainFor)
	defer cancel()
	_ = kafka.Shutdown(drain)
	_ = control.Shutdown(drain)
	_ = control.Close()
	stop()
	inHand.end()
	a.work.Wait()
	_ = group.Wait()
	a.native.Wait()
	return cause
}

// register tells the metastore of this process, waiting for it as long as it takes.
func (a *Agent) register(ctx context.Context) error {
	host, portText, err := net.SplitHostPort(a.KafkaAddr())
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return fmt.Errorf("--kafka-advertise %q: the port is no number", a.KafkaAddr())
	}
	for {
		fleet, err := a.store.RegisterBroker(ctx, metastore.Registration{ID: a.cfg.BrokerID, NodeID: a.cfg.NodeID, ControlURL: a.ControlURL(), ClientHost: host,
			ClientPort: int32(port), Rack: a.cfg.Rack, FleetID: a.root.fleet(), Storage: a.root.identity.Storage, Process: a.process, PromoteFence: a.native.PromoteFence()})
		if err == nil {
			if err := a.root.bindFleet(fleet); err != nil {
				return err
			}
			a.registered.Store(true)
			return nil
		}
		if !metastore.IsUnknown(err) {
			return err
		}
		a.logger.Warn("waiting for the metastore to register", "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (a *Agent) putAwayLoop(ctx context.Context) {
	ticker := time.NewTicker(putAwayEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-a.moved:
		}
		a.sessions.putAway()
	}
}
