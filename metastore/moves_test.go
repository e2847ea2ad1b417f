package metastore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	"portage/metastore"
)

func TestClaimMoveReservesThePartitionOnce(t *testing.T) {
	f := newFixture(t)
	row := f.changedOnce("claim_move", func() (*metastore.Assignment, error) {
		row, move, err := f.ClaimMove(t.Context(), f.claimRequest("m1", "b2"))
		if err == nil && (move.ClaimVersion != row.Version || move.FromBroker != "b1" || move.ToBroker != "b2" || move.Ended() != "") {
			t.Errorf("the move is %+v", move)
		}
		return row, err
	})
	if row.Moving() != "m1" || *row.Target != "b2" || *row.TargetStorage != f.brokers["b2"].Storage || row.Owner != "b1" {
		t.Errorf("the claimed row is %+v", row)
	}
	if err := f.unchanged("the repeated claim", func() error { _, _, err := f.ClaimMove(t.Context(), f.claimRequest("m1", "b2")); return err }); err != nil {
		t.Errorf("the repeated claim ended with %v", err)
	}
	refused := f.refused(metastore.CodeAlreadyMoving, func() error { _, _, err := f.ClaimMove(t.Context(), f.claimRequest("m2", "b3")); return err })
	if refused.Move == nil || refused.Move.WorkflowID != "workflow-of-m1" || refused.Row.Moving() != "m1" {
		t.Errorf("the second move is not told of the first: %+v", refused)
	}
}

func TestClaimMoveRefusesWhatIsKnownToBeWrong(t *testing.T) {
	for _, tc := range []struct {
		code  string
		setup func(f *fixture)
		ask   func(r *metastore.ClaimRequest)
	}{
		{metastore.CodeUnknownTopic, nil, func(r *metastore.ClaimRequest) { r.Topic = "nowhere" }},
		{metastore.CodeUnknownPartition, nil, func(r *metastore.ClaimRequest) { r.Partition = 2 }},
		{metastore.CodeUnknownBroker, nil, func(r *metastore.ClaimRequest) { r.To = "b9" }},
		{metastore.CodeAlreadyOwner, nil, func(r *metastore.ClaimRequest) { r.To = "b1" }},
		{metastore.CodeStaleController, nil, func(r *metastore.ClaimRequest) { r.ControllerEpoch-- }},
		{metastore.CodeInternalTopic, func(f *fixture) { must(f.t, f.SetInternal(f.t.Context(), "orders", true)) }, nil},
		{metastore.CodeBrokerDraining, func(f *fixture) { must(f.t, f.SetDraining(f.t.Context(), "b2", true, "test", "")) }, nil},
		{metastore.CodeBrokerRemoved, func(f *fixture) { f.exec("UPDATE brokers SET removed = true WHERE id = 'b2'") }, nil},
		{metastore.CodeRecoveryPending, func(f *fixture) { f.exec("UPDATE assignments SET pending_recovery = 'r1'") }, nil},
		{metastore.CodeMoveEnded, func(f *fixture) {
			f.claim("m1", "b2")
			_, err := f.AbortMove(f.t.Context(), "m1", "test", "")
			must(f.t, err)
		}, nil},
	} {
		t.Run(tc.code, func(t *testing.T) {
			f := newFixture(t)
			if tc.setup != nil {
				tc.setup(f)
			}
			req := f.claimRequest("m1", "b2")
			if tc.ask != nil {
				tc.ask(&req)
			}
			f.refused(tc.code, func() error { _, _, err := f.ClaimMove(t.Context(), req); return err })
			if moves, err := f.Moves(t.Context(), false, 10); err != nil || len(moves) != 0 {
				t.Errorf("running are %+v (%v)", moves, err)
			}
		})
	}
}

// The metastore went back in time: the claim's own move is there, and the row does not name it.
func TestARepeatedClaimWhoseRowWasTakenBackIsRefused(t *testing.T) {
	f := newFixture(t)
	f.claim("m1", "b2")
	f.exec("UPDATE assignments SET move_id = NULL, target = NULL, target_storage = NULL WHERE partition = 0")
	f.refused(metastore.CodeRowMoved, func() error {
		_, _, err := f.ClaimMove(t.Context(), f.claimRequest("m1", "b2"))
		return err
	})
}

