package activities_test

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"portage/activities"
	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
	"portage/metastore"
	"portage/workflows/protocol"
)

// worker runs the activities of one move against real agents, as a worker does, without a workflow.
type worker struct {
	t     *testing.T
	f     *agenttest.Fleet
	moves *activities.Moves
	env   *testsuite.TestActivityEnvironment
	in    protocol.MoveInput
	claim protocol.Claim
}

func newWorker(t *testing.T, f *agenttest.Fleet, topic, to string) *worker {
	t.Helper()
	epoch, err := f.Store.HoldController(t.Context(), agenttest.ControllerID)
	if err != nil {
		t.Fatal(err)
	}
	partition := int32(0)
	w := &worker{t: t, f: f, in: protocol.MoveInput{Topic: topic, Partition: &partition, To: to},
		moves: &activities.Moves{Store: f.Store, Agents: f.Peers, ControllerID: agenttest.ControllerID, ControllerEpoch: epoch, Logger: slog.New(slog.DiscardHandler)}}
	var suite testsuite.WorkflowTestSuite
	w.env = suite.NewTestActivityEnvironment()
	w.env.RegisterActivity(w.moves)
	return w
}

// do runs one activity.
func do[R any](w *worker, name string, args any) (R, error) {
	w.t.Helper()
	var result R
	value, err := w.env.ExecuteActivity(name, args)
	if err == nil {
		err = value.Get(&result)
	}
	return result, err
}

func must[R any](w *worker, name string, args any) R {
	w.t.Helper()
	result, err := do[R](w, name, args)
	if err != nil {
		w.t.Fatalf("%s: %v", name, err)
	}
	return result
}

func (w *worker) claimed() {
	w.t.Helper()
	w.claim = must[protocol.Claim](w, protocol.ActivityClaim, protocol.ClaimArgs{MoveID: agenttest.ID(), Input: w.in})
}

func (w *worker) step() protocol.StepArgs { return protocol.StepArgs{Claim: w.claim, Input: w.in} }

func kindOf(err error) string {
	var failure *temporal.ApplicationError
	if errors.As(err, &failure) {
		return failure.Type()
	}
	return ""
}

func TestTheActivitiesOfAMoveCarryAPartition(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one", "two")
	w := newWorker(t, f, "orders", "b2")
	w.claimed()
	if again := must[protocol.Claim](w, protocol.ActivityClaim, protocol.ClaimArgs{MoveID: w.claim.MoveID, Input: w.in}); again != w.claim {
		t.Errorf("the repeated claim is %+v after %+v", again, w.claim)
	}
	must[protocol.CopyResult](w, protocol.ActivityEnsure, w.step())
	copied := must[protocol.CopyResult](w, protocol.ActivityCopy, w.step())
	if !copied.Converged || copied.BytesTotal == 0 {
		t.Errorf("copied %+v", copied)
	}
	cut := must[protocol.Evidence](w, protocol.ActivityCutover, protocol.CutoverArgs{StepArgs: w.step(), ExpectedFreeze: copied.ExpectedFreeze})
	if again := must[protocol.Evidence](w, protocol.ActivityCutover, protocol.CutoverArgs{StepArgs: w.step()}); again.Version != cut.Version || again.InstalledEnd != 2 || again.FrozenEnd != 2 {
		t.Errorf("the repeated cutover proves %+v after %+v", again, cut)
	}
	for range 2 {
		if epoch := must[int32](w, protocol.ActivityCommit, protocol.CommitArgs{StepArgs: w.step(), Evidence: cut}); epoch != w.claim.Epoch+1 {
			t.Errorf("committed at epoch %d", epoch)
		}
	}
	if result := must[protocol.AbortResult](w, protocol.ActivityAbort, protocol.AbortArgs{StepArgs: w.step(), Reason: "too late"}); !result.Committed {
		t.Error("a late abort does not say that the move is committed")
	}
	must[protocol.FinishResult](w, protocol.ActivityFinish, protocol.FinishArgs{StepArgs: w.step(), Copy: copied})
	if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one", "two"}) {
		t.Errorf("the new owner has %q", values)
	}
	if moves, err := f.Store.Moves(t.Context(), false, 10); err != nil || len(moves) != 0 {
		t.Errorf("running still are %+v (%v)", moves, err)
	}
}

