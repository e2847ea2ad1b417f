package inspect

import (
	"context"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"

	"portage/metastore"
)

// State is how one check came out.
type State string

// States of a check: only Fail makes the whole a failure.
const (
	OK   State = "ok"
	Warn State = "warn"
	Fail State = "fail"
)

// Check is one line of an examination.
type Check struct {
	Name  string `json:"check"`
	State State  `json:"state"`
	Seen  string `json:"seen"`
	Do    string `json:"do,omitempty"` // empty when all is well
}

// Examination is everything a fleet rests on, checked.
type Examination struct {
	Checks   []Check `json:"checks"`
	Answered bool    `json:"answered"` // something answered at all
}

// Doctor is what is examined, and how the fleet is meant to run.
type Doctor struct {
	Sources
	Namespace string
	// SingleNode accepts a Postgres without a synchronous standby.
	SingleNode bool
}

// Examine checks Temporal, Postgres, every agent, and the moves in progress. Whatever does not answer fails its check and
// leaves out those that need it; the whole is bounded by a few times AskFor.
func (d Doctor) Examine(ctx context.Context) Examination {
	var temporal, postgres []Check
	var both sync.WaitGroup
	both.Go(func() { temporal = d.examineTemporal(ctx) })
	both.Go(func() { postgres = d.examinePostgres(ctx) })
	agents, answered := d.examineAgents(ctx)
	moves := d.examineMoves(ctx)
	both.Wait()
	var x Examination
	for _, part := range [][]Check{temporal, postgres, agents, moves} {
		x.Checks = append(x.Checks, part...)
	}
	x.Answered = answered || temporal[0].State == OK || postgres[0].State == OK
	return x
}

// Worst is the worst state of all checks.
func (x Examination) Worst() State {
	worst := OK
	for _, c := range x.Checks {
		if c.State == Fail || (c.State == Warn && worst == OK) {
			worst = c.State
		}
	}
	return worst
}

// Write prints the examination as one table.
func (x Examination) Write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "CHECK\tSTATE\tSEEN\tWHAT TO DO")
	for _, c := range x.Checks {
		do := c.Do
		if do == "" {
			do = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", c.Name, c.State, c.Seen, do)
	}
	return w.Flush()
}

// checks collects the lines of one system.
type checks []Check

func (c *checks) ok(name, format string, args ...any) {
	*c = append(*c, Check{Name: name, State: OK, Seen: fmt.Sprintf(format, args...)})
}

func (c *checks) warn(name, do, format string, args ...any) {
	*c = append(*c, Check{Name: name, State: Warn, Seen: fmt.Sprintf(format, args...), Do: do})
}

func (c *checks) fail(name, do, format string, args ...any) {
	*c = append(*c, Check{Name: name, State: Fail, Seen: fmt.Sprintf(format, args...), Do: do})
}

// brokers reads the fleet's brokers; none when the metastore is away.
func (d Doctor) brokers(ctx context.Context) []metastore.Broker {
	if d.Store == nil {
		return nil
	}
	ask, cancel := context.WithTimeout(ctx, AskFor)
	defer cancel()
	brokers, err := d.Store.Brokers(ask)
	if err != nil {
		return nil
	}
	return brokers
}
