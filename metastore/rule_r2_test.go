//go:build portage_faults

package metastore_test

import (
	"fmt"
	"testing"
	"time"

	"portage/internal/faults/faultstest"
	"portage/metastore"
)

func (f *fixture) registerFenced(id string, node int32, fence time.Duration) {
	f.t.Helper()
	r := f.brokers[id]
	r.NodeID, r.PromoteFence = node, fence
	if _, err := f.RegisterBroker(f.t.Context(), r); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) heartbeat(id string) int64 {
	f.t.Helper()
	b, err := f.FindBroker(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return b.Heartbeat
}

// promotion is good evidence that the claimed row's source is gone.
func (f *fixture) promotion(id string, row *metastore.Assignment) metastore.Promotion {
	return metastore.Promotion{MoveID: id, TopicID: row.TopicID, Partition: row.Partition, From: row.Owner, To: *row.Target, Epoch: row.Epoch, Version: row.Version,
		ToStorage: f.brokers[*row.Target].Storage, Heartbeat: f.heartbeat(row.Owner), StagedEnd: 100, HighWatermark: 100, By: "me", Reason: "gone", Evidence: map[string]int{"seen": 100}}
}

func (f *fixture) beat(id string, loads ...metastore.Load) {
	f.t.Helper()
	if _, err := f.Heartbeat(f.t.Context(), metastore.HeartbeatReport{Broker: id, Process: f.brokers[id].Process, Storage: f.brokers[id].Storage, Loads: loads}); err != nil {
		f.t.Fatal(err)
	}
}

func TestForcePromoteGivesThePartitionToTheCopyOnce(t *testing.T) {
	f := newFixture(t)
	row := f.claim("m1", "b2")
	p := f.promotion("m1", row)
	after := f.changedOnce("force_promote", func() (*metastore.Assignment, error) { return f.ForcePromote(t.Context(), p) })
	if after.Owner != "b2" || after.OwnerStorage != f.brokers["b2"].Storage || after.Epoch != row.Epoch+1 || after.Moving() != "" {
		t.Errorf("the promoted row is %+v", after)
	}
	move, err := f.FindMove(t.Context(), "m1")
	if err != nil || move.Ended() != metastore.OutcomeCommitted || !move.Promoted || *move.CommitEpoch != after.Epoch || *move.FrozenEnd != 100 || string(move.Evidence) != `{"seen": 100}` {
		t.Errorf("the move is %+v (%v)", move, err)
	}
	if err := f.unchanged("the repeat", func() error { _, err := f.ForcePromote(t.Context(), p); return err }); err != nil {
		t.Errorf("the repeat ended with %v", err)
	}
	f.refused(metastore.CodeMoveCommitted, func() error { _, err := f.AbortMove(t.Context(), "m1", "test", ""); return err })
}

func TestForcePromoteRefusesEveryOtherEvidence(t *testing.T) {
	for _, tc := range []struct {
		name, code string
		claim      func(r *metastore.ClaimRequest)
		setup      func(f *fixture)
		change     func(f *fixture, p *metastore.Promotion)
	}{
		{"no such move", metastore.CodeUnknownMove, nil, nil, func(_ *fixture, p *metastore.Promotion) { p.MoveID = "m9" }},
		{"another source", metastore.CodeRowMoved, nil, nil, func(_ *fixture, p *metastore.Promotion) { p.From = "b3" }},
		{"another destination", metastore.CodeRowMoved, nil, nil, func(_ *fixture, p *metastore.Promotion) { p.To = "b3" }},
		{"another epoch", metastore.CodeRowMoved, nil, nil, func(_ *fixture, p *metastore.Promotion) { p.Epoch++ }},
		{"an older version", metastore.CodeRowMoved, nil, nil, func(_ *fixture, p *metastore.Promotion) { p.Version-- }},
		{"the source opened since", metastore.CodeRowMoved, nil, func(f *fixture) { _, err := f.OpenOwner(f.t.Context(), f.openRequest()); must(f.t, err) }, nil},
		{"an aborted move", metastore.CodeMoveEnded, nil, func(f *fixture) { _, err := f.AbortMove(f.t.Context(), "m1", "test", ""); must(f.t, err) }, nil},
		{"a source that sent a heartbeat", metastore.CodeSourceAlive, nil, func(f *fixture) { f.beat("b1") }, nil},
		{"a source whose next process registered", metastore.CodeSourceAlive, nil, func(f *fixture) { f.register("b1", 1) }, nil},
		{"a copy below the source's high watermark", metastore.CodeCopyBehind, nil, nil, func(_ *fixture, p *metastore.Promotion) { p.HighWatermark = 101 }},
		{"a copy below where the source opened", metastore.CodeCopyBehind, nil, func(f *fixture) { f.exec("UPDATE assignments SET opened_end = 101") }, nil},
		{"another storage", metastore.CodeStorageChanged, nil, nil, func(f *fixture, p *metastore.Promotion) { p.ToStorage = f.brokers["b3"].Storage }},
		{"a move that is never promoted", metastore.CodeNoFence, func(r *metastore.ClaimRequest) { r.OnSourceLoss = metastore.LossNever }, nil, nil},
		{"a pending recovery", metastore.CodeRecoveryPending, nil, func(f *fixture) { f.exec("UPDATE assignments SET pending_recovery = 'r1'") }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			req := f.claimRequest("m1", "b2")
			if tc.claim != nil {
				tc.claim(&req)
			}
			row, _, err := f.ClaimMove(t.Context(), req)
			must(t, err)
			p := f.promotion("m1", row)
			if tc.change != nil {
				tc.change(f, &p)
			}
			if tc.name == "a source whose next process registered" {
				r := f.brokers["b1"]
				if _, err := f.RegisterBroker(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			} else if tc.setup != nil {
				tc.setup(f)
			}
			f.refused(tc.code, func() error { _, err := f.ForcePromote(t.Context(), p); return err })
		})
	}
}

// What the source reported with its last heartbeat counts, although no session ever saw it.
func TestForcePromoteCountsWhatTheSourceReported(t *testing.T) {
	f := newFixture(t)
	row := f.claim("m1", "b2")
	f.beat("b1", metastore.Load{TopicID: row.TopicID, Partition: 0, Epoch: row.Epoch, LogEnd: 120})
	p := f.promotion("m1", row)
	f.refused(metastore.CodeCopyBehind, func() error { _, err := f.ForcePromote(t.Context(), p); return err })
	p.StagedEnd = 120
	if _, err := f.ForcePromote(t.Context(), p); err != nil {
		t.Error(err)
	}
}

func TestR2AnAutomaticPromotionNeedsASourceThatFencesItself(t *testing.T) {
	f := newFixture(t)
	req := f.claimRequest("m1", "b2")
	req.OnSourceLoss, req.PromoteAfter = metastore.LossAuto, time.Minute
	f.refused(metastore.CodeNoFence, func() error { _, _, err := f.ClaimMove(t.Context(), req); return err }) // it registered without a fence
	f.registerFenced("b1", 1, 31*time.Second)
	f.refused(metastore.CodeNoFence, func() error { _, _, err := f.ClaimMove(t.Context(), req); return err }) // twice that is more than a minute
	f.registerFenced("b1", 1, 30*time.Second)
	row, _, err := f.ClaimMove(t.Context(), req)
	must(t, err)
	if row.FencedFor() != "m1" {
		t.Errorf("the row is not marked: %+v", row)
	}
	if fenced, err := f.ReadFenced(t.Context(), "b1"); err != nil || len(fenced) != 1 || fenced[0].MoveID != "m1" {
		t.Errorf("fenced are %+v (%v)", fenced, err)
	}
	p := f.promotion("m1", row)
	// An agent of the previous version takes the source's place: it registers without the columns it does not know.
	f.exec("UPDATE brokers SET process_instance = gen_random_uuid() WHERE id = 'b1'")
	f.refused(metastore.CodeNoFence, func() error { _, err := f.ForcePromote(t.Context(), p); return err })
	if row, err = f.AbortMove(t.Context(), "m1", "test", ""); err != nil || row.FencedFor() != "" || row.PromoteFence != nil {
		t.Errorf("after the abort the row is %+v (%v)", row, err)
	}
	if fenced, err := f.ReadFenced(t.Context(), "b1"); err != nil || len(fenced) != 0 {
		t.Errorf("fenced are %+v (%v)", fenced, err)
	}
}

// The source's process does not fence itself: what "auto" may not do, a person who saw the warning may.
func TestAPersonDecidesWhatAutoMayNot(t *testing.T) {
	f := newFixture(t)
	f.registerFenced("b1", 1, 30*time.Second)
	req := f.claimRequest("m1", "b2")
	req.OnSourceLoss, req.PromoteAfter = metastore.LossAuto, time.Minute
	row, _, err := f.ClaimMove(t.Context(), req)
	must(t, err)
	f.exec("UPDATE brokers SET process_instance = gen_random_uuid() WHERE id = 'b1'")
	p := f.promotion("m1", row)
	f.refused(metastore.CodeNoFence, func() error { _, err := f.ForcePromote(t.Context(), p); return err })
	p.Decided = true
	if after, err := f.ForcePromote(t.Context(), p); err != nil || after.Owner != "b2" {
		t.Errorf("the row is %+v (%v)", after, err)
	}
}

// A heartbeat and a promotion pass each other: whichever is first, the other one sees it.
func TestR2APromotionNamesTheCounterThatStoodStill(t *testing.T) {
	faultstest.Story(t, "R2", func(t *testing.T) string {
		f := newFixture(t)
		row := f.claim("m1", "b2")
		p := f.promotion("m1", row)
		f.beat("b1")
		_, err := f.ForcePromote(t.Context(), p)
		if err == nil {
			return fmt.Sprintf("b2 owns the partition while b1 reads the metastore (counter %d, named was %d)", f.heartbeat("b1"), p.Heartbeat)
		}
		return ""
	})
}

// R7: an abort that overtakes its own claim.
func TestR7AClaimThatWasOvertakenByItsAbortIsRefused(t *testing.T) {
	f := newFixture(t)
	f.refused(metastore.CodeUnknownMove, func() error { _, err := f.AbortMove(t.Context(), "m1", "test", ""); return err })
	must(t, f.BuryMove(t.Context(), "m1", "orders", 0, "b2", "test", "cancelled"))
	must(t, f.BuryMove(t.Context(), "m1", "orders", 0, "b2", "test", "cancelled"))
	f.refused(metastore.CodeMoveEnded, func() error { _, _, err := f.ClaimMove(t.Context(), f.claimRequest("m1", "b2")); return err })
	// The claim was first after all: it stands until it is aborted.
	f.claim("m2", "b2")
	f.refused(metastore.CodeAlreadyMoving, func() error { return f.BuryMove(t.Context(), "m2", "orders", 0, "b2", "test", "") })
	if moves, err := f.Moves(t.Context(), false, 10); err != nil || len(moves) != 1 || moves[0].ID != "m2" {
		t.Errorf("running are %+v (%v)", moves, err)
	}
}

// The same two at the same time, many times: never does a claim stand whose abort was answered.
func TestR7ABuriedIDAndItsClaimNeverBothWin(t *testing.T) {
	f := newFixture(t)
	for i := range 20 {
		id := fmt.Sprintf("m%d", i)
		buried := make(chan error, 1)
		go func() { buried <- f.BuryMove(t.Context(), id, "orders", 0, "b2", "test", "") }()
		_, _, claimErr := f.ClaimMove(t.Context(), f.claimRequest(id, "b2"))
		buryErr := <-buried
		if claimErr != nil && metastore.IsUnknown(claimErr) {
			_, _, claimErr = f.ClaimMove(t.Context(), f.claimRequest(id, "b2"))
		}
		if (claimErr == nil) == (buryErr == nil) {
			t.Fatalf("claim: %v, burial: %v", claimErr, buryErr)
		}
		if claimErr == nil {
			_, err := f.AbortMove(t.Context(), id, "test", "")
			must(t, err)
		}
	}
}
