package offsets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portage/internal/durable/durabletest"
)

// On a full disk commits wait in their order and none is acknowledged; once there is room all are, and nothing is torn.
func TestCommitsWaitOnAFullDisk(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	durabletest.SmallDisk(t, disk, "1m")
	dir := filepath.Join(disk, "partition")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	table := open(t, dir, Options{CompactBytes: 64 << 10})
	commit(t, table, 1, "a", 1)
	empty := durabletest.Fill(t, disk, 0)
	large := strings.Repeat("m", 8<<10) // more than the page that the journal has begun
	var waits []func(context.Context) error
	for n := range 6 {
		waits = append(waits, table.Commit(1, fmt.Sprint("g", n), int64(n), -1, large))
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := waits[0](short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a commit without room: %v", err)
	}
	if err := table.Failed(); err != nil {
		t.Fatalf("a full disk failed the table: %v", err)
	}
	empty()
	for n, wait := range waits {
		if err := wait(t.Context()); err != nil {
			t.Fatalf("commit %d: %v", n, err)
		}
	}
	want := table.All()
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir, Options{})
	if rec := again.Recovered(); rec.CutBytes != 0 || fmt.Sprint(again.All()) != fmt.Sprint(want) || len(want) != 7 {
		t.Errorf("cut %+v, %d entries, want %d", rec, len(again.All()), len(want))
	}
}

// What waits for room is bounded.
func TestAFullDiskRefusesCommitsBeyondABound(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	durabletest.SmallDisk(t, disk, "1m")
	dir := filepath.Join(disk, "partition")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	table := open(t, dir, Options{CompactBytes: 64 << 10})
	empty := durabletest.Fill(t, disk, 0)
	large := strings.Repeat("m", 8<<10)
	refused := false
	for range 100 {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := table.Commit(1, "g", 1, -1, large)(ended); errors.Is(err, errFull) {
			refused = true
			break
		}
	}
	if !refused {
		t.Error("a hundred commits of 8 KiB wait for room")
	}
	empty()
}
