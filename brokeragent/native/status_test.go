package native

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"portage/brokeragent/control"
	"portage/metastore"
)

// What a reader was given is encoded after the lock is released, while the partition goes on.
func TestAFreezeReportGivenOutIsNotChangedByItsCompletion(t *testing.T) {
	b := &Broker{logger: slog.New(slog.DiscardHandler)}
	p := newPartition(b, key{uuid.New(), 0}, "orders")
	p.last = &control.FreezeReport{MoveID: "m1", Frozen: 20 * time.Millisecond, Total: 30 * time.Millisecond}
	given := p.Status().LastFreeze
	before := *given

	p.movedOpen(time.Now().Add(-time.Second))

	if *given != before {
		t.Errorf("the report given out was %+v and is %+v now", before, *given)
	}
	if completed := p.Status().LastFreeze; completed.Total < time.Second+before.Total || completed.Frozen < time.Second+before.Frozen {
		t.Errorf("a second until the new owner opened is not in the completed report %+v", *completed)
	}
}

func TestASuspensionGivenOutIsNotChangedByALaterReason(t *testing.T) {
	b := &Broker{logger: slog.New(slog.DiscardHandler), suspended: map[key]*suspension{}}
	k := key{uuid.New(), 0}
	b.suspend(k, metastore.CodeMetastoreOlder, "first")
	given := b.suspension(k)

	b.suspend(k, metastore.CodeMetastoreOlder, "second")

	if given.reason != "first" {
		t.Errorf("the reason given out became %q", given.reason)
	}
	if now := b.suspension(k); now.reason != "second" {
		t.Errorf("the reason is %q, not the newest", now.reason)
	}
}
