//go:build portage_faults

package brokeragent_test

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/metastore"
)

// The tests of this file are named after holes that a review found in two systems which move partitions (HN and HM). Each
// shows that Portage does not have the hole; where a safety rule closes it, that rule's own tests tell the story twice.

// HN1: the reply of a committed flip is lost, the worker takes it for a rejection and deletes the installed copy.
func TestHN1ALostReplyOfTheCommitDeletesNothing(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one", "two")
	m := f.Copied(orders, 0, b2)
	frozen, drained := m.Cutover()
	m.Commit(frozen, drained) // and nobody hears of it: a worker that compensates asks for this
	if _, err := f.Store.AbortMove(t.Context(), m.ID, "worker", "the commit was not answered"); !refusedWith(err, metastore.CodeMoveCommitted) {
		t.Errorf("the abort of a committed move ended with %v", err)
	}
	err := f.Peers.Abandon(t.Context(), b2.URL(), control.AbandonRequest{Order: m.Order(control.PhaseAbort)})
	if err == nil {
		t.Error("the destination drops the copy of a committed move")
	}
	b2.WaitState(orders, 0, native.StateOpen)
	if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one", "two"}) {
		t.Errorf("the new owner has %q", values)
	}
	if again := m.Commit(frozen, drained); again.Owner != "b2" {
		t.Errorf("the repeated commit answers %+v", again)
	}
}

// HN2: after one flip that failed for a moment, the session believes something else than the disk, and never succeeds.
func TestHN2ACommitThatFailedForAMomentIsRepeated(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one")
	m := f.Copied(orders, 0, b2)
	// The source restarts behind a drained copy, so the flip prepared with it is refused, and everything is done again by
	// the same session, twice over.
	for range 2 {
		frozen, drained := m.Cutover()
		b1.Restart()
		if _, err := m.TryCommit(frozen, drained); !refusedWith(err, metastore.CodeRowMoved) {
			t.Fatalf("the commit over a dead freeze ended with %v", err)
		}
		m.Attempt++
	}
	frozen := m.Freeze()
	m.Commit(frozen, m.Drain(frozen))
	m.Confirm()
	if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one"}) {
		t.Errorf("the new owner has %q", values)
	}
}

// HN3: the freeze is checked before the produce lock, so a record is confirmed behind the frozen end.
func TestHN3NothingIsConfirmedBehindTheFrozenEnd(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	m := f.Claim(orders, 0, b2)
	m.Ensure()
	var mu sync.Mutex
	confirmed := int64(-1)
	var writers sync.WaitGroup
	for range 8 {
		conn := b1.Dial()
		writers.Go(func() {
			for {
				resp := agenttest.Produced(conn.Ask(agenttest.ProduceRequest(orders, 0, agenttest.Record("x"))))
				if resp.ErrorCode != 0 {
					return // parked past its bound, or sent on: the freeze has begun
				}
				mu.Lock()
				confirmed = max(confirmed, resp.BaseOffset)
				mu.Unlock()
			}
		})
	}
	agenttest.Eventually(t, "records are confirmed", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return confirmed > 100
	})
	m.Copy()
	frozen := m.Freeze()
	m.Commit(frozen, m.Drain(frozen))
	writers.Wait()
	if confirmed >= frozen.FrozenEnd {
		t.Errorf("offset %d was confirmed and the log was frozen at %d", confirmed, frozen.FrozenEnd)
	}
	b2.WaitState(orders, 0, native.StateOpen)
	if have := int64(len(b2.Values(orders, 0))); have <= confirmed {
		t.Errorf("%d records are there, offset %d was confirmed", have, confirmed)
	}
}

// HN4: under the freeze the whole copy is read again, so the frozen time grows with the partition.
func TestHN4AFreezeReadsNothingThatGrowsWithThePartition(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	const records, size = 64, 1 << 19
	large := strings.Repeat("x", size)
	for range records {
		b1.Write(orders, 0, large)
	}
	m := f.Copied(orders, 0, b2)
	before := readBytes(t)
	frozen, drained := m.Cutover()
	read := readBytes(t) - before
	if read > records*size/8 {
		t.Errorf("between freeze and install %d bytes were read of a partition of %d", read, records*size)
	}
	m.Commit(frozen, drained)
	m.Confirm()
}

