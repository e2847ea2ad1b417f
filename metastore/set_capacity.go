package metastore

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/jackc/pgx/v5"
)

// CapacityChange is what a person sets of a broker for the planner; nil leaves it as it is, 0 takes back what was set.
type CapacityChange struct {
	Broker         string
	DiskBytes      *int64   // how much of its disk it may use; more than there is means all of it
	NetBytesPerSec *int64   // what its network carries in one direction
	Weight         *float64 // its share of everything in terms of a broker's that has none set; at most MostWeight
	By, Reason     string
}

// MostWeight bounds the weight of a broker.
const MostWeight = 1000

// SetCapacity changes what is set of a broker and audits it. It returns what is in force then. Values that are none are
// refused with CodeInvalidSetting.
//
// Everyone dies before it: nothing happened. After it, or the reply is lost: a repeat sets the same once more.
func (s *Store) SetCapacity(ctx context.Context, c CapacityChange) (set Capacity, err error) {
	refuse := func(format string, args ...any) error {
		return &Refused{Write: "SetCapacity", Code: CodeInvalidSetting, Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case strings.TrimSpace(c.Reason) == "":
		return set, refuse("say why with --reason: the audit keeps it")
	case c.DiskBytes == nil && c.NetBytesPerSec == nil && c.Weight == nil:
		return set, refuse("say what to set of %s: --disk, --net or --weight", c.Broker)
	case c.DiskBytes != nil && *c.DiskBytes < 0, c.NetBytesPerSec != nil && *c.NetBytesPerSec < 0:
		return set, refuse("disk and network of %s are not negative; 0 takes back what was set", c.Broker)
	case c.Weight != nil && (math.IsNaN(*c.Weight) || *c.Weight < 0 || *c.Weight > MostWeight):
		return set, refuse("the weight %v of %s is not within 0 and %d; 0 takes back what was set, and a broker that is to take nothing is drained", *c.Weight, c.Broker, MostWeight)
	}
	err = s.guarded(ctx, "SetCapacity", func(ctx context.Context, tx pgx.Tx) error {
		known, err := lockMember(ctx, tx, c.Broker)
		if err != nil {
			return err
		}
		set = known.Capacity
		if c.DiskBytes != nil {
			set.DiskBytes = *c.DiskBytes
		}
		if c.NetBytesPerSec != nil {
			set.NetBytesPerSec = *c.NetBytesPerSec
		}
		if c.Weight != nil {
			set.Weight = *c.Weight
		}
		if _, err := tx.Exec(ctx, "UPDATE brokers SET capacity = $2 WHERE id = $1", c.Broker, set); err != nil {
			return err
		}
		return auditEntry{action: "set_capacity", actor: c.By, reason: c.Reason, before: known.Capacity, after: map[string]any{"broker": c.Broker, "capacity": set}}.write(ctx, tx)
	})
	return set, err
}
