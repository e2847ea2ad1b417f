package services

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
)

func TestTemporalKeepsAWorkflowThroughKill(t *testing.T) {
	s, err := StartTemporal(t.Context(), TemporalOptions{UI: true, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	address, ui, pid := s.Address(), s.UIURL(), s.PID()
	if page, err := http.Get(ui); err != nil {
		t.Errorf("web UI: %v", err)
	} else {
		page.Body.Close()
		if page.StatusCode != http.StatusOK {
			t.Errorf("web UI: %s", page.Status)
		}
	}
	run := startWorkflow(t, address, "partition:orders:3")

	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if !isGone(pid) {
		t.Errorf("process %d is still there after Kill", pid)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	if s.Address() != address || s.UIURL() != ui {
		t.Errorf("the addresses changed to %s and %s", s.Address(), s.UIURL())
	}
	described, err := connect(t, address).DescribeWorkflow(t.Context(), "partition:orders:3", "")
	if err != nil {
		t.Fatal(err)
	}
	if described.WorkflowExecution.RunID != run {
		t.Errorf("run %s, want %s", described.WorkflowExecution.RunID, run)
	}
	startWorkflow(t, address, "partition:orders:4")

	pid = s.PID()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if !isGone(pid) {
		t.Errorf("process %d is still there after Stop", pid)
	}
}

func connect(t *testing.T, address string) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: address, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func startWorkflow(t *testing.T, address, id string) (run string) {
	t.Helper()
	started, err := connect(t, address).ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: "nobody"}, "Move")
	if err != nil {
		t.Fatal(err)
	}
	return started.GetRunID()
}

func TestTemporalThatCannotStartShowsItsLog(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "temporal.db"), []byte("this is no database, it only has its name"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := StartTemporal(t.Context(), TemporalOptions{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "the end of "+dir) {
		t.Errorf("got %v", err)
	}
}

func TestATakenPortIsRecognised(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port

	if _, err := StartTemporal(t.Context(), TemporalOptions{Port: port}); !errors.Is(err, errPortTaken) {
		t.Errorf("Temporal: %v", err)
	}
	if _, err := StartPostgres(t.Context(), PostgresOptions{Port: port}); !errors.Is(err, errPortTaken) {
		t.Errorf("Postgres: %v", err)
	}
}

func TestTemporalOfTheEnvironmentIsUsedAndNeverStopped(t *testing.T) {
	t.Setenv(AddressVariable, "temporal.example:7233")
	s, err := OpenTemporal(t.Context(), TemporalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Owned() || s.Address() != "temporal.example:7233" {
		t.Errorf("got %s, owned %v", s.Address(), s.Owned())
	}
	if err := s.Kill(); err == nil || !strings.Contains(err.Error(), AddressVariable) {
		t.Errorf("kill: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestAnotherProgramNamedTemporalIsNotTaken(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "temporal")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\necho hello\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(fake)+string(os.PathListSeparator)+os.Getenv("PATH"))

	found, err := FindTemporal(t.Context(), os.Stderr)

	if err != nil {
		t.Fatal(err)
	}
	if found == fake || !runsDevServer(context.Background(), found) {
		t.Errorf("found %s", found)
	}
}