// readBytes is what this process has read by system calls, from files and sockets.
func readBytes(t *testing.T) int64 {
	t.Helper()
	io, err := os.Open("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	defer io.Close()
	for lines := bufio.NewScanner(io); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "rchar: "); ok {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the kernel does not count what is read")
	return 0
}

// HN5: the freeze is memory of one process and no part of the flip, so a flip passes over a freeze that is gone.
func TestHN5AFlipDoesNotPassOverAFreezeThatIsGone(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{FreezeLease: 200 * time.Millisecond}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 2, b1)
	for _, gone := range []struct {
		partition int32
		how       string
		end       func()
		code      string
	}{
		{0, "by its lease", func() {}, metastore.CodeMoveEnded},
		{1, "with its process", func() { b1.Restart() }, metastore.CodeRowMoved},
	} {
		b1.Write(orders, gone.partition, "one")
		if gone.code == metastore.CodeRowMoved {
			b1.Config.Limits.FreezeLease = time.Minute
			b1.Restart()
		}
		m := f.Claim(orders, gone.partition, b2)
		m.Ensure()
		m.Copy()
		frozen, drained := m.Cutover()
		gone.end()
		b1.WaitState(orders, gone.partition, native.StateOpen)
		b1.Write(orders, gone.partition, "two")
		if _, err := m.TryCommit(frozen, drained); !refusedWith(err, gone.code) {
			t.Errorf("a flip over a freeze that ended %s: %v", gone.how, err)
		}
	}
}

// HN7: what the copy knows of its source is lost when the destination restarts, so a dead source can never be replaced.
func TestHN7ARestartedDestinationStillKnowsWhatItsSourceHad(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one", "two")
	m := f.Copied(orders, 0, b2)
	b1.Stop()
	b2.Restart()
	if _, err := m.TryPromote(m.Heartbeat()); err != nil {
		t.Fatal(err)
	}
	b2.WaitState(orders, 0, native.StateOpen)
	if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one", "two"}) {
		t.Errorf("the new owner has %q", values)
	}
}

// HN8: nothing ever takes a move back whose destination is dead; it keeps its claim for ever.
func TestHN8AMoveToADeadDestinationIsTakenBack(t *testing.T) {
	f := agenttest.New(t)
	b1, b2, b3 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{}), f.Start("b3", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	m := f.Copied(orders, 0, b2)
	b2.Stop()
	if _, err := f.Store.AbortMove(t.Context(), m.ID, "operator", "b2 is dead"); err != nil {
		t.Fatal(err)
	}
	f.Move(orders, 0, b3)
	if values := b3.Values(orders, 0); !slices.Equal(values, []string{"one"}) {
		t.Errorf("the new owner has %q", values)
	}
	b2.Boot()
	b2.WaitReady()
	agenttest.Eventually(t, "the destination has put its copy away", func() bool {
		status, err := f.Peers.Status(t.Context(), b2.URL())
		return err == nil && len(status.Moves) == 0 && status.ReservedBytes == 0
	})
}

// HN9: a source that is cut off from the metastore but not from its clients goes on confirming records; a promotion discards
// them, and when it returns they are deleted although its disk survived. Here it fences itself before the promotion, and
// whatever it has that the new owner lacks is kept.
func TestHN9ASourceThatIsCutOffLosesNothingItConfirmed(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{PromoteFence: fence, ParkFor: 20 * time.Millisecond}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	m := f.ClaimAuto(orders, 0, b2, 2*fence)
	m.Ensure()
	m.Copy()
	b1.Metastore.Cut()
	counter := m.Heartbeat()
	b1.Write(orders, 0, "two") // its clients still reach it, and for a while it may confirm
	agenttest.Eventually(t, "the source fences itself", func() bool {
		code, _ := b1.Produce(orders, 0, agenttest.Record("three"))
		return code == kerr.NotLeaderForPartition.Code
	})
	// The copy has not seen the second record, and nobody who decides knows of it.
	if _, err := m.TryPromote(counter); err != nil {
		t.Fatal(err)
	}
	b2.WaitState(orders, 0, native.StateOpen)
	b2.Write(orders, 0, "after")
	b1.Metastore.Mend()
	agenttest.Eventually(t, "what only the source has is in quarantine", func() bool {
		kept := keptBy(t, f, b1)
		return len(kept) == 1 && kept[0].Quarantined && kept[0].Records > 0
	})
}

// HN12: a limit of 0 is said to switch copies off, and quietly means the default.
func TestHN12ALimitOfZeroCopiesNothing(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	b2.Config.MaxTransfers = 0
	b2.Restart()
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	m := f.Claim(orders, 0, b2)
	m.Ensure()
	m.StartCopy()
	status := m.Session(0)
	for status.Blocked == "" && status.Error == nil && status.State != control.CopyReady {
		status = m.Session(status.Seq)
	}
	if status.Blocked != control.CodeTransferLimit || status.CopiedBytes != 0 {
		t.Errorf("with a limit of 0 the copy is %+v", status)
	}
	m.Abort(false)
	b2.Config.MaxTransfers = 1
	b2.Restart()
	f.Move(orders, 0, b2)
}