func TestClaimRefusesWithASentence(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	f.CreateTopic("orders", 1, b1)
	f.CreateTopic("__internal", 1, b1)
	seven := int32(7)
	for _, tc := range []struct {
		what   string
		change func(w *worker)
	}{
		{`no topic "nowhere"`, func(w *worker) { w.in.Topic = "nowhere" }},
		{"internal", func(w *worker) { w.in.Topic = "__internal" }},
		{"there is no 7", func(w *worker) { w.in.Partition = &seven }},
		{`no broker "b9"`, func(w *worker) { w.in.To = "b9" }},
		{"already on b1", func(w *worker) { w.in.To = "b1" }},
	} {
		w := newWorker(t, f, "orders", "b2")
		tc.change(w)
		_, err := do[protocol.Claim](w, protocol.ActivityClaim, protocol.ClaimArgs{MoveID: agenttest.ID(), Input: w.in})
		if kindOf(err) != protocol.ErrRefused || !strings.Contains(err.Error(), tc.what) {
			t.Errorf("got %v, want a refusal that says %q", err, tc.what)
		}
	}
	b2.Stop()
	w := newWorker(t, f, "orders", "b2")
	if _, err := do[protocol.Claim](w, protocol.ActivityClaim, protocol.ClaimArgs{MoveID: agenttest.ID(), Input: w.in}); kindOf(err) != protocol.ErrRefused || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("a dead destination: %v", err)
	}
	if row, err := f.Store.FindAssignment(t.Context(), "orders", 0); err != nil || row.Moving() != "" {
		t.Errorf("a refused claim left %+v (%v)", row, err)
	}
}

// A move that starts over finds its destination away: it was there when the move began, so it is waited for.
func TestALaterClaimWaitsForItsDestination(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	f.CreateTopic("orders", 1, b1)
	b2.Stop()
	w := newWorker(t, f, "orders", "b2")
	type answer struct {
		claim protocol.Claim
		err   error
	}
	claimed := make(chan answer, 1)
	go func() {
		claim, err := do[protocol.Claim](w, protocol.ActivityClaim, protocol.ClaimArgs{MoveID: agenttest.ID(), Attempt: 2, Input: w.in})
		claimed <- answer{claim, err}
	}()
	b2.Boot()
	b2.WaitReady()
	if got := <-claimed; got.err != nil || got.claim.To != "b2" {
		t.Fatalf("the claim ended as %+v, %v", got.claim, got.err)
	}
}

// A move of a plan begins once the fleet has a place for it, whoever has the place. Until then nothing else speaks against it: its
// destination may be away meanwhile.
func TestAClaimWaitsForAPlaceInTheFleet(t *testing.T) {
	f, b1, b2, _ := agenttest.Pair(t)
	f.CreateTopic("payments", 1, b1)
	first := newWorker(t, f, "payments", "b2") // a person's
	first.claimed()
	one := 1
	if err := f.Store.SavePlan(t.Context(), metastore.Plan{ID: "plan", Hash: "hash", Body: []byte("{}"), MaxInFlight: &one}); err != nil {
		t.Fatal(err)
	}
	args := protocol.ClaimArgs{MoveID: agenttest.ID(), Attempt: 1}
	waits := func(what string) {
		t.Helper()
		w := newWorker(t, f, "orders", "b2")
		w.in.Plan = "plan"
		args.Input = w.in
		stopping := make(chan struct{})
		close(stopping) // it ends at its first pause
		w.env.SetWorkerStopChannel(stopping)
		if claim, err := do[protocol.Claim](w, protocol.ActivityClaim, args); kindOf(err) != "WorkerStopping" {
			t.Errorf("%s: the claim does not wait: %+v, %v", what, claim, err)
		}
	}
	waits("a person's move is in flight")
	b2.Stop()
	waits("its destination is away, too")
	b2.Boot()
	b2.WaitReady()
	if _, err := f.Store.AbortMove(t.Context(), first.claim.MoveID, "test", ""); err != nil {
		t.Fatal(err)
	}
	w := newWorker(t, f, "orders", "b2")
	if claim, err := do[protocol.Claim](w, protocol.ActivityClaim, args); err != nil || claim.To != "b2" {
		t.Errorf("there is a place: %+v, %v", claim, err)
	}
}

