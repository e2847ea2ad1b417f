package e2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"portage/internal/inspect"
	"portage/workflows/protocol"
)

// nowhere is an address at which nothing answers.
const nowhere = "127.0.0.1:1"

// bare runs the program with exactly these arguments.
func (w *world) bare(args ...string) (stdout, stderr string, code int) {
	w.t.Helper()
	cmd := exec.CommandContext(w.ctx, binary, args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		w.t.Fatalf("portage %v: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// all are the flags with which a command that looks reaches everything.
func (w *world) everywhere() []string {
	return []string{"--dsn", w.DSN(), "--token-file", w.TokenFile(), "--temporal-address", w.Temporal.Address(), "--task-queue", w.TaskQueue()}
}

// explained is what `portage explain` says of the partition, with every flag but those that are replaced.
func (w *world) explained(replace ...string) inspect.Explanation {
	w.t.Helper()
	out, errs, code := w.bare(append(append([]string{"explain", w.topic + "/0", "--json"}, w.everywhere()...), replace...)...)
	var x inspect.Explanation
	if err := json.Unmarshal([]byte(out), &x); err != nil || code != 0 {
		w.t.Fatalf("portage explain exited with %d: %s%s (%v)", code, out, errs, err)
	}
	return x
}

func (w *world) says(text string, parts ...string) {
	w.t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			w.t.Errorf("it does not say %q:\n%s", part, text)
		}
	}
}

func TestExplainAPartitionThatRests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1, alone: true})
	w.mustMove("b2")
	w.settled("b2")
	out, _, code := w.bare(append([]string{"explain", w.topic + "/0"}, w.everywhere()...)...)
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	w.says(out, w.topic+"/0 is on b2, where it should be", "owner b2, epoch 1", "open since", "last moves", "b1 → b2", "done", "commit_owner")
	x := w.explained()
	if len(x.Blocked) != 0 || len(x.NotAsked) != 0 || x.Move != nil || x.Should != "b2" || !x.Agents[0].Owner || x.Agents[0].Status.State != "open" {
		t.Errorf("%+v", x)
	}
	for _, c := range []struct {
		args []string
		says string
		code int
	}{
		{[]string{"explain", "nothing/0"}, `there is no topic "nothing"`, 1},
		{[]string{"explain", w.topic + "/7"}, "has partitions 0 to 1, there is no 7", 1},
		{[]string{"explain", "orders"}, "write topic/number", 2},
	} {
		_, errs, code := w.bare(append(c.args, w.everywhere()...)...)
		if code != c.code || !strings.Contains(errs, c.says) || (c.code == 1 && strings.Count(errs, "\n") != 1) {
			t.Errorf("portage %v exited with %d and said %q", c.args, code, errs)
		}
	}
}

