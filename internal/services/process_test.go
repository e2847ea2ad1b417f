package services

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// parentVariable makes this test binary play a parent that starts what the variable names, prints
// what it started, and waits to be killed.
const parentVariable = "PORTAGE_TEST_PARENT"

func TestMain(m *testing.M) {
	if role := os.Getenv(parentVariable); role != "" {
		playParent(role)
	}
	os.Exit(m.Run())
}

func playParent(role string) {
	_ = os.Unsetenv(parentVariable)
	switch role {
	case "process":
		child, err := StartProcess(shell(`sleep 1000 & echo $! >"$PORTAGE_TEST_DIR/pid"; sleep 1000`))
		report(err)
		fmt.Println(child.PID())
	case "postgres":
		p, err := StartPostgres(context.Background(), PostgresOptions{Dir: os.Getenv("PORTAGE_TEST_DIR")})
		report(err)
		fmt.Println(p.PID())
	}
	select {}
}

func report(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// startParent starts this binary in a role and returns it with the id of the child it printed.
func startParent(t *testing.T, role string, env ...string) (parent *exec.Cmd, child int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent = exec.Command(self)
	parent.Env = append(append(os.Environ(), parentVariable+"="+role), env...)
	output, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = parent.Process.Kill()
		_ = parent.Wait()
	})
	line := make([]byte, 4096)
	n, err := output.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	child, err = strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil {
		t.Fatalf("the parent said: %s", line[:n])
	}
	return parent, child
}

func shell(script string) Command {
	return Command{Name: "shell", Path: "/bin/sh", Args: []string{"-c", script}}
}

func start(t *testing.T, command Command) *Process {
	t.Helper()
	p, err := StartProcess(command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); pollPause() {
		if time.Now().After(deadline) {
			t.Fatalf("waited 20 s in vain: %s", what)
		}
	}
}

func readPID(t *testing.T, file string) int {
	t.Helper()
	pid := 0
	waitFor(t, "a process id in "+file, func() bool {
		text, err := os.ReadFile(file)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil
	})
	return pid
}

func TestKillEndsTheWholeGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	p := start(t, shell(`sleep 1000 & echo $! >'`+file+`'; sleep 1000`))
	grandchild := readPID(t, file)

	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}

	waitFor(t, "the grandchild is gone", func() bool { return isGone(grandchild) })
	if !isGone(p.PID()) || p.Running() {
		t.Errorf("process %d is still there", p.PID())
	}
	if err := p.Kill(); err != nil {
		t.Errorf("a second kill: %v", err)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal after the end: %v", err)
	}
}

func TestWhatAProcessLeavesBehindGoesWithIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	p := start(t, shell(`sleep 1000 & echo $! >'`+file+`'`))

	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}

	grandchild := readPID(t, file)
	waitFor(t, "the grandchild is gone", func() bool { return isGone(grandchild) })
}

func TestStopKillsOnlyWhatDoesNotEndInTime(t *testing.T) {
	for _, test := range []struct {
		name, script string
		wantKilled   bool
	}{
		{"it ends by itself", `trap 'exit 3' TERM; echo up; while :; do sleep 0.01; done`, false},
		{"it does not hear", `trap '' TERM; echo up; while :; do sleep 0.01; done`, true},
		{"it is paused", `trap 'exit 3' TERM; echo up; kill -STOP $$; while :; do sleep 0.01; done`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			command := shell(test.script)
			command.Grace = 2 * time.Second
			command.LogFile = filepath.Join(t.TempDir(), "log")
			p := start(t, command)
			waitFor(t, "the script is up", func() bool { return logTail(command.LogFile) == "up" })

			err := p.Stop()

			if (err != nil) != test.wantKilled {
				t.Errorf("stop returned %v", err)
			}
			ended := p.Wait()
			if code := exitCode(ended); !test.wantKilled && code != 3 {
				t.Errorf("it ended with %v, want exit code 3", ended)
			}
		})
	}
}

func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return 0
}

func TestOutputGoesToTheLogAndTheWriter(t *testing.T) {
	var output bytes.Buffer
	command := shell(`echo "I am $PORTAGE_PROCESS"; echo "and $EXTRA" >&2`)
	command.Name = "agent b1"
	command.Env = []string{"EXTRA=more"}
	command.LogFile = filepath.Join(t.TempDir(), "log")
	command.Output = &output
	p := start(t, command)
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	again, err := p.Restart()
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Wait(); err != nil {
		t.Fatal(err)
	}

	want := strings.Repeat("I am agent b1\nand more\n", 2)
	if log, err := os.ReadFile(command.LogFile); err != nil || string(log) != want {
		t.Errorf("log %q (%v), want %q", log, err, want)
	}
	if output.String() != want {
		t.Errorf("output %q, want %q", output.String(), want)
	}
}

func TestAProgramThatIsNotThereIsAnError(t *testing.T) {
	_, err := StartProcess(Command{Name: "ghost", Path: "/no/such/program"})
	if err == nil || !strings.Contains(err.Error(), "start ghost: ") {
		t.Errorf("got %v", err)
	}
}

func TestChildrenDieWhenTheirParentIsKilled(t *testing.T) {
	dir := t.TempDir()
	parent, child := startParent(t, "process", "PORTAGE_TEST_DIR="+dir)
	grandchild := readPID(t, filepath.Join(dir, "pid"))
	if isGone(child) || isGone(grandchild) {
		t.Fatal("the children are not there")
	}

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	waitFor(t, "the child is gone", func() bool { return isGone(child) })
	waitFor(t, "the child of the child is gone", func() bool { return isGone(grandchild) })
}

func TestReleasedWatchdogHarmsNobody(t *testing.T) {
	p := start(t, shell("sleep 1000"))
	release, err := startWatchdog(p.PID())
	if err != nil {
		t.Fatal(err)
	}

	release()

	select {
	case <-p.Exited():
		t.Error("the group was killed")
	case <-time.After(300 * time.Millisecond):
	}
}

type recorder struct {
	name string
	log  *[]string
	err  error
}

func (r recorder) Stop() error {
	*r.log = append(*r.log, r.name)
	return r.err
}

func TestStopAllStopsTheLastFirstAndGoesOnAfterAnError(t *testing.T) {
	var log []string
	failure := errors.New("no")
	var noProcess *Process
	var noPostgres *Postgres
	var noTemporal *Temporal

	err := StopAll(recorder{"a", &log, nil}, noProcess, nil, recorder{"b", &log, failure}, noPostgres, noTemporal, recorder{"c", &log, nil})

	if got := strings.Join(log, " "); got != "c b a" {
		t.Errorf("stopped in the order %q", got)
	}
	if !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
}

func TestFreePortsAreFreeDifferentAndOutOfTheClientsRange(t *testing.T) {
	ports, err := FreePorts(50)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range ports {
		if seen[port] || port < lowestPort || port >= 32768 {
			t.Errorf("port %d", port)
		}
		seen[port] = true
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Errorf("port %d: %v", port, err)
			continue
		}
		defer listener.Close()
	}
}
