//go:build portage_faults

package brokeragent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portage/brokeragent/agenttest"
	"portage/brokeragent/control"
	"portage/brokeragent/native"
	"portage/internal/faults/faultstest"
	"portage/metastore"
)

// keptBy is what an agent keeps beside its partitions.
func keptBy(t *testing.T, f *agenttest.Fleet, a *agenttest.Agent) []control.RetainedCopy {
	t.Helper()
	return agenttest.Must(f.Peers.Retained(t.Context(), a.URL()))(t).Copies
}

// promotedOver leaves b1 with records that b2, which was promoted over it, does not have, and starts b1 again.
func promotedOver(t *testing.T) (f *agenttest.Fleet, b1, b2 *agenttest.Agent, orders *metastore.Topic) {
	t.Helper()
	f = agenttest.New(t)
	b1, b2 = f.Start("b1", native.Limits{}), f.Start("b2", native.Limits{})
	orders = f.CreateTopic("orders", 1, b1)
	b1.Write(orders, 0, "one", "two")
	m := f.Copied(orders, 0, b2)
	b1.Write(orders, 0, "three", "four") // confirmed, and never seen by the copy
	b1.Stop()
	f.Exec("DELETE FROM load_reports") // nor reported
	if _, err := m.TryPromote(m.Heartbeat()); err != nil {
		t.Fatal(err)
	}
	b2.WaitState(orders, 0, native.StateOpen)
	b2.Write(orders, 0, "five", "six", "seven")
	b1.Boot()
	b1.WaitReady()
	return f, b1, b2, orders
}

// The former owner comes back with records that nobody else has. Its copy must not go the way of ordinary trash.
func TestR29AFormerOwnerWithRecordsOfItsOwnIsQuarantined(t *testing.T) {
	faultstest.Story(t, "R29", func(t *testing.T) string {
		f, b1, _, _ := promotedOver(t)
		agenttest.Eventually(t, "the copy is judged", func() bool {
			all := keptBy(t, f, b1)
			return len(all) == 1 && (all[0].Quarantined || all[0].Judged)
		})
		if _, err := f.Peers.PurgeTrash(t.Context(), b1.URL()); err != nil {
			t.Fatal(err)
		}
		all := keptBy(t, f, b1)
		if len(all) == 0 {
			return "two confirmed records were deleted with the former owner's copy"
		}
		c := all[0]
		if !c.Quarantined || c.Divergence != 2 || c.Records != 2 || c.End != 4 {
			t.Errorf("kept is %+v", c)
		}
		status := agenttest.Must(f.Peers.Status(t.Context(), b1.URL()))(t)
		if status.Quarantined != 1 || status.QuarantinedRecs != 2 {
			t.Errorf("the status says %d copies, %d records", status.Quarantined, status.QuarantinedRecs)
		}
		return ""
	})
}

// What is in quarantine can be read out, record by record, and deleted only by whoever accepts the loss.
func TestR29QuarantinedRecordsAreExported(t *testing.T) {
	f, b1, _, _ := promotedOver(t)
	agenttest.Eventually(t, "the copy is in quarantine", func() bool { all := keptBy(t, f, b1); return len(all) == 1 && all[0].Quarantined })
	id := keptBy(t, f, b1)[0].ID
	body := agenttest.Must(f.Peers.ExportQuarantine(t.Context(), b1.URL(), id))(t)
	defer body.Close()
	var got []string
	for lines := bufio.NewScanner(body); lines.Scan(); {
		var r control.ExportedRecord
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		got = append(got, fmt.Sprintf("%d=%s", r.Offset, r.Value))
	}
	if !slices.Equal(got, []string{"2=three", "3=four"}) {
		t.Errorf("exported are %q", got)
	}
	if err := f.Peers.PurgeQuarantine(t.Context(), b1.URL(), control.QuarantinePurge{ID: id}); control.CodeOf(err) != control.CodeBadRequest {
		t.Errorf("a purge that accepts nothing: %v", err)
	}
	if err := f.Peers.PurgeQuarantine(t.Context(), b1.URL(), control.QuarantinePurge{ID: "../partitions", AcceptLoss: true}); control.CodeOf(err) != control.CodeNotFound {
		t.Errorf("a purge of something else: %v", err)
	}
	if err := f.Peers.PurgeQuarantine(t.Context(), b1.URL(), control.QuarantinePurge{ID: id, AcceptLoss: true}); err != nil || len(keptBy(t, f, b1)) != 0 {
		t.Errorf("after the purge: %v, %+v", err, keptBy(t, f, b1))
	}
}

