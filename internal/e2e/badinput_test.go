package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"portage/metastore"
	"portage/workflows/protocol"
)

// raw starts a move as the Temporal CLI or UI would: any workflow id, any payload.
func (w *world) raw(id string, input ...string) client.WorkflowRun {
	w.t.Helper()
	var args []any
	for _, in := range input {
		args = append(args, converter.NewRawValue(&commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(in)}))
	}
	run, err := w.Client.ExecuteWorkflow(w.ctx, client.StartWorkflowOptions{ID: id, TaskQueue: w.TaskQueue()}, protocol.WorkflowMove, args...)
	w.must(err)
	return run
}

// refusal waits for the end of a move that must be refused and returns its one sentence.
func (w *world) refusal(run client.WorkflowRun) string {
	w.t.Helper()
	result, err := w.end(run)
	var failure *temporal.ApplicationError
	if !errors.As(err, &failure) {
		w.t.Fatalf("the move was not refused: %+v, %v", result, err)
	}
	if failure.Type() != protocol.ErrRefused && failure.Type() != protocol.ErrInvalidInput {
		w.t.Errorf("the move failed as %s: %v", failure.Type(), failure)
	}
	return failure.Message()
}

// rows are all rows and moves of the fleet.
func (w *world) rows() ([]metastore.Assignment, []metastore.Move) {
	w.t.Helper()
	snapshot, err := w.Store.ReadSnapshot(w.ctx)
	w.must(err)
	moves, err := w.Store.Moves(w.ctx, true, 1000)
	w.must(err)
	return snapshot.Assignments, moves
}

// What is wrong with a request is known before anything is touched: it ends with a sentence and changes nothing.
func TestBadInputChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 4, workers: 1})
	w.must(w.CreateTopic(w.ctx, "__secret", 1, "b1"))
	w.must(w.CreateTopic(w.ctx, "ours", 1, "b1"))
	w.must(w.Store.SetInternal(w.ctx, "ours", true))
	w.must(w.Store.SetDraining(w.ctx, "b3", true, "test", "maintenance"))
	w.must(w.KillAgent("b4"))
	load := w.startLoad()
	load.finish()
	assignments, moves := w.rows()
	disks := w.disks()

	move := func(topic string, partition int, to string) string {
		return fmt.Sprintf(`{"topic":%q,"partition":%d,"to":%q}`, topic, partition, to)
	}
	for _, c := range []struct {
		name    string
		input   []string
		says    []string
		command []string // the same from the command line, where it can be said there
		code    int
	}{
		{"unknown topic", []string{move("nowhere", 0, "b2")}, []string{`there is no topic "nowhere"`, "check the name"}, []string{"nowhere/0", "--to", "b2"}, 1},
		{"unknown partition", []string{move(w.topic, 7, "b2")}, []string{"has partitions 0 to 1, there is no 7"}, []string{w.topic + "/7", "--to", "b2"}, 1},
		{"unknown broker", []string{move(w.topic, 0, "b9")}, []string{`there is no broker "b9"`, "portage cluster members"}, []string{w.topic + "/0", "--to", "b9"}, 1},
		{"destination is the owner", []string{move(w.topic, 0, "b1")}, []string{"is already on b1", "nothing to do"}, []string{w.topic + "/0", "--to", "b1"}, 1},
		{"internal topic by its name", []string{move("__secret", 0, "b2")}, []string{`"__secret" is internal and never moves`}, []string{"__secret/0", "--to", "b2"}, 1},
		{"internal topic by its mark", []string{move("ours", 0, "b2")}, []string{`"ours" is internal and never moves`}, []string{"ours/0", "--to", "b2"}, 1},
		{"draining destination", []string{move(w.topic, 0, "b3")}, []string{`"b3" is draining`, "choose another"}, []string{w.topic + "/0", "--to", "b3"}, 1},
		{"dead destination", []string{move(w.topic, 0, "b4")}, []string{`"b4" does not answer`, "start its agent or choose another"}, []string{w.topic + "/0", "--to", "b4"}, 1},
		{"no input", nil, []string{"the input is not a move", `{"topic":"orders","partition":3,"to":"b2"}`}, nil, 0},
		{"null", []string{`null`}, []string{`"topic" is missing`, `"partition" is missing`, `"to" is missing`}, nil, 0},
		{"empty object", []string{`{}`}, []string{`"topic" is missing`, `"partition" is missing`, `"to" is missing`}, nil, 0},
		{"malformed JSON", []string{`{"topic":"orders",`}, []string{"the input is not a move", "unexpected EOF"}, nil, 0},
		{"a list", []string{`[1,2]`}, []string{"the input is not a move"}, nil, 0},
		{"two objects", []string{move(w.topic, 0, "b2") + `{}`}, []string{"give one JSON object"}, nil, 0},
		{"unknown key", []string{`{"topic":"orders","partition":0,"to":"b2","form":"b1"}`}, []string{`unknown field "form"`}, nil, 0},
		{"wrong type", []string{`{"topic":"orders","partition":"zero","to":"b2"}`}, []string{"the input is not a move", "partition"}, nil, 0},
		{"negative partition", []string{move(w.topic, -1, "b2")}, []string{"partitions start at 0"}, []string{w.topic + "/-1", "--to", "b2"}, 2},
		{"bad size", []string{`{"topic":"orders","partition":0,"to":"b2","limit":"fast"}`}, []string{`"fast" is not a size`}, []string{w.topic + "/0", "--to", "b2", "--limit", "fast"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			sentence := w.refusal(w.raw(w.topic+" "+c.name, c.input...))
			for _, part := range c.says {
				if !strings.Contains(sentence, part) {
					t.Errorf("the move ended with %q, which does not say %q", sentence, part)
				}
			}
			if strings.Contains(sentence, "\n") {
				t.Errorf("%q is not one sentence", sentence)
			}
			if c.command != nil {
				out, code := w.command(append([]string{"move", "start"}, c.command...)...)()
				if code != c.code || (c.code == 1 && !strings.HasPrefix(out, "portage: "+sentence+" (")) {
					t.Errorf("portage move start %v exited with %d, not %d, and said %q", c.command, code, c.code, out)
				}
			}
		})
	}
	assignmentsNow, movesNow := w.rows()
	if !reflect.DeepEqual(assignments, assignmentsNow) || !reflect.DeepEqual(moves, movesNow) {
		t.Errorf("rows were\n%+v\n%+v\nand are\n%+v\n%+v", assignments, moves, assignmentsNow, movesNow)
	}
	for id, files := range w.disks() {
		if !maps.Equal(files, disks[id]) {
			t.Errorf("%s kept\n%v\nand now keeps\n%v", id, disks[id], files)
		}
	}
}

