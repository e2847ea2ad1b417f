package inspect

import (
	"context"
	"time"

	"portage/metastore"
)

const (
	// oldestPostgres is the oldest major version that Postgres' own project still looks after and Portage is tried on.
	oldestPostgres = 13
	// clocksApart is the offset from which times that people compare mislead. No clock decides on ownership.
	clocksApart = 5 * time.Second
)

func (d Doctor) examinePostgres(ctx context.Context) []Check {
	var c checks
	if d.Store == nil {
		c.fail("postgres", "start the primary, or correct --dsn", "%s", d.StoreAway)
		return c
	}
	ask, cancel := context.WithTimeout(ctx, AskFor)
	defer cancel()
	began := time.Now()
	condition, err := d.Store.Condition(ask)
	took := time.Since(began)
	if err != nil {
		c.fail("postgres", "start the primary, or correct --dsn", "%s", oneLine(err))
		return c
	}
	c.ok("postgres", "a primary answers, in %s", took.Round(time.Millisecond))
	if major := condition.VersionNum / 10000; major < oldestPostgres {
		c.fail("postgres version", "upgrade to 13 or later", "%s", condition.Version)
	} else {
		c.ok("postgres version", "%s", condition.Version)
	}
	d.examineStandby(&c, condition)
	switch {
	case condition.Schema == 0:
		c.fail("schema", "start an agent or a worker, which makes it", "nothing is there yet")
	case condition.Schema < condition.WantSchema:
		c.warn("schema", "start an agent or a worker of this release, which migrates it", "version %d, this program knows %d", condition.Schema, condition.WantSchema)
	case condition.Schema > condition.WantSchema:
		c.warn("schema", "use the release of the agents for commands too", "version %d, newer than this program's %d", condition.Schema, condition.WantSchema)
	default:
		c.ok("schema", "version %d", condition.Schema)
	}
	examineClock(&c, "postgres clock", condition.Clock, began.Add(took/2))
	return c
}

func (d Doctor) examineStandby(c *checks, condition metastore.Condition) {
	const name = "postgres standby"
	streaming, hidden := 0, false
	for _, s := range condition.Standbys {
		hidden = hidden || s.State == ""
		if s.State == "streaming" && (s.Sync == "sync" || s.Sync == "quorum") {
			streaming++
		}
	}
	switch {
	case condition.SynchronousStandbys == "" && d.SingleNode:
		c.ok(name, "none, as --single-node-metastore allows")
	case condition.SynchronousStandbys == "":
		c.fail(name, "set synchronous_standby_names, or pass --single-node-metastore where a lost Postgres may take a confirmed move with it", "no synchronous standby is configured")
	case streaming > 0:
		c.ok(name, "%d synchronous and streaming", streaming)
	case hidden:
		c.warn(name, "grant pg_monitor to this user to see them", "%d standbys, whose state this user may not see", len(condition.Standbys))
	default:
		c.fail(name, "start the standby: without it every change of ownership waits", "synchronous_standby_names is %q and none streams", condition.SynchronousStandbys)
	}
}

// examineClock compares a clock with this machine's at the moment it was read.
func examineClock(c *checks, name string, clock, here time.Time) {
	if clock.IsZero() {
		return // an agent of an older release
	}
	offset := clock.Sub(here).Round(time.Millisecond)
	if offset.Abs() > clocksApart {
		c.warn(name, "run NTP there and here; only displayed times and retention are affected", "%+v off this machine's", offset)
		return
	}
	c.ok(name, "%+v off this machine's", offset)
}