// The source restarts under a claim, at another address: the cutover reads the row again and freezes anew.
func TestCutoverFollowsASourceThatRestarted(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	w := newWorker(t, f, "orders", "b2")
	w.claimed()
	must[protocol.CopyResult](w, protocol.ActivityEnsure, w.step())
	must[protocol.CopyResult](w, protocol.ActivityCopy, w.step())
	first := must[protocol.Evidence](w, protocol.ActivityCutover, protocol.CutoverArgs{StepArgs: w.step()})
	b1.Restart()
	b1.Write(orders, 0, "two")
	if _, err := do[int32](w, protocol.ActivityCommit, protocol.CommitArgs{StepArgs: w.step(), Evidence: first}); kindOf(err) != protocol.ErrMoveLost {
		t.Errorf("the commit of a freeze that died with its process ended with %v", err)
	}
	second := must[protocol.Evidence](w, protocol.ActivityCutover, protocol.CutoverArgs{StepArgs: w.step()})
	must[int32](w, protocol.ActivityCommit, protocol.CommitArgs{StepArgs: w.step(), Evidence: second})
	b2.WaitState(orders, 0, native.StateOpen)
	if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one", "two"}) {
		t.Errorf("the new owner has %q", values)
	}
}

// The source goes away in the middle of a copy and comes back at another address: the copy finds it.
func TestCopyFindsASourceThatCameBackElsewhere(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	w := newWorker(t, f, "orders", "b2")
	w.claimed()
	must[protocol.CopyResult](w, protocol.ActivityEnsure, w.step())
	b1.Stop()
	copied := make(chan error, 1)
	go func() {
		_, err := do[protocol.CopyResult](w, protocol.ActivityCopy, w.step())
		copied <- err
	}()
	agenttest.Eventually(t, "the copy waits for its source", func() bool {
		s, err := f.Peers.Session(t.Context(), b2.URL(), w.claim.MoveID, 0, 0)
		return err == nil && s.Blocked == "source_unreachable"
	})
	b1.Boot()
	b1.WaitReady()
	select {
	case err := <-copied:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the copy waits for its source at an address that it has left")
	}
}

// The claim is ended by another hand: every later step says so, and none does harm.
func TestStepsOfALostClaimSayThatItIsLost(t *testing.T) {
	f := agenttest.New(t)
	b1, _ := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	w := newWorker(t, f, "orders", "b2")
	w.claimed()
	must[protocol.CopyResult](w, protocol.ActivityEnsure, w.step())
	must[protocol.CopyResult](w, protocol.ActivityCopy, w.step())
	cut := must[protocol.Evidence](w, protocol.ActivityCutover, protocol.CutoverArgs{StepArgs: w.step()})
	for range 2 {
		if result := must[protocol.AbortResult](w, protocol.ActivityAbort, protocol.AbortArgs{StepArgs: w.step(), Reason: "test", KeepStaging: true}); result.Committed {
			t.Error("an aborted move is said to be committed")
		}
	}
	b1.Write(orders, 0, "two")
	for name, args := range map[string]any{
		protocol.ActivityEnsure:  w.step(),
		protocol.ActivityCutover: protocol.CutoverArgs{StepArgs: w.step()},
		protocol.ActivityCommit:  protocol.CommitArgs{StepArgs: w.step(), Evidence: cut},
		protocol.ActivityClaim:   protocol.ClaimArgs{MoveID: w.claim.MoveID, Input: w.in},
	} {
		if _, err := do[any](w, name, args); kindOf(err) != protocol.ErrMoveLost {
			t.Errorf("%s of an aborted move ended with %v", name, err)
		}
	}
	b1.Write(orders, 0, "three")
	if row := f.Row(orders, 0); row.Owner != "b1" || row.Moving() != "" {
		t.Errorf("the row is %+v", row)
	}
}

// An abort of a move that never came to its claim leaves the id dead, so that a claim that is still on its way is refused.
func TestAbortWithoutAClaimBuriesTheID(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	w := newWorker(t, f, "orders", "b2")
	w.claim = protocol.Claim{MoveID: agenttest.ID(), Topic: "orders", To: "b2"}
	if result := must[protocol.AbortResult](w, protocol.ActivityAbort, protocol.AbortArgs{StepArgs: w.step(), Reason: "test"}); result.Committed {
		t.Error("committed")
	}
	if _, err := f.TryClaim(w.claim.MoveID, orders, 0, b2); err == nil {
		t.Error("the late claim stands")
	} else if _, ok := metastore.RefusedWith(err, metastore.CodeMoveEnded); !ok {
		t.Error(err)
	}
}

