package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// DSNVariable names the environment variable that names a running Postgres.
const DSNVariable = "PORTAGE_POSTGRES_DSN"

const (
	startTimeout  = time.Minute
	startAttempts = 3
	goneTimeout   = 20 * time.Second
)

// errPortTaken: another process was faster at the port; the next attempt draws another.
var errPortTaken = errors.New("the port was taken by another process")

// PostgresOptions say how to run a Postgres. The zero value is a good one for tests.
type PostgresOptions struct {
	// Dir is where the data goes, into a folder "postgres" of its own; kept, and taken up again
	// by the next start. Empty: a temporary folder, removed by Close.
	Dir string
	// Logger hears of starts and stops; nil: nobody does.
	Logger *slog.Logger
	// LogFile is what the server writes its log to; empty: Dir/postgres.log.
	LogFile string
	// Port on 127.0.0.1; 0: a free one.
	Port int
}

// Postgres is one server: a child of this process, or one that runs elsewhere (see [FromDSN]).
type Postgres struct {
	dsn     string
	command Command // empty when it runs elsewhere
	data    string
	remove  string // the temporary folder to remove at Close, or ""
	logger  *slog.Logger

	mu sync.Mutex
	// guards: process, which is nil when the server runs elsewhere.
	process *Process
}

// FromDSN returns a Postgres that runs elsewhere: it can be used, not killed or stopped.
func FromDSN(dsn string) *Postgres {
	return &Postgres{dsn: dsn, logger: slog.New(slog.DiscardHandler)}
}

// OpenPostgres returns the server that PORTAGE_POSTGRES_DSN names, or else starts one.
func OpenPostgres(ctx context.Context, options PostgresOptions) (*Postgres, error) {
	dsn := os.Getenv(DSNVariable)
	if dsn == "" {
		return StartPostgres(ctx, options)
	}
	p := FromDSN(dsn)
	if err := p.answer(ctx); err != nil {
		return nil, fmt.Errorf("the Postgres that %s names does not answer: %w", DSNVariable, err)
	}
	return p, nil
}

