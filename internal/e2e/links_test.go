package e2e

import (
	"testing"
	"time"

	"portage/internal/fleet"
	"portage/internal/netcut"
)

// links are the ways a move's participants and clients reach each other. Between source and destination the copy goes one
// way and relayed offsets go both, so both directions of asking are cut at once.
var links = []struct {
	name string
	ends [][2]string // who connects, to whom
}{
	{"source↔destination", [][2]string{{"b2", "b1"}, {"b1", "b2"}}},
	{"worker↔source", [][2]string{{"worker1", "b1"}}},
	{"worker↔destination", [][2]string{{"worker1", "b2"}}},
	{"worker↔postgres", [][2]string{{"worker1", fleet.LinkPostgres}}},
	{"source↔postgres", [][2]string{{"b1", fleet.LinkPostgres}}},
	{"destination↔postgres", [][2]string{{"b2", fleet.LinkPostgres}}},
	{"worker↔temporal", [][2]string{{"worker1", fleet.LinkTemporal}}},
	{"client↔source", [][2]string{{fleet.LinkClient, "b1"}}},
	{"client↔destination", [][2]string{{fleet.LinkClient, "b2"}}},
}

// cutAt are the phases of a move at which a link is cut: where it stands when that happens.
var cutAt = []struct {
	phase string
	step  step
}{
	{"copy", step{point: "segment.half", by: destination, fill: 1}},
	{"freeze", step{point: "cutover.before", by: worker}},
	{"drain", step{point: "drain.before", by: destination}},
	{"commit", step{point: "commit.before", by: worker}},
	{"open", step{point: "open.before", by: destination}},
}

var tellingCuts = []string{
	"source↔destination, black hole/copy", // a source that hangs in the middle of a segment
	"source↔destination, black hole/drain",
	"worker↔source, one way out/freeze",      // frozen, and the answer does not arrive
	"worker↔destination, one way out/drain",  // installed, and the answer does not arrive
	"worker↔postgres, black hole/commit",     // the commit arrives late
	"worker↔postgres, one way out/commit",    // committed, and the answer does not arrive
	"source↔postgres, black hole/drain",      // the lease ends and can not be settled
	"destination↔postgres, one way out/open", // opened, and the answer does not arrive
	"worker↔temporal, reset/freeze",          // the activity is lost to its server
	"client↔source, black hole/open",         // clients hear of the flip late
	"client↔destination, one way out/open",   // written, and the answer does not arrive
	"source↔postgres, delay/freeze",          // everything is slow
	"source↔destination, one way in/drain",   // requests arrive late, from a sender that is gone
	"destination↔postgres, reset/commit",     // the new owner hears of its commit late
	"worker↔destination, black hole/copy",    // the copy goes on without a worker
	"source↔destination, reset/copy",         // the stream breaks
}

// cutFor is how long a link stays cut: longer than the freeze's lease of these fleets, so that both what waits and what
// gives up is seen.
const cutFor = 3 * time.Second

// Whichever link is cut, however and whenever: once it is mended the move comes to its end by itself, and no record is
// lost, doubled or out of order; no client sees an error.
func TestCutLinks(t *testing.T) {
	t.Parallel()
	var phases []string
	for _, at := range cutAt {
		phases = append(phases, at.phase)
	}
	cells := matrix.table("which link was cut, how, in which phase, and how the move ended once it was mended:", phases, tellingCuts...)
	for _, link := range links {
		for _, mode := range netcut.Cuts {
			for _, at := range cutAt {
				cells.run(t, link.name+", "+mode.String(), at.phase, func(t *testing.T) string {
					w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease})
					load := w.startLoad()
					if at.step.fill > 0 {
						load.fill(at.step.fill)
					}
					stopped := w.arm(at.step)
					run := w.start("b2")
					w.must(stopped.Reached(w.ctx))
					w.cut(link.ends, mode)
					w.must(stopped.Continue())
					time.Sleep(cutFor)
					w.cut(link.ends, netcut.Open)
					return w.movedTo("b2", load, w.mustEnd(run))
				})
			}
		}
	}
}

// cut sets what the links between these ends do. One over which nobody has connected yet can not be cut.
func (w *world) cut(ends [][2]string, mode netcut.Mode) {
	w.t.Helper()
	found := false
	for _, e := range ends {
		if link := w.faults.Link(e[0], e[1]); link != nil {
			link.Set(mode)
			found = true
		}
	}
	if !found {
		w.t.Fatalf("there is no connection between %v", ends)
	}
}
