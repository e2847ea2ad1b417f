package metastore_test

import (
	"testing"

	"github.com/google/uuid"

	"portage/metastore"
)

func (f *fixture) remove(broker string, stay int) error {
	return f.RemoveBroker(f.t.Context(), metastore.RemoveRequest{Broker: broker, MinBrokers: stay, By: "test"})
}

func (f *fixture) drain(broker string) {
	f.t.Helper()
	if err := f.SetDraining(f.t.Context(), broker, true, "test", ""); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) refusesRemoval(broker, code string) {
	f.t.Helper()
	if _, refused := metastore.RefusedWith(f.remove(broker, 1), code); !refused {
		f.t.Errorf("removing %s: %v, not %s", broker, f.remove(broker, 1), code)
	}
}

// HN11: a removal looks at owners only, so a draining broker that is still a target is removed and then gets the
// partition. (The holes are listed in the agent's holes_test.go.)
func TestHN11ABrokerThatIsStillATargetIsNotRemoved(t *testing.T) {
	f := newFixture(t)
	f.refusesRemoval("nobody", metastore.CodeUnknownBroker)
	f.refusesRemoval("b2", metastore.CodeNotDraining)
	f.drain("b1")
	f.refusesRemoval("b1", metastore.CodeBrokerInUse)
	row := f.claim("m", "b2")
	f.drain("b2")
	f.refusesRemoval("b2", metastore.CodeBrokerInUse) // the claim was there before the drain
	if _, err := f.AbortMove(t.Context(), "m", "test", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := f.CommitOwner(t.Context(), f.evidence("m", row)); err == nil {
		t.Error("an aborted move was committed")
	}
	for range 2 { // the reply may be lost
		if err := f.remove("b2", 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := f.ClaimMove(t.Context(), f.claimRequest("m2", "b2")); err == nil {
		t.Error("a removed broker was claimed as a target")
	}
	again := f.brokers["b2"]
	again.Process = uuid.New()
	if _, err := f.RegisterBroker(t.Context(), again); err == nil {
		t.Error("a removed broker registered again (R30)")
	}
}

// Enough brokers that take partitions stay; draining ones do not count.
func TestARemovalLeavesEnoughBrokers(t *testing.T) {
	f := newFixture(t)
	f.register("b4", 4)
	f.drain("b3")
	f.drain("b4")
	if _, refused := metastore.RefusedWith(f.remove("b3", 3), metastore.CodeTooFewBrokers); !refused {
		t.Error("two brokers would stay of three that must")
	}
	for _, broker := range []string{"b3", "b4"} {
		if err := f.remove(broker, 2); err != nil {
			t.Error(err)
		}
	}
}

// Whatever else a broker is to the fleet keeps it there, until it is handed over.
func TestABrokerWithAnotherRoleIsNotRemoved(t *testing.T) {
	for _, role := range []struct{ name, take, handOver string }{
		{"a follower", "INSERT INTO replicas (topic_id, partition, broker, role, storage_instance) SELECT id, 0, 'b3', 'follower', gen_random_uuid() FROM topics", "DELETE FROM replicas"},
		{"a coordinator", "UPDATE coordinator_slots SET broker = 'b3', epoch = 1 WHERE slot = 7", "UPDATE coordinator_slots SET broker = 'b2', epoch = 2 WHERE slot = 7"},
	} {
		f := newFixture(t)
		f.drain("b3")
		f.exec(role.take)
		f.refusesRemoval("b3", metastore.CodeBrokerInUse)
		if broker, err := f.FindBroker(t.Context(), "b3"); err != nil || broker.Removed {
			t.Errorf("%s was refused and removed: %+v, %v", role.name, broker, err)
		}
		f.exec(role.handOver)
		if err := f.remove("b3", 1); err != nil {
			t.Errorf("%s that has handed over: %v", role.name, err)
		}
	}
}
