package metastore_test

import (
	"testing"

	"github.com/google/uuid"

	"portage/metastore"
)

func (f *fixture) copyPromotion() metastore.CopyPromotion {
	f.t.Helper()
	row := f.row()
	owner, err := f.FindBroker(f.t.Context(), row.Owner)
	if err != nil {
		f.t.Fatal(err)
	}
	return metastore.CopyPromotion{ID: uuid.NewString(), TopicID: row.TopicID, Owner: row.Owner, Epoch: row.Epoch, Version: row.Version, Broker: "b2", Copy: "c", CopyEnd: 60,
		Heartbeat: owner.Heartbeat, By: "me", Reason: "gone"}
}

func TestPromoteCopyGivesThePartitionAwayAndTellsTheLoss(t *testing.T) {
	f := newFixture(t)
	_, err := f.OpenOwner(t.Context(), f.openRequest()) // its log ends at 100
	must(t, err)
	p := f.copyPromotion()
	var told *metastore.CopyEvidence
	before := f.row()
	after := f.changedOnce("promote_copy", func() (row *metastore.Assignment, err error) {
		row, told, err = f.PromoteCopy(t.Context(), p)
		return row, err
	})
	if after.Owner != "b2" || after.OwnerStorage != f.brokers["b2"].Storage || after.Epoch != before.Epoch+1 || after.State != metastore.StateOpened {
		t.Errorf("the row is %+v", after)
	}
	if told.KnownEnd != 100 || told.Lost != 40 || told.From != "b1" {
		t.Errorf("told is %+v", told)
	}
	if err := f.unchanged("the repeat", func() (err error) { _, told, err = f.PromoteCopy(t.Context(), p); return err }); err != nil || told.Lost != 40 {
		t.Errorf("the repeat: %+v, %v", told, err)
	}
	move, err := f.FindCommit(t.Context(), p.TopicID, 0, after.Epoch)
	if err != nil || move == nil || move.Kind != metastore.KindPromote || move.ToBroker != "b2" || !move.Promoted {
		t.Errorf("the decision is %+v (%v)", move, err)
	}
	if other, err := f.FindCommit(t.Context(), p.TopicID, 0, after.Epoch+1); err != nil || other != nil {
		t.Errorf("of the next epoch there is %+v (%v)", other, err)
	}
}

func TestPromoteCopyIsRefused(t *testing.T) {
	process := uuid.New()
	for _, tc := range []struct {
		name, code string
		setup      func(f *fixture)
		change     func(p *metastore.CopyPromotion)
	}{
		{"the owner has sent a heartbeat", metastore.CodeSourceAlive, nil, func(p *metastore.CopyPromotion) { p.Heartbeat-- }},
		{"another process of the owner said that it is closed", metastore.CodeSourceAlive, nil, func(p *metastore.CopyPromotion) { p.Closed = &process }},
		{"it moves", metastore.CodeAlreadyMoving, func(f *fixture) { f.claim("m1", "b3") }, nil},
		{"the row changed", metastore.CodeRowMoved, nil, func(p *metastore.CopyPromotion) { p.Version-- }},
		{"another epoch", metastore.CodeRowMoved, nil, func(p *metastore.CopyPromotion) { p.Epoch++ }},
		{"another owner", metastore.CodeRowMoved, nil, func(p *metastore.CopyPromotion) { p.Owner = "b3" }},
		{"no such broker", metastore.CodeUnknownBroker, nil, func(p *metastore.CopyPromotion) { p.Broker = "b9" }},
		{"no such partition", metastore.CodeUnknownPartition, nil, func(p *metastore.CopyPromotion) { p.Partition = 7 }},
		{"a recovery", metastore.CodeRecoveryPending, func(f *fixture) { f.exec("UPDATE assignments SET pending_recovery = 'r1'") }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			if tc.setup != nil {
				tc.setup(f)
			}
			p := f.copyPromotion()
			if tc.change != nil {
				tc.change(&p)
			}
			f.refused(tc.code, func() error { _, _, err := f.PromoteCopy(t.Context(), p); return err })
		})
	}
}
