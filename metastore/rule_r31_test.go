//go:build portage_faults

package metastore_test

import (
	"fmt"
	"strings"
	"testing"

	"portage/internal/faults"
	"portage/internal/faults/faultstest"
)

// Removing one copy is decided on a row that is read; meanwhile another hand suspends the other copy. Each write alone
// leaves a copy that counts, both together leave none.
func TestR31ChangesOfCopiesAreSeenByWhoeverReadTheRow(t *testing.T) {
	faultstest.Story(t, "R31", func(t *testing.T) string {
		f := newFixture(t)
		if !faults.Enforced("R31") { // the rule is in the schema, so that it binds whoever writes
			f.exec("ALTER TABLE replicas DISABLE TRIGGER replicas_bump")
		}
		for _, broker := range []string{"b2", "b3"} {
			f.exec(fmt.Sprintf("INSERT INTO replicas (topic_id, partition, broker, role, storage_instance, admitted) VALUES ('%s', 0, '%s', 'follower', gen_random_uuid(), true)", f.topic.ID, broker))
		}
		read := f.row().Version // the remover sees two followers
		f.exec("UPDATE replicas SET role = 'suspended' WHERE broker = 'b3'")
		tag, err := f.sql.Exec(t.Context(), `WITH guard AS (UPDATE assignments SET version = version + 1 WHERE topic_id = $1 AND partition = 0 AND version = $2 RETURNING 1)
			DELETE FROM replicas WHERE topic_id = $1 AND broker = 'b2' AND EXISTS (SELECT FROM guard)`, f.topic.ID, read)
		if err != nil {
			t.Fatal(err)
		}
		var followers int
		if err := f.sql.QueryRow(t.Context(), "SELECT count(*) FROM replicas WHERE role = 'follower'").Scan(&followers); err != nil {
			t.Fatal(err)
		}
		if followers == 0 {
			return fmt.Sprintf("%d copy was removed on a stale read, and none is left that counts", tag.RowsAffected())
		}
		return ""
	})
}

// A copy that comes, changes and goes raises the version of its row each time, and of no other.
func TestR31EveryChangeOfACopyRaisesTheVersion(t *testing.T) {
	f := newFixture(t)
	if _, err := f.sql.Exec(t.Context(), "INSERT INTO replicas (topic_id, partition, broker, role, storage_instance) VALUES ($1, 1, 'b2', 'follower', gen_random_uuid())", f.topic.ID); err != nil {
		t.Fatal(err)
	}
	for _, change := range []string{
		"INSERT INTO replicas (topic_id, partition, broker, role, storage_instance) VALUES ($1, 0, 'b2', 'follower', gen_random_uuid())",
		"UPDATE replicas SET admitted = true WHERE topic_id = $1 AND partition = 0",
		"DELETE FROM replicas WHERE topic_id = $1 AND partition = 0",
		"DELETE FROM replicas WHERE topic_id = $1 AND partition = 1",
	} {
		before := f.row().Version
		if tag, err := f.sql.Exec(t.Context(), change, f.topic.ID); err != nil || tag.RowsAffected() != 1 {
			t.Fatalf("%s: %d rows, %v", change, tag.RowsAffected(), err)
		}
		want := int64(1)
		if strings.HasSuffix(change, "= 1") {
			want = 0
		}
		if raised := f.row().Version - before; raised != want {
			t.Errorf("%s raised the version by %d, not %d", change, raised, want)
		}
	}
}
