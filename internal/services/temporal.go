package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
)

// AddressVariable names the environment variable that names a running Temporal.
const AddressVariable = "TEMPORAL_ADDRESS"

const temporalNamespace = "default"

// TemporalOptions say how to run a Temporal dev server. The zero value is a good one for tests.
type TemporalOptions struct {
	// Dir is where its database goes (temporal.db); kept, and taken up again by the next start.
	// Empty: a temporary folder, removed by Close.
	Dir string
	// Binary is the temporal program; empty: what FindTemporal returns.
	Binary string
	// Progress hears that the program is being built; nil: nobody does.
	Progress io.Writer
	// UI also serves the web UI.
	UI bool
	// Port and UIPort on 127.0.0.1; 0: free ones.
	Port, UIPort int
	// Logger hears of starts and stops; nil: nobody does.
	Logger *slog.Logger
	// LogFile is what the server writes its log to; empty: Dir/temporal.log.
	LogFile string
}

// Temporal is one server: a child of this process, or one that runs elsewhere (see [TemporalAt]).
type Temporal struct {
	address string
	uiURL   string
	command Command // empty when it runs elsewhere
	remove  string  // the temporary folder to remove at Close, or ""
	logger  *slog.Logger

	mu sync.Mutex
	// guards: process, which is nil when the server runs elsewhere.
	process *Process
}

// TemporalAt returns a Temporal that runs elsewhere: it can be used, not killed or stopped.
func TemporalAt(address string) *Temporal {
	return &Temporal{address: address, logger: slog.New(slog.DiscardHandler)}
}

// OpenTemporal returns the server that TEMPORAL_ADDRESS names, or else starts one.
func OpenTemporal(ctx context.Context, options TemporalOptions) (*Temporal, error) {
	address := os.Getenv(AddressVariable)
	if address == "" {
		return StartTemporal(ctx, options)
	}
	return TemporalAt(address), nil
}

// StartTemporal starts a dev server that keeps its state in a file, and waits until it can start
// workflows.
func StartTemporal(ctx context.Context, options TemporalOptions) (_ *Temporal, err error) {
	t := &Temporal{logger: options.Logger}
	if t.logger == nil {
		t.logger = slog.New(slog.DiscardHandler)
	}
	binary := options.Binary
	if binary == "" {
		if binary, err = FindTemporal(ctx, options.Progress); err != nil {
			return nil, err
		}
	}
	dir := options.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "portage-temporal-"); err != nil {
			return nil, fmt.Errorf("start Temporal: %w", err)
		}
		t.remove = dir
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("start Temporal: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("start Temporal: %w", err)
	}
	logFile := options.LogFile
	if logFile == "" {
		logFile = filepath.Join(dir, "temporal.log")
	}
	t.command = Command{Name: "temporal", Path: binary, Dir: dir, LogFile: logFile}

	chosen := options.Port != 0 || options.UIPort != 0
	for attempt := 1; ; attempt++ {
		if err = t.choosePorts(options, filepath.Join(dir, "temporal.db")); err != nil {
			break
		}
		t.mu.Lock()
		err = t.start(ctx)
		t.mu.Unlock()
		if err == nil {
			return t, nil
		}
		if chosen || attempt == startAttempts || !errors.Is(err, errPortTaken) {
			break
		}
	}
	return nil, errors.Join(fmt.Errorf("start Temporal: %w", err), t.Close())
}

func (t *Temporal) choosePorts(options TemporalOptions, database string) error {
	free, err := FreePorts(4)
	if err != nil {
		return err
	}
	port, uiPort, metricsPort, httpPort := free[0], free[1], free[2], free[3]
	if options.Port != 0 {
		port = options.Port
	}
	if options.UIPort != 0 {
		uiPort = options.UIPort
	}
	t.address = fmt.Sprintf("127.0.0.1:%d", port)
	t.command.Args = []string{
		"server", "start-dev",
		"--db-filename", database,
		// Survives the death of the process, not of the machine: nothing that Portage must not
		// lose is kept in this server alone.
		"--sqlite-pragma", "journal_mode=wal",
		"--sqlite-pragma", "synchronous=normal",
		// The default, 20 polls a second, makes every hop of a workflow wait up to 50 ms.
		"--dynamic-config-value", "history.transferProcessorMaxPollRPS=2000",
		"--dynamic-config-value", "history.timerProcessorMaxPollRPS=2000",
		"--ip", "127.0.0.1",
		"--port", fmt.Sprint(port),
		"--http-port", fmt.Sprint(httpPort),
		"--metrics-port", fmt.Sprint(metricsPort),
		"--log-level", "warn",
		"--namespace", temporalNamespace,
	}
	if options.UI {
		t.uiURL = fmt.Sprintf("http://127.0.0.1:%d", uiPort)
		t.command.Args = append(t.command.Args, "--ui-port", fmt.Sprint(uiPort))
	} else {
		t.command.Args = append(t.command.Args, "--headless")
	}
	return nil
}

