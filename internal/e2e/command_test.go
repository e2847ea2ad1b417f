package e2e

import (
	"bytes"
	"errors"
	"os/exec"
	"syscall"
)

// command starts the program's command line against the world; the returned function waits for its output and exit code.
func (w *world) command(args ...string) (wait func() (output string, code int)) {
	w.t.Helper()
	args = append(args, "--temporal-address", w.Temporal.Address(), "--task-queue", w.TaskQueue())
	cmd := exec.CommandContext(w.ctx, binary, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	w.must(cmd.Start())
	return func() (string, int) {
		w.t.Helper()
		err := cmd.Wait()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			w.t.Fatalf("portage %v: %v\n%s", args, err, &out)
		}
		return out.String(), cmd.ProcessState.ExitCode()
	}
}

// hold stops (SIGSTOP) an agent until the returned function is called.
func (w *world) hold(broker string) (thaw func()) {
	w.t.Helper()
	p := w.Agent(broker).Process
	w.must(p.Signal(syscall.SIGSTOP))
	return func() { w.t.Helper(); w.must(p.Signal(syscall.SIGCONT)) }
}

// run runs a command that takes no Temporal to its end.
func (w *world) run(args ...string) (output string, code int) {
	w.t.Helper()
	cmd := exec.CommandContext(w.ctx, binary, args...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatalf("portage %v: %v\n%s", args, err, out)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
