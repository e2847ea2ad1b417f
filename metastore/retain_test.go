package metastore_test

import (
	"fmt"
	"slices"
	"testing"

	"portage/metastore"
)

// age makes everything that has happened to a move so many days older.
func (f *fixture) age(id string, days int) {
	f.t.Helper()
	_, err := f.sql.Exec(f.t.Context(), `UPDATE moves SET started_at = started_at - make_interval(days => $2), ended_at = ended_at - make_interval(days => $2),
		finished_at = finished_at - make_interval(days => $2) WHERE id = $1`, id, days)
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) moveIDs() []string {
	f.t.Helper()
	moves, err := f.Moves(f.t.Context(), true, 1000)
	if err != nil {
		f.t.Fatal(err)
	}
	var ids []string
	for _, m := range moves {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return ids
}

func (f *fixture) retain() metastore.Retained {
	f.t.Helper()
	done, err := f.Retain(f.t.Context(), 100)
	if err != nil {
		f.t.Fatal(err)
	}
	return done
}

func (f *fixture) abort(id string) {
	f.t.Helper()
	if _, err := f.AbortMove(f.t.Context(), id, "test", "for the test"); err != nil {
		f.t.Fatal(err)
	}
}

// commit moves partition 0 to a broker; finished says whether its workflow recorded the end.
func (f *fixture) commit(id, to string, finished bool) {
	f.t.Helper()
	if _, err := f.CommitOwner(f.t.Context(), f.evidence(id, f.claim(id, to))); err != nil {
		f.t.Fatal(err)
	}
	if err := f.ReportMove(f.t.Context(), metastore.MoveProgress{MoveID: id, Phase: "done", Finished: finished}); err != nil {
		f.t.Fatal(err)
	}
}

// Only what proves nothing any more goes, however old the rest is.
func TestRetentionKeepsEveryMoveThatProvesSomething(t *testing.T) {
	f := newFixture(t)
	f.commit("overtaken", "b2", true)
	f.commit("not finished", "b3", false)
	f.commit("began the present epoch", "b2", true)
	f.claim("aborted", "b1")
	f.abort("aborted")
	f.claim("the last move", "b3")
	f.abort("the last move")
	f.claim("the claim", "b3")
	all := f.moveIDs()
	for _, id := range all {
		f.age(id, 89)
	}
	if done := f.retain(); done.Moves != 0 || !slices.Equal(f.moveIDs(), all) {
		t.Fatalf("before their time %d moves went: %q are left", done.Moves, f.moveIDs())
	}
	for _, id := range all {
		f.age(id, 1000)
	}
	done := f.retain()
	want := []string{"began the present epoch", "not finished", "the claim", "the last move"}
	if left := f.moveIDs(); done.Moves != 2 || !slices.Equal(left, want) {
		t.Errorf("%d went, left are %q, want %q", done.Moves, left, want)
	}
}

// The topic is deleted: nothing of its ended moves proves anything any more.
func TestRetentionDeletesTheMovesOfADeletedTopic(t *testing.T) {
	f := newFixture(t)
	f.commit("one", "b2", true)
	f.age("one", 1000)
	if f.retain(); len(f.moveIDs()) != 1 {
		t.Fatal("the move that began the present epoch went")
	}
	if err := f.DeleteTopic(t.Context(), f.topic.Name, f.topic.ID, "test"); err != nil {
		t.Fatal(err)
	}
	if f.retain(); len(f.moveIDs()) != 0 {
		t.Errorf("left are %q", f.moveIDs())
	}
}

func TestRetentionGoesByTheSettingsInBoundedBatches(t *testing.T) {
	f := newFixture(t)
	for i := range 5 {
		id := fmt.Sprintf("m%d", i)
		f.claim(id, "b2")
		f.abort(id)
		f.age(id, 10)
	}
	if _, err := f.sql.Exec(t.Context(), "UPDATE audit SET at = at - interval '10 days'"); err != nil {
		t.Fatal(err)
	}
	if done := f.retain(); done != (metastore.Retained{}) {
		t.Fatalf("at the defaults %+v went", done)
	}
	set := func(key, value string) {
		t.Helper()
		if _, err := f.SetSetting(t.Context(), key, value, "me", "the test"); err != nil {
			t.Fatal(err)
		}
	}
	set(metastore.SettingMovesRetention, "0")
	set(metastore.SettingAuditRetention, "0")
	if done := f.retain(); done != (metastore.Retained{}) {
		t.Fatalf("kept for ever, %+v went", done)
	}
	set(metastore.SettingMovesRetention, "8d")
	set(metastore.SettingAuditRetention, "48h")
	old := f.audits() - 4 // what was set is new
	if done, err := f.Retain(t.Context(), 3); err != nil || done != (metastore.Retained{Moves: 3, Audit: 3}) {
		t.Fatalf("a batch of 3 deleted %+v (%v)", done, err)
	}
	done := f.retain()
	if done.Moves != 1 || done.Audit != int64(old-3) || f.audits() != 4 {
		t.Errorf("the rest was %+v, %d lines of the audit are left", done, f.audits())
	}
}

func TestSettings(t *testing.T) {
	f := newFixture(t)
	settings, err := f.Settings(t.Context())
	if err != nil || len(settings) != 7 || settings[0].Value != "90d" || settings[1].Value != "365d" || settings[2].Value != "30d" || settings[3].Value != "false" || settings[4].Value != "off" || settings[5].Value != "10m" || settings[6].Value != "{}" || settings[0].SetBy != "" {
		t.Fatalf("%+v (%v)", settings, err)
	}
	for _, c := range []struct{ key, value, reason string }{
		{"planner", "[]", "why"}, {"planner", "null", "why"}, {"retention.moves", "6d", "why"}, {"moves.paused", "yes", "why"}, {"retention.plans", "1h", "why"}, {"retention.moves", "1h", "why"}, {"retention.moves", "-1d", "why"}, {"retention.moves", "", "why"},
		{"retention.moves", "for ever", "why"}, {"retention.audit", "23h", "why"}, {"retention.trash", "90d", "why"}, {"retention.moves", "90d", ""},
	} {
		lines := f.audits()
		if _, err := f.SetSetting(t.Context(), c.key, c.value, "me", c.reason); err == nil {
			t.Errorf("%+v was taken", c)
		} else if _, ok := metastore.RefusedWith(err, metastore.CodeInvalidSetting); !ok {
			t.Errorf("%+v: %v", c, err)
		}
		if f.audits() != lines {
			t.Errorf("%+v was audited", c)
		}
	}
	lines := f.audits()
	if _, err := f.SetSetting(t.Context(), "retention.moves", "30d", "me", "the disk is small"); err != nil {
		t.Fatal(err)
	}
	settings, err = f.Settings(t.Context())
	if err != nil || settings[0].Value != "30d" || settings[0].SetBy != "me" || settings[0].Reason != "the disk is small" || settings[0].SetAt == nil || f.audits() != lines+1 {
		t.Errorf("%+v (%v), %d new lines", settings[0], err, f.audits()-lines)
	}
	// A value that someone wrote by hand deletes nothing.
	if _, err := f.sql.Exec(t.Context(), `UPDATE settings SET value = '"1s"'`); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Retain(t.Context(), 1); err == nil {
		t.Error("retention went by a value that no one could set")
	}
}
