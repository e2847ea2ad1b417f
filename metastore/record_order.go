package metastore

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Order is what somebody asked for by a way that records nothing by itself: who, why and what.
type Order struct {
	Action string // a stable word, as "http_rebalance_pause"
	By     string
	Reason string
	What   any // as JSON; nil: nothing more to say
}

// RecordOrder appends an order to the audit, before it is carried out: how it ended is in what it led to. Everyone dies before it:
// nothing was asked for. After it, or the reply is lost: the line stands, and another when the order is given again.
func (s *Store) RecordOrder(ctx context.Context, o Order) error {
	return s.guarded(ctx, "RecordOrder", func(ctx context.Context, tx pgx.Tx) error {
		return auditEntry{action: o.Action, actor: o.By, reason: o.Reason, after: o.What}.write(ctx, tx)
	})
}
