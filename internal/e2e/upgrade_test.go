package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"portage/internal/durable"
	"portage/workflows/protocol"
)

const root = "../.."

// buildAs builds a source tree under a version of its own, with crash points and the race detector.
func buildAs(t *testing.T, tree, version string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "portage")
	build := exec.Command("go", "build", "-race", "-tags", "portage_faults", "-ldflags", "-X main.version="+version, "-o", out, "./cmd/portage")
	build.Dir = tree
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", version, err, said)
	}
	return out
}

// previous is the source of the last release, or of the commit before this one. Where neither is at hand (no repository, or
// one without history) it is this very source, which then differs by its version alone.
func previous(t *testing.T) (tree, which string) {
	t.Helper()
	git := func(args ...string) (string, error) {
		cmd := exec.Command("git", args...)
		cmd.Dir = root
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	which, err := git("describe", "--tags", "--abbrev=0")
	if err != nil {
		which, err = git("rev-parse", "--verify", "--quiet", "HEAD~1")
	}
	if err != nil {
		return root, "this source"
	}
	tree = t.TempDir()
	archive := filepath.Join(tree, "source.tar")
	if _, err := git("archive", "--format=tar", "--output="+archive, which); err != nil {
		t.Fatalf("the source of %s: %v", which, err)
	}
	if out, err := exec.Command("tar", "-x", "-f", archive, "-C", tree).CombinedOutput(); err != nil {
		t.Fatalf("unpack the source of %s: %v\n%s", which, err, out)
	}
	return tree, which
}

// Agents and workers are upgraded one process at a time while a move runs, in either order, and later rolled back in the
// same way during the move back.
func TestUpgradeInMidMove(t *testing.T) {
	t.Parallel()
	const column = "upgraded, then rolled back"
	cells := matrix.table("in which order agents and workers were upgraded in mid-move, and how the moves ended:", []string{column})
	for name, order := range map[string][]string{
		"agents first":  {"b2", "b1", "worker1", "worker2"},
		"workers first": {"worker1", "worker2", "b1", "b2"},
	} {
		cells.run(t, name, column, func(t *testing.T) string {
			tree, which := previous(t)
			older, newer := buildAs(t, tree, "older"), buildAs(t, root, "newer")
			installed := filepath.Join(t.TempDir(), "portage")
			install(t, older, installed)
			w := newWorld(t, setup{brokers: 2, workers: 2, binary: installed, alone: true})
			load := w.startLoad()
			load.fill(24)
			for _, way := range []struct{ to, binary, version string }{{"b2", newer, "newer"}, {"b1", older, "older"}} {
				run := w.start(way.to, func(in *protocol.MoveInput) { in.Limit = 1 << 20 })
				if way.to == "b2" {
					w.phase(run, protocol.PhaseCopy)
				}
				install(t, way.binary, installed)
				for _, process := range order {
					w.upgrade(process, way.version)
				}
				if way.to == "b2" && w.over(run) {
					t.Error("the move was over before everything was upgraded: this test shows nothing")
				}
				w.mustEnd(run)
				w.settled(way.to)
				load.acknowledge(loadPerSecond / 4)
			}
			load.finish()
			return fmt.Sprintf("from %.9s: both done, %s", which, load.verdict)
		})
	}
}

// install puts a program in the place of another, whose running processes keep what they run.
func install(t *testing.T, binary, place string) {
	t.Helper()
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	next := place + ".next"
	if err := os.WriteFile(next, content, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := durable.Rename(next, place); err != nil {
		t.Fatal(err)
	}
}

// upgrade stops one process as an operator does and starts what is installed now in its place.
func (w *world) upgrade(process, version string) {
	w.t.Helper()
	if n, found := strings.CutPrefix(process, "worker"); found {
		index := int(n[0] - '1')
		w.must(w.Worker(index).Stop())
		w.must(w.StartWorker(index))
		return
	}
	w.must(w.Agent(process).Process.Stop())
	w.must(w.StartAgent(process))
	w.must(w.WaitReady(w.ctx, process))
	w.await(process+" is of the "+version+" program", func() string {
		status, err := w.Agents.Status(w.ctx, w.Agent(process).ControlURL)
		if err != nil {
			return err.Error()
		}
		if !strings.HasPrefix(status.Version, version) {
			return fmt.Sprintf("it is %s", status.Version)
		}
		return ""
	})
}

// over reports whether a run has ended.
func (w *world) over(run client.WorkflowRun) bool {
	w.t.Helper()
	described, err := w.Client.DescribeWorkflow(w.ctx, run.GetID(), run.GetRunID())
	w.must(err)
	return described.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING
}
