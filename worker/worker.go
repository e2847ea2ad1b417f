package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"portage/activities"
	"portage/brokeragent/control"
	"portage/internal/operate"
	"portage/metastore"
	"portage/planner"
	"portage/workflows"
	"portage/workflows/protocol"
)

// Config is one worker's settings.
type Config struct {
	TaskQueue     string
	Namespace     string
	ControllerID  string // shared by all workers of a deployment; the holder of the controller epoch
	Token         string
	MetricsListen string // empty: none
	HTTPListen    string // of the HTTP API; empty: none
	// HTTPCert and HTTPKey are PEM files: the API speaks TLS with them, plain HTTP without.
	HTTPCert, HTTPKey string
	// Registry is what /metrics shows beside what the worker registers itself; nil: one of its own. A client that is to count
	// (see TemporalMetrics) is made with it before.
	Registry *prometheus.Registry
	// Listening hears where a listener came up, "metrics" or "http"; nil: nobody does. Ports may be 0.
	Listening func(what, address string)
	Store     *metastore.Store
	Temporal  client.Client
	Logger    *slog.Logger
	// SuperviseEvery is the pause between two passes of the fleet's Supervisor when this worker is the one to start it.
	SuperviseEvery time.Duration
}

// stopFor is how long a stopping worker lets its activities hand over.
const stopFor = 5 * time.Second

// Run serves the task queue until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	if err := RegisterSearchAttributes(ctx, cfg.Temporal, cfg.Namespace); err != nil {
		return err
	}
	if cfg.Registry == nil {
		cfg.Registry = NewRegistry()
	}
	counts := newMetrics(cfg.Registry)
	if err := cfg.Registry.Register(&fleetMetrics{cfg: cfg}); err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	epoch, err := holdController(ctx, cfg)
	if err != nil {
		return fmt.Errorf("take the controller epoch: %w", err)
	}
	stopMetrics, err := serveMetrics(cfg)
	if err != nil {
		return err
	}
	defer stopMetrics()
	stopAPI, err := serveAPI(cfg)
	if err != nil {
		return err
	}
	defer stopAPI()
	fatal := make(chan error, 1)
	w := sdk.New(cfg.Temporal, cfg.TaskQueue, sdk.Options{
		WorkerStopTimeout:                  stopFor,
		MaxHeartbeatThrottleInterval:       time.Second, // what a person sees of a copy, and how soon a cancel arrives
		MaxConcurrentActivityExecutionSize: 200,
		DisableRegistrationAliasing:        true,
		Interceptors:                       []interceptor.WorkerInterceptor{&counting{metrics: counts}},
		OnFatalError: func(err error) {
			select {
			case fatal <- err:
			default:
			}
		},
	})
	Register(w, &activities.Moves{Store: cfg.Store, Agents: control.NewClient(cfg.Token), Temporal: cfg.Temporal, ControllerID: cfg.ControllerID, ControllerEpoch: epoch, Logger: cfg.Logger}, counts.Planned)
	if err := w.Start(); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	cfg.Logger.Info("worker is up", "taskQueue", cfg.TaskQueue, "controller", cfg.ControllerID)
	defer w.Stop()
	defer retainInBackground(ctx, cfg.Store, cfg.Logger)()
	defer superviseFrom(ctx, cfg)()
	defer sampleInBackground(ctx, cfg.Store, cfg.Logger)()
	select {
	case <-ctx.Done():
		return nil
	case err := <-fatal:
		return fmt.Errorf("the worker stopped: %w", err)
	}
}

// fleet is what the HTTP API gives orders to.
func (cfg Config) fleet() *operate.Fleet {
	return &operate.Fleet{Temporal: cfg.Temporal, Namespace: cfg.Namespace, TaskQueue: cfg.TaskQueue, Store: cfg.Store, Agents: control.NewClient(cfg.Token)}
}

