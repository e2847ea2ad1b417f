package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.temporal.io/sdk/temporal"

	"portage/internal/inspect"
	"portage/workflows/protocol"
)

// documented runs a command of the runbook, as `portage move start orders/3 --to b2`, for this world's partition. A command
// that is not written there fails the test: what is tested is what people read.
func (w *world) documented(command string, more ...string) (output string, code int) {
	w.t.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	w.must(err)
	if !strings.Contains(string(page), command) {
		w.t.Fatalf("docs/operations.md does not say %q", command)
	}
	args := strings.Fields(strings.ReplaceAll(strings.TrimPrefix(command, "portage "), "orders/3", w.topic+"/0"))
	return w.command(append(args, more...)...)()
}

// leads runs a documented command that must end well.
func (w *world) leads(command string, more ...string) {
	w.t.Helper()
	if output, code := w.documented(command, more...); code != 0 {
		w.t.Fatalf("%s exited with %d: %s", command, code, output)
	}
}

// shows waits until `portage explain` shows a code, and holds that it says how to get out.
func (w *world) shows(code string) inspect.Blocker {
	w.t.Helper()
	var found inspect.Blocker
	w.await("portage explain shows "+code, func() string {
		x := w.explained()
		for _, b := range x.Blocked {
			if b.Code == code {
				found = b
				return ""
			}
		}
		return fmt.Sprintf("it shows %+v", x.Blocked)
	})
	if found.Unblock == "" || found.Means == "" {
		w.t.Errorf("%s is shown without its meaning or its way out: %+v", code, found)
	}
	return found
}

func TestWayOutOfACancelledMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1, alone: true})
	load := w.startLoad()
	load.fill(8)
	run := w.start("b2", func(in *protocol.MoveInput) { in.Limit = 1 << 20 })
	w.phase(run, protocol.PhaseCopy)
	w.leads("portage move cancel orders/3")
	if _, err := w.end(run); !temporal.IsCanceledError(err) {
		t.Errorf("the move ended with %v", err)
	}
	if x := w.explained(); len(x.Blocked) > 0 || x.Should != "b1" {
		t.Errorf("%+v", x)
	}
	w.leads("portage move start orders/3 --to b2", "--wait")
	w.settled("b2")
	load.finish()
	w.committedOnce()
}

// A refused move is rolled back; the folder that was in the way is moved away as the runbook says.
func TestWayOutOfAFolderInTheWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1, alone: true})
	load := w.startLoad()
	w.must(os.MkdirAll(w.partitionDir("b2"), 0o755))
	w.must(os.WriteFile(filepath.Join(w.partitionDir("b2"), "precious.txt"), []byte("not a log"), 0o644))
	if out, code := w.documented("portage move start orders/3 --to b2", "--wait"); code != 1 || !strings.Contains(out, w.partitionDir("b2")) {
		t.Fatalf("exit code %d: %s", code, out)
	}
	w.must(os.Rename(w.partitionDir("b2"), filepath.Join(t.TempDir(), "away")))
	w.leads("portage move start orders/3 --to b2", "--wait")
	w.settled("b2")
	load.finish()
	w.committedOnce()
}

// A terminated workflow leaves its claim, which the next move releases.
func TestWayOutOfATerminatedMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1, workerArgs: []string{"--supervise-every", "1h"}, alone: true})
	load := w.startLoad()
	load.fill(8)
	run := w.start("b2", func(in *protocol.MoveInput) { in.Limit = 1 << 20 })
	w.phase(run, protocol.PhaseCopy)
	w.must(w.Client.TerminateWorkflow(w.ctx, run.GetID(), run.GetRunID(), "pressed in the UI"))
	w.shows(inspect.CodeClaimOrphaned)
	w.leads("portage move start orders/3 --to b2", "--wait")
	w.settled("b2")
	load.finish()
	w.committedOnce()
}

// Every cutover loses its lease: the loop is ended by a cancel, and with its cause gone the move gets through.
func TestWayOutOfAMoveThatStartsOverAgainAndAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: []string{"--freeze-lease", "1ms"}, alone: true})
	load := w.startLoad()
	run := w.start("b2")
	w.shows(protocol.CodeStartingOver)
	w.leads("portage move cancel orders/3")
	if _, err := w.end(run); !temporal.IsCanceledError(err) {
		t.Errorf("the move ended with %v", err)
	}
	w.settled("b1")
	load.finish()
}

