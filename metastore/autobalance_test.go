package metastore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"portage/metastore"
)

// news are the reasons for a pass that the rows give, as sentences; seen marks them.
func (f *fixture) news() []metastore.FleetChange {
	f.t.Helper()
	changes, err := f.FleetChanges(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return changes
}

func told(changes []metastore.FleetChange) string {
	var all []string
	for _, c := range changes {
		all = append(all, c.What)
	}
	return strings.Join(all, ", ")
}

func TestABrokerIsAReasonForAPassUntilOneHasSeenItAsItIs(t *testing.T) {
	f := newFixture(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(sentences string) {
		t.Helper()
		if got := told(f.news()); got != sentences {
			t.Errorf("the reasons are %q, want %q", got, sentences)
		}
	}
	seen := func() { t.Helper(); must(f.MarkBalanced(t.Context(), f.news())) }
	want("b1 registered, b2 registered, b3 registered")
	seen()
	want("")
	restarted := f.brokers["b1"]
	restarted.Process = uuid.New()
	_, err := f.RegisterBroker(t.Context(), restarted)
	must(err)
	want("") // a restart is none
	must(f.SetDraining(t.Context(), "b2", true, "test", ""))
	before := f.news()
	want("b2 is draining")
	must(f.SetDraining(t.Context(), "b2", false, "test", ""))
	want("")
	must(f.MarkBalanced(t.Context(), before)) // a pass that saw it drain ends after the mark was taken back
	want("b2 takes partitions again")
	seen()
	f.exec("UPDATE brokers SET storage_instance = gen_random_uuid() WHERE id = 'b3'")
	want("b3 came back with other storage")
	seen()
	// A decommission empties its broker itself: only that it is taken back is a reason.
	must(f.BeginDrain(t.Context(), metastore.DrainRequest{Broker: "b3", MinBrokers: 1, By: "test", Reason: "old"}))
	want("")
	must(f.SetDraining(t.Context(), "b3", false, "test", ""))
	want("b3 takes partitions again")
}

func TestTheAutobalanceIsOffUntilItIsSwitchedOn(t *testing.T) {
	f := newFixture(t)
	if a, err := f.Autobalance(t.Context()); err != nil || a != (metastore.Autobalance{Mode: "off", Every: 10 * time.Minute}) {
		t.Errorf("the defaults are %+v, %v", a, err)
	}
	for key, values := range map[string][]string{metastore.SettingAutobalance: {"on", "", "true"}, metastore.SettingAutobalanceEvery: {"30s", "8d", "soon", "-1m"}} {
		for _, value := range values {
			if _, err := f.SetSetting(t.Context(), key, value, "test", "because"); err == nil {
				t.Errorf("%s takes %q", key, value)
			}
		}
	}
	for key, value := range map[string]string{metastore.SettingAutobalance: "count", metastore.SettingAutobalanceEvery: "90m"} {
		if _, err := f.SetSetting(t.Context(), key, value, "test", "because"); err != nil {
			t.Error(err)
		}
	}
	if a, err := f.Autobalance(t.Context()); err != nil || a != (metastore.Autobalance{Mode: "count", Every: 90 * time.Minute}) {
		t.Errorf("the settings are %+v, %v", a, err)
	}
}
