//go:build portage_faults

package metastore_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	"portage/internal/faults/faultstest"
	"portage/metastore"
)

// A move is claimed towards a broker that is on its way out, the broker is removed although it is a target, and the
// partition ends on a broker that is not there.
func TestR30NoPartitionEndsOnARemovedBroker(t *testing.T) {
	faultstest.Story(t, "R30", func(t *testing.T) string {
		f := newFixture(t)
		f.register("b4", 4)
		f.drain("b4")
		row, _, err := f.ClaimMove(t.Context(), f.claimRequest("m", "b4"))
		if err := f.remove("b4", 3); err != nil {
			t.Fatal(err)
		}
		if err == nil {
			_, err = f.CommitOwner(t.Context(), f.evidence("m", row))
		}
		if owner := f.row().Owner; owner == "b4" {
			return fmt.Sprintf("%s/0 belongs to %s, which was removed", f.topic.Name, owner)
		} else if _, refused := metastore.RefusedWith(err, metastore.CodeBrokerDraining); !refused {
			t.Errorf("the claim ended with %v", err)
		}
		return ""
	})
}

// The agent of a removed broker is started again: it would come back as a broker that takes partitions.
func TestR30ARemovedBrokerDoesNotComeBack(t *testing.T) {
	faultstest.Story(t, "R30", func(t *testing.T) string {
		f := newFixture(t)
		f.drain("b3")
		if err := f.remove("b3", 2); err != nil {
			t.Fatal(err)
		}
		again := f.brokers["b3"]
		again.Process = uuid.New()
		if _, err := f.RegisterBroker(t.Context(), again); err == nil {
			return "a removed broker registered again"
		} else if _, refused := metastore.RefusedWith(err, metastore.CodeBrokerRemoved); !refused {
			t.Error(err)
		}
		return ""
	})
}

// Records that only a copy in quarantine holds keep its broker in the fleet.
func TestR30QuarantineKeepsABrokerInTheFleet(t *testing.T) {
	faultstest.Story(t, "R30", func(t *testing.T) string {
		f := newFixture(t)
		f.drain("b3")
		b3 := f.brokers["b3"]
		if _, err := f.Heartbeat(t.Context(), metastore.HeartbeatReport{Broker: "b3", Process: b3.Process, Storage: b3.Storage, Quarantined: 1}); err != nil {
			t.Fatal(err)
		}
		err := f.remove("b3", 2)
		if err == nil {
			return "a broker was removed with records that are nowhere else"
		} else if _, refused := metastore.RefusedWith(err, metastore.CodeQuarantined); !refused {
			t.Error(err)
		}
		return ""
	})
}