func TestOneOfManyConcurrentClaimsWins(t *testing.T) {
	f := newFixture(t)
	const claims = 12
	var group sync.WaitGroup
	errs := make([]error, claims)
	for i := range claims {
		group.Go(func() {
			_, _, errs[i] = f.ClaimMove(t.Context(), f.claimRequest(fmt.Sprintf("m%d", i), []string{"b2", "b3"}[i%2]))
		})
	}
	group.Wait()
	won := -1
	for i, err := range errs {
		switch _, lost := metastore.RefusedWith(err, metastore.CodeAlreadyMoving); {
		case err == nil && won < 0:
			won = i
		case err == nil:
			t.Errorf("claims %d and %d both won", won, i)
		case !lost:
			t.Errorf("claim %d ended with %v", i, err)
		}
	}
	if row := f.row(); won < 0 || row.Moving() != fmt.Sprintf("m%d", won) {
		t.Errorf("claim %d won, the row is %+v", won, row)
	}
	if moves, err := f.Moves(t.Context(), true, 100); err != nil || len(moves) != 1 {
		t.Errorf("%d moves were recorded (%v)", len(moves), err)
	}
}

func TestCommitOwnerFlipsTheOwnerOnce(t *testing.T) {
	f := newFixture(t)
	row := f.claim("m1", "b2")
	c := f.evidence("m1", row)
	after := f.changedOnce("commit_owner", func() (*metastore.Assignment, error) { return f.CommitOwner(t.Context(), c) })
	if after.Owner != "b2" || after.OwnerStorage != f.brokers["b2"].Storage || after.Epoch != row.Epoch+1 || after.Target != nil || after.Moving() != "" || *after.LastMove != "m1" {
		t.Errorf("the committed row is %+v", after)
	}
	move, err := f.FindMove(t.Context(), "m1")
	if err != nil || move.Ended() != metastore.OutcomeCommitted || *move.CommitEpoch != after.Epoch || *move.FrozenEnd != 100 {
		t.Errorf("the move is %+v (%v)", move, err)
	}
	if err := f.unchanged("the repeated commit", func() error { _, err := f.CommitOwner(t.Context(), c); return err }); err != nil {
		t.Errorf("the repeated commit ended with %v", err)
	}
	refused := f.refused(metastore.CodeMoveCommitted, func() error { _, err := f.AbortMove(t.Context(), "m1", "test", ""); return err })
	if refused.Row == nil || refused.Row.Owner != "b2" {
		t.Errorf("the late abort carries %+v", refused.Row)
	}
}

func TestCommitOwnerRefusesEveryOtherEvidence(t *testing.T) {
	for _, tc := range []struct {
		name, code string
		setup      func(f *fixture)
		change     func(f *fixture, c *metastore.Commit)
	}{
		{"no such move", metastore.CodeUnknownMove, nil, func(_ *fixture, c *metastore.Commit) { c.MoveID = "m9" }},
		{"another source", metastore.CodeRowMoved, nil, func(_ *fixture, c *metastore.Commit) { c.From = "b3" }},
		{"another destination", metastore.CodeRowMoved, nil, func(_ *fixture, c *metastore.Commit) { c.To = "b3" }},
		{"another epoch", metastore.CodeRowMoved, nil, func(_ *fixture, c *metastore.Commit) { c.Epoch++ }},
		{"an older version", metastore.CodeRowMoved, nil, func(_ *fixture, c *metastore.Commit) { c.Version-- }},
		{"a fresher version", metastore.CodeRowMoved, nil, func(_ *fixture, c *metastore.Commit) { c.Version++ }},
		{"the source opened since", metastore.CodeRowMoved, func(f *fixture) { _, err := f.OpenOwner(f.t.Context(), f.openRequest()); must(f.t, err) }, nil},
		{"a copy for another version", metastore.CodeEndsDiffer, nil, func(_ *fixture, c *metastore.Commit) { c.InstalledVersion-- }},
		{"a shorter copy", metastore.CodeEndsDiffer, nil, func(_ *fixture, c *metastore.Commit) { c.InstalledEnd-- }},
		{"a longer copy", metastore.CodeEndsDiffer, nil, func(_ *fixture, c *metastore.Commit) { c.InstalledEnd++ }},
		{"a copy on other storage", metastore.CodeStorageChanged, nil, func(_ *fixture, c *metastore.Commit) { c.ToStorage = uuid.New() }},
		{"a disk replaced since", metastore.CodeStorageChanged, func(f *fixture) { f.exec("UPDATE brokers SET storage_instance = gen_random_uuid() WHERE id = 'b2'") }, nil},
		{"an aborted move", metastore.CodeMoveEnded, func(f *fixture) { _, err := f.AbortMove(f.t.Context(), "m1", "test", ""); must(f.t, err) }, nil},
		{"a pending recovery", metastore.CodeRecoveryPending, func(f *fixture) { f.exec("UPDATE assignments SET pending_recovery = 'r1'") }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			c := f.evidence("m1", f.claim("m1", "b2"))
			if tc.setup != nil {
				tc.setup(f)
			}
			if tc.change != nil {
				tc.change(f, &c)
			}
			refused := f.refused(tc.code, func() error { _, err := f.CommitOwner(t.Context(), c); return err })
			if refused.Row == nil {
				t.Error("the refusal carries no row")
			}
			if f.row().Owner != "b1" {
				t.Errorf("the owner is %s", f.row().Owner)
			}
		})
	}
}