// Address returns host:port for an SDK client; its namespace is "default".
func (t *Temporal) Address() string { return t.address }

// UIURL returns the address of the web UI; "" when there is none.
func (t *Temporal) UIURL() string { return t.uiURL }

// Owned reports whether the server is a child of this process, and so can be killed.
func (t *Temporal) Owned() bool { return t.command.Path != "" }

// LogFile returns where the server's log goes; "" when it runs elsewhere.
func (t *Temporal) LogFile() string { return t.command.LogFile }

// PID returns the process id of the server; 0 when it is not running or not ours.
func (t *Temporal) PID() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.process == nil || !t.process.Running() {
		return 0
	}
	return t.process.PID()
}

// start starts the process and waits until it answers. The caller holds mu.
func (t *Temporal) start(ctx context.Context) error {
	process, err := StartProcess(t.command)
	if err != nil {
		return err
	}
	t.process = process
	started := time.Now()
	if err := untilReady(ctx, process, t.answer); err != nil {
		return errors.Join(err, process.Kill())
	}
	t.logger.Info("Temporal is running", "pid", process.PID(), "address", t.address, "ui", t.uiURL, "after", time.Since(started).Round(time.Millisecond))
	return nil
}

// answer returns nil when the server can start workflows.
func (t *Temporal) answer(ctx context.Context) error {
	c, err := client.DialContext(ctx, client.Options{
		HostPort:  t.address,
		Namespace: temporalNamespace,
		Logger:    log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		return err
	}
	if _, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: temporalNamespace}); err != nil {
		return err
	}
	// The front end is healthy before the history service has its shard. Only that one can say
	// that a workflow does not exist.
	_, err = c.DescribeWorkflow(ctx, "portage-is-temporal-ready", "")
	if _, missing := errors.AsType[*serviceerror.NotFound](err); missing {
		return nil
	}
	return err
}

// Kill is kill -9 of the server. It returns when it is gone.
func (t *Temporal) Kill() error {
	if err := t.mustOwn("kill"); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.logger.Info("killing Temporal")
	if err := t.process.Kill(); err != nil {
		return fmt.Errorf("kill Temporal: %w", err)
	}
	return nil
}

// Pause holds the server still (SIGSTOP): its connections stay open and nothing answers. Resume lets
// it go on.
func (t *Temporal) Pause() error { return t.signal("pause", syscall.SIGSTOP) }

// Resume ends a Pause.
func (t *Temporal) Resume() error { return t.signal("resume", syscall.SIGCONT) }

func (t *Temporal) signal(verb string, signal syscall.Signal) error {
	if err := t.mustOwn(verb); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.process.Signal(signal)
}

// Restart starts the server again at the same addresses with the same state, after Kill or Stop.
func (t *Temporal) Restart(ctx context.Context) error {
	if err := t.mustOwn("restart"); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.process.Running() {
		return errors.New("restart Temporal: it is still running: stop or kill it first")
	}
	if err := t.start(ctx); err != nil {
		return fmt.Errorf("restart Temporal: %w", err)
	}
	return nil
}

// Stop shuts the server down and returns when it is gone. Its state stays. A server that runs
// elsewhere is left alone.
func (t *Temporal) Stop() error {
	if t == nil || !t.Owned() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.process == nil || !t.process.Running() {
		return nil
	}
	if err := t.process.Stop(); err != nil {
		return err
	}
	t.logger.Info("Temporal has stopped")
	return nil
}

// Close is Stop, and removes the state when its folder was a temporary one.
func (t *Temporal) Close() error {
	if err := t.Stop(); err != nil {
		return err
	}
	if t == nil || t.remove == "" {
		return nil
	}
	return os.RemoveAll(t.remove)
}

func (t *Temporal) mustOwn(verb string) error {
	if t.Owned() {
		return nil
	}
	return fmt.Errorf("cannot %s Temporal: it was not started here but named by its address: unset %s", verb, AddressVariable)
}