// Claims and removals that pass each other: whoever wins, no row names a removed broker.
func TestR30AClaimAndARemovalDoNotPassEachOther(t *testing.T) {
	f := newFixture(t)
	for n := range 10 {
		id := fmt.Sprintf("c%d", n)
		f.register(id, int32(10+n))
		var both sync.WaitGroup
		both.Add(2)
		go func() {
			defer both.Done()
			f.ClaimMove(t.Context(), f.claimRequest("to-"+id, id))
		}()
		go func() {
			defer both.Done()
			if err := f.SetDraining(t.Context(), id, true, "test", ""); err == nil {
				f.remove(id, 3)
			}
		}()
		both.Wait()
		broker, err := f.FindBroker(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if row := f.row(); broker.Removed && row.Target != nil && *row.Target == id {
			t.Fatalf("%s was removed and is the target of %s", id, row.Name())
		}
		f.AbortMove(t.Context(), "to-"+id, "test", "")
	}
}

// A broker is removed by a transaction that is not over when a claim towards it looks: the claim waits for it, and sees the
// tombstone.
func TestR30AClaimWaitsForARemovalOfItsDestination(t *testing.T) {
	f := newFixture(t)
	f.refused(metastore.CodeBrokerRemoved, func() error {
		return f.crossing(func() error {
			_, _, err := f.ClaimMove(t.Context(), f.claimRequest("m", "b3"))
			return err
		}, "UPDATE brokers SET draining = true, removed = true WHERE id = 'b3'")
	})
	if row := f.row(); row.Moving() != "" || row.Target != nil {
		t.Errorf("the claim left %+v", row)
	}
}

// Two drains that begin at once are counted together: each alone would leave enough brokers.
func TestR30DrainsThatBeginAtOnceAreCountedTogether(t *testing.T) {
	f := newFixture(t)
	f.register("b4", 4)
	for range 5 {
		var both sync.WaitGroup
		outcome := make([]error, 2)
		for i, id := range []string{"b3", "b4"} {
			both.Add(1)
			go func() {
				defer both.Done()
				outcome[i] = f.BeginDrain(t.Context(), metastore.DrainRequest{Broker: id, MinBrokers: 3, By: "test"})
			}()
		}
		both.Wait()
		_, first := metastore.RefusedWith(outcome[0], metastore.CodeTooFewBrokers)
		_, second := metastore.RefusedWith(outcome[1], metastore.CodeTooFewBrokers)
		if first == second {
			t.Fatalf("the drains ended with %v and %v", outcome[0], outcome[1])
		}
		for _, id := range []string{"b3", "b4"} {
			if err := f.SetDraining(t.Context(), id, false, "test", ""); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Each guard of a drain refuses with its code and leaves the broker as it was.
func TestR30GuardsOfADrainRefuseAtOnce(t *testing.T) {
	f := newFixture(t)
	f.register("b4", 4)
	begin := func(broker string, least int) error {
		return f.BeginDrain(t.Context(), metastore.DrainRequest{Broker: broker, MinBrokers: least, RoomMargin: 0.1, By: "test"})
	}
	f.register("b5", 5)
	f.exec("UPDATE brokers SET removed = true, draining = true WHERE id = 'b5'")
	f.exec("UPDATE brokers SET disk_total_bytes = 1000, disk_free_bytes = 30")
	f.exec("INSERT INTO load_reports (broker, topic_id, partition, process_instance, disk_bytes, produced_bytes, consumed_bytes, log_end) SELECT 'b1', topic_id, 0, gen_random_uuid(), 100, 0, 0, 0 FROM assignments WHERE partition = 0")
	for _, c := range []struct {
		broker string
		least  int
		code   string
	}{{"b9", 3, metastore.CodeUnknownBroker}, {"b5", 3, metastore.CodeBrokerRemoved}, {"b2", 4, metastore.CodeTooFewBrokers}, {"b1", 3, metastore.CodeTooLittleRoom}} {
		if _, refused := metastore.RefusedWith(begin(c.broker, c.least), c.code); !refused {
			t.Errorf("draining %s ended with %v, want %s", c.broker, begin(c.broker, c.least), c.code)
		}
	}
	if broker, err := f.FindBroker(t.Context(), "b1"); err != nil || broker.Draining {
		t.Errorf("a refused drain left %+v, %v", broker, err)
	}
	f.exec("UPDATE brokers SET disk_free_bytes = 40")
	for range 2 { // the reply may be lost
		if err := begin("b1", 3); err != nil {
			t.Error(err)
		}
	}
	f.exec("UPDATE brokers SET disk_free_bytes = 0")
	if err := begin("b1", 4); err != nil {
		t.Errorf("a broker that drains already does not any more: %v", err)
	}
	again := f.brokers["b1"]
	again.Process = uuid.New()
	if _, err := f.RegisterBroker(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if broker, _ := f.FindBroker(t.Context(), "b1"); !broker.Draining {
		t.Error("a draining broker takes partitions again after a restart of its agent (N27)")
	}
}

// Room is asked for what all draining brokers own together: each alone would have found enough.
func TestR30RoomIsAskedForAllDrainingBrokersTogether(t *testing.T) {
	f := newFixture(t)
	f.register("b4", 4)
	f.exec("UPDATE brokers SET disk_total_bytes = 1000, disk_free_bytes = 50")
	f.exec("UPDATE assignments SET owner = 'b2' WHERE partition = 1")
	f.exec("INSERT INTO load_reports (broker, topic_id, partition, process_instance, disk_bytes, produced_bytes, consumed_bytes, log_end) SELECT owner, topic_id, partition, gen_random_uuid(), 60, 0, 0, 0 FROM assignments")
	begin := func(broker string) error {
		return f.BeginDrain(t.Context(), metastore.DrainRequest{Broker: broker, MinBrokers: 2, By: "test"})
	}
	if err := begin("b1"); err != nil {
		t.Fatalf("60 bytes have room in 150: %v", err)
	}
	if _, refused := metastore.RefusedWith(begin("b2"), metastore.CodeTooLittleRoom); !refused {
		t.Errorf("another 60 beside the 60 of b1, with 100 free on the brokers that stay: %v", begin("b2"))
	}
	if broker, err := f.FindBroker(t.Context(), "b2"); err != nil || broker.Draining {
		t.Errorf("a refused drain left %+v, %v", broker, err)
	}
	f.exec("UPDATE brokers SET disk_free_bytes = 60")
	if err := begin("b2"); err != nil {
		t.Errorf("120 bytes have room in 120: %v", err)
	}
}
