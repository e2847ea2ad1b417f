package metastore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"portage/metastore"
)

func TestPlansAreKeptOnceAndFoundByHash(t *testing.T) {
	f := newFixture(t)
	for _, body := range []string{"first", "second"} { // the reply may be lost
		if err := f.SavePlan(t.Context(), metastore.Plan{ID: "p", Rebalance: "r", Hash: "0123456789abcdef", Actions: 2, Body: []byte(body), Snapshot: []byte("snapshot"), RequestedBy: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.ApprovePlan(t.Context(), "p", "one", ""); err != nil {
		t.Fatal(err)
	}
	if err := f.ApprovePlan(t.Context(), "p", "two", ""); err != nil {
		t.Fatal(err)
	}
	p, err := f.FindPlanByHash(t.Context(), "01234567")
	if err != nil || p == nil || p.ID != "p" || string(p.Body) != "first" || *p.ApprovedBy != "one" {
		t.Fatalf("found %+v, %v", p, err)
	}
	if p, err := f.FindPlanByHash(t.Context(), "0"); p != nil || err != nil {
		t.Errorf("one character found %+v, %v", p, err)
	}
	if s, err := f.PlanSnapshot(t.Context(), "p"); err != nil || string(s) != "snapshot" {
		t.Errorf("the snapshot is %q, %v", s, err)
	}
	ends := []metastore.ActionEnd{{Seq: 1, Topic: "orders", Partition: 1, State: "failed", Code: "disk_full", Reason: "why"}}
	for range 2 {
		if err := f.RecordActions(t.Context(), "p", ends); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := f.PlanActions(t.Context(), "p"); err != nil || len(got) != 1 || got[0] != ends[0] {
		t.Errorf("the ends are %+v, %v", got, err)
	}
	f.exec("UPDATE plans SET used_at = now() - interval '31 days'")
	if done := f.retain(); done.Plans != 1 {
		t.Errorf("retention did %+v", done)
	}
	if p, err := f.FindPlan(t.Context(), "p"); p != nil || err != nil {
		t.Errorf("an old plan is still there: %+v, %v", p, err)
	}
}

// A plan that is carried out, or waited for, for longer than plans are kept stays, and what its rebalance has planned before.
func TestRetentionKeepsThePlansThatAreInUse(t *testing.T) {
	f := newFixture(t)
	for id, rebalance := range map[string]string{"one of it": "running", "another of it": "running", "of an ended one": "ended", "read": "", "only a plan": ""} {
		if err := f.SavePlan(t.Context(), metastore.Plan{ID: id, Rebalance: rebalance, Hash: "h", Body: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	left := func(want ...string) {
		t.Helper()
		plans, err := f.Plans(t.Context(), "", 100)
		var ids []string
		for _, p := range plans {
			ids = append(ids, p.ID)
		}
		slices.Sort(ids)
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("left are %q (%v), want %q", ids, err, want)
		}
	}
	const old = "UPDATE plans SET made_at = made_at - interval '31 days', used_at = used_at - interval '31 days'"
	f.exec(old)
	for _, rebalance := range []string{"running", ""} { // what is of no rebalance is in nobody's use
		if err := f.UsePlans(t.Context(), rebalance); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.UsePlan(t.Context(), "read"); err != nil {
		t.Fatal(err)
	}
	if done := f.retain(); done.Plans != 2 {
		t.Errorf("%d plans went", done.Plans)
	}
	left("another of it", "one of it", "read")
	f.exec(old) // the rebalance has ended
	f.retain()
	left()
}

// A claim names the action it carries out, and is refused once the row is not what the plan was made of.
func TestAClaimHoldsToWhatWasPlanned(t *testing.T) {
	f := newFixture(t)
	if err := f.SavePlan(t.Context(), metastore.Plan{ID: "p", Rebalance: "r", Hash: "h", Body: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	claim := func(id string, expect metastore.ExpectedRow) error {
		r := f.claimRequest(id, "b2")
		r.Plan, r.PlanSeq, r.Expect = "p", 3, &expect
		_, _, err := f.ClaimMove(t.Context(), r)
		return err
	}
	row := f.row()
	for n, e := range []metastore.ExpectedRow{{TopicID: uuid.New()}, {Owner: "b3"}, {Version: row.Version + 1}} {
		f.refused(metastore.CodeRowDrifted, func() error { return claim(fmt.Sprint("drifted", n), e) })
	}
	for range 2 { // a repeat finds its own claim, whose version is the next
		if err := claim("m", metastore.ExpectedRow{TopicID: row.TopicID, Owner: row.Owner, Version: row.Version}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.CommitOwner(t.Context(), f.evidence("m", f.row())); err != nil {
		t.Fatal(err)
	}
	if moves, err := f.RebalanceMoves(t.Context(), "r"); err != nil || len(moves) != 1 || moves[0].ID != "m" {
		t.Errorf("the rebalance moved %+v, %v", moves, err)
	}
}

func TestLoadSamplesSurviveAndAreTakenOnce(t *testing.T) {
	f := newFixture(t)
	b1 := f.brokers["b1"]
	beat := func(produced int64) {
		t.Helper()
		if _, err := f.Heartbeat(t.Context(), metastore.HeartbeatReport{Broker: "b1", Process: b1.Process, Storage: b1.Storage, DiskTotalBytes: 10, DiskFreeBytes: 5,
			Loads: []metastore.Load{{TopicID: f.topic.ID, Partition: 0, DiskBytes: 7, ProducedBytes: produced, ConsumedBytes: 3}}}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range int64(5) {
		beat(n)
		if taken, err := f.SampleLoads(t.Context(), time.Minute, 3); !taken || err != nil {
			t.Fatal(taken, err)
		}
		if taken, err := f.SampleLoads(t.Context(), time.Minute, 3); taken || err != nil {
			t.Fatalf("a second worker took the pass too: %v, %v", taken, err)
		}
		f.exec("UPDATE load_samples SET at = at - interval '1 minute'")
	}
	quiet := func() time.Time { // what was told of the partition when nothing is new
		t.Helper()
		var at time.Time
		f.exec("UPDATE load_samples SET at = at - interval '1 minute'")
		if _, err := f.SampleLoads(t.Context(), time.Minute, 4); err != nil {
			t.Fatal(err)
		}
		if err := f.LoadSamples(t.Context(), 1, func(p metastore.LoadPass) error {
			at = p.Samples[slices.IndexFunc(p.Samples, func(l metastore.LoadSample) bool { return l.Partition == 0 })].At
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		f.exec("DELETE FROM load_samples WHERE id = (SELECT max(id) FROM load_samples)")
		return at
	}
	heartbeat := func(loads []metastore.Load) {
		t.Helper()
		if _, err := f.Heartbeat(t.Context(), metastore.HeartbeatReport{Broker: "b1", Process: b1.Process, Storage: b1.Storage, Loads: loads}); err != nil {
			t.Fatal(err)
		}
	}
	first := quiet()
	heartbeat(nil)
	if again := quiet(); !again.Equal(first) {
		t.Errorf("a heartbeat that tells of no partition counts as a report of %s, the last was of %s", again, first)
	}
	heartbeat([]metastore.Load{})
	if told := quiet(); !told.After(first) {
		t.Errorf("a heartbeat that tells that nothing has changed counts as a report of %s, the last was of %s", told, first)
	}
	f.exec("UPDATE load_samples SET reported = NULL WHERE id = (SELECT max(id) FROM load_samples)") // as an older binary writes it
	var produced []int64
	if err := f.LoadSamples(t.Context(), 60, func(p metastore.LoadPass) error {
		slices.SortFunc(p.Samples, func(a, b metastore.LoadSample) int { return int(a.Partition - b.Partition) })
		if len(p.Samples) != 2 || p.Samples[1].Process != uuid.Nil || p.Samples[0].Process != b1.Process || p.Samples[0].Disk != 7 || p.Samples[0].TopicID != f.topic.ID {
			t.Errorf("a pass is %+v", p)
		}
		// The passes were made to look older; their reports were not. The last has no times.
		if last := len(produced) == 2; p.Samples[0].At.Equal(p.At) != last || (!last && p.Samples[0].At.Sub(p.At) < time.Minute/2) {
			t.Errorf("a report of the pass of %s is of %s", p.At, p.Samples[0].At)
		}
		produced = append(produced, p.Samples[0].Produced)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(produced) != 3 || produced[0] != 2 || produced[2] != 4 {
		t.Errorf("the passes saw %v", produced)
	}
}

func TestThePauseOfTheFleetNamesWhoAndWhy(t *testing.T) {
	f := newFixture(t)
	if p, err := f.Paused(t.Context()); p.Paused || err != nil {
		t.Errorf("by default: %+v, %v", p, err)
	}
	if _, err := f.SetSetting(t.Context(), metastore.SettingPaused, "true", "ops", "backup"); err != nil {
		t.Fatal(err)
	}
	if p, err := f.Paused(t.Context()); err != nil || p != (metastore.Pause{Paused: true, By: "ops", Reason: "backup"}) {
		t.Errorf("paused: %+v, %v", p, err)
	}
}

func TestAReadOfTheFleetHasAllAPlanIsMadeOf(t *testing.T) {
	f := newFixture(t)
	f.exec(`UPDATE brokers SET capacity = '{"weight": 2}' WHERE id = 'b2'`)
	if err := f.Cool(t.Context(), []string{metastore.BrokerSubject("b1"), metastore.BrokerSubject("b1")}, time.Hour, "moved", "r1"); err != nil {
		t.Fatal(err)
	}
	if err := f.Cool(t.Context(), []string{metastore.BrokerSubject("b1")}, time.Minute, "moved again", "r2"); err != nil {
		t.Fatal(err)
	}
	v, err := f.ReadFleet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v.Capacities["b2"].Weight != 2 || len(v.Capacities) != 1 || len(v.Cooldowns) != 1 || v.Cooldowns[0].Until.Before(v.At.Add(59*time.Minute)) || v.Cooldowns[0].Rebalance != "r1" || len(v.Assignments) != 2 {
		t.Errorf("the fleet is %+v", v)
	}
}

// A plan that is made right after a move sees the partition as large as it was: its new owner has not reported it yet, or only from before it
// left there once.
func TestAPartitionThatHasJustMovedKeepsItsSize(t *testing.T) {
	f := newFixture(t)
	size := func(when string, want int64) {
		t.Helper()
		v, err := f.ReadFleet(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Disk[metastore.PartitionID{TopicID: f.topic.ID, Partition: 0}]; got != want {
			t.Errorf("%s it has %d bytes, not %d", when, got, want)
		}
	}
	reports := func(broker string, epoch int32, disk int64) {
		t.Helper()
		b := f.brokers[broker]
		if _, err := f.Heartbeat(t.Context(), metastore.HeartbeatReport{Broker: broker, Process: b.Process, Storage: b.Storage,
			Loads: []metastore.Load{{TopicID: f.topic.ID, Partition: 0, Epoch: epoch, DiskBytes: disk}}}); err != nil {
			t.Fatal(err)
		}
	}
	reports("b2", 1, 5) // it was there long ago
	reports("b1", 3, 100)
	size("at its owner", 100)
	f.exec("UPDATE assignments SET owner = 'b2', epoch = 4 WHERE topic_id = $1 AND partition = 0", f.topic.ID)
	size("moved and not reported", 100)
	reports("b2", 4, 120)
	size("reported by its new owner", 120)
}