// HM1: after the flip, records are appended at the destination while the older tail still drains.
func TestHM1TheDestinationAppendsNothingBeforeTheFlip(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{ParkFor: 50 * time.Millisecond})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one", "two")
	m := f.Copied(orders, 0, b2)
	refused := func(when string) {
		t.Helper()
		if code, _ := b2.Produce(orders, 0, agenttest.Record("early")); code != kerr.NotLeaderForPartition.Code && code != kerr.RequestTimedOut.Code {
			t.Errorf("%s the destination answers a produce with %d", when, code)
		}
	}
	refused("during the copy")
	frozen := m.Freeze()
	refused("under the freeze")
	drained := m.Drain(frozen)
	refused("with the copy installed")
	m.Commit(frozen, drained)
	b2.WaitState(orders, 0, native.StateOpen)
	if offset := b2.Write(orders, 0, "three"); offset != frozen.FrozenEnd {
		t.Errorf("the first record at the new owner is at %d, the old owner ended at %d", offset, frozen.FrozenEnd)
	}
	if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one", "two", "three"}) {
		t.Errorf("the new owner has %q", values)
	}
}

// HM2: what a failed copy left at the destination refuses every retry.
func TestHM2WhatAFailedMoveLeftDoesNotRefuseTheNext(t *testing.T) {
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprintf("kept %v", keep), func(t *testing.T) {
			f, b1, b2, orders := agenttest.Pair(t)
			b1.Write(orders, 0, "one")
			for _, far := range []func(*agenttest.Move){
				func(m *agenttest.Move) {},
				func(m *agenttest.Move) { m.Copy() },
				func(m *agenttest.Move) { m.Copy(); m.Drain(m.Freeze()) },
			} {
				m := f.Claim(orders, 0, b2)
				m.Ensure()
				far(m)
				m.Abort(keep)
				b1.WaitState(orders, 0, native.StateOpen)
			}
			f.Move(orders, 0, b2)
			if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one"}) {
				t.Errorf("the new owner has %q", values)
			}
		})
	}
}

// HM3: an append that timed out and was applied all the same is applied again by its retry.
func TestHM3StepsThatAreRepeatedCopyNothingTwice(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one", "two", "three")
	m := f.Claim(orders, 0, b2)
	for _, step := range []func(){func() { m.Ensure() }, func() { m.Copy() }} {
		for range 3 {
			m.Attempt++
			step()
		}
	}
	frozen := m.Freeze()
	first := m.Drain(frozen)
	m.Attempt++
	if again := m.Drain(frozen); again.InstalledEnd != first.InstalledEnd {
		t.Errorf("a repeated drain ends at %d after %d", again.InstalledEnd, first.InstalledEnd)
	}
	m.Commit(frozen, first)
	m.Confirm()
	if values := b2.Values(orders, 0); !slices.Equal(values, []string{"one", "two", "three"}) {
		t.Errorf("the new owner has %q", values)
	}
}

// HM4: a rollback does not look at whether its own write was kept, and serves on a guess.
func TestHM4ARollbackThatIsNotAcknowledgedThawsNothing(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{FreezeLease: 200 * time.Millisecond, ParkFor: 20 * time.Millisecond}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	m := f.Copied(orders, 0, b2)
	m.Freeze()
	b1.Metastore.Cut() // the lease ends, and the write that takes the move back is not answered
	agenttest.Eventually(t, "clients are sent to look for a leader", func() bool {
		code, _ := b1.Produce(orders, 0, agenttest.Record("two"))
		return code == kerr.NotLeaderForPartition.Code
	})
	if state := b1.Partition(orders, 0).State; state != string(native.StateFrozen) {
		t.Errorf("without an acknowledged abort the partition is %s", state)
	}
	b1.Metastore.Mend()
	b1.WaitState(orders, 0, native.StateOpen)
	if offset := b1.Write(orders, 0, "two"); offset != 1 {
		t.Errorf("the next record is at %d: a refused one was appended", offset)
	}
}

// HM5: only moves whose source is the controller's own broker can be carried out. Here whoever holds the controller epoch
// moves any partition between any two brokers.
func TestHM5AControllerMovesWhatIsNotItsOwn(t *testing.T) {
	f := agenttest.New(t)
	b1, b2, b3 := f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{}), f.Start("b3", native.Limits{})
	orders := f.CreateTopic("orders", 1, b2)
	b2.Write(orders, 0, "one")
	for _, to := range []*agenttest.Agent{b3, b1, b2} {
		f.Move(orders, 0, to)
		if values := to.Values(orders, 0); !slices.Equal(values, []string{"one"}) {
			t.Errorf("%s has %q", to.ID, values)
		}
	}
}
