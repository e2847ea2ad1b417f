package native

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"portage/metastore"
)

func openTestHeld(t *testing.T, root string) *heldRows {
	t.Helper()
	h, err := openHeld(root, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.close() })
	return h
}

func TestHeldRowsSurviveARestart(t *testing.T) {
	root := t.TempDir()
	kept, gone := uuid.New(), uuid.New()
	h := openTestHeld(t, root)
	h.keepTopic(metastore.Topic{ID: kept, Name: "orders", Partitions: 2})
	h.keepTopic(metastore.Topic{ID: gone, Name: "deleted", Partitions: 1})
	for version := range int64(5) {
		h.keepRow(&metastore.Assignment{TopicID: kept, Topic: "orders", Partition: 1, Owner: "b1", Epoch: 3, Version: version})
	}
	h.keepRow(&metastore.Assignment{TopicID: gone, Topic: "deleted", Owner: "b1"})
	h.forget(gone)
	if err := h.sync(); err != nil {
		t.Fatal(err)
	}
	again := openTestHeld(t, root)
	rows, topics := again.all()
	if len(rows) != 1 || rows[0].Version != 4 || rows[0].Epoch != 3 || rows[0].Owner != "b1" || len(topics) != 1 || topics[kept].Partitions != 2 {
		t.Errorf("held are %+v of %+v", rows, topics)
	}
	if again.lines != 2 {
		t.Errorf("%d lines were left of the history", again.lines)
	}
}

func TestHeldRowsAreRewrittenWhenTheyAreMostlyHistory(t *testing.T) {
	root := t.TempDir()
	h := openTestHeld(t, root)
	topic := uuid.New()
	for version := range int64(5000) {
		h.keepRow(&metastore.Assignment{TopicID: topic, Version: version})
		if version%100 == 0 {
			if err := h.sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if h.lines > 1100 {
		t.Errorf("the journal has %d lines for one row", h.lines)
	}
	if rows, _ := openTestHeld(t, root).all(); len(rows) != 1 || rows[0].Version != 4999 {
		t.Errorf("held are %+v", rows)
	}
}

// A crash tears the last line at any byte; what was synced before it is there. Damage anywhere else refuses to boot.
func TestHeldRowsWithATornLineAndWithDamage(t *testing.T) {
	root := t.TempDir()
	h := openTestHeld(t, root)
	topic := uuid.New()
	h.keepRow(&metastore.Assignment{TopicID: topic, Version: 1})
	h.keepRow(&metastore.Assignment{TopicID: topic, Version: 2})
	whole, err := os.ReadFile(filepath.Join(root, heldFile))
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.IndexByte(whole, '\n') + 1
	boot := func(content []byte) (*heldRows, error) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, heldFile), content, 0o644); err != nil {
			t.Fatal(err)
		}
		h, err := openHeld(dir, slog.New(slog.DiscardHandler))
		if err == nil {
			t.Cleanup(func() { _ = h.close() })
		}
		return h, err
	}
	for cut := first; cut < len(whole); cut += 7 {
		torn, err := boot(whole[:cut])
		if err != nil {
			t.Fatalf("torn at %d: %v", cut, err)
		}
		if rows, _ := torn.all(); len(rows) != 1 || rows[0].Version != 1 {
			t.Errorf("torn at %d: held are %+v", cut, rows)
		}
	}
	for _, at := range []int{0, 5, first / 2} {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 0x10
		if _, err := boot(damaged); err == nil {
			t.Errorf("a flipped bit at byte %d was accepted", at)
		}
	}
}

// A disk that was full for a moment: what was not kept meanwhile is kept as soon as someone needs it to be.
func TestHeldRowsAreKeptAgainOnceTheyCanBe(t *testing.T) {
	root := t.TempDir()
	h := openTestHeld(t, root)
	topic := uuid.New()
	_ = h.file.Close() // every write fails from now on
	h.keepTopic(metastore.Topic{ID: topic, Name: "orders", Partitions: 1})
	h.keepRow(&metastore.Assignment{TopicID: topic, Topic: "orders", Owner: "b1", Epoch: 3, Version: 7})
	if err := h.sync(); err != nil {
		t.Fatalf("the disk takes writes again: %v", err)
	}
	if rows, _ := openTestHeld(t, root).all(); len(rows) != 1 || rows[0].Version != 7 {
		t.Errorf("kept is %+v", rows)
	}
}
