package services

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// FindTemporal returns the temporal program that can run the dev server: the one on the PATH, or
// the pinned one, which is built once (and its building announced on progress) and kept in the
// user's cache. It needs a checkout of Portage only when there is none on the PATH.
func FindTemporal(ctx context.Context, progress io.Writer) (binary string, err error) {
	if onPath, err := exec.LookPath("temporal"); err == nil && runsDevServer(ctx, onPath) {
		return filepath.Abs(onPath)
	}
	root, err := findCheckout()
	if err != nil {
		return "", fmt.Errorf("there is no Temporal dev server on this machine, and %w: install the temporal CLI, or name a running server in %s", err, AddressVariable)
	}
	// One script knows the cache, for this and for the task runner.
	build := exec.CommandContext(ctx, filepath.Join(root, "tools", "build-tool"), "temporal",
		"github.com/temporalio/cli/cmd/temporal", "building the Temporal dev server, about 5 minutes, once")
	var path, said bytes.Buffer
	build.Stdout = &path
	build.Stderr = &said
	if progress != nil {
		build.Stderr = io.MultiWriter(&said, progress)
	}
	// The end of ctx ends the script and the compilers below it. If this process dies instead, the
	// build goes on to its end and is there the next time.
	build.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	build.Cancel = func() error { return syscall.Kill(-build.Process.Pid, syscall.SIGKILL) }
	build.WaitDelay = 10 * time.Second
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build the Temporal dev server: %w: %s", errors.Join(ctx.Err(), err), strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(path.String()), nil
}

// runsDevServer tells the real CLI, with a dev server in it, from an old one or another program.
func runsDevServer(ctx context.Context, binary string) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	help, err := exec.CommandContext(ctx, binary, "server", "start-dev", "--help").CombinedOutput()
	return err == nil && bytes.Contains(help, []byte("--db-filename"))
}

// findCheckout returns the root of Portage's source, upward of the working directory or of this
// program.
func findCheckout() (string, error) {
	var starts []string
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if self, err := os.Executable(); err == nil {
		if self, err = filepath.EvalSymlinks(self); err == nil {
			starts = append(starts, filepath.Dir(self))
		}
	}
	for _, start := range starts {
		for folder := start; ; folder = filepath.Dir(folder) {
			if isCheckout(folder) {
				return folder, nil
			}
			if folder == filepath.Dir(folder) {
				break
			}
		}
	}
	return "", errors.New("no checkout of Portage to build one from is at or above the working directory")
}

func isCheckout(folder string) bool {
	text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "module" {
			return fields[1] == "portage"
		}
	}
	return false
}