func TestAbortMoveFreesThePartitionOnce(t *testing.T) {
	f := newFixture(t)
	f.claim("m1", "b2")
	after := f.changedOnce("abort_move", func() (*metastore.Assignment, error) { return f.AbortMove(t.Context(), "m1", "b1", "the lease ended") })
	if after.Moving() != "" || after.Target != nil || after.Owner != "b1" || *after.LastMove != "m1" {
		t.Errorf("the freed row is %+v", after)
	}
	if err := f.unchanged("the repeated abort", func() error {
		row, err := f.AbortMove(t.Context(), "m1", "other", "other")
		if err == nil && row == nil {
			t.Error("the repeated abort carries no row")
		}
		return err
	}); err != nil {
		t.Errorf("the repeated abort ended with %v", err)
	}
	if move, err := f.FindMove(t.Context(), "m1"); err != nil || move.Ended() != metastore.OutcomeAborted || *move.OutcomeBy != "b1" {
		t.Errorf("the move is %+v (%v)", move, err)
	}
	f.refused(metastore.CodeUnknownMove, func() error { _, err := f.AbortMove(t.Context(), "m9", "test", ""); return err })
	f.claim("m2", "b3") // free again
}

// R14: nothing but a commit keeps AbortMove from winning.
func TestAbortMoveIsNotSubjectToControllerOrRecovery(t *testing.T) {
	f := newFixture(t)
	f.claim("m1", "b2")
	if _, err := f.HoldController(t.Context(), "another"); err != nil {
		t.Fatal(err)
	}
	f.exec("UPDATE assignments SET pending_recovery = 'r1'")
	f.changedOnce("abort_move", func() (*metastore.Assignment, error) { return f.AbortMove(t.Context(), "m1", "b1", "") })
}

