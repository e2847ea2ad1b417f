package activities_test

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/testsuite"

	"portage/activities"
	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
	"portage/metastore"
	"portage/workflows/protocol"
)

// swapper runs the activities of one swap against real agents: orders/0 on b1, payments/0 on b2.
type swapper struct {
	*worker
	b1, b2           *agenttest.Agent
	orders, payments *metastore.Topic
	in               protocol.SwapInput
	id               string
	claims           [2]protocol.Claim
	round            int32
}

func newSwapper(t *testing.T, limits native.Limits) *swapper {
	t.Helper()
	f := agenttest.New(t)
	s := &swapper{b1: f.Start("b1", limits), b2: f.Start("b2", limits)}
	s.orders, s.payments = f.CreateTopic("orders", 1, s.b1), f.CreateTopic("payments", 1, s.b2)
	s.b1.Write(s.orders, 0, "o1", "o2")
	s.b2.Write(s.payments, 0, "p1")
	epoch, err := f.Store.HoldController(t.Context(), agenttest.ControllerID)
	if err != nil {
		t.Fatal(err)
	}
	s.worker = &worker{t: t, f: f, moves: &activities.Moves{Store: f.Store, Agents: f.Peers, ControllerID: agenttest.ControllerID, ControllerEpoch: epoch, Logger: slog.New(slog.DiscardHandler)}}
	var suite testsuite.WorkflowTestSuite
	s.env = suite.NewTestActivityEnvironment()
	s.env.RegisterActivity(s.moves)
	zero := int32(0)
	s.in = protocol.SwapInput{A: protocol.SwapPartition{Topic: "orders", Partition: &zero}, B: protocol.SwapPartition{Topic: "payments", Partition: &zero}}
	return s
}

func (s *swapper) claim() {
	s.t.Helper()
	s.id = agenttest.ID()
	s.claims = must[protocol.SwapClaim](s.worker, protocol.ActivitySwapClaim, protocol.SwapClaimArgs{SwapID: s.id, Attempt: 1, Input: s.in}).Sides
}

func (s *swapper) step(i int) protocol.StepArgs {
	return protocol.StepArgs{Claim: s.claims[i], Attempt: 1, Input: s.in.MoveTo(i, s.claims[i].To), Round: s.round, PartOfSwap: true}
}

func (s *swapper) copy() {
	s.t.Helper()
	s.claim()
	for i := range s.claims {
		must[protocol.CopyResult](s.worker, protocol.ActivityEnsure, s.step(i))
		must[protocol.CopyResult](s.worker, protocol.ActivityCopy, s.step(i))
	}
}

func (s *swapper) cutoverArgs() (args protocol.SwapCutoverArgs) {
	for i := range args.Sides {
		args.Sides[i] = protocol.CutoverArgs{StepArgs: s.step(i)}
	}
	return args
}

func (s *swapper) cutover() protocol.SwapEvidence {
	s.t.Helper()
	return must[protocol.SwapEvidence](s.worker, protocol.ActivitySwapCutover, s.cutoverArgs())
}

func (s *swapper) commitArgs(e protocol.SwapEvidence) protocol.SwapCommitArgs {
	args := protocol.SwapCommitArgs{SwapID: s.id}
	for i := range args.Sides {
		args.Sides[i] = protocol.CommitArgs{StepArgs: s.step(i), Evidence: e.Sides[i]}
	}
	return args
}

func (s *swapper) abortArgs(keep bool) protocol.SwapAbortArgs {
	args := protocol.SwapAbortArgs{SwapID: s.id}
	for i := range args.Sides {
		args.Sides[i] = protocol.AbortArgs{StepArgs: s.step(i), Reason: "test", KeepStaging: keep}
	}
	return args
}

// stay says what is wrong with two partitions that are where they were, open, and with all that was written.
func (s *swapper) stay() {
	s.t.Helper()
	s.b1.WaitState(s.orders, 0, native.StateOpen)
	s.b2.WaitState(s.payments, 0, native.StateOpen)
	s.b1.Write(s.orders, 0, "o3")
	s.b2.Write(s.payments, 0, "p2")
	if got := s.b1.Values(s.orders, 0); !slices.Equal(got, []string{"o1", "o2", "o3"}) {
		s.t.Errorf("orders/0 has %q", got)
	}
	if got := s.b2.Values(s.payments, 0); !slices.Equal(got, []string{"p1", "p2"}) {
		s.t.Errorf("payments/0 has %q", got)
	}
}

