package chaos

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"portage/internal/faults/faultctl"
	"portage/internal/netcut"
	"portage/internal/services"
)

// points are crash points of a move and whose process comes there.
var points = []struct{ name, by string }{
	{"ClaimMove.after", worker}, {"ensure.after", destination}, {"pass.before", destination}, {"segment.half", destination}, {"pass.after", destination},
	{"cutover.before", worker}, {"freeze.before", source}, {"freeze.after", source}, {"cutover.frozen", worker}, {"drain.before", destination},
	{"install.before", destination}, {"offsets.after", destination}, {"drain.after", destination}, {"cutover.after", worker}, {"commit.before", worker},
	{"CommitOwner.before", worker}, {"CommitOwner.after", worker}, {"open.before", destination}, {"OpenOwner.after", destination}, {"leave.before", source},
	{"leave.after", source}, {"finish.opened", worker}, {"abort.before", worker}, {"AbortMove.after", worker}, {"abandon.before", destination},
}

const (
	worker      = "worker"
	source      = "source"
	destination = "destination"
)

// replies are calls whose reply may be lost, by whoever makes them next.
var replies = []string{"ClaimMove", "CommitOwner", "OpenOwner", "AbortMove", "Ensure", "StartCopy", "Session", "Freeze", "Drain", "Look", "Abandon", "Listing",
	"SegmentDigest", "SegmentBytes", "CommitOffsets", "FetchOffsets"}

// The longest times for which something is broken: about the length of a freeze's lease in these fleets.
const (
	longestDelay  = 500 * time.Millisecond // from the start of a move to a fault that waits for no point
	longestOutage = 2 * time.Second
	pointPatience = 3 * time.Second // a point that is not reached meanwhile is not on this move's way
)

func (c *Chaos) upTo(d time.Duration) time.Duration { return time.Duration(c.rng.Int64N(int64(d))) }

// aim is a fault that waits for a process to come to a point.
type aim struct {
	halt    *faultctl.Halt
	process string
	point   string
	victim  string // who is killed while the process stands there; empty: the process itself only stands for a while
}

// armed chooses, for about half of the moves that break anything, a point at which the first fault strikes.
func (c *Chaos) armed(owner, to string, breaks int) *aim {
	if breaks == 0 || c.rng.IntN(2) == 0 {
		return nil
	}
	p := points[c.rng.IntN(len(points))]
	process := map[string]string{worker: "worker1", source: owner, destination: to}[p.by]
	a := &aim{process: process, point: p.name, halt: c.Faults.Arm(process, p.name)}
	if c.rng.IntN(4) > 0 {
		a.victim = c.victim()
	}
	return a
}

// victim is any process of the fleet or one of its services.
func (c *Chaos) victim() string {
	all := append(c.Fleet.AgentIDs(), "postgres", "temporal")
	for n := range c.Fleet.Workers() {
		all = append(all, c.Fleet.Worker(n).Name())
	}
	return all[c.rng.IntN(len(all))]
}

// strikeAt waits until the process stands at the point, and kills whom the aim names.
func (c *Chaos) strikeAt(ctx context.Context, a *aim) error {
	outage := c.upTo(longestOutage)
	reached, cancel := context.WithTimeout(ctx, pointPatience)
	defer cancel()
	if err := a.halt.Reached(reached); err != nil {
		if c.Faults.Withdraw(a.halt) {
			return nil
		}
		if err := a.halt.Reached(ctx); err != nil { // it came there at the last moment
			return err
		}
	}
	c.Log("%s stands at %s; killed meanwhile: %q for %s", a.process, a.point, a.victim, outage.Round(time.Millisecond))
	if a.victim == "" {
		c.Stats.Stops++
		err := pause(ctx, outage)
		if cont := a.halt.Continue(); err == nil {
			err = cont
		}
		return err
	}
	c.Stats.Kills++
	if err := c.kill(a.victim); err != nil {
		return err
	}
	if a.victim != a.process {
		if err := a.halt.Continue(); err != nil {
			return err
		}
	}
	err := pause(ctx, outage)
	if started := c.revive(ctx, a.victim); err == nil {
		err = started
	}
	return err
}

// strike breaks one thing at some moment and mends it.
func (c *Chaos) strike(ctx context.Context) error {
	delay, outage := c.upTo(longestDelay), c.upTo(longestOutage)
	kind := c.rng.IntN(10)
	victim := c.victim()
	reply := replies[c.rng.IntN(len(replies))]
	mode := netcut.Cuts[c.rng.IntN(len(netcut.Cuts))]
	if err := pause(ctx, delay); err != nil {
		return err
	}
	switch {
	case kind < 3:
		c.Log("kill %s for %s", victim, outage.Round(time.Millisecond))
		c.Stats.Kills++
		if err := c.kill(victim); err != nil {
			return err
		}
		err := pause(ctx, outage)
		if started := c.revive(ctx, victim); err == nil {
			err = started
		}
		return err
	case kind < 5:
		c.Log("stop %s for %s", victim, outage.Round(time.Millisecond))
		c.Stats.Stops++
		return c.stopFor(ctx, victim, outage)
	case kind < 7:
		c.Log("lose the next reply of %s", reply)
		c.Stats.Lost++
		c.Faults.LoseReply("", reply)
		return nil
	default:
		links := c.Faults.Links()
		ends := links[c.rng.IntN(len(links))]
		c.Log("cut %s → %s (%s) for %s", ends[0], ends[1], mode, outage.Round(time.Millisecond))
		c.Stats.Cuts++
		link := c.Faults.Link(ends[0], ends[1])
		link.Set(mode)
		err := pause(ctx, outage)
		link.Set(netcut.Open)
		return err
	}
}

// process is a process of the binary by its name; nil for the services.
func (c *Chaos) process(name string) *services.Process {
	if a := c.Fleet.Agent(name); a != nil {
		return a.Process
	}
	for n := range c.Fleet.Workers() {
		if p := c.Fleet.Worker(n); p.Name() == name {
			return p
		}
	}
	return nil
}

func (c *Chaos) kill(name string) error {
	switch name {
	case "postgres":
		return c.Fleet.Postgres.Kill()
	case "temporal":
		return c.Fleet.Temporal.Kill()
	}
	return c.process(name).Kill()
}

// revive starts what was killed, at the same address on the same data.
func (c *Chaos) revive(ctx context.Context, name string) error {
	switch name {
	case "postgres":
		return c.Fleet.Postgres.Restart(ctx)
	case "temporal":
		return c.Fleet.Temporal.Restart(ctx)
	}
	if c.Fleet.Agent(name) != nil {
		return c.Fleet.StartAgent(name)
	}
	for n := range c.Fleet.Workers() {
		if c.Fleet.Worker(n).Name() == name {
			return c.Fleet.StartWorker(n)
		}
	}
	return fmt.Errorf("there is no process %s", name)
}

// stopFor has a process stand still (SIGSTOP) for a while.
func (c *Chaos) stopFor(ctx context.Context, name string, d time.Duration) error {
	hold, release := func() error { return c.process(name).Signal(syscall.SIGSTOP) }, func() error { return c.process(name).Signal(syscall.SIGCONT) }
	switch name {
	case "postgres":
		hold, release = c.Fleet.Postgres.Pause, c.Fleet.Postgres.Resume
	case "temporal":
		hold, release = c.Fleet.Temporal.Pause, c.Fleet.Temporal.Resume
	}
	if err := hold(); err != nil {
		return err
	}
	err := pause(ctx, d)
	if released := release(); err == nil {
		err = released
	}
	return err
}
