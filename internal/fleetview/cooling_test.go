package fleetview

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"portage/internal/units"
	"portage/metastore"
	"portage/planner"
)

// A cooldown that is switched off ends at once, and the brokers of a rebalance do not cool down for itself.
func TestWhichCooldownsCount(t *testing.T) {
	broker, partition := metastore.BrokerSubject("b1"), metastore.PartitionSubject(uuid.New(), 3)
	for _, tc := range []struct {
		name               string
		brokers, partition time.Duration
		rebalance          string
		want               string
	}{
		{"both are on", time.Minute, time.Minute, "", "broker partition"},
		{"another rebalance", time.Minute, time.Minute, "r2", "broker partition"},
		{"the rebalance itself", time.Minute, time.Minute, "r1", "partition"},
		{"none for brokers", 0, time.Minute, "", "partition"},
		{"none for partitions", time.Minute, 0, "", "broker"},
	} {
		settings := planner.DefaultSettings()
		settings.BrokerCooldown, settings.PartitionCooldown = units.Duration(tc.brokers), units.Duration(tc.partition)
		var got []string
		for _, c := range cooling([]metastore.Cooldown{{Subject: broker, Rebalance: "r1"}, {Subject: partition, Rebalance: "r1"}}, settings, tc.rebalance) {
			kind, _, _ := strings.Cut(c.Subject, "/")
			got = append(got, kind)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %q count, want %q", tc.name, got, tc.want)
		}
	}
}
