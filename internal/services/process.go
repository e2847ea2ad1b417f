package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// NameVariable is set in the environment of every child, to the name it was started under, so that
// a listing of processes tells one agent from another.
const NameVariable = "PORTAGE_PROCESS"

const defaultGrace = 20 * time.Second

// Command says what to run.
type Command struct {
	Name    string    // for people; also the value of PORTAGE_PROCESS
	Path    string    // the program
	Args    []string  // without the program itself
	Env     []string  // added to the parent's environment
	Dir     string    // working directory; empty: the parent's
	LogFile string    // standard output and error are appended here; empty: nowhere
	Output  io.Writer // also receives standard output and error; nil: nobody
	// Grace is how long Stop waits for the process to end by itself; 0: ten seconds.
	Grace time.Duration
	// Credential is the user to run as; nil: the parent's.
	Credential *syscall.Credential
}

// Process is one running, or ended, child and its process group. All methods may be called
// concurrently and at any time.
type Process struct {
	command Command
	pid     int
	done    chan struct{} // closed when the process has ended and its group is gone
	err     error         // how it ended; to be read after done

	mu sync.Mutex
	// guards: reaped. While it is false the pid, and the group of the same number, cannot belong
	// to anybody else.
	reaped bool
}

// StartProcess starts the command in a process group of its own. The group is killed when this
// process dies, however it dies.
func StartProcess(command Command) (*Process, error) {
	if command.Grace == 0 {
		command.Grace = defaultGrace
	}
	p := &Process{command: command, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", command.Name, err)
	}
	return p, nil
}

// run starts the child and stays with it to its end.
func (p *Process) run(started chan<- error) {
	// The parent death signal is sent when the *thread* that started the child ends, and the
	// runtime ends threads as it likes. So this goroutine keeps its thread for as long as the
	// child lives.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := exec.Command(p.command.Path, p.command.Args...)
	cmd.Dir = p.command.Dir
	cmd.Env = append(os.Environ(), p.command.Env...)
	cmd.Env = append(cmd.Env, NameVariable+"="+p.command.Name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: p.command.Credential}
	dieWithParent(cmd.SysProcAttr)
	// When Output is set a pipe is read until all its writers are gone; do not wait for one that
	// escaped from the group.
	cmd.WaitDelay = 5 * time.Second

	if p.command.LogFile != "" {
		log, err := os.OpenFile(p.command.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			started <- err
			return
		}
		defer log.Close()
		cmd.Stdout = log
	}
	if p.command.Output != nil {
		if cmd.Stdout == nil {
			cmd.Stdout = p.command.Output
		} else {
			cmd.Stdout = io.MultiWriter(cmd.Stdout, p.command.Output)
		}
	}
	cmd.Stderr = cmd.Stdout

	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	release, err := startWatchdog(p.pid)
	if err != nil {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		_ = cmd.Wait()
		started <- err
		return
	}
	started <- nil

	waitUntilDead(p.pid)
	p.mu.Lock()
	// What the process left in its group goes with it.
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	p.reaped = true
	p.mu.Unlock()
	release()
	p.err = cmd.Wait()
	close(p.done)
}

// Name returns the name the process was started under.
func (p *Process) Name() string { return p.command.Name }

// PID returns the process id, which is also the id of the process group.
func (p *Process) PID() int { return p.pid }

// LogFile returns where the output goes, or "".
func (p *Process) LogFile() string { return p.command.LogFile }

// Exited returns a channel that is closed once the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.done }

// Running reports whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait waits for the end of the process and returns how it ended, as [exec.Cmd.Wait] does.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends a signal to the process, not to its group. A process that has ended returns
// [os.ErrProcessDone].
func (p *Process) Signal(signal syscall.Signal) error {
	return p.send(p.pid, signal)
}

// Kill is kill -9 of the whole process group. It returns when the group is gone. Killing a process
// that has ended does nothing.
func (p *Process) Kill() error {
	if err := p.send(-p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// Stop asks the process to end (SIGTERM) and waits for it. One that does not end within its grace
// is killed, which is reported as an error. Stopping a process that has ended, or nil, does nothing.
func (p *Process) Stop() error {
	if p == nil {
		return nil
	}
	return p.stopWith(syscall.SIGTERM)
}

func (p *Process) stopWith(signal syscall.Signal) error {
	if err := p.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	// A process that a test has stopped could not hear the signal.
	_ = p.Signal(syscall.SIGCONT)
	select {
	case <-p.done:
		return nil
	case <-time.After(p.command.Grace):
		return errors.Join(fmt.Errorf("stop %s: it did not end within %v and was killed", p.command.Name, p.command.Grace), p.Kill())
	}
}

// Restart starts the same command again, after the process has ended.
func (p *Process) Restart() (*Process, error) {
	if p.Running() {
		return nil, fmt.Errorf("restart %s: it is still running: stop or kill it first", p.command.Name)
	}
	return StartProcess(p.command)
}

func (p *Process) send(pid int, signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return os.ErrProcessDone
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return fmt.Errorf("send %v to %s (process %d): %w", signal, p.command.Name, p.pid, err)
	}
	return nil
}

// Stopper is anything that can be stopped: [Process], [Postgres], [Temporal].
type Stopper interface{ Stop() error }

// StopAll stops all, the last one first, one after the other, and returns all errors. Entries
// that are nil, or a nil pointer, are skipped: a half-started fleet can be handed in as it is.
func StopAll(started ...Stopper) error {
	var errs []error
	for i := len(started) - 1; i >= 0; i-- {
		if started[i] != nil {
			errs = append(errs, started[i].Stop())
		}
	}
	return errors.Join(errs...)
}

// runToEnd runs a short-lived program, within ctx, and returns an error with the end of its output.
func runToEnd(ctx context.Context, command Command) error {
	p, err := StartProcess(command)
	if err != nil {
		return err
	}
	select {
	case <-p.Exited():
	case <-ctx.Done():
		_ = p.Kill()
		return fmt.Errorf("%s: %w", command.Name, ctx.Err())
	}
	if err := p.Wait(); err != nil {
		return fmt.Errorf("%s: %w%s", command.Name, err, endOfLog(command.LogFile))
	}
	return nil
}
