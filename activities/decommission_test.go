package activities_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.temporal.io/sdk/testsuite"

	"portage/activities"
	"portage/brokeragent/agenttest"
	"portage/brokeragent/native"
	"portage/metastore"
	"portage/workflows/protocol"
)

// leaver asks a fleet of real agents what stands against a decommission.
type leaver struct {
	t   *testing.T
	f   *agenttest.Fleet
	env *testsuite.TestActivityEnvironment
}

func newLeaver(t *testing.T, f *agenttest.Fleet) *leaver {
	var suite testsuite.WorkflowTestSuite
	l := &leaver{t: t, f: f, env: suite.NewTestActivityEnvironment()}
	l.env.RegisterActivity(&activities.Plans{Store: f.Store, Agents: f.Peers, Logger: slog.New(slog.DiscardHandler)})
	return l
}

func (l *leaver) check(broker string, least int) (check protocol.DrainCheck) {
	l.t.Helper()
	value, err := l.env.ExecuteActivity(protocol.ActivityCheckDecommission, protocol.DrainArgs{Broker: broker, MinBrokers: least, By: "test"})
	if err == nil {
		err = value.Get(&check)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return check
}

func codes(c protocol.DrainCheck) string {
	all := []string{}
	for _, o := range c.Refused {
		all = append(all, o.Code)
		if o.Reason == "" {
			all = append(all, "without a reason")
		}
	}
	return strings.Join(all, " ")
}

// Every guard refuses by itself and all of them at once, and nothing is changed.
func TestEveryGuardOfADecommissionRefusesAtOnce(t *testing.T) {
	f := agenttest.New(t)
	b1 := f.Start("b1", native.Limits{})
	for _, id := range []string{"b2", "b3"} {
		f.Start(id, native.Limits{})
	}
	orders := f.CreateTopic("orders", 4, b1)
	l := newLeaver(t, f)
	if c := l.check("b9", 1); codes(c) != metastore.CodeUnknownBroker {
		t.Errorf("an unknown broker: %+v", c)
	}
	if c := l.check("b1", 2); codes(c) != "" || c.Owned != 4 || c.Moves != 4 || len(c.Text) != 4 {
		t.Errorf("without objections: %+v", c)
	}
	if c := l.check("b1", 3); codes(c) != metastore.CodeTooFewBrokers {
		t.Errorf("too few would stay: %+v", c)
	}
	// Another one drains: it is no broker that stays.
	if err := f.Store.SetDraining(t.Context(), "b3", true, "test", ""); err != nil {
		t.Fatal(err)
	}
	if c := l.check("b1", 2); codes(c) != metastore.CodeTooFewBrokers || c.Moves != 4 {
		t.Errorf("beside another drain: %+v", c)
	}
	f.Exec("INSERT INTO replicas (topic_id, partition, broker, role, storage_instance) VALUES ($1, 1, 'b1', 'owner', $2)", orders.ID, uuid.New())
	if c := l.check("b1", 2); codes(c) != metastore.CodeTooFewBrokers+" "+metastore.CodeBrokerInUse {
		t.Errorf("all at once: %+v", c)
	}
	if b, err := f.Store.FindBroker(t.Context(), "b1"); err != nil || b.Draining {
		t.Errorf("a look changed the broker: %+v, %v", b, err)
	}
}
