package worker

import (
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"portage/brokeragent/agenttest"
	"portage/internal/metricstest"
)

// counted looks at the worker's metrics after a rebalance, its undo, a move, a swap, and a move that was taken back.
func (g *rig) counted(t *testing.T) {
	g = g.on(t)
	agenttest.Eventually(t, "nothing moves any more", func() bool { return g.sum("portage_moves_in_progress") == 0 })
	metricstest.Hold(t, g.registry, "../docs/metrics.md", "Worker")
	if n, err := testutil.GatherAndCount(g.registry, "temporal_request_total", "temporal_activity_execution_latency_seconds"); err != nil || n < 2 {
		t.Errorf("the SDK's metrics: %d series (%v)", n, err)
	}
	for name, least := range map[string]float64{"portage_moves_claimed_total": 6, "portage_moves_ended_total": 6, "portage_moves_copied_bytes_total": 1, "portage_move_frozen_seconds": 1,
		"portage_plan_duration_seconds": 3, "portage_plan_imbalance_ratio": 1, "portage_fleet_view_up": 2} {
		if v := g.sum(name); !(v >= least) {
			t.Errorf("%s is %v in all, want at least %v", name, v, least)
		}
	}
	for _, name := range []string{"portage_metastore_restored", "portage_draining_brokers", "portage_rebalances_paused", "portage_decommissions_in_progress"} {
		if v := g.sum(name); v != 0 {
			t.Errorf("%s is %v", name, v)
		}
	}
	if age := g.sum("portage_load_sample_age_seconds"); !(age >= 0) {
		t.Errorf("the age of the samples is %v", age)
	}
}

// unknown looks at them while the metastore is away: nothing is 0 that is not known.
func (g *rig) unknown() {
	g.t.Helper()
	agenttest.Eventually(g.t, "the metrics tell that the metastore is away", func() bool { return math.IsNaN(g.sum("portage_moves_in_progress")) })
	for _, name := range []string{"portage_metastore_restored", "portage_draining_brokers", "portage_load_sample_age_seconds"} {
		if v := g.sum(name); !math.IsNaN(v) {
			g.t.Errorf("%s is %v, though nobody can know", name, v)
		}
	}
	if up := g.sum("portage_fleet_view_up"); up == 2 {
		g.t.Error("the metastore is said to be up")
	}
}

// sum adds up all series of a name; of histograms their counts.
func (g *rig) sum(name string) (total float64) {
	g.t.Helper()
	families, err := g.registry.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			switch strings.ToLower(f.GetType().String()) {
			case "gauge":
				total += m.GetGauge().GetValue()
			case "counter":
				total += m.GetCounter().GetValue()
			default:
				total += float64(m.GetHistogram().GetSampleCount())
			}
		}
		return total
	}
	g.t.Fatalf("there is no %s", name)
	return 0
}
