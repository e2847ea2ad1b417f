package metastore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"portage/internal/faults"
)

// DrainRequest asks for a broker to be emptied and then removed.
type DrainRequest struct {
	Broker     string
	MinBrokers int     // at least as many brokers that take partitions stay
	RoomMargin float64 // what must be free beside the partitions, as a fraction of them
	By, Reason string
}

// BeginDrain marks a broker as draining when it can be spared: enough brokers stay, and they have room for what it and all
// other draining brokers own. Both are counted under one lock, so that two drains that begin at once can not each count the
// other's broker (R30). A broker that is draining already stays so: room that is lacking then is waited for.
//
// Everyone dies before it: nothing happened. After it, or the reply is lost: the broker drains, a repeat finds that.
func (s *Store) BeginDrain(ctx context.Context, r DrainRequest) error {
	return s.guarded(ctx, "BeginDrain", func(ctx context.Context, tx pgx.Tx) error {
		broker, err := lockForLeaving(ctx, tx, r.Broker)
		if err != nil {
			return err
		}
		if broker.Removed {
			return &Refused{Code: CodeBrokerRemoved, Reason: fmt.Sprintf("broker %q was removed from the fleet already", r.Broker)}
		}
		if broker.Draining {
			return nil
		}
		if refused, err := refuseTooFew(ctx, tx, r.Broker, r.MinBrokers); err != nil || refused != nil {
			return orRefused(refused, err)
		}
		if refused, err := refuseRoom(ctx, tx, r); err != nil || refused != nil {
			return orRefused(refused, err)
		}
		if _, err := tx.Exec(ctx, "UPDATE brokers SET draining = true WHERE id = $1", r.Broker); err != nil {
			return err
		}
		// Whoever asks for this empties the broker: it is no reason for a pass of the autobalance beside that.
		if _, err := tx.Exec(ctx, "UPDATE brokers SET balanced_as = "+brokerState+" WHERE id = $1", r.Broker); err != nil {
			return err
		}
		return auditEntry{action: "set_draining", actor: r.By, reason: r.Reason, after: map[string]any{"broker": r.Broker, "draining": true}}.write(ctx, tx)
	})
}

// lockForLeaving takes the one lock under which brokers are counted, and the broker's own (R30).
func lockForLeaving(ctx context.Context, tx pgx.Tx, id string) (*Broker, error) {
	if faults.Enforced("R30") {
		if _, err := tx.Exec(ctx, "SELECT 1 FROM fleet FOR UPDATE"); err != nil {
			return nil, err
		}
	}
	return lockBroker(ctx, tx, id)
}

// refuseTooFew counts the brokers that would stay: draining ones are on their way out too.
func refuseTooFew(ctx context.Context, tx pgx.Tx, leaving string, least int) (*Refused, error) {
	var stay int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM brokers WHERE NOT removed AND NOT draining AND id <> $1", leaving).Scan(&stay); err != nil {
		return nil, err
	}
	if stay >= least {
		return nil, nil
	}
	return &Refused{Code: CodeTooFewBrokers, Reason: fmt.Sprintf("%d brokers would stay that take partitions, at least %d must: add one, or say --min-brokers", stay, least)}, nil
}

// refuseRoom compares what all draining brokers own with what is free on those that stay; a broker that has not reported
// its disk makes the answer unknown, and unknown does not refuse: each move checks its own room.
func refuseRoom(ctx context.Context, tx pgx.Tx, r DrainRequest) (*Refused, error) {
	var need, free int64
	var unknown bool
	err := tx.QueryRow(ctx, `SELECT
		(SELECT COALESCE(sum(l.disk_bytes), 0)::bigint FROM load_reports l JOIN assignments a ON a.topic_id = l.topic_id AND a.partition = l.partition AND a.owner = l.broker
			JOIN brokers b ON b.id = a.owner WHERE b.draining OR b.id = $1),
		(SELECT COALESCE(sum(disk_free_bytes), 0)::bigint FROM brokers WHERE NOT removed AND NOT draining AND id <> $1),
		EXISTS (SELECT FROM brokers WHERE NOT removed AND NOT draining AND id <> $1 AND disk_total_bytes = 0)`, r.Broker).Scan(&need, &free, &unknown)
	need += int64(float64(need) * r.RoomMargin)
	if err != nil || unknown || need <= free {
		return nil, err
	}
	return &Refused{Code: CodeTooLittleRoom, Reason: fmt.Sprintf("what %s and the other draining brokers own needs %d MiB, the brokers that stay have %d MiB free: free space, or add a broker", r.Broker, need>>20, free>>20)}, nil
}

func orRefused(refused *Refused, err error) error {
	if err != nil {
		return err
	}
	return refused
}