// holdController takes the controller epoch, waiting for the metastore as long as it takes. The reply is lost: asked again,
// the epoch stays, for the holder is the same.
func holdController(ctx context.Context, cfg Config) (int64, error) {
	for {
		epoch, err := cfg.Store.HoldController(ctx, cfg.ControllerID)
		if !metastore.IsUnknown(err) {
			return epoch, err
		}
		cfg.Logger.Warn("waiting for the metastore to take the controller epoch", "error", err)
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// Register makes the workflows and activities known under their wire names. planned hears of every plan that is made here; nil: nobody
// does.
func Register(w sdk.Registry, moves *activities.Moves, planned func(*planner.Plan)) {
	w.RegisterWorkflowWithOptions(workflows.Move, workflow.RegisterOptions{Name: protocol.WorkflowMove})
	w.RegisterWorkflowWithOptions(workflows.Swap, workflow.RegisterOptions{Name: protocol.WorkflowSwap})
	w.RegisterWorkflowWithOptions(workflows.Supervisor, workflow.RegisterOptions{Name: protocol.WorkflowSupervisor})
	w.RegisterWorkflowWithOptions(workflows.Rebalance, workflow.RegisterOptions{Name: protocol.WorkflowRebalance})
	w.RegisterWorkflowWithOptions(workflows.Decommission, workflow.RegisterOptions{Name: protocol.WorkflowDecommission})
	w.RegisterWorkflowWithOptions(workflows.Autobalance, workflow.RegisterOptions{Name: protocol.WorkflowAutobalance})
	plans := &activities.Plans{Planned: planned, Store: moves.Store, Agents: moves.Agents, Logger: moves.Logger}
	balance := &activities.Autobalance{Store: moves.Store, Temporal: moves.Temporal, ControllerID: moves.ControllerID, Logger: moves.Logger}
	for name, step := range map[string]any{
		protocol.ActivityPlan: plans.Plan, protocol.ActivityApprovePlan: plans.ApprovePlan, protocol.ActivityActions: plans.Actions,
		protocol.ActivityRecordActions: plans.RecordActions, protocol.ActivityLimitPlan: plans.LimitPlan, protocol.ActivityWatchPause: plans.WatchPause, protocol.ActivityWindow: plans.Window, protocol.ActivityGroupLags: plans.GroupLags,
		protocol.ActivityCheckDecommission: plans.CheckDecommission, protocol.ActivityBeginDrain: plans.BeginDrain,
		protocol.ActivityCancelDrain: plans.CancelDrain, protocol.ActivityRemoveBroker: plans.RemoveBroker,
		protocol.ActivityClaim: moves.Claim, protocol.ActivityEnsure: moves.Ensure, protocol.ActivityCopy: moves.Copy, protocol.ActivityCutover: moves.Cutover,
		protocol.ActivityCommit: moves.Commit, protocol.ActivityFinish: moves.Finish, protocol.ActivityAbort: moves.Abort,
		protocol.ActivityPace:        moves.Pace,
		protocol.ActivityWatchSource: moves.WatchSource, protocol.ActivityPromote: moves.Promote,
		protocol.ActivitySwapClaim: moves.SwapClaim, protocol.ActivitySwapCutover: moves.SwapCutover, protocol.ActivitySwapCommit: moves.SwapCommit,
		protocol.ActivitySwapAbort: moves.SwapAbort, protocol.ActivitySwapOwners: moves.SwapOwners,
		protocol.ActivitySupervise: moves.Supervise, protocol.ActivityWatchFleet: balance.WatchFleet, protocol.ActivityMarkBalanced: balance.MarkBalanced,
	} {
		w.RegisterActivityWithOptions(step, activity.RegisterOptions{Name: name})
	}
}

// Dial connects to Temporal with the settings of the environment (TEMPORAL_NAMESPACE, TEMPORAL_TLS_*, ...), waiting for a
// server that is still starting.
func Dial(ctx context.Context, options client.Options, logger *slog.Logger) (client.Client, error) {
	options.Logger = newTemporalLog(logger)
	for {
		c, err := client.DialContext(ctx, options)
		if err == nil {
			return c, nil
		}
		logger.Warn("Temporal does not answer yet", "address", options.HostPort, "error", err)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no Temporal answers at %s; start it or correct --temporal-address: %w", options.HostPort, err)
		case <-time.After(time.Second):
		}
	}
}

func serveMetrics(cfg Config) (stop func(), err error) {
	if cfg.MetricsListen == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", cfg.MetricsListen)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen %s: %w", cfg.MetricsListen, err)
	}
	if cfg.Listening != nil {
		cfg.Listening("metrics", listener.Addr().String())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := cfg.Store.Ping(r.Context()); err != nil {
			http.Error(w, "the metastore does not answer", http.StatusServiceUnavailable)
			return
		}
		if _, err := cfg.Temporal.CheckHealth(r.Context(), &client.CheckHealthRequest{}); err != nil {
			http.Error(w, "Temporal does not answer", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			cfg.Logger.Error("the metrics server stopped", "error", err)
		}
	}()
	return func() { server.Close(); <-ended }, nil
}
