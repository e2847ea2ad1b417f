//go:build portage_faults

package brokeragent_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/internal/faults/faultstest"
)

// A drain that never ends keeps fetching. It may renew the lease, but not for ever.
func TestR22AFreezeEndsHoweverMuchItsDrainGoesOn(t *testing.T) {
	const lease, most = time.Second, 2 * time.Second // a loaded machine still fetches several times a lease
	faultstest.Story(t, "R22", func(t *testing.T) string {
		f := agenttest.New(t)
		b1, b2 := f.Start("b1", native.Limits{FreezeLease: lease, MaxFreeze: most}), f.Start("b2", native.Limits{})
		orders := f.CreateTopic("orders", 1, b1)
		b1.Write(orders, 0, "one")
		m := f.Claim(orders, 0, b2)
		m.Ensure()
		list := agenttest.Must(f.Peers.Listing(t.Context(), b1.URL(), m.Subject()))(t)
		frozen := m.Freeze()

		// The zombie: it fetches the same tail over and over.
		began := time.Now()
		for b1.Partition(orders, 0).State == string(native.StateFrozen) {
			body, _, err := f.Peers.SegmentBytes(t.Context(), b1.URL(), m.Subject(), 0, 0, list.Segments[0].Size)
			if err == nil {
				_, _ = io.Copy(io.Discard, body)
				body.Close()
			}
			if waited := time.Since(began); waited > 2*most {
				return fmt.Sprintf("a drain that does not end has the partition frozen for %s; the limit is %s", waited, most)
			}
		}
		b1.WaitState(orders, 0, native.StateOpen)
		if row := f.Row(orders, 0); row.Moving() != "" || row.Version <= frozen.Version {
			t.Errorf("the partition is open while its row is %+v", row)
		}
		if last := b1.Partition(orders, 0).LastFreeze; last == nil || last.Total < lease {
			t.Errorf("progress has not renewed the lease: %+v", last)
		}
		return ""
	})
}

// Without progress the lease ends by itself: nobody else renews it, not even a repeated freeze.
func TestR22ALeaseIsRenewedByProgressOnly(t *testing.T) {
	f := agenttest.New(t)
	b1, b2 := f.Start("b1", native.Limits{FreezeLease: 300 * time.Millisecond, MaxFreeze: time.Hour}), f.Start("b2", native.Limits{})
	orders := f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one")
	m := f.Claim(orders, 0, b2)
	m.Ensure()
	frozen := m.Freeze()
	again, err := m.TryFreeze(frozen.Version)
	if err == nil && again != frozen {
		t.Errorf("a repeat answers %+v after %+v", again, frozen)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for b1.Partition(orders, 0).State == string(native.StateFrozen) && ctx.Err() == nil {
		_, _ = m.TryFreeze(frozen.Version)
		_, _ = f.Peers.Listing(ctx, b1.URL(), m.Subject())
		_, _ = f.Peers.Look(ctx, b1.URL(), control.LookRequest{Order: m.Order(control.PhaseCutover)})
	}
	b1.WaitState(orders, 0, native.StateOpen)
}

// The tail is so long that draining it would freeze clients beyond the limit.
func TestR22AnExpectedFreezeAboveTheLimitIsRefusedUnlessForced(t *testing.T) {
	faultstest.Story(t, "R22", func(t *testing.T) string {
		f := agenttest.New(t)
		b1, b2 := f.Start("b1", native.Limits{MaxFreeze: 10 * time.Second}), f.Start("b2", native.Limits{})
		orders := f.CreateTopic("orders", 1, b1)
		m := f.Claim(orders, 0, b2)
		m.Ensure()
		req := control.FreezeRequest{Order: m.Order(control.PhaseCutover), Version: f.Row(orders, 0).Version, ExpectedFreeze: 11 * time.Second}
		_, err := f.Peers.Freeze(t.Context(), b1.URL(), req)
		if err == nil {
			return "a freeze that is expected to break the limit was given"
		}
		if control.CodeOf(err) != control.CodeFreezeTooLong {
			t.Errorf("it was refused with %v", err)
		}
		b1.Write(orders, 0, "one")
		req.Force = true
		if _, err := f.Peers.Freeze(t.Context(), b1.URL(), req); err != nil {
			t.Errorf("forced, it was refused with %v", err)
		}
		return ""
	})
}
