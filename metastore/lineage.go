package metastore

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"portage/internal/faults"
)

// Rows carry the lineage they were written in: the server's system identifier and its timeline. A promoted standby and a
// restored backup go on under another timeline, a dump loaded elsewhere under another system identifier. Either may lack
// what was acknowledged before, so its rows decide nothing until `portage reconcile` has compared them with what the
// agents hold (R1). A copy that goes on under the same timeline is told by the agents alone: the row is older than theirs.

// Held is the newest state of a row that an agent has seen; the zero value holds nothing.
type Held struct {
	Epoch   int32 `json:"epoch"`
	Version int64 `json:"version"`
}

// HeldOf is the state of a row; nothing when there is no row.
func HeldOf(row *Assignment) Held {
	if row == nil {
		return Held{}
	}
	return Held{Epoch: row.Epoch, Version: row.Version}
}

// Older reports whether the row is an earlier state than the one held.
func (a *Assignment) Older(held Held) bool {
	return a.Epoch < held.Epoch || (a.Epoch == held.Epoch && a.Version < held.Version)
}

// Contradicts reports two histories that came to the same epoch and version by different writes: one of them was lost.
func (a *Assignment) Contradicts(b *Assignment) bool {
	if b == nil || a.Epoch != b.Epoch || a.Version != b.Version {
		return false
	}
	process := func(id *uuid.UUID) uuid.UUID {
		if id == nil {
			return uuid.Nil
		}
		return *id
	}
	return a.Owner != b.Owner || a.Moving() != b.Moving() || a.OpenedEpoch != b.OpenedEpoch || process(a.OpenedProcess) != process(b.OpenedProcess)
}

// contradicted is the timeline of a row that an agent has found older than its own copy. No server has it.
const contradicted = 0

// refuseLineage refuses to write on a row that may be older than what was acknowledged: one of another lineage, or one
// older than what the caller holds. nil when nothing stands against it.
func refuseLineage(row *Assignment, held Held) *Refused {
	if !faults.Enforced("R1") {
		return nil
	}
	if row.Restored {
		reason := fmt.Sprintf("the metastore was restored, or failed over, since the row of %s was written; look at what `portage reconcile` would do, then let it", row.Name())
		if row.Timeline == contradicted {
			reason = fmt.Sprintf("an agent holds a newer row of %s than the metastore, which went back in time; look at what `portage reconcile` would do, then let it", row.Name())
		}
		return &Refused{Code: CodeMetastoreRestored, Row: row, Reason: reason}
	}
	if row.Older(held) {
		return &Refused{Code: CodeMetastoreOlder, Row: row,
			Reason: fmt.Sprintf("the metastore's row of %s (epoch %d, version %d) is older than the one held here (epoch %d, version %d); look at what `portage reconcile` would do, then let it",
				row.Name(), row.Epoch, row.Version, held.Epoch, held.Version)}
	}
	return nil
}

const warningKey = "portage.warning"

// rememberWarning keeps the last warning of a connection. A commit whose wait for the standby is cancelled succeeds with
// a warning: it is here, and perhaps nowhere else.
func rememberWarning(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		conn.CustomData()[warningKey] = n.Message
	}
}

// commitWarned commits and returns the warning that Postgres gave with it, "" for none.
func commitWarned(commit func() error, conn *pgx.Conn) (warning string, err error) {
	data := conn.PgConn().CustomData()
	delete(data, warningKey)
	if err := commit(); err != nil {
		return "", err
	}
	warning, _ = data[warningKey].(string)
	return warning, nil
}