// The owner's volume is not mounted: nothing is created over it, and with the volume back a restart opens it.
func TestWayOutOfAVolumeThatIsNotMounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1, alone: true})
	load := w.startLoad()
	load.acknowledge(1)
	load.finish()

	t.Log("the partition's part of the folder is away")
	w.must(w.KillAgent("b1"))
	away := filepath.Join(t.TempDir(), "volume")
	w.must(os.Rename(w.partitionDir("b1"), away))
	w.must(w.StartAgent("b1"))
	w.must(w.WaitReady(w.ctx, "b1"))
	w.await("the partition is closed", func() string {
		if p := w.partition("b1"); p.State != "closed" {
			return "it is " + p.State
		}
		return ""
	})
	if p := w.partition("b1"); p.ReasonCode == "" {
		t.Errorf("the agent gives no code: %+v", p)
	} else if b := w.shows(p.ReasonCode); !strings.Contains(b.Reason, "mount the right volume") || b.Since == nil {
		t.Errorf("it says %+v", b)
	}
	out, _, code := w.bare(append([]string{"doctor", "--single-node-metastore"}, w.everywhere()...)...)
	if code != 1 {
		t.Errorf("doctor exited with %d", code)
	}
	w.says(out, w.topic+"/0 is closed")
	w.must(w.KillAgent("b1"))
	w.must(os.Rename(away, w.partitionDir("b1")))
	w.must(w.StartAgent("b1"))
	w.settled("b1")

	t.Log("the whole folder is away")
	w.must(w.KillAgent("b1"))
	w.must(os.Rename(w.Agent("b1").Data, away))
	w.must(w.StartAgent("b1"))
	<-w.Agent("b1").Process.Exited()
	log, err := os.ReadFile(w.Agent("b1").Process.LogFile())
	w.must(err)
	w.says(string(log), "is registered with other storage", "mount its volume")
	w.must(os.RemoveAll(w.Agent("b1").Data))
	w.must(os.Rename(away, w.Agent("b1").Data))
	w.must(w.StartAgent("b1"))
	w.settled("b1")
	w.leads("portage move start orders/3 --to b2", "--wait")
	w.settled("b2")
}

// The destination is lost for good right after it became the owner. A person promotes the source's former copy: the move that can
// neither be cancelled nor finished ends, and the next one is not in its way.
func TestWayOutOfADestinationThatIsLostAfterTheCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 3, workers: 1})
	a := w.openAccount()
	a.write(10)
	stopped := w.faults.Arm("worker1", "commit.after")
	run := w.start("b2")
	w.must(stopped.Reached(w.ctx))
	w.must(w.KillAgent("b2"))
	w.must(stopped.Continue())
	w.await("the move waits for its destination", func() string {
		status, err := w.MoveStatus(w.ctx, w.topic, 0)
		if err != nil || status.Blocked != protocol.CodeDestinationUnreachable || !status.Committed {
			return fmt.Sprintf("it is %+v (%v)", status, err)
		}
		return ""
	})
	if out, code := w.run("promote", w.topic+"/0", "--dsn", w.DSN(), "--single-node-metastore", "--token-file", w.TokenFile(), "--from", "b1", "--accept-loss", "--reason", "b2 burnt down"); code != 0 {
		t.Fatalf("it said (%d):\n%s", code, out)
	}
	result, err := w.end(run)
	if err != nil || !strings.Contains(result.WentOn, "went on to b1") {
		t.Fatalf("the move ended as %+v (%v)", result, err)
	}
	w.await("b1 has it open", func() string {
		if p := w.partition("b1"); p.State != "open" {
			return fmt.Sprintf("it is %s: %s", p.State, p.Reason)
		}
		return ""
	})
	a.write(5)
	w.mustMove("b3")
	a.write(5)
	w.must(w.StartAgent("b2"))
	w.settled("b3")
}

// The table of end states names for each the command that leaves it and a test that is there.
func TestTheTableOfEndStatesIsTrue(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "## No operator is ever stuck")
	if !found {
		t.Fatal("docs/operations.md has no table of end states")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	var sources strings.Builder
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(source)
	}
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.Contains(cells[1], "---") || strings.TrimSpace(cells[1]) == "end state" {
			continue
		}
		rows++
		tests := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(cells[3], -1)
		if strings.TrimSpace(cells[2]) == "" || len(tests) == 0 {
			t.Errorf("no way out or no test: %s", line)
		}
		for _, name := range tests {
			if !strings.Contains(sources.String(), "func "+name[1]+"(") {
				t.Errorf("there is no %s", name[1])
			}
		}
	}
	if rows == 0 {
		t.Error("the table is empty")
	}
}
