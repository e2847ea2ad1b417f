// Package metricstest holds docs/metrics.md against what processes really serve.
package metricstest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// row is one line of a table: name, type and labels.
var row = regexp.MustCompile("^\\| `(portage_\\w+)` \\| (\\w+) \\| *(\\w*) *\\| *(.*?) *\\|")

// Hold compares what a registry gathers with the tables of one section of the page, both ways: names, types, labels; and has
// Prometheus's own linter look at it.
func Hold(t *testing.T, gatherer prometheus.Gatherer, page, section string) {
	t.Helper()
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(content), "\n## "+section+"\n")
	if !found {
		t.Fatalf("%s has no section %q", page, section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	told := map[string][]string{}
	for _, line := range strings.Split(text, "\n") {
		if m := row.FindStringSubmatch(line); m != nil {
			told[m[1]] = m[2:]
		}
	}
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, family := range families {
		name := family.GetName()
		if !strings.HasPrefix(name, "portage_") {
			continue
		}
		names = append(names, name)
		is, ok := told[name]
		if !ok {
			t.Errorf("%s is served and not in the table", name)
			continue
		}
		if kind := strings.ToLower(family.GetType().String()); kind != is[0] {
			t.Errorf("%s is a %s, the table says %s", name, kind, is[0])
		}
		if unit := is[1]; unit != "" && !strings.Contains(strings.TrimSuffix(name, "_total"), "_"+unit) {
			t.Errorf("%s is in %s, which its name does not say", name, unit)
		}
		for _, label := range family.GetMetric()[0].GetLabel() {
			if !strings.Contains(is[2], "`"+label.GetName()+"`") {
				t.Errorf("%s has the label %s, which the table does not have", name, label.GetName())
			}
		}
	}
	for name := range told {
		if !slices.Contains(names, name) {
			t.Errorf("%s is in the table and not served", name)
		}
	}
	problems, err := testutil.GatherAndLint(gatherer, names...)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