// StartPostgres starts a server and waits until it answers. It keeps every durability setting on:
// what it confirmed is there after Kill and Restart.
func StartPostgres(ctx context.Context, options PostgresOptions) (*Postgres, error) {
	p, err := preparePostgres(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	for attempt := 1; ; attempt++ {
		port := options.Port
		if port == 0 {
			if port, err = FreePort(); err != nil {
				break
			}
		}
		p.setPort(port)
		p.mu.Lock()
		err = p.start(ctx)
		p.mu.Unlock()
		if err == nil {
			return p, nil
		}
		if options.Port != 0 || attempt == startAttempts || !errors.Is(err, errPortTaken) {
			break
		}
	}
	return nil, errors.Join(fmt.Errorf("start Postgres: %w", err), p.Close())
}

// preparePostgres finds the programs and makes the data folder.
func preparePostgres(ctx context.Context, options PostgresOptions) (_ *Postgres, err error) {
	p := &Postgres{logger: options.Logger}
	if p.logger == nil {
		p.logger = slog.New(slog.DiscardHandler)
	}
	user, err := postgresUser()
	if err != nil {
		return nil, err
	}
	dir := options.Dir
	if dir == "" {
		if dir, err = user.temporaryFolder("portage-postgres-"); err != nil {
			return nil, err
		}
		p.remove = dir
		defer func() {
			if err != nil {
				_ = os.RemoveAll(dir)
			}
		}()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	// Absolute and without links: processes are recognised by it.
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	if err := user.checkReach(dir); err != nil {
		return nil, err
	}
	p.data = filepath.Join(dir, "postgres")
	logFile := options.LogFile
	if logFile == "" {
		logFile = filepath.Join(dir, "postgres.log")
	}

	version, err := dataVersion(p.data)
	if err != nil {
		return nil, err
	}
	installation, err := choosePostgres(findInstallations(postgresFolders()), version)
	if err != nil {
		return nil, err
	}
	if version != 0 {
		if err := removeDeadLock(p.data); err != nil {
			return nil, err
		}
	}
	if version == 0 {
		if err := initialise(ctx, installation, user, p.data, logFile); err != nil {
			return nil, err
		}
	}
	p.command = Command{
		Name:       "postgres",
		Path:       filepath.Join(installation.bin, "postgres"),
		Dir:        p.data,
		Env:        []string{"LC_ALL=C"},
		LogFile:    logFile,
		Credential: user.credential,
		Grace:      30 * time.Second,
	}
	return p, nil
}

// removeDeadLock removes the lock file of a server that was killed with its parent. Postgres takes it for a live one as
// long as nobody has waited for the dead process.
func removeDeadLock(data string) error {
	name := filepath.Join(data, "postmaster.pid")
	content, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 0 || !isGone(pid) {
		return nil // Postgres itself says what is wrong with it
	}
	working, err := postgresProcesses(pid, data)
	if err != nil || len(working) > 0 {
		return err
	}
	return os.Remove(name)
}

// initialise makes the data folder, whole or not at all.
func initialise(ctx context.Context, installation postgresInstallation, user serviceUser, data, logFile string) error {
	unfinished := data + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return err
	}
	if err := user.own(unfinished); err != nil {
		return err
	}
	err := runToEnd(ctx, Command{
		Name: "initdb",
		Path: filepath.Join(installation.bin, "initdb"),
		// --no-sync: a machine that loses power in the first second of a demo may lose the empty
		// cluster. The server itself syncs everything it confirms.
		Args:       []string{"-D", unfinished, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"},
		Dir:        unfinished,
		Env:        []string{"LC_ALL=C"},
		LogFile:    logFile,
		Credential: user.credential,
	})
	if err != nil {
		return err
	}
	return os.Rename(unfinished, data)
}

func (p *Postgres) setPort(port int) {
	p.dsn = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
	p.command.Args = []string{"-D", p.data, "-p", fmt.Sprint(port)}
	for _, setting := range []string{
		// Loopback only, because everybody who reaches it is trusted. No unix socket: its path
		// would be too long in many a test folder.
		"listen_addresses=127.0.0.1",
		"unix_socket_directories=",
		// It is the arbiter: whatever postgresql.conf says, these stay on.
		"fsync=on",
		"synchronous_commit=on",
		"full_page_writes=on",
		// A small machine.
		"max_connections=200",
		"shared_buffers=64MB",
		"jit=off",
		"logging_collector=off",
		"log_destination=stderr",
		"timezone=UTC",
		"log_timezone=UTC",
	} {
		p.command.Args = append(p.command.Args, "-c", setting)
	}
}

// DSN returns the address of the server's own database, as a URL when it is a child of ours.
func (p *Postgres) DSN() string { return p.dsn }

// Owned reports whether the server is a child of this process, and so can be killed.
func (p *Postgres) Owned() bool { return p.command.Path != "" }

// LogFile returns where the server's log goes; "" when it runs elsewhere.
func (p *Postgres) LogFile() string { return p.command.LogFile }

// PID returns the process id of the postmaster; 0 when it is not running or not ours.
func (p *Postgres) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil || !p.process.Running() {
		return 0
	}
	return p.process.PID()
}

// start starts the process and waits until it answers. The caller holds mu.
func (p *Postgres) start(ctx context.Context) error {
	process, err := StartProcess(p.command)
	if err != nil {
		return err
	}
	p.process = process
	started := time.Now()
	if err := untilReady(ctx, process, p.answer); err != nil {
		return errors.Join(err, p.kill())
	}
	p.logger.Info("Postgres is running", "pid", process.PID(), "dsn", p.dsn, "after", time.Since(started).Round(time.Millisecond))
	return nil
}

// answer returns nil when the server answers a query.
func (p *Postgres) answer(ctx context.Context) error {
	return p.connected(ctx, func(conn *pgx.Conn) error { return conn.Ping(ctx) })
}

func (p *Postgres) connected(ctx context.Context, use func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, p.dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return use(conn)
}

// CreateDatabase makes a new, empty database and returns its address. With an empty name it finds
// one that nobody has. A name that is taken is an error: a test must not see another's rows.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) (dsn string, err error) {
	if name == "" {
		name = "portage_" + strings.ToLower(randomText())
	}
	if dsn, err = withDatabase(p.dsn, name); err != nil {
		return "", err
	}
	err = p.connected(ctx, func(conn *pgx.Conn) error {
		// template0, because a connection to template1 (autovacuum has some) would make it wait.
		_, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE template0")
		return err
	})
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return dsn, nil
}

// DropDatabase removes the database that CreateDatabase returned the address of, and cuts off who
// still uses it.
func (p *Postgres) DropDatabase(ctx context.Context, dsn string) error {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return p.connected(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{config.Database}.Sanitize()+" WITH (FORCE)")
		return err
	})
}