// Whatever is away, the rest is told, and what could not be asked is named.
func TestExplainAndDoctorWithSomethingAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1, alone: true})
	load := w.startLoad()
	load.fill(8)
	run := w.start("b2", func(in *protocol.MoveInput) { in.Limit, in.Reason = 1<<20, "more room there" })
	w.phase(run, protocol.PhaseCopy)
	w.await("bytes are staged", func() string {
		if w.stagedBytes("b2") == 0 {
			return "none is"
		}
		return ""
	})

	x := w.explained()
	if x.Should != "b2" || x.Move == nil || x.Move.Status == nil || x.Move.Reason != "more room there" || len(x.Blocked) != 0 || len(x.Move.Pending) != 1 {
		t.Errorf("while it copies: %+v", x)
	}
	if out, errs, code := w.bare(append([]string{"doctor", "--single-node-metastore"}, w.everywhere()...)...); code != 0 {
		t.Errorf("a healthy fleet: exit code %d\n%s%s", code, out, errs)
	} else {
		w.says(out, "temporal namespace", "search attributes", "workers", "postgres standby", "schema", "agent b1 disk", "agent b2 file limit", "agent b2 clock", "1 in progress")
	}
	if out, _, code := w.bare(append([]string{"doctor"}, w.everywhere()...)...); code != 1 {
		t.Errorf("without a standby: exit code %d\n%s", code, out)
	} else {
		w.says(out, "set synchronous_standby_names")
	}

	load.finish()
	w.must(w.KillAgent("b1"))
	w.await("the move is blocked by its source", func() string {
		for _, b := range w.explained().Blocked {
			if b.Code == "source_unreachable" && b.Since != nil && strings.Contains(b.Unblock, "Start the agent of b1") {
				return ""
			}
		}
		return "it is not"
	})
	out, _, code := w.bare(append([]string{"doctor", "--single-node-metastore"}, w.everywhere()...)...)
	if code != 1 {
		t.Errorf("with a dead agent: exit code %d", code)
	}
	w.says(out, "source_unreachable", "start it, or see why")
	text, _, _ := w.bare(append([]string{"explain", w.topic + "/0"}, w.everywhere()...)...)
	w.says(text, "is on b1 and should be on b2; source_unreachable", "blocked: owner_unreachable", "to unblock", "step Copy", "could not ask", "the agent of b1")

	x = w.explained("--temporal-address", nowhere)
	if x.Row == nil || x.Row.Owner != "b1" || x.Should != "b2" || !strings.Contains(strings.Join(x.NotAsked, "\n"), "Temporal") {
		t.Errorf("without Temporal: %+v", x)
	}
	x = w.explained("--dsn", "postgres://root@"+nowhere+"/none")
	if x.Row != nil || x.Move == nil || x.Move.To != "b2" || x.Blocked[0].Code != "metastore_unreachable" {
		t.Errorf("without the metastore: %+v", x)
	}
	if _, errs, code := w.bare("doctor", "--dsn", "postgres://root@"+nowhere+"/none", "--temporal-address", nowhere); code != 3 {
		t.Errorf("where nothing answers: exit code %d, %s", code, errs)
	}
	if _, errs, code := w.bare("explain", w.topic+"/0", "--dsn", "postgres://root@"+nowhere+"/none", "--temporal-address", nowhere); code != 3 {
		t.Errorf("where nothing answers: exit code %d, %s", code, errs)
	}
	w.must(w.StartAgent("b1"))
	if _, err := w.end(run); err != nil {
		t.Fatal(err)
	}
	w.settled("b2")
}

// Settings are shown and changed from the command line; a wrong one is refused in a sentence and changes nothing.
func TestSettingsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, alone: true})
	config := func(args ...string) (out, errs string, code int) {
		t.Helper()
		out, errs, code = w.bare(append(append([]string{"config"}, args...), "--dsn", w.DSN())...)
		return strings.Join(strings.Fields(out), " "), errs, code // whatever the columns are wide
	}
	for _, c := range []struct {
		args []string
		says string
		code int
	}{
		{[]string{"set", "retention.moves", "6d", "--reason", "why"}, "less than the least, 7d", 1},
		{[]string{"set", "retention.moves", "soon", "--reason", "why"}, "write 90d, 36h, or 0 for ever", 1},
		{[]string{"set", "retention.trash", "6d", "--reason", "why"}, "there are retention.moves, retention.audit", 1},
		{[]string{"set", "retention.moves", "30d"}, "--reason", 2},
	} {
		if _, errs, code := config(c.args...); code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("portage config %v exited with %d and said %q", c.args, code, errs)
		}
	}
	if out, _, code := config("show"); code != 0 {
		t.Errorf("exit code %d", code)
	} else {
		w.says(out, "retention.moves 90d", "retention.audit 365d", "autobalance off")
	}
	if out, errs, code := config("set", "retention.moves", "30d", "--reason", "a small disk"); code != 0 {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	out, _, _ := config("show")
	w.says(out, "retention.moves 30d", "a small disk")
}
