package metastore_test

import (
	"sync"
	"testing"

	"portage/metastore"
)

// swapFixture is a fixture in which b1 owns orders/0 and b2 owns payments/0.
func swapFixture(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	f.createPayments()
	return f
}

func (f *fixture) createPayments() {
	f.t.Helper()
	if _, err := f.CreateTopic(f.t.Context(), metastore.NewTopic{Name: "payments", Partitions: 2, Placement: map[int32]string{0: "b2", 1: "b1"}, By: "test"}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) swapRequest(id string) metastore.SwapRequest {
	return metastore.SwapRequest{SwapID: id, Sides: [2]metastore.Place{{Topic: "orders"}, {Topic: "payments"}}, WorkflowID: "workflow-of-" + id, RunID: "run",
		ControllerEpoch: f.epoch, Reason: "test"}
}

func (f *fixture) claimSwap(id string) [2]metastore.Claimed {
	f.t.Helper()
	claimed, err := f.ClaimSwap(f.t.Context(), f.swapRequest(id))
	if err != nil {
		f.t.Fatal(err)
	}
	return claimed
}

// swapEvidence is what a good cutover of both sides proves.
func (f *fixture) swapEvidence(id string, claimed [2]metastore.Claimed) metastore.SwapCommit {
	c := metastore.SwapCommit{SwapID: id}
	for i, side := range claimed {
		c.Sides[i] = f.evidence(side.Move.ID, side.Row)
	}
	return c
}

func (f *fixture) rowOf(topic string) *metastore.Assignment {
	f.t.Helper()
	row, err := f.FindAssignment(f.t.Context(), topic, 0)
	if err != nil || row == nil {
		f.t.Fatalf("%s/0: %+v, %v", topic, row, err)
	}
	return row
}

// owners are who owns orders/0 and payments/0.
func (f *fixture) owners() string { return f.rowOf("orders").Owner + " " + f.rowOf("payments").Owner }

func (f *fixture) outcomes(id string) string {
	f.t.Helper()
	sides, err := f.SwapSides(f.t.Context(), id)
	if err != nil || len(sides) != 2 {
		f.t.Fatalf("the sides of %s are %+v (%v)", id, sides, err)
	}
	return sides[0].Ended() + " " + sides[1].Ended()
}

func TestClaimSwapReservesBothPartitionsOnce(t *testing.T) {
	f := swapFixture(t)
	first := f.claimSwap("s1")
	for i, want := range []struct{ topic, from, to string }{{"orders", "b1", "b2"}, {"payments", "b2", "b1"}} {
		row, move := first[i].Row, first[i].Move
		if row.Topic != want.topic || row.Owner != want.from || *row.Target != want.to || row.Moving() != metastore.SwapSide("s1", i) || *row.TargetStorage != f.brokers[want.to].Storage {
			t.Errorf("side %d is claimed as %+v", i, row)
		}
		if move.Kind != metastore.KindSwap || *move.Swap != "s1" || move.FromBroker != want.from || move.ToBroker != want.to || move.ClaimVersion != row.Version {
			t.Errorf("the move of side %d is %+v", i, move)
		}
	}
	again := f.claimSwap("s1")
	if again[0].Row.Version != first[0].Row.Version || again[1].Row.Version != first[1].Row.Version {
		t.Errorf("the repeated claim changed the rows: %+v", again)
	}
	if refused := f.refused(metastore.CodeAlreadyMoving, func() error { _, err := f.ClaimSwap(t.Context(), f.swapRequest("s2")); return err }); refused.Move == nil || refused.Move.WorkflowID != "workflow-of-s1" {
		t.Errorf("the second swap is not told of the first: %+v", refused)
	}
	if moves, err := f.Moves(t.Context(), false, 10); err != nil || len(moves) != 2 {
		t.Errorf("running are %+v (%v)", moves, err)
	}
}

// A swap of a plan: what its rebalance has moved are both sides, and a side that is not as planned refuses both. The repeated claim finds its own, although
// it has changed the versions.
func TestClaimSwapOfAPlan(t *testing.T) {
	f := swapFixture(t)
	ask := func(id string, change func(*metastore.SwapRequest)) ([2]metastore.Claimed, error) {
		r := f.swapRequest(id)
		r.Plan, r.PlanSeq = "p1", 4
		for i, topic := range []string{"orders", "payments"} {
			row := f.rowOf(topic)
			r.Expect[i] = &metastore.ExpectedRow{TopicID: row.TopicID, Owner: row.Owner, Version: row.Version}
		}
		change(&r)
		return f.ClaimSwap(t.Context(), r)
	}
	for name, drift := range map[string]func(*metastore.SwapRequest){
		"a version":                   func(r *metastore.SwapRequest) { r.Expect[1].Version++ },
		"an owner":                    func(r *metastore.SwapRequest) { r.Expect[0].Owner = "b3" },
		"an owner who is the other's": func(r *metastore.SwapRequest) { r.Sides[1].Partition = 1 }, // payments/1 is on b1, as orders/0
	} {
		f.refused(metastore.CodeRowDrifted, func() error { _, err := ask("s0", drift); return err })
		if a, b := f.rowOf("orders").Moving(), f.rowOf("payments").Moving(); a+b != "" {
			t.Errorf("%s that is another leaves claims %q and %q", name, a, b)
		}
	}
	var first metastore.SwapRequest
	claimed, err := ask("s1", func(r *metastore.SwapRequest) { first = *r })
	must(t, err)
	if again, err := f.ClaimSwap(t.Context(), first); err != nil || again[0].Row.Version != claimed[0].Row.Version {
		t.Errorf("the repeated claim is %+v, %v", again, err)
	}
	must(t, f.SavePlan(t.Context(), metastore.Plan{ID: "p1", Rebalance: "r1", Hash: "00000000", Actions: 5, Body: []byte("{}")}))
	if _, err := f.CommitSwap(t.Context(), f.swapEvidence("s1", claimed)); err != nil {
		t.Fatal(err)
	}
	moved, err := f.RebalanceMoves(t.Context(), "r1")
	if err != nil || len(moved) != 2 || *moved[0].Swap != "s1" || *moved[1].Swap != "s1" {
		t.Errorf("its rebalance has moved %+v (%v)", moved, err)
	}
}

func TestClaimSwapRefusesAsAWhole(t *testing.T) {
	for _, tc := range []struct {
		name, code string
		setup      func(f *fixture)
		ask        func(r *metastore.SwapRequest)
	}{
		{"an unknown topic", metastore.CodeUnknownTopic, nil, func(r *metastore.SwapRequest) { r.Sides[1].Topic = "nowhere" }},
		{"an unknown partition", metastore.CodeUnknownPartition, nil, func(r *metastore.SwapRequest) { r.Sides[1].Partition = 7 }},
		{"one owner", metastore.CodeSameOwner, nil, func(r *metastore.SwapRequest) { r.Sides[1].Partition = 1 }},
		{"one partition", metastore.CodeSameOwner, nil, func(r *metastore.SwapRequest) { r.Sides[1] = r.Sides[0] }},
		{"another controller", metastore.CodeStaleController, nil, func(r *metastore.SwapRequest) { r.ControllerEpoch-- }},
		{"an internal topic", metastore.CodeInternalTopic, func(f *fixture) { must(f.t, f.SetInternal(f.t.Context(), "payments", true)) }, nil},
		{"a draining destination", metastore.CodeBrokerDraining, func(f *fixture) { must(f.t, f.SetDraining(f.t.Context(), "b1", true, "test", "")) }, nil},
		{"a removed destination", metastore.CodeBrokerRemoved, func(f *fixture) { f.exec("UPDATE brokers SET removed = true WHERE id = 'b1'") }, nil},
		{"a recovery of the second", metastore.CodeRecoveryPending, func(f *fixture) {
			f.exec("UPDATE assignments SET pending_recovery = 'r1' WHERE owner = 'b2'")
		}, nil},
		{"a second that is moving", metastore.CodeAlreadyMoving, func(f *fixture) {
			r := f.claimRequest("m1", "b3")
			r.Topic = "payments"
			_, _, err := f.ClaimMove(f.t.Context(), r)
			must(f.t, err)
		}, nil},
		{"a second of another timeline", metastore.CodeMetastoreRestored, func(f *fixture) { f.exec("UPDATE assignments SET timeline = 9 WHERE owner = 'b2'") }, nil},
		{"an ended swap", metastore.CodeMoveEnded, func(f *fixture) {
			f.claimSwap("s1")
			_, err := f.AbortMove(f.t.Context(), "s1", "test", "")
			must(f.t, err)
		}, nil},
		{"a buried side", metastore.CodeMoveEnded, func(f *fixture) {
			must(f.t, f.BuryMove(f.t.Context(), metastore.SwapSide("s1", 1), "payments", 0, "b1", "test", ""))
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := swapFixture(t)
			if tc.setup != nil {
				tc.setup(f)
			}
			req := f.swapRequest("s1")
			if tc.ask != nil {
				tc.ask(&req)
			}
			before, lines := f.rowOf("orders"), f.audits()
			if _, err := f.ClaimSwap(t.Context(), req); !refusedFor(err, tc.code) {
				t.Errorf("got %v, want a refusal with %s", err, tc.code)
			}
			if after := f.rowOf("orders"); after.Version != before.Version || after.Moving() != "" || f.audits() != lines {
				t.Errorf("the refused swap left %+v", after)
			}
		})
	}
}

func TestCommitSwapFlipsBothOnce(t *testing.T) {
	f := swapFixture(t)
	claimed := f.claimSwap("s1")
	c := f.swapEvidence("s1", claimed)
	lines := f.audits()
	after, err := f.CommitSwap(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range after {
		if row.Owner != claimed[1-i].Row.Owner || row.Epoch != claimed[i].Row.Epoch+1 || row.Moving() != "" || *row.LastMove != metastore.SwapSide("s1", i) {
			t.Errorf("side %d became %+v", i, row)
		}
	}
	if f.owners() != "b2 b1" || f.outcomes("s1") != "committed committed" || f.audits() != lines+2 {
		t.Errorf("the owners are %s, the outcomes %s, %d lines in the audit", f.owners(), f.outcomes("s1"), f.audits()-lines)
	}
	if again, err := f.CommitSwap(t.Context(), c); err != nil || again[0].Version != after[0].Version || again[1].Version != after[1].Version {
		t.Errorf("the repeat ended with %+v, %v", again, err)
	}
	for _, id := range []string{"s1", metastore.SwapSide("s1", 0), metastore.SwapSide("s1", 1)} {
		if _, err := f.AbortMove(t.Context(), id, "test", ""); !refusedFor(err, metastore.CodeMoveCommitted) {
			t.Errorf("the abort of %s ended with %v", id, err)
		}
	}
	// Later moves of a partition do not change what was done (R6).
	later := f.claimRequest("m2", "b3")
	if _, _, err := f.ClaimMove(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	if _, err := f.CommitSwap(t.Context(), c); err != nil {
		t.Errorf("a late worker was told %v", err)
	}
}

func TestCommitSwapRefusesStaleEvidenceOfEitherSide(t *testing.T) {
	for _, tc := range []struct {
		name, code string
		change     func(f *fixture, c *metastore.Commit)
	}{
		{"another version", metastore.CodeRowMoved, func(_ *fixture, c *metastore.Commit) { c.Version-- }},
		{"another epoch", metastore.CodeRowMoved, func(_ *fixture, c *metastore.Commit) { c.Epoch++ }},
		{"another source", metastore.CodeRowMoved, func(_ *fixture, c *metastore.Commit) { c.From = "b3" }},
		{"a shorter copy", metastore.CodeEndsDiffer, func(_ *fixture, c *metastore.Commit) { c.InstalledEnd-- }},
		{"a copy of another freeze", metastore.CodeEndsDiffer, func(_ *fixture, c *metastore.Commit) { c.InstalledVersion-- }},
		{"other storage", metastore.CodeStorageChanged, func(f *fixture, c *metastore.Commit) { c.ToStorage = f.brokers["b3"].Storage }},
		{"no such move", metastore.CodeUnknownMove, func(_ *fixture, c *metastore.Commit) { c.MoveID = "m9" }},
		{"a restored row", metastore.CodeMetastoreRestored, func(f *fixture, c *metastore.Commit) {
			_, err := f.sql.Exec(f.t.Context(), "UPDATE assignments SET timeline = 9 WHERE topic_id = $1 AND partition = $2", c.TopicID, c.Partition)
			must(f.t, err)
		}},
		{"a topic that was deleted", metastore.CodeMoveEnded, func(f *fixture, c *metastore.Commit) { must(f.t, f.DeleteTopic(f.t.Context(), "", c.TopicID, "test")) }},
	} {
		for side := range 2 {
			t.Run(tc.name+" of side "+string(rune('0'+side)), func(t *testing.T) {
				f := swapFixture(t)
				c := f.swapEvidence("s1", f.claimSwap("s1"))
				tc.change(f, &c.Sides[side])
				lines := f.audits()
				if _, err := f.CommitSwap(t.Context(), c); !refusedFor(err, tc.code) {
					t.Errorf("got %v, want a refusal with %s", err, tc.code)
				}
				if f.audits() != lines {
					t.Errorf("the refused commit left %d lines in the audit", f.audits()-lines)
				}
			})
		}
	}
}

// Whoever names one side ends both; a topic that is deleted, or a side that `portage reconcile` ended, leaves the other free.
func TestAnAbortEndsEverySideThatIsLeft(t *testing.T) {
	for _, tc := range []struct {
		name, abort, outcomes string
		setup                 func(f *fixture)
	}{
		{"the swap", "s1", "aborted aborted", nil},
		{"its first side", metastore.SwapSide("s1", 0), "aborted aborted", nil},
		{"its second side", metastore.SwapSide("s1", 1), "aborted aborted", nil},
		{"after the other topic was deleted", metastore.SwapSide("s1", 0), "aborted aborted", func(f *fixture) { must(f.t, f.DeleteTopic(f.t.Context(), "payments", f.topic.ID, "test")) }},
		{"after the other side was committed alone", metastore.SwapSide("s1", 0), "aborted committed", func(f *fixture) { f.exec("UPDATE moves SET outcome = 'committed' WHERE id = 's1.1'") }},
		{"while the other side waits for reconcile", metastore.SwapSide("s1", 0), "aborted ", func(f *fixture) { f.exec("UPDATE assignments SET timeline = 9 WHERE owner = 'b2'") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := swapFixture(t)
			f.claimSwap("s1")
			if tc.setup != nil {
				tc.setup(f)
			}
			if _, err := f.AbortMove(t.Context(), tc.abort, "test", "no more"); err != nil {
				t.Fatal(err)
			}
			if f.outcomes("s1") != tc.outcomes || f.row().Moving() != "" {
				t.Errorf("the outcomes are %q, the row %+v", f.outcomes("s1"), f.row())
			}
			if _, err := f.AbortMove(t.Context(), tc.abort, "test", "again"); err != nil {
				t.Errorf("the repeat ended with %v", err)
			}
		})
	}
}

func TestExactlyOneOfCommitSwapAndAbortWins(t *testing.T) {
	for range 10 {
		f := swapFixture(t)
		c := f.swapEvidence("s1", f.claimSwap("s1"))
		var commit, abortFirst, abortSecond error
		var group sync.WaitGroup
		group.Go(func() { _, commit = f.CommitSwap(t.Context(), c) })
		group.Go(func() { _, abortFirst = f.AbortMove(t.Context(), metastore.SwapSide("s1", 0), "b1", "") })
		group.Go(func() { _, abortSecond = f.AbortMove(t.Context(), metastore.SwapSide("s1", 1), "b2", "") })
		group.Wait()
		switch {
		case commit == nil && refusedFor(abortFirst, metastore.CodeMoveCommitted) && refusedFor(abortSecond, metastore.CodeMoveCommitted) && f.owners() == "b2 b1":
		case refusedFor(commit, metastore.CodeMoveEnded) && abortFirst == nil && abortSecond == nil && f.owners() == "b1 b2" && f.outcomes("s1") == "aborted aborted":
		default:
			t.Fatalf("commit %v, aborts %v and %v, owners %s", commit, abortFirst, abortSecond, f.owners())
		}
	}
}
