package brokeragent_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"portage/brokeragent/agenttest"
	"portage/internal/metricstest"
)

func TestTheTableOfMetricsIsWhatAnAgentServes(t *testing.T) {
	f, b1, _, orders := agenttest.Pair(t)
	b1.Write(orders, 0, "one")
	metricstest.Hold(t, b1.Registry(), "../docs/metrics.md", "Agent")
	for name, least := range map[string]float64{"portage_partitions{open}": 1, "portage_held_rows": 1, "portage_disk_free_bytes": 1, "portage_fsync_seconds": 1, "portage_produced_bytes_total": 1} {
		if v := value(t, b1.Registry(), name); !(v >= least) {
			t.Errorf("%s is %v", name, v)
		}
	}
	if v := value(t, b1.Registry(), "portage_quarantined_copies"); v != 0 {
		t.Errorf("portage_quarantined_copies is %v", v)
	}
	// What can not be read is unknown, and not nothing.
	folder := filepath.Join(b1.Data, "quarantine")
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"portage_quarantined_copies", "portage_quarantined_records", "portage_quarantined_bytes", "portage_trash_bytes"} {
		if v := value(t, b1.Registry(), name); !math.IsNaN(v) {
			t.Errorf("%s is %v although it can not be read", name, v)
		}
	}
	// Nor may the broker be removed meanwhile.
	agenttest.Eventually(t, "the metastore hears that something may be in quarantine", func() bool {
		row, err := f.Store.FindBroker(t.Context(), "b1")
		return err == nil && row.QuarantinedCopies > 0
	})
	if status, err := f.Peers.Status(t.Context(), b1.URL()); err != nil || status.Quarantined == 0 {
		t.Errorf("the agent says %d copies (%v)", status.Quarantined, err)
	}
}

// value is that of one series, "name" or "name{value of its label}"; of a histogram its count.
func value(t *testing.T, gatherer prometheus.Gatherer, series string) float64 {
	t.Helper()
	name, label, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if label != "" && m.GetLabel()[0].GetValue() != label {
				continue
			}
			switch {
			case m.GetGauge() != nil:
				return m.GetGauge().GetValue()
			case m.GetCounter() != nil:
				return m.GetCounter().GetValue()
			}
			return float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("there is no %s", series)
	return 0
}
