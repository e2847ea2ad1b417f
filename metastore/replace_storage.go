package metastore

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ReplaceStorage lets a broker id go on with another data folder.
type ReplaceStorage struct {
	Broker    string
	Old, New  uuid.UUID
	Heartbeat int64 // the counter that the caller has seen stand still: a broker that is alive keeps its storage
	By        string
}

// ReplaceStorage makes another storage instance the broker's, because the old one is gone for good. Rows keep the storage
// they name: what was kept on the old one stays closed at this broker (R5) until a copy of it is promoted. It returns how
// many partitions that are.
//
// Everyone dies before it: the agent with the new folder is refused. After it: it registers. The reply is lost: repeated,
// which finds it done.
func (s *Store) ReplaceStorage(ctx context.Context, r ReplaceStorage) (owned int, err error) {
	err = s.guarded(ctx, "ReplaceStorage", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "SELECT "+brokerColumns+" FROM brokers WHERE id = $1 FOR UPDATE", r.Broker)
		if err != nil {
			return err
		}
		known, err := oneOrNil[Broker](rows)
		if err != nil {
			return err
		}
		switch {
		case known == nil:
			return &Refused{Code: CodeUnknownBroker, Reason: fmt.Sprintf("there is no broker %q", r.Broker)}
		case known.Removed:
			return &Refused{Code: CodeBrokerRemoved, Reason: fmt.Sprintf("broker %q was removed from the fleet", r.Broker)}
		}
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM assignments WHERE owner = $1 AND owner_storage <> $2 AND state = 'opened'", r.Broker, r.New).Scan(&owned); err != nil {
			return err
		}
		switch {
		case known.StorageInstance == r.New:
			return nil
		case known.StorageInstance != r.Old:
			return &Refused{Code: CodeStorageChanged, Reason: fmt.Sprintf("broker %q has storage %s meanwhile; look again", r.Broker, known.StorageInstance)}
		case known.Heartbeat != r.Heartbeat:
			return &Refused{Code: CodeBrokerAlive, Reason: fmt.Sprintf("broker %q is alive on its storage %s; stop its agent first", r.Broker, known.StorageInstance)}
		}
		if _, err := tx.Exec(ctx, "UPDATE brokers SET storage_instance = $2 WHERE id = $1", r.Broker, r.New); err != nil {
			return err
		}
		// What was never opened holds nothing: it is created on the new storage.
		if _, err := tx.Exec(ctx, `UPDATE assignments SET owner_storage = $2, version = version + 1, changed_at = now() WHERE owner = $1 AND state = 'created' AND owner_storage = $3
			AND timeline = portage_timeline() AND system_id = portage_system()`, r.Broker, r.New, r.Old); err != nil {
			return err
		}
		return auditEntry{action: "replace_storage", actor: r.By, before: known, after: r, reason: "its loss was accepted"}.write(ctx, tx)
	})
	return owned, err
}
