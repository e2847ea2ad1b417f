package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"portage/brokeragent/control"
	"portage/workflows/protocol"
)

const (
	// littleDisk and fewFiles are the shares left at which an agent is warned of.
	littleDisk = 0.10
	fewFiles   = 0.20
	// leastFiles is a file limit below which a fleet of any size runs out.
	leastFiles = 4096
	// diskFloorBytes is what agents keep free themselves: below it no copy is taken.
	diskFloorBytes = 64 << 20
)

// examineAgents asks every registered broker's agent. It reports whether any answered.
func (d Doctor) examineAgents(ctx context.Context) (c checks, answered bool) {
	if d.Agents == nil {
		c.warn("agents", "give --token-file to have them asked", "%s", d.AgentsAway)
		return c, false
	}
	brokers := d.brokers(ctx)
	if brokers == nil {
		if d.Store != nil {
			c.fail("agents", "start one: `portage agent`", "no broker is registered")
		} else {
			c.fail("agents", "bring the metastore back, which knows where they are", "not asked")
		}
		return c, false
	}
	answers := d.askAgents(ctx, brokers)
	versions, epochs := map[string][]string{}, map[int64][]string{}
	for _, a := range answers {
		d.examineAgent(&c, a)
		if a.status != nil {
			answered = true
			versions[a.status.Version] = append(versions[a.status.Version], a.broker.ID)
			epochs[a.status.ControllerEpoch] = append(epochs[a.status.ControllerEpoch], a.broker.ID)
		}
	}
	if len(versions) > 1 {
		c.warn("agent versions", "finish the upgrade", "%s", grouped(versions))
	} else if answered {
		c.ok("agent versions", "all the same")
	}
	if len(epochs) > 1 {
		// An agent hears of an epoch with the first order under it, so the lower ones are not wrong.
		c.ok("controller epoch", "%s; an agent hears of a new one with its next order", grouped(epochs))
	} else if answered {
		c.ok("controller epoch", "%s", grouped(epochs))
	}
	return c, answered
}

func grouped[K comparable](by map[K][]string) string {
	var parts []string
	for k, ids := range by {
		parts = append(parts, fmt.Sprintf("%v on %s", k, strings.Join(ids, ", ")))
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

func (d Doctor) examineAgent(c *checks, a agentAnswer) {
	name := "agent " + a.broker.ID
	if a.err != nil {
		switch control.CodeOf(a.err) {
		case control.CodeUnauthorized:
			c.fail(name, "give the fleet's --token-file", "%s", oneLine(a.err))
		default:
			c.fail(name, fmt.Sprintf("start it, or see why %s does not answer", a.broker.ControlURL), "%s", oneLine(a.err))
		}
		return
	}
	s := a.status
	switch {
	case s.Process != a.broker.ProcessInstance:
		c.fail(name, "stop the superseded process: one agent a broker id", "process %s answers, the row has %s", s.Process, a.broker.ProcessInstance)
	case !s.Ready:
		c.warn(name, "wait; if it lasts, `portage explain` of the partition it names", "not ready: %s", s.NotReady)
	default:
		c.ok(name, "ready, version %s, %d partitions, answers in %s", s.Version, len(s.Partitions), a.took.Round(100*time.Microsecond))
	}
	if s.Storage != a.broker.StorageInstance {
		c.fail(name+" storage", "mount the volume that the row names", "the folder is %s, the row has %s", s.Storage, a.broker.StorageInstance)
	} else {
		c.ok(name+" storage", "%s, as the row says", s.Storage)
	}
	examineClosed(c, name, s)
	examineDisk(c, name, s)
	examineFiles(c, name, s)
	examineClock(c, name+" clock", s.Clock, a.at)
}

func examineClosed(c *checks, name string, s *control.AgentStatus) {
	for _, p := range s.Partitions {
		look := fmt.Sprintf("`portage explain %s/%d`", p.Topic, p.Partition)
		if p.State == "closed" {
			c.fail(name+" partitions", look, "%s/%d is closed, %s: %s", p.Topic, p.Partition, p.ReasonCode, p.Reason)
		}
		if p.Suspended != "" {
			c.fail(name+" partitions", look, "%s/%d changes hands no more, %s: %s", p.Topic, p.Partition, p.Suspended, p.SuspendedReason)
		}
	}
}

func examineDisk(c *checks, name string, s *control.AgentStatus) {
	seen := fmt.Sprintf("%s free of %s, %s of it former copies, %s promised to copies", protocol.ByteSize(s.DiskFreeBytes), protocol.ByteSize(s.DiskTotalBytes),
		protocol.ByteSize(s.TrashBytes), protocol.ByteSize(s.ReservedBytes))
	const do = "free space, or move partitions away; former copies can be purged"
	switch {
	case s.DiskFreeBytes < diskFloorBytes:
		c.fail(name+" disk", do, "%s", seen)
	case float64(s.DiskFreeBytes) < littleDisk*float64(s.DiskTotalBytes):
		c.warn(name+" disk", do, "%s", seen)
	default:
		c.ok(name+" disk", "%s", seen)
	}
}

func examineFiles(c *checks, name string, s *control.AgentStatus) {
	if s.FileLimit == 0 {
		return // an older release, or a system that does not tell
	}
	seen := fmt.Sprintf("%d files open of %d", s.OpenFiles, s.FileLimit)
	const do = "raise the limit (`ulimit -n`, LimitNOFILE) and restart the agent"
	if s.FileLimit < leastFiles || float64(s.FileLimit-s.OpenFiles) < fewFiles*float64(s.FileLimit) {
		c.warn(name+" file limit", do, "%s", seen)
		return
	}
	c.ok(name+" file limit", "%s", seen)
}