func TestTheActivitiesOfASwapLetTwoPartitionsChangePlaces(t *testing.T) {
	s := newSwapper(t, native.Limits{})
	s.copy()
	if again := must[protocol.SwapClaim](s.worker, protocol.ActivitySwapClaim, protocol.SwapClaimArgs{SwapID: s.id, Attempt: 1, Input: s.in}); again.Sides != s.claims {
		t.Errorf("the repeated claim is %+v after %+v", again.Sides, s.claims)
	}
	cut := s.cutover()
	again := s.cutover()
	for i, end := range []int64{2, 1} {
		if e := again.Sides[i]; e.Version != cut.Sides[i].Version || e.InstalledEnd != end || e.FrozenEnd != end {
			t.Errorf("the repeated cutover proves %+v after %+v", e, cut.Sides[i])
		}
	}
	for range 2 {
		if done := must[protocol.SwapCommitted](s.worker, protocol.ActivitySwapCommit, s.commitArgs(cut)); done.Epochs != [2]int32{s.claims[0].Epoch + 1, s.claims[1].Epoch + 1} {
			t.Errorf("committed at the epochs %v", done.Epochs)
		}
	}
	if result := must[protocol.AbortResult](s.worker, protocol.ActivitySwapAbort, s.abortArgs(false)); !result.Committed {
		t.Error("a late abort does not say that the swap is committed")
	}
	for i := range s.claims {
		must[protocol.FinishResult](s.worker, protocol.ActivityFinish, protocol.FinishArgs{StepArgs: s.step(i)})
	}
	s.b2.Write(s.orders, 0, "o3")
	s.b1.Write(s.payments, 0, "p2")
	if got := s.b2.Values(s.orders, 0); !slices.Equal(got, []string{"o1", "o2", "o3"}) {
		t.Errorf("orders/0 has %q", got)
	}
	if got := s.b1.Values(s.payments, 0); !slices.Equal(got, []string{"p1", "p2"}) {
		t.Errorf("payments/0 has %q", got)
	}
	if moves, err := s.f.Store.Moves(t.Context(), false, 10); err != nil || len(moves) != 0 {
		t.Errorf("running still are %+v (%v)", moves, err)
	}
	// And back: what was left behind is taken over by digest.
	s.claim()
	for i := range s.claims {
		if ensured := must[protocol.CopyResult](s.worker, protocol.ActivityEnsure, s.step(i)); !ensured.Adopted {
			t.Errorf("side %d of the swap back does not take its former copy over", i)
		}
	}
}

