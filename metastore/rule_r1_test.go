//go:build portage_faults

package metastore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"portage/internal/faults/faultstest"
	"portage/internal/services/servicestest"
	"portage/metastore"
)

// The rows come from another timeline than the server's: a standby was promoted, or a backup restored. What was
// acknowledged before may be missing, so nothing changes hands.
func TestR1ARowOfAnotherTimelineIsNotWrittenOn(t *testing.T) {
	writes := map[string]func(f *fixture) error{
		"ClaimMove": func(f *fixture) error {
			_, _, err := f.ClaimMove(f.t.Context(), f.claimRequest("m2", "b2"))
			return err
		},
		"OpenOwner": func(f *fixture) error { _, err := f.OpenOwner(f.t.Context(), f.openRequest()); return err },
		"AbortMove": func(f *fixture) error { _, err := f.AbortMove(f.t.Context(), "m1", "b1", ""); return err },
		"CommitOwner": func(f *fixture) error {
			_, err := f.CommitOwner(f.t.Context(), f.evidence("m1", f.row()))
			return err
		},
	}
	lineages := map[string]string{
		"another timeline":  "timeline = timeline + 1",
		"another server":    "system_id = system_id + 1",
		"an agent objected": "timeline = 0",
	}
	for name, write := range writes {
		for lineage, set := range lineages {
			if name != "OpenOwner" && lineage != "another timeline" {
				continue // one write stands for all
			}
			t.Run(name+", "+lineage, func(t *testing.T) {
				faultstest.Story(t, "R1", func(t *testing.T) string {
					f := newFixture(t)
					if name != "ClaimMove" {
						f.claim("m1", "b2")
					}
					f.exec("UPDATE assignments SET " + set)
					before := f.row()
					if !before.Restored {
						t.Fatalf("the row is not seen to be of another lineage: %+v", before)
					}
					err := write(f)
					if row := f.row(); row.Version != before.Version {
						return fmt.Sprintf("%s changed a row that may be older than what was acknowledged", name)
					}
					if refused, ok := metastore.RefusedWith(err, metastore.CodeMetastoreRestored); !ok || refused.Row == nil {
						t.Errorf("ended with %v", err)
					}
					return ""
				})
			})
		}
	}
}

// An agent holds a newer row than the metastore has: what it has seen acknowledged is gone from there.
func TestR1ARowOlderThanTheAgentsIsNotWrittenOn(t *testing.T) {
	for name, write := range map[string]func(f *fixture, held metastore.Held) error{
		"OpenOwner": func(f *fixture, held metastore.Held) error {
			req := f.openRequest()
			req.Held = held
			_, err := f.OpenOwner(f.t.Context(), req)
			return err
		},
		"AbortMove": func(f *fixture, held metastore.Held) error {
			_, err := f.AbortMoveHolding(f.t.Context(), "m1", "b1", "", held)
			return err
		},
	} {
		for what, change := range map[string]func(*metastore.Held){
			"a version more": func(h *metastore.Held) { h.Version++ },
			"an epoch more":  func(h *metastore.Held) { h.Epoch, h.Version = h.Epoch+1, 1 },
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				faultstest.Story(t, "R1", func(t *testing.T) string {
					f := newFixture(t)
					f.claim("m1", "b2")
					before := f.row()
					held := metastore.HeldOf(before)
					change(&held)
					err := write(f, held)
					if f.row().Version != before.Version {
						return name + " changed a row that is older than the agent's"
					}
					if _, ok := metastore.RefusedWith(err, metastore.CodeMetastoreOlder); !ok {
						t.Errorf("ended with %v", err)
					}
					return ""
				})
			})
		}
	}
}

// The mark of one agent stops everyone, whoever holds what.
func TestR1AContradictedRowStopsAllWrites(t *testing.T) {
	f := newFixture(t)
	row := f.claim("m1", "b2")
	held := metastore.HeldOf(row)
	if err := f.unchanged("a mark without a newer row", func() error { return f.Contradict(t.Context(), row.TopicID, 0, "b2", held) }); err != nil {
		t.Fatal(err)
	}
	held.Epoch++
	for range 2 { // done twice is done
		if err := f.Contradict(t.Context(), row.TopicID, 0, "b2", held); err != nil {
			t.Fatal(err)
		}
	}
	if f.row().Version != row.Version {
		t.Error("the mark changed the version")
	}
	f.refused(metastore.CodeMetastoreRestored, func() error { _, err := f.CommitOwner(t.Context(), f.evidence("m1", row)); return err })
	f.refused(metastore.CodeMetastoreRestored, func() error { _, err := f.AbortMove(t.Context(), "m1", "b1", ""); return err })
}

// Someone cancels the statement of a worker whose commit waits for the standby. Postgres says done, with a warning: the
// commit is visible here, and gone if this server is lost.
func TestR1ACommitWhoseWaitForTheStandbyIsCancelledIsUnknown(t *testing.T) {
	faultstest.Story(t, "R1", func(t *testing.T) string {
		f := newFixtureOn(t, servicestest.KillablePostgres(t))
		row := f.claim("m1", "b2")
		f.exec("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
		f.exec("SELECT pg_reload_conf()")
		cancelWaiting := func() {
			t.Helper()
			for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				var cancelled bool
				if err := f.sql.QueryRow(t.Context(), "SELECT coalesce(bool_or(pg_cancel_backend(pid)), false) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").Scan(&cancelled); err != nil {
					t.Fatal(err)
				}
				if cancelled {
					return
				}
				if time.Now().After(deadline) {
					t.Fatal("no commit waits for a standby")
				}
			}
		}
		// The server takes the setting up some time after the reload: it has once a commit of anything waits.
		var stop atomic.Bool
		stopped := make(chan error, 1)
		go func() {
			for !stop.Load() {
				if _, err := f.sql.Exec(t.Context(), "UPDATE controller SET holder = holder"); err != nil {
					stopped <- err
					return
				}
			}
			stopped <- nil
		}()
		cancelWaiting()
		stop.Store(true)
		for probing := true; probing; {
			select {
			case err := <-stopped:
				if err != nil {
					t.Fatal(err)
				}
				probing = false
			default:
				f.exec("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") // it had begun another
			}
		}
		done := make(chan error, 1)
		go func() { _, err := f.CommitOwner(t.Context(), f.evidence("m1", row)); done <- err }()
		cancelWaiting()
		err := <-done
		if err == nil {
			return "a commit that may be on no other server was taken for done"
		}
		if !metastore.IsUnknown(err) {
			t.Errorf("ended with %v", err)
		}
		return ""
	})
}
