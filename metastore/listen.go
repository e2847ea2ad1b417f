package metastore

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Change is one wake-up: a row that changed, or, with All, anything may have.
type Change struct {
	TopicID   uuid.UUID
	Partition int32
	All       bool
}

// Listen calls changed for every notification until ctx ends. A notification is a hint: it can be lost, so Listen also
// says All once connected and every poll interval, and reconnects by itself.
func (s *Store) Listen(ctx context.Context, poll time.Duration, changed func(Change)) {
	for ctx.Err() == nil {
		if err := s.listenOnce(ctx, poll, changed); err != nil && ctx.Err() == nil {
			s.logger.Warn("the metastore does not answer; serving on from what is known", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(reconnectPause):
			}
		}
	}
}

// reconnectPause is short: while the metastore is away, frozen partitions wait for it.
const reconnectPause = 200 * time.Millisecond

func (s *Store) listenOnce(ctx context.Context, poll time.Duration, changed func(Change)) error {
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack() // a listening connection never goes back to the pool
	defer func() {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closeCtx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN portage_rows"); err != nil {
		return err
	}
	changed(Change{All: true})
	for {
		waitCtx, cancel := context.WithTimeout(ctx, poll)
		note, err := conn.WaitForNotification(waitCtx)
		timedOut := waitCtx.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			changed(parseChange(note.Payload))
		case timedOut && !conn.IsClosed():
			changed(Change{All: true})
		default:
			return err
		}
	}
}

func parseChange(payload string) Change {
	fields := strings.Fields(payload)
	if len(fields) == 3 && fields[0] == "a" {
		id, errID := uuid.Parse(fields[1])
		number, errNumber := strconv.ParseInt(fields[2], 10, 32)
		if errID == nil && errNumber == nil {
			return Change{TopicID: id, Partition: int32(number)}
		}
	}
	return Change{All: true}
}