// Whenever a swap is taken back, both partitions stay, and nothing of it is left at either broker.
func TestASwapThatIsTakenBackLeavesNothing(t *testing.T) {
	for name, until := range map[string]func(s *swapper){
		"claimed": func(s *swapper) { s.claim() },
		"copied":  func(s *swapper) { s.copy() },
		"cut over": func(s *swapper) {
			s.copy()
			s.cutover()
		},
		"one side drained": func(s *swapper) {
			s.copy()
			must[protocol.Evidence](s.worker, protocol.ActivityCutover, protocol.CutoverArgs{StepArgs: s.step(0)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSwapper(t, native.Limits{})
			until(s)
			for range 2 {
				if result := must[protocol.AbortResult](s.worker, protocol.ActivitySwapAbort, s.abortArgs(false)); result.Committed {
					t.Error("an aborted swap is said to be committed")
				}
			}
			s.stay()
			for _, b := range []*agenttest.Agent{s.b1, s.b2} {
				agenttest.Eventually(t, "nothing is staged on "+b.ID, func() bool {
					return agenttest.Files(filepath.Join(b.Data, "staging")) == 0 && agenttest.Files(filepath.Join(b.Data, "sessions")) == 0
				})
			}
		})
	}
}

// The worker dies in the cutover: the lease of whichever source is first takes the whole swap back, and the other reopens
// because its row no longer carries it.
func TestALeaseThatEndsTakesTheWholeSwapBack(t *testing.T) {
	s := newSwapper(t, native.Limits{FreezeLease: 300 * time.Millisecond, MaxFreeze: time.Second})
	s.copy()
	cut := s.cutover()
	s.stay()
	if _, err := do[protocol.SwapCommitted](s.worker, protocol.ActivitySwapCommit, s.commitArgs(cut)); kindOf(err) != protocol.ErrMoveLost {
		t.Errorf("the late commit ended with %v", err)
	}
	if _, err := do[protocol.SwapEvidence](s.worker, protocol.ActivitySwapCutover, s.cutoverArgs()); kindOf(err) != protocol.ErrMoveLost {
		t.Errorf("the late cutover ended with %v", err)
	}
	sides, err := s.f.Store.SwapSides(t.Context(), s.id)
	if err != nil || len(sides) != 2 || sides[0].Ended() != metastore.OutcomeAborted || sides[1].Ended() != metastore.OutcomeAborted {
		t.Errorf("the sides are %+v (%v)", sides, err)
	}
}

// One source restarts after both were frozen: what was proved of its side is void, and with it the whole; the other side's
// freeze is answered as before.
func TestASwapFollowsASourceThatRestarted(t *testing.T) {
	s := newSwapper(t, native.Limits{})
	s.copy()
	first := s.cutover()
	s.b2.Restart()
	s.b2.Write(s.payments, 0, "p2")
	if _, err := do[protocol.SwapCommitted](s.worker, protocol.ActivitySwapCommit, s.commitArgs(first)); kindOf(err) != protocol.ErrMoveLost {
		t.Errorf("the commit with a lost freeze ended with %v", err)
	}
	if row := s.f.Row(s.orders, 0); row.Owner != "b1" {
		t.Errorf("half of the swap is done: %+v", row)
	}
	must[protocol.SwapCommitted](s.worker, protocol.ActivitySwapCommit, s.commitArgs(s.cutover()))
	s.b1.WaitState(s.payments, 0, native.StateOpen)
	if got := s.b1.Values(s.payments, 0); !slices.Equal(got, []string{"p1", "p2"}) {
		t.Errorf("payments/0 has %q", got)
	}
}

// Nothing is frozen while the other broker does not answer: it would be frozen in vain.
func TestNothingIsFrozenWhileABrokerIsAway(t *testing.T) {
	s := newSwapper(t, native.Limits{})
	s.copy()
	s.b2.Stop()
	cut := make(chan error, 1)
	go func() {
		_, err := do[protocol.SwapEvidence](s.worker, protocol.ActivitySwapCutover, s.cutoverArgs())
		cut <- err
	}()
	for range 20 {
		s.b1.Write(s.orders, 0, "goes on")
		time.Sleep(10 * time.Millisecond)
	}
	s.b2.Boot()
	s.b2.WaitReady()
	if err := <-cut; err != nil {
		t.Fatal(err)
	}
}

func TestSwapClaimRefusesWithASentence(t *testing.T) {
	s := newSwapper(t, native.Limits{})
	one := s.f.CreateTopic("more", 1, s.b1)
	for _, tc := range []struct {
		what  string
		topic string
	}{{"both on b1", one.Name}, {`no topic "nowhere"`, "nowhere"}} {
		in := s.in
		in.B.Topic = tc.topic
		_, err := do[protocol.SwapClaim](s.worker, protocol.ActivitySwapClaim, protocol.SwapClaimArgs{SwapID: agenttest.ID(), Attempt: 1, Input: in})
		if kindOf(err) != protocol.ErrRefused || !strings.Contains(err.Error(), tc.what) {
			t.Errorf("got %v, want a refusal that says %q", err, tc.what)
		}
	}
	if row := s.f.Row(s.orders, 0); row.Moving() != "" {
		t.Errorf("a refused swap left %+v", row)
	}
}

// An abort that overtakes its claim leaves both ids dead.
func TestAnAbortOfASwapThatOvertakesItsClaim(t *testing.T) {
	s := newSwapper(t, native.Limits{})
	s.id = agenttest.ID()
	for i, side := range s.in.Sides() {
		s.claims[i] = protocol.Claim{MoveID: protocol.SwapSideID(s.id, i), Topic: side.Topic}
	}
	if result := must[protocol.AbortResult](s.worker, protocol.ActivitySwapAbort, s.abortArgs(false)); result.Committed {
		t.Error("committed")
	}
	if _, err := do[protocol.SwapClaim](s.worker, protocol.ActivitySwapClaim, protocol.SwapClaimArgs{SwapID: s.id, Attempt: 1, Input: s.in}); kindOf(err) != protocol.ErrMoveLost {
		t.Errorf("the late claim ended with %v", err)
	}
	if protocol.SwapSideID(s.id, 1) != metastore.SwapSide(s.id, 1) {
		t.Error("workflow and metastore name the sides of a swap differently")
	}
}