// A move back to the former owner does not take over what the present owner never had.
func TestR29ADivergedCopyIsNotAdopted(t *testing.T) {
	f, b1, b2, orders := promotedOver(t)
	m := f.Claim(orders, 0, b1)
	if answer := m.Ensure(); answer.Adopted {
		t.Error("it was taken over")
	}
	m.Copy()
	frozen := m.Freeze()
	m.Commit(frozen, m.Drain(frozen))
	m.Confirm()
	if values := b1.Values(orders, 0); !slices.Equal(values, []string{"one", "two", "five", "six", "seven"}) {
		t.Errorf("the new owner has %q", values)
	}
	if all := keptBy(t, f, b1); len(all) != 1 || !all[0].Quarantined {
		t.Errorf("kept are %+v", all)
	}
	_ = b2
}

// Each gate of the sweep, failing alone, keeps the copy; with all of them open it goes.
func TestR29EachGateOfTheSweepKeepsTheCopyAlone(t *testing.T) {
	for _, gate := range []struct {
		name, says string
		shut       func(t *testing.T, f *agenttest.Fleet, b1, b2 *agenttest.Agent, orders *metastore.Topic)
	}{
		{"none", "", nil},
		{"the row can not be read", "metastore", func(_ *testing.T, _ *agenttest.Fleet, b1, _ *agenttest.Agent, _ *metastore.Topic) { b1.Metastore.Cut() }},
		{"the partition moves", "moving", func(_ *testing.T, f *agenttest.Fleet, b1, _ *agenttest.Agent, orders *metastore.Topic) {
			f.Claim(orders, 0, b1)
		}},
		{"an operator keeps it", "keeps it", func(t *testing.T, f *agenttest.Fleet, b1, _ *agenttest.Agent, _ *metastore.Topic) {
			if err := f.Peers.HoldTrash(t.Context(), b1.URL(), control.HoldRequest{ID: keptBy(t, f, b1)[0].ID, Hold: true}); err != nil {
				t.Fatal(err)
			}
		}},
		{"the owner does not answer", "did not answer", func(_ *testing.T, _ *agenttest.Fleet, _, b2 *agenttest.Agent, _ *metastore.Topic) { b2.Stop() }},
		{"its end is not known", "end is not known", func(t *testing.T, f *agenttest.Fleet, b1, _ *agenttest.Agent, _ *metastore.Topic) {
			rewrite(t, f, b1, func(r *native.Retained) { r.End = -1 })
		}},
		{"the owner ends before it", "ends at", func(t *testing.T, f *agenttest.Fleet, b1, _ *agenttest.Agent, _ *metastore.Topic) {
			rewrite(t, f, b1, func(r *native.Retained) { r.End = 3 })
		}},
		{"the owner serves no later epoch", "serves epoch", func(t *testing.T, f *agenttest.Fleet, b1, _ *agenttest.Agent, _ *metastore.Topic) {
			rewrite(t, f, b1, func(r *native.Retained) { r.Epoch = 1 })
		}},
		{"its epochs are not known", "nothing proves", func(t *testing.T, f *agenttest.Fleet, b1, _ *agenttest.Agent, _ *metastore.Topic) {
			rewrite(t, f, b1, func(r *native.Retained) { r.Epochs = nil })
		}},
	} {
		t.Run(gate.name, func(t *testing.T) {
			f, b1, b2, orders := agenttest.Pair(t)
			b1.Write(orders, 0, "one", "two")
			f.Move(orders, 0, b2)
			agenttest.Eventually(t, "the former copy is judged", func() bool { all := keptBy(t, f, b1); return len(all) == 1 && all[0].Judged })
			if gate.shut != nil {
				gate.shut(t, f, b1, b2, orders)
			}
			answer := agenttest.Must(f.Peers.PurgeTrash(t.Context(), b1.URL()))(t)
			left := agenttest.Files(filepath.Join(b1.Data, "trash"))
			if gate.says == "" {
				if answer.Deleted != 1 || left != 0 {
					t.Errorf("%+v, %d files left", answer, left)
				}
				return
			}
			if answer.Deleted != 0 || len(answer.Kept) != 1 || !strings.Contains(answer.Kept[0], gate.says) || left == 0 {
				t.Errorf("%+v, %d files left; want it kept because %q", answer, left, gate.says)
			}
		})
	}
}

