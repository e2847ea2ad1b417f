package metastore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// RemoveRequest asks for a drained broker to leave the fleet.
type RemoveRequest struct {
	Broker     string
	MinBrokers int // at least as many brokers stay, draining ones not counted; 3 unless the operator says otherwise
	By, Reason string
}

// RemoveBroker takes an empty, draining broker out of the fleet. Its id stays as a tombstone that no agent registers under
// again (R30). Everything is checked in the transaction that removes it: it is draining, so no claim can name it any more;
// it owns nothing, is nobody's target, holds no role of any partition and no coordinator slot; enough brokers stay, counted
// under one lock, so that two removals can not each count the other.
//
// Everyone dies just before it: nothing happened. After it, or its reply is lost: a repeat finds the tombstone and is done.
func (s *Store) RemoveBroker(ctx context.Context, r RemoveRequest) error {
	return s.guarded(ctx, "RemoveBroker", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT 1 FROM fleet FOR UPDATE"); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "SELECT "+brokerColumns+" FROM brokers WHERE id = $1 FOR UPDATE", r.Broker)
		if err != nil {
			return err
		}
		broker, err := oneOrNil[Broker](rows)
		switch {
		case err != nil:
			return err
		case broker == nil:
			return &Refused{Code: CodeUnknownBroker, Reason: fmt.Sprintf("there is no broker %q; `portage cluster members` lists them", r.Broker)}
		case broker.Removed:
			return nil
		case !broker.Draining:
			return &Refused{Code: CodeNotDraining, Reason: fmt.Sprintf("broker %q is not draining, so partitions may still come to it; `portage broker drain %s` first", r.Broker, r.Broker)}
		}
		for _, use := range []struct{ sql, role string }{
			{"SELECT count(*) FROM assignments WHERE owner = $1", "owns %d partitions: move them away"},
			{"SELECT count(*) FROM assignments WHERE target = $1", "is the target of %d moves: let them end, or cancel them"},
			{"SELECT count(*) FROM replicas WHERE broker = $1", "holds %d replicas: move them away"},
			{"SELECT count(*) FROM coordinator_slots WHERE broker = $1", "coordinates %d slots of consumer groups: hand them over"},
		} {
			var n int
			if err := tx.QueryRow(ctx, use.sql, r.Broker).Scan(&n); err != nil {
				return err
			}
			if n > 0 {
				return &Refused{Code: CodeBrokerInUse, Reason: fmt.Sprintf("broker %q "+use.role, r.Broker, n)}
			}
		}
		var stay int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM brokers WHERE NOT removed AND NOT draining AND id <> $1", r.Broker).Scan(&stay); err != nil {
			return err
		}
		if stay < r.MinBrokers {
			return &Refused{Code: CodeTooFewBrokers, Reason: fmt.Sprintf("%d brokers would stay that take partitions, at least %d must: add one, or say --min-brokers", stay, r.MinBrokers)}
		}
		if _, err := tx.Exec(ctx, "UPDATE brokers SET removed = true WHERE id = $1", r.Broker); err != nil {
			return err
		}
		return auditEntry{action: "remove_broker", actor: r.By, reason: r.Reason, before: broker}.write(ctx, tx)
	})
}