// withDatabase returns the address with another database name. Both forms of libpq are understood.
func withDatabase(dsn, name string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		// Keywords: the last one wins.
		quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(name)
		return dsn + " dbname='" + quoted + "'", nil
	}
	address, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("the address of Postgres is not a valid URL: %w", err)
	}
	address.Path = "/" + name
	return address.String(), nil
}

// Kill is kill -9 of the whole server: the postmaster and every process of it, which have process
// groups of their own. It returns when all are gone, so that nobody holds the shared memory.
func (p *Postgres) Kill() error {
	if err := p.mustOwn("kill"); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.logger.Info("killing Postgres")
	return p.kill()
}

// kill does what Kill says. The caller holds mu.
func (p *Postgres) kill() error {
	if p.process == nil {
		return nil
	}
	pids, err := p.signalAll(syscall.SIGKILL)
	if err := errors.Join(err, p.process.Kill()); err != nil {
		return fmt.Errorf("kill Postgres: %w", err)
	}
	if err := p.waitUntilGone(pids); err != nil {
		return err
	}
	// Postgres takes the file of a dead server for a live one when its process id has been given
	// to another process of the same user. Here it is known to be dead.
	if err := os.Remove(filepath.Join(p.data, "postmaster.pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the lock of the killed Postgres: %w", err)
	}
	return nil
}

// signalAll holds the postmaster still, so that it starts no more processes while they are listed and
// cannot tell them to end in an orderly way, and then sends the signal to all the others. The caller
// holds mu.
func (p *Postgres) signalAll(signal syscall.Signal) ([]int, error) {
	_ = p.process.Signal(syscall.SIGSTOP)
	pids, err := postgresProcesses(p.process.PID(), p.data)
	for _, pid := range pids {
		if pid != p.process.PID() {
			_ = syscall.Kill(pid, signal)
		}
	}
	return pids, err
}

// Pause holds the whole server still (SIGSTOP): its connections stay open and nothing answers.
// Resume lets it go on.
func (p *Postgres) Pause() error {
	if err := p.mustOwn("pause"); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.signalAll(syscall.SIGSTOP)
	return err
}

// Resume ends a Pause.
func (p *Postgres) Resume() error {
	if err := p.mustOwn("resume"); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.signalAll(syscall.SIGCONT)
	return errors.Join(err, p.process.Signal(syscall.SIGCONT))
}

// waitUntilGone waits for the end of processes that were told to end.
func (p *Postgres) waitUntilGone(pids []int) error {
	deadline := time.Now().Add(goneTimeout)
	for _, pid := range pids {
		for !isGone(pid) {
			if time.Now().After(deadline) {
				return fmt.Errorf("stop Postgres: its process %d is still there after %v", pid, goneTimeout)
			}
			pollPause()
		}
	}
	return nil
}

// Restart starts the server again at the same address with the same data, after Kill or Stop.
func (p *Postgres) Restart(ctx context.Context) error {
	if err := p.mustOwn("restart"); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process != nil && p.process.Running() {
		return errors.New("restart Postgres: it is still running: stop or kill it first")
	}
	// A postmaster that somebody else killed leaves processes that hold the shared memory.
	if err := p.kill(); err != nil {
		return err
	}
	if err := p.start(ctx); err != nil {
		return fmt.Errorf("restart Postgres: %w", err)
	}
	return nil
}

// Stop shuts the server down (fast: sessions are cut off, everything is written) and returns when
// all its processes are gone. The data stays. A server that runs elsewhere is left alone.
func (p *Postgres) Stop() error {
	if p == nil || !p.Owned() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil || !p.process.Running() {
		return p.kill() // what a postmaster that somebody else killed has left
	}
	// Also lets go on what is paused.
	pids, err := p.signalAll(syscall.SIGCONT)
	if err != nil {
		return errors.Join(err, p.kill())
	}
	if err := p.process.stopWith(syscall.SIGINT); err != nil {
		return errors.Join(err, p.kill())
	}
	p.logger.Info("Postgres has stopped")
	return p.waitUntilGone(pids)
}

// Close is Stop, and removes the data when its folder was a temporary one.
func (p *Postgres) Close() error {
	if err := p.Stop(); err != nil {
		return err
	}
	if p == nil || p.remove == "" {
		return nil
	}
	return os.RemoveAll(p.remove)
}

func (p *Postgres) mustOwn(verb string) error {
	if p.Owned() {
		return nil
	}
	return fmt.Errorf("cannot %s Postgres: it was not started here but named by its address: unset %s", verb, DSNVariable)
}
