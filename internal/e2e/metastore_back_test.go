package e2e

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"portage/internal/services"
	"portage/metastore"
)

// copyOf makes a copy of a server that ends with the test.
func copyOf(t testing.TB, primary *services.Postgres, standby bool) *services.Postgres {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testBound)
	defer cancel()
	copied, err := primary.BaseBackup(ctx, standby)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := copied.Close(); err != nil {
			t.Error(err)
		}
	})
	return copied
}

// owners are the brokers that say they have the partition open.
func (w *world) owners() (open []string) {
	w.t.Helper()
	for _, id := range w.AgentIDs() {
		if w.partition(id).State == "open" {
			open = append(open, id)
		}
	}
	return open
}

// reconcile runs the command and returns what it printed.
func (w *world) reconcile(wantCode int, args ...string) string {
	w.t.Helper()
	args = append([]string{"reconcile", "--dsn", w.DSN(), "--token-file", w.TokenFile()}, args...)
	output, code := w.run(args...)
	if code != wantCode {
		w.t.Fatalf("portage %v ended with %d:\n%s", args, code, output)
	}
	return output
}

// produce writes one record by way of a broker, as a client of its own, and reports whether it was acknowledged in time.
func (w *world) produce(topic, by string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(w.Agent(by).KafkaAddr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(),
		kgo.RecordDeliveryTimeout(30*time.Second)) // a producer id would be asked for at any broker, also at one that is held
	if err != nil {
		return err
	}
	defer client.Close()
	return client.ProduceSync(w.ctx, &kgo.Record{Topic: topic, Partition: 0, Value: []byte("after")}).FirstErr()
}

// T4: CommitOwner is acknowledged by the primary alone, the new owner opens and acknowledges, the primary is lost, the
// standby that lacks all this takes over, and the old owner's lease ends there. Told twice: without R1 two brokers own the
// partition.
func TestR1AStandbyThatLacksTheCommitMakesNoSecondOwner(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{"enforced": nil, "off": {"PORTAGE_RULES_OFF=R1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := ownPostgres(t)
			standby := copyOf(t, primary, true)
			w := newWorld(t, setup{brokers: 2, workers: 1, agentArgs: shortLease, postgres: primary, standby: standby, env: env})
			w.must(standby.Restart(w.ctx))
			commit := w.faults.Arm("worker1", "commit.before")
			run := w.start("b2")
			w.must(commit.Reached(w.ctx))
			thaw := w.hold("b1") // it hears of no commit
			w.must(standby.WaitReplayed(w.ctx, primary))
			w.must(standby.Stop()) // cut off: what follows is on the primary alone
			w.must(commit.Continue())
			w.await("b2 is open by the commit", func() string { return missingState(w.partition("b2").State, "open") })
			if err := w.produce(w.topic, "b2"); err != nil {
				t.Fatalf("the new owner does not acknowledge: %v", err)
			}

			w.must(primary.Kill())
			w.must(standby.Restart(w.ctx))
			w.must(standby.Promote(w.ctx))
			thaw()
			if env != nil {
				w.await("two brokers own the partition without the rule", func() string {
					if open := w.owners(); len(open) < 2 {
						return "open at " + strings.Join(open, ", ")
					}
					return ""
				})
				return
			}
			w.await("b1 has read the promoted standby", func() string { return missingState(w.partition("b1").Suspended, metastore.CodeMetastoreRestored) })
			w.await("b2 has read it, too", func() string { return missingState(w.partition("b2").Suspended, metastore.CodeMetastoreOlder) })
			if open := w.owners(); len(open) != 1 || open[0] != "b2" {
				t.Errorf("open at %v", open)
			}
			if err := w.produce(w.topic, "b2"); err != nil {
				t.Errorf("what is open does not serve on: %v", err)
			}
			if said := w.reconcile(0); !strings.Contains(said, "b2") || !strings.Contains(said, "nothing was changed") {
				t.Errorf("reconcile says:\n%s", said)
			}
			if row := w.row(); row.Owner != "b1" {
				t.Errorf("reconcile without --yes changed the row to %+v", row)
			}
			// An agent that does not answer blocks it.
			thaw = w.hold("b1")
			blocked := w.reconcile(3, "--yes")
			if !strings.Contains(blocked, "b1") || !strings.Contains(blocked, "--without") {
				t.Errorf("reconcile says:\n%s", blocked)
			}
			thaw()
			w.reconcile(0, "--yes")
			if again := w.reconcile(0); !strings.Contains(again, "nothing to do") {
				t.Errorf("a second run says:\n%s", again)
			}
			if _, err := w.end(run); err != nil {
				t.Errorf("the move ended with %v", err)
			}
			w.settled("b2")
			if row := w.row(); row.Epoch != 1 {
				t.Errorf("the row is %+v", row)
			}
			w.committedOnce()
			w.must(w.produce(w.topic, "b2"))
			w.mustMove("b1") // and guarded writes go on
			w.settled("b1")
		})
	}
}