// R1: the commit was acknowledged by a Postgres that is lost, neither broker had seen it, and reconcile ended the move. Its
// last step says so: it neither waits for ever nor takes the other owner for a later move's.
func TestFinishSaysThatTheCommitWasLost(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	w := newWorker(t, f, "orders", "b2")
	w.claimed()
	must[protocol.CopyResult](w, protocol.ActivityEnsure, w.step())
	copied := must[protocol.CopyResult](w, protocol.ActivityCopy, w.step())
	cut := must[protocol.Evidence](w, protocol.ActivityCutover, protocol.CutoverArgs{StepArgs: w.step(), ExpectedFreeze: copied.ExpectedFreeze})
	before := f.Row(orders, 0)
	b1.Stop()
	b2.Stop()
	must[int32](w, protocol.ActivityCommit, protocol.CommitArgs{StepArgs: w.step(), Evidence: cut})
	f.Exec("UPDATE moves SET outcome = NULL, phase = 'cutover', commit_epoch = NULL, ended_at = NULL WHERE id = $1", w.claim.MoveID)
	f.Exec("UPDATE assignments SET owner = $2, owner_storage = $3, epoch = $4, version = $5, target = $6, target_storage = $7, move_id = $8, timeline = 0 WHERE topic_id = $1",
		orders.ID, before.Owner, before.OwnerStorage, before.Epoch, before.Version, before.Target, before.TargetStorage, before.MoveID)
	expect, row := metastore.HeldOf(before), *before
	row.Version++
	if _, err := f.Store.ReconcileRow(t.Context(), metastore.Reconciled{Row: row, Expect: &expect, By: "test", Reason: "no agent holds a newer row"}); err != nil {
		t.Fatal(err)
	}
	b1.Boot()
	b2.Boot()
	b1.WaitState(orders, 0, native.StateOpen)
	b2.WaitReady()
	_, err := do[protocol.FinishResult](w, protocol.ActivityFinish, protocol.FinishArgs{StepArgs: w.step(), Copy: copied})
	if kindOf(err) != protocol.ErrRefused || !strings.Contains(err.Error(), "lost with the metastore") {
		t.Errorf("the last step ended with %v", err)
	}
	if values := b1.Values(orders, 0); !slices.Equal(values, []string{"one"}) {
		t.Errorf("the source has %q", values)
	}
}

// The destination is lost right after the flip and never comes back. Its move ends once the partition was rescued, and not before.
func TestFinishEndsWhenThePartitionWasRescuedFromItsDestination(t *testing.T) {
	for _, how := range []string{"promoted elsewhere", "topic deleted"} {
		t.Run(how, func(t *testing.T) {
			f := agenttest.New(t)
			b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
			orders := f.CreateTopic("orders", 1, b1)
			b1.Write(orders, 0, "one")
			w := newWorker(t, f, "orders", "b2")
			w.claimed()
			must[protocol.CopyResult](w, protocol.ActivityEnsure, w.step())
			copied := must[protocol.CopyResult](w, protocol.ActivityCopy, w.step())
			cut := must[protocol.Evidence](w, protocol.ActivityCutover, protocol.CutoverArgs{StepArgs: w.step(), ExpectedFreeze: copied.ExpectedFreeze})
			b2.Stop()
			must[int32](w, protocol.ActivityCommit, protocol.CommitArgs{StepArgs: w.step(), Evidence: cut})
			if early, err := w.moves.WentOn(t.Context(), w.claim, errors.New("silence")); err == nil {
				t.Errorf("the move would end as %+v while its destination may come back", early)
			}
			if how == "topic deleted" {
				f.Exec("DELETE FROM topics WHERE id = $1", orders.ID)
			} else {
				row := f.Row(orders, 0)
				owner, err := f.Store.FindBroker(t.Context(), "b2")
				if err != nil {
					t.Fatal(err)
				}
				if _, _, err := f.Store.PromoteCopy(t.Context(), metastore.CopyPromotion{ID: agenttest.ID(), TopicID: orders.ID, Owner: "b2", Epoch: row.Epoch, Version: row.Version,
					Broker: "b1", Heartbeat: owner.Heartbeat, By: "me", Reason: "b2 burnt down"}); err != nil {
					t.Fatal(err)
				}
			}
			result := must[protocol.FinishResult](w, protocol.ActivityFinish, protocol.FinishArgs{StepArgs: w.step(), Copy: copied})
			if result.WentOn == "" || (result.Owner == "b1") != (how == "promoted elsewhere") {
				t.Errorf("it ended as %+v", result)
			}
			if moves, err := f.Store.Moves(t.Context(), false, 10); err != nil || len(moves) != 0 {
				t.Errorf("running still are %+v (%v)", moves, err)
			}
		})
	}
}