// An agent dies while it deletes a copy: what is left of it is no copy any more, and goes with the next sweep.
func TestR29WhatIsLeftOfADeletedCopyGoesWithTheNextSweep(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one")
	f.Move(orders, 0, b2)
	agenttest.Eventually(t, "the former copy is judged", func() bool { all := keptBy(t, f, b1); return len(all) == 1 && all[0].Judged })
	trash := filepath.Join(b1.Data, "trash")
	id := keptBy(t, f, b1)[0].ID
	b1.Stop()
	if err := os.Rename(filepath.Join(trash, id), filepath.Join(trash, ".going-"+id)); err != nil {
		t.Fatal(err)
	}
	b1.Boot()
	b1.WaitReady()
	if all := keptBy(t, f, b1); len(all) != 0 {
		t.Errorf("kept are %+v", all)
	}
	if answer := f.Claim(orders, 0, b1).Ensure(); answer.Adopted {
		t.Error("it was taken over")
	}
	if answer := agenttest.Must(f.Peers.PurgeTrash(t.Context(), b1.URL()))(t); answer.Deleted != 0 || agenttest.Files(trash) != 0 {
		t.Errorf("%+v, %d files are left", answer, agenttest.Files(trash))
	}
}

// rewrite changes the record of an agent's only former copy.
func rewrite(t *testing.T, f *agenttest.Fleet, a *agenttest.Agent, change func(*native.Retained)) {
	t.Helper()
	path := filepath.Join(a.Data, "trash", keptBy(t, f, a)[0].ID, "retained.json")
	var r native.Retained
	agenttest.ReadJSON(t, path, &r)
	change(&r)
	agenttest.WriteJSON(t, path, r)
}

// A copy whose owner can not be asked is neither adopted nor swept, and is judged once it can.
func TestR29ACopyIsJudgedOnceItsOwnerAnswers(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one")
	f.Move(orders, 0, b2)
	agenttest.Eventually(t, "the former copy is judged", func() bool { all := keptBy(t, f, b1); return len(all) == 1 && all[0].Judged })
	rewrite(t, f, b1, func(r *native.Retained) { r.Judged = false })
	b2.Stop()
	b1.Restart()
	if all := keptBy(t, f, b1); len(all) != 1 || all[0].Judged {
		t.Fatalf("kept are %+v", all)
	}
	b2.Boot()
	b2.WaitReady()
	agenttest.Eventually(t, "the former copy is judged after its owner is back", func() bool { all := keptBy(t, f, b1); return len(all) == 1 && all[0].Judged })
}

// A copy kept by an earlier release has no epochs on its record: they are learnt from the copy itself. One that nothing can be
// learnt of stays until a person lets it go.
func TestR29ACopyWithoutEpochsOnItsRecord(t *testing.T) {
	f, b1, b2, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one")
	f.Move(orders, 0, b2)
	judged := func() bool { all := keptBy(t, f, b1); return len(all) == 1 && all[0].Judged }
	agenttest.Eventually(t, "the copy is judged", judged)
	record := filepath.Join(b1.Data, "trash", keptBy(t, f, b1)[0].ID, "retained.json")
	var kept native.Retained
	agenttest.ReadJSON(t, record, &kept)
	b1.Stop()
	kept.Epochs, kept.Judged, kept.End = nil, false, -1
	agenttest.WriteJSON(t, record, kept)
	b1.Boot()
	b1.WaitReady()
	agenttest.Eventually(t, "the copy is judged again", judged)
	if end := keptBy(t, f, b1)[0].End; end != 1 {
		t.Errorf("it ends at %d", end)
	}
	id := keptBy(t, f, b1)[0].ID
	if err := f.Peers.PurgeCopy(t.Context(), b1.URL(), id); err != nil || len(keptBy(t, f, b1)) != 0 {
		t.Errorf("after its purge: %v, %+v", err, keptBy(t, f, b1))
	}
	if err := f.Peers.PurgeCopy(t.Context(), b1.URL(), id); control.CodeOf(err) != control.CodeNotFound {
		t.Errorf("the second purge: %v", err)
	}
}