// T5: a backup of the metastore from before a move and before a topic is started, under the same timeline. Told twice:
// without R1 the data of the topic that the backup lacks is put away.
func TestR1ARestoredBackupIsReconciled(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{"enforced": nil, "off": {"PORTAGE_RULES_OFF=R1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := ownPostgres(t)
			// The address of what will be restored is known from the start; what is restored is copied later.
			early := copyOf(t, primary, false)
			w := newWorld(t, setup{brokers: 2, workers: 1, postgres: primary, standby: early, env: env})
			backup := copyOf(t, primary, false)
			w.must(backup.MoveTo(early))
			w.mustMove("b2")
			w.settled("b2")
			late := w.topic + "-late"
			w.must(w.CreateTopic(w.ctx, late, 1, "b1"))
			w.must(w.produce(late, "b2"))
			row, err := w.Store.FindAssignment(w.ctx, late, 0)
			w.must(err)

			w.must(primary.Kill())
			w.must(backup.Restart(w.ctx))
			folder := w.Agent("b1").Data + "/partitions/" + row.TopicID.String() + "/0"
			lateStatus := func() (state, suspended string) {
				status, err := w.Agents.Partition(w.ctx, w.Agent("b1").ControlURL, row.TopicID, 0)
				if err != nil {
					return "", ""
				}
				return status.State, status.Suspended
			}
			if env != nil {
				w.await("the data of the topic that the backup lacks is put away without the rule", func() string {
					if _, err := os.Stat(folder); err == nil {
						return "it is there"
					}
					return ""
				})
				return
			}
			w.await("both see that the metastore is older", func() string {
				if state, suspended := lateStatus(); state != "open" || suspended != metastore.CodeMetastoreOlder {
					return "b1 has the late topic " + state + ", suspended " + suspended
				}
				return missingState(w.partition("b2").Suspended, metastore.CodeMetastoreOlder)
			})
			w.must(w.produce(late, "b2"))
			w.must(w.produce(w.topic, "b2"))
			// The owner that the backup names comes back, and stays closed.
			w.must(w.RestartAgent(w.ctx, "b1"))
			if open := w.owners(); len(open) != 1 || open[0] != "b2" {
				t.Errorf("open at %v", open)
			}
			w.reconcile(0, "--yes")
			w.await("the late topic is open again", func() string { state, _ := lateStatus(); return missingState(state, "open") })
			if again := w.reconcile(0); !strings.Contains(again, "nothing to do") {
				t.Errorf("a second run says:\n%s", again)
			}
			w.settled("b2")
			w.must(w.produce(late, "b2"))
			w.must(w.produce(w.topic, "b2"))
		})
	}
}

func missingState(got, want string) string {
	if got == want {
		return ""
	}
	return "it is " + got
}