// Commit and abort of one move meet on one row: exactly one of them wins, and the loser learns it.
func TestExactlyOneOfCommitAndAbortWins(t *testing.T) {
	f := newFixture(t)
	won := map[string]int{}
	for i := range 200 {
		id := fmt.Sprintf("m%d", i)
		to := map[string]string{"b1": "b2", "b2": "b1"}[f.row().Owner]
		row := f.claim(id, to)
		c := f.evidence(id, row)
		var group sync.WaitGroup
		var commitErr, abortErr error
		start := make(chan struct{})
		group.Go(func() { <-start; _, commitErr = f.CommitOwner(t.Context(), c) })
		group.Go(func() { <-start; _, abortErr = f.AbortMove(t.Context(), id, row.Owner, "") })
		close(start)
		group.Wait()
		after := f.row()
		move, err := f.FindMove(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		_, commitLost := metastore.RefusedWith(commitErr, metastore.CodeMoveEnded)
		_, abortLost := metastore.RefusedWith(abortErr, metastore.CodeMoveCommitted)
		switch {
		case commitErr == nil && abortLost && after.Owner == to && after.Epoch == row.Epoch+1 && move.Ended() == metastore.OutcomeCommitted:
			won["commit"]++
		case abortErr == nil && commitLost && after.Owner == row.Owner && after.Epoch == row.Epoch && move.Ended() == metastore.OutcomeAborted:
			won["abort"]++
		default:
			t.Fatalf("round %d: commit ended with %v, abort with %v, row %+v, move %+v", i, commitErr, abortErr, after, move)
		}
	}
	t.Logf("won: %v", won)
}

func TestOpenOwnerRaisesTheVersionEachTime(t *testing.T) {
	f := newFixture(t)
	if f.row().State != metastore.StateCreated {
		t.Fatalf("a new row is %s", f.row().State)
	}
	for range 2 { // a repeat is a new opening
		o := f.openRequest()
		after := f.changedOnce("open_owner", func() (*metastore.Assignment, error) { return f.OpenOwner(t.Context(), o) })
		if after.State != metastore.StateOpened || after.OpenedEpoch != after.Epoch || *after.OpenedProcess != o.Process || after.OpenedEnd != 100 {
			t.Errorf("the opened row is %+v", after)
		}
	}
}

func TestOpenOwnerRefusesWhoeverIsNotTheOwnerOfTheRow(t *testing.T) {
	for _, tc := range []struct {
		name, code string
		setup      func(f *fixture)
		change     func(f *fixture, o *metastore.OpenRequest)
	}{
		{"another broker", metastore.CodeNotOwner, nil, func(f *fixture, o *metastore.OpenRequest) { o.Broker = "b2" }},
		{"the target", metastore.CodeNotOwner, func(f *fixture) { f.claim("m1", "b2") }, func(f *fixture, o *metastore.OpenRequest) { o.Broker = "b2" }},
		{"another epoch", metastore.CodeNotOwner, nil, func(_ *fixture, o *metastore.OpenRequest) { o.Epoch++ }},
		{"other storage", metastore.CodeStorageChanged, nil, func(_ *fixture, o *metastore.OpenRequest) { o.Storage = uuid.New() }},
		{"a freeze whose move stands", metastore.CodeAlreadyMoving, func(f *fixture) { f.claim("m1", "b2") }, func(_ *fixture, o *metastore.OpenRequest) { o.GoneMove = "m1" }},
		{"a pending recovery", metastore.CodeRecoveryPending, func(f *fixture) { f.exec("UPDATE assignments SET pending_recovery = 'r1'") }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			if tc.setup != nil {
				tc.setup(f)
			}
			o := f.openRequest()
			if tc.change != nil {
				tc.change(f, &o)
			}
			if refused := f.refused(tc.code, func() error { _, err := f.OpenOwner(t.Context(), o); return err }); refused.Row == nil {
				t.Error("the refusal carries no row")
			}
		})
	}
	f := newFixture(t)
	o := f.openRequest()
	o.Partition = 9
	f.refused(metastore.CodeUnknownPartition, func() error { _, err := f.OpenOwner(t.Context(), o); return err })
}

// A former owner that restarts after the flip has the same epoch in its hands as before: it is told who owns it now.
func TestAFormerOwnerIsNotOpened(t *testing.T) {
	f := newFixture(t)
	o := f.openRequest()
	if _, err := f.CommitOwner(t.Context(), f.evidence("m1", f.claim("m1", "b2"))); err != nil {
		t.Fatal(err)
	}
	if refused := f.refused(metastore.CodeNotOwner, func() error { _, err := f.OpenOwner(t.Context(), o); return err }); refused.Row.Owner != "b2" {
		t.Errorf("the refusal carries %+v", refused.Row)
	}
}

// R1: a caller that goes away does not turn its write into a guess.
func TestGuardedWritesOutliveTheirCaller(t *testing.T) {
	f := newFixture(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	row, _, err := f.ClaimMove(gone, f.claimRequest("m1", "b2"))
	if err != nil {
		t.Fatalf("the claim of a caller that went away: %v", err)
	}
	if _, err := f.CommitOwner(gone, f.evidence("m1", row)); err != nil {
		t.Errorf("its commit: %v", err)
	}
	if _, err := f.OpenOwner(gone, f.openRequest()); err != nil {
		t.Errorf("its opening: %v", err)
	}
	if _, err := f.ReadAssignment(gone, f.topic.ID, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("its read: %v", err)
	}
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.sql.Exec(f.t.Context(), sql, args...); err != nil {
		f.t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The reply of a commit is lost, and the topic deleted before it is asked again: it was done all the same.
func TestACommitRepeatedAfterItsTopicIsGoneIsDone(t *testing.T) {
	f := newFixture(t)
	row := f.claim("m", "b2")
	commit := f.evidence("m", row)
	if _, err := f.CommitOwner(t.Context(), commit); err != nil {
		t.Fatal(err)
	}
	if err := f.DeleteTopic(t.Context(), "orders", uuid.Nil, "test"); err != nil {
		t.Fatal(err)
	}
	if after, err := f.CommitOwner(t.Context(), commit); err != nil || after != nil {
		t.Errorf("the repeated commit answers %+v, %v", after, err)
	}
}
