package metastore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"portage/internal/faults"
)

// RemoveRequest asks for a drained broker to leave the fleet.
type RemoveRequest struct {
	Broker     string
	MinBrokers int // at least as many brokers stay, draining ones not counted; 3 unless the operator says otherwise
	By, Reason string
}

// brokerUses are the roles that keep a broker in the fleet. A foreign key forbids nothing here: the row of a removed broker
// stays.
var brokerUses = []struct {
	sql, role string
	always    bool
}{
	{"SELECT count(*) FROM assignments WHERE owner = $1", "owns %d partitions: move them away", true},
	{"SELECT count(*) FROM assignments WHERE target = $1", "is the target of %d moves: let them end, or cancel them", false},
	{"SELECT count(*) FROM replicas WHERE broker = $1", "holds %d replicas: move them away", false},
	{"SELECT count(*) FROM coordinator_slots WHERE broker = $1", "coordinates %d slots of consumer groups: hand them over", false},
}

// RemoveBroker takes an empty, draining broker out of the fleet. Its id stays as a tombstone that no agent registers under
// again (R30). Everything is checked in the transaction that removes it: it is draining, so no claim can name it any more;
// it owns nothing, is nobody's target, holds no role of any partition and no coordinator slot; nothing is in quarantine on it,
// as its last heartbeat said; enough brokers stay, counted under one lock, so that two removals can not each count the other.
//
// Everyone dies just before it: nothing happened. After it, or its reply is lost: a repeat finds the tombstone and is done.
func (s *Store) RemoveBroker(ctx context.Context, r RemoveRequest) error {
	return s.guarded(ctx, "RemoveBroker", func(ctx context.Context, tx pgx.Tx) error {
		broker, err := lockForLeaving(ctx, tx, r.Broker)
		switch {
		case err != nil:
			return err
		case broker.Removed:
			return nil
		case !broker.Draining:
			return &Refused{Code: CodeNotDraining, Reason: fmt.Sprintf("broker %q is not draining, so partitions may still come to it; `portage broker drain %s --reason TEXT` first", r.Broker, r.Broker)}
		case broker.QuarantinedCopies > 0 && faults.Enforced("R30"):
			return &Refused{Code: CodeQuarantined, Reason: fmt.Sprintf("broker %q has %d copies in quarantine, whose records are nowhere else: `portage quarantine list` and export or purge them", r.Broker, broker.QuarantinedCopies)}
		}
		for _, use := range brokerUses {
			var n int
			if err := tx.QueryRow(ctx, use.sql, r.Broker).Scan(&n); err != nil {
				return err
			}
			if n > 0 && (use.always || faults.Enforced("R30")) {
				return &Refused{Code: CodeBrokerInUse, Reason: fmt.Sprintf("broker %q "+use.role, r.Broker, n)}
			}
		}
		if refused, err := refuseTooFew(ctx, tx, r.Broker, r.MinBrokers); err != nil || refused != nil {
			return orRefused(refused, err)
		}
		if _, err := tx.Exec(ctx, "UPDATE brokers SET removed = true WHERE id = $1", r.Broker); err != nil {
			return err
		}
		return auditEntry{action: "remove_broker", actor: r.By, reason: r.Reason, before: broker}.write(ctx, tx)
	})
}