// A second move of a moving partition is refused under whatever workflow id, and names the first one's workflow.
func TestSecondMoveNamesTheFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 3, workers: 1})
	load := w.startLoad()
	halt := w.faults.Arm("b2", "drain.before")
	run := w.start("b2")
	w.must(halt.Reached(w.ctx))
	row := w.row()
	sentence := w.refusal(w.raw("another id of "+w.topic, fmt.Sprintf(`{"topic":%q,"partition":0,"to":"b3"}`, w.topic)))
	if !strings.Contains(sentence, run.GetID()) || !strings.Contains(sentence, "wait for it or cancel it") {
		t.Errorf("the second move ended with %q, which does not name %q", sentence, run.GetID())
	}
	if out, code := w.command("move", "start", w.topic+"/0", "--to", "b3")(); code != 1 || !strings.Contains(out, run.GetID()) {
		t.Errorf("portage move start exited with %d and said %q", code, out)
	}
	if now := w.row(); !reflect.DeepEqual(row, now) {
		t.Errorf("the row was %+v and is %+v", row, now)
	}
	w.must(halt.Continue())
	if _, err := w.end(run); err != nil {
		t.Fatalf("the first move ended with %v", err)
	}
	w.settled("b2")
	load.finish()
	w.committedOnce()
}

// A folder in the partition's place that holds no readable log of it is somebody's: it stays, and the move is refused.
func TestDestinationThatIsNotEmptyIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1})
	load := w.startLoad()
	foreign := filepath.Join(w.partitionDir("b2"), "precious.txt")
	w.must(os.MkdirAll(filepath.Dir(foreign), 0o755))
	w.must(os.WriteFile(foreign, []byte("not a log"), 0o644))
	picture := w.remember()
	refused := func() {
		t.Helper()
		sentence := w.refusal(w.start("b2"))
		if !strings.Contains(sentence, filepath.Dir(foreign)) || !strings.Contains(sentence, "move it away") {
			t.Errorf("the move ended with %q, which does not say what to do about %s", sentence, filepath.Dir(foreign))
		}
		w.released()
		if row := w.row(); row.Owner != "b1" || row.Epoch != picture.row.Epoch {
			t.Errorf("the row was %+v and is %+v", picture.row, row)
		}
		if now := w.disks(); !reflect.DeepEqual(now, picture.disk) {
			t.Errorf("the disks were\n%v\nand are\n%v", picture.disk, now)
		}
	}
	refused()
	w.must(w.RestartAgent(w.ctx, "b2")) // found at boot, it stays just the same
	refused()
	w.must(os.RemoveAll(w.partitionDir("b2")))
	w.mustMove("b2")
	w.settled("b2")
	load.acknowledge(1)
	load.finish()
	w.committedOnce()
}

// A destination whose disk is too small for the partition is refused before a byte is copied.
func TestTooLittleRoomIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{brokers: 2, workers: 1})
	load := w.startLoad()
	load.fill(40)
	for _, c := range []struct {
		name, size, broker string
		n                  int
	}{
		{"the disk is smaller than the partition", "32m", "b3", 3},
		{"what must stay free is in the way", "100m", "b4", 4},
	} {
		w.smallDisk(c.broker, c.size)
		_, err := w.AddAgent(w.ctx, c.n)
		w.must(err)
		picture := w.remember()
		sentence := w.refusal(w.start(c.broker))
		if !strings.Contains(sentence, "MiB on "+c.broker) || !strings.Contains(sentence, "free space or choose another broker") {
			t.Errorf("%s: the move ended with %q", c.name, sentence)
		}
		picture.restored()
	}
	load.acknowledge(1)
	load.finish()
	w.settled("b1")
}
