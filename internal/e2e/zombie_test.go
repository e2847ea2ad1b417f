package e2e

import (
	"testing"

	"portage/brokeragent/control"
	"portage/internal/faults/faultctl"
	"portage/metastore"
)

// longLease lets one freeze outlast the timeouts of everything that the stopped worker had taken on.
var longLease = []string{"--freeze-lease", "90s", "--max-freeze", "120s"}

// A worker stops in the middle of a cutover for so long that its activity times out, and another worker goes on. Whatever
// the first attempt still asks for when it wakes is refused everywhere, while the move is under way and after it.
func TestZombieAttemptIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		asleep    string // where the first attempt stopped
		second    string // where the second attempt stands when the first wakes; empty: the move has ended
		agentArgs []string
	}{
		{"asking to freeze, while the second attempt commits", "cutover.before", "commit.before", longLease},
		{"frozen, while the second attempt commits", "cutover.frozen", "commit.before", longLease},
		{"asking to freeze, after the move", "cutover.before", "", nil},
		{"frozen, after the move", "cutover.frozen", "", nil},
		{"frozen, after the lease took the move back", "cutover.frozen", "", shortLease},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: c.agentArgs, alone: true})
			load := w.startLoad()
			asleep := w.faults.Arm("worker1", c.asleep)
			run := w.start("b2")
			w.must(asleep.Reached(w.ctx))
			first := w.moves()[0]
			var second *faultctl.Halt
			if c.second != "" {
				second = w.faults.Arm("worker2", c.second)
			}
			_, err := w.AddWorker()
			w.must(err)
			if second != nil {
				w.must(second.Reached(w.ctx))
			} else if _, err := w.end(run); err != nil {
				t.Fatalf("the move ended with %v", err)
			}
			version := w.row().Version

			w.must(asleep.Continue())
			w.must(w.Worker(0).Stop()) // it waits for the attempt's end
			if w.faults.Passed("worker1", "cutover.after") != 0 {
				t.Errorf("the zombie came through its cutover")
			}
			w.leftoversRefused(first, second != nil)
			if now := w.row().Version; now != version {
				t.Errorf("the row changed from version %d to %d", version, now)
			}
			if second != nil {
				w.must(second.Continue())
				if _, err := w.end(run); err != nil {
					t.Fatalf("the move ended with %v", err)
				}
			}
			w.settled("b2")
			load.acknowledge(loadPerSecond / 4)
			load.finish()
			w.committedOnce()
		})
	}
}

// leftoversRefused sends every order a first attempt of the move could still send. While the move is under way the later
// attempt's token refuses them; afterwards the row does.
func (w *world) leftoversRefused(m metastore.Move, underWay bool) {
	w.t.Helper()
	status, err := w.Agents.Status(w.ctx, w.Agent("b1").ControlURL)
	w.must(err)
	b1, b2 := w.Agent("b1").ControlURL, w.Agent("b2").ControlURL
	order := func(phase int32) control.Order {
		return control.Order{
			Authority: control.Authority{ControllerEpoch: status.ControllerEpoch, ControllerID: status.ControllerID, Token: control.Token{Version: m.ClaimVersion, Phase: phase, Attempt: 1}},
			Subject:   control.Subject{MoveID: m.ID, TopicID: m.TopicID, Topic: m.Topic, Partition: m.Partition},
		}
	}
	for name, send := range map[string]func() error{
		"ensure": func() error {
			_, err := w.Agents.Ensure(w.ctx, b2, control.EnsureRequest{Order: order(control.PhaseEnsure), Source: "b1", SourceURL: b1})
			return err
		},
		"copy": func() error {
			_, err := w.Agents.StartCopy(w.ctx, b2, control.CopyRequest{Order: order(control.PhaseCopy), Source: "b1", SourceURL: b1})
			return err
		},
		"freeze": func() error {
			_, err := w.Agents.Freeze(w.ctx, b1, control.FreezeRequest{Order: order(control.PhaseCutover), Version: m.ClaimVersion})
			return err
		},
		"drain": func() error {
			_, err := w.Agents.Drain(w.ctx, b2, control.DrainRequest{Order: order(control.PhaseCutover), SourceURL: b1, Freeze: control.FreezeAnswer{Version: m.ClaimVersion}})
			return err
		},
	} {
		err := send()
		if code := control.CodeOf(err); code == "" || (underWay && code != control.CodeStaleToken) {
			w.t.Errorf("a leftover %s was answered with %q: %v", name, code, err)
		}
	}
}
