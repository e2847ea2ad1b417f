package metastore

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"portage/internal/faults"
)

// Registration is what an agent says of itself at each start.
type Registration struct {
	ID         string
	NodeID     int32
	ControlURL string
	ClientHost string
	ClientPort int32
	Rack       string
	FleetID    uuid.UUID // the fleet the data folder is bound to; uuid.Nil before the first registration
	Storage    uuid.UUID
	Process    uuid.UUID
	// PromoteFence is the write fence this process runs with (R2), to the millisecond.
	PromoteFence time.Duration
}

// RegisterBroker records an agent's process at its start. A data folder of another fleet, a second storage under the
// same id, a taken node id and a removed broker are refused.
func (s *Store) RegisterBroker(ctx context.Context, r Registration) (fleet uuid.UUID, err error) {
	err = s.guarded(ctx, "RegisterBroker", func(ctx context.Context, tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "SELECT id FROM fleet").Scan(&fleet); err != nil {
			return err
		}
		if r.FleetID != uuid.Nil && r.FleetID != fleet {
			return &Refused{Code: CodeOtherFleet, Reason: fmt.Sprintf("the data folder belongs to fleet %s, this metastore is fleet %s: correct --data or --dsn", r.FleetID, fleet)}
		}
		rows, err := tx.Query(ctx, "SELECT "+brokerColumns+" FROM brokers WHERE id = $1 FOR UPDATE", r.ID)
		if err != nil {
			return err
		}
		known, err := oneOrNil[Broker](rows)
		if err != nil {
			return err
		}
		if known != nil && known.Removed && faults.Enforced("R30") {
			return &Refused{Code: CodeBrokerRemoved, Reason: fmt.Sprintf("broker %q was removed from the fleet; choose another id", r.ID)}
		}
		if known != nil && known.StorageInstance != r.Storage {
			return &Refused{Code: CodeStorageChanged,
				Reason: fmt.Sprintf("broker %q is registered with other storage (%s, this folder is %s): mount its volume, give this one another id, or, when the old storage is gone for good, run `portage broker replace-storage %s --storage %s --accept-loss`",
					r.ID, known.StorageInstance, r.Storage, r.ID, r.Storage)}
		}
		var taken string
		err = tx.QueryRow(ctx, "SELECT id FROM brokers WHERE node_id = $1 AND id <> $2", r.NodeID, r.ID).Scan(&taken)
		if err == nil {
			return &Refused{Code: CodeNodeIDTaken, Reason: fmt.Sprintf("node id %d belongs to broker %q; give this one another --node-id", r.NodeID, taken)}
		} else if err != pgx.ErrNoRows {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO brokers (id, node_id, control_url, client_host, client_port, rack, storage_instance, process_instance, promote_fence_ms, promote_fence_process)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $8)
			ON CONFLICT (id) DO UPDATE SET node_id = $2, control_url = $3, client_host = $4, client_port = $5, rack = $6,
				process_instance = $8, promote_fence_ms = $9, promote_fence_process = $8, heartbeat = brokers.heartbeat + 1, heartbeat_at = now()`,
			r.ID, r.NodeID, r.ControlURL, r.ClientHost, r.ClientPort, r.Rack, r.Storage, r.Process, r.PromoteFence.Milliseconds())
		if err != nil {
			return err
		}
		return auditEntry{action: "register_broker", actor: r.ID, after: r}.write(ctx, tx)
	})
	return fleet, err
}

// SetDraining marks a broker as taking no new partitions, or clears the mark.
func (s *Store) SetDraining(ctx context.Context, broker string, draining bool, by, reason string) error {
	return s.guarded(ctx, "SetDraining", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := lockMember(ctx, tx, broker); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE brokers SET draining = $2 WHERE id = $1", broker, draining); err != nil {
			return err
		}
		return auditEntry{action: "set_draining", actor: by, reason: reason, after: map[string]any{"broker": broker, "draining": draining}}.write(ctx, tx)
	})
}

// lockBroker reads a broker's row and keeps others from changing it; one that there is not is refused.
func lockBroker(ctx context.Context, tx pgx.Tx, id string) (*Broker, error) {
	rows, err := tx.Query(ctx, "SELECT "+brokerColumns+" FROM brokers WHERE id = $1 FOR UPDATE", id)
	if err != nil {
		return nil, err
	}
	broker, err := oneOrNil[Broker](rows)
	if err == nil && broker == nil {
		err = &Refused{Code: CodeUnknownBroker, Reason: fmt.Sprintf("there is no broker %q; `portage cluster members` lists them", id)}
	}
	return broker, err
}

// lockMember is lockBroker of one that was not removed.
func lockMember(ctx context.Context, tx pgx.Tx, id string) (*Broker, error) {
	broker, err := lockBroker(ctx, tx, id)
	if err == nil && broker.Removed {
		return nil, &Refused{Code: CodeBrokerRemoved, Reason: fmt.Sprintf("broker %q was removed from the fleet", id)}
	}
	return broker, err
}

// HoldController makes holder the controller and returns its epoch. The epoch rises only when the holder changes (R15);
// it fences new claims and never a claimed move.
func (s *Store) HoldController(ctx context.Context, holder string) (int64, error) {
	var epoch int64
	err := s.guarded(ctx, "HoldController", func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, `UPDATE controller SET epoch = epoch + CASE WHEN holder = $1 AND $2 THEN 0 ELSE 1 END, holder = $1 RETURNING epoch`,
			holder, faults.Enforced("R15")).Scan(&epoch)
	})
	return epoch, err
}
