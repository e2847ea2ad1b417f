package worker

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
)

// sdkLabels are the tags of the Temporal SDK that its metrics keep. Others are dropped: each is a known, short list, and none
// is of one workflow.
var sdkLabels = []string{"namespace", "task_queue", "worker_type", "poller_type", "workflow_type", "activity_type", "operation", "status_code", "failure_reason", "cause"}

// TemporalMetrics registers what the Temporal SDK measures of itself, under the SDK's own names (temporal_...) with units as
// Prometheus writes them: counters end in _total, latencies are histograms in _seconds. Pass it to the client.
func TemporalMetrics(registry prometheus.Registerer) client.MetricsHandler {
	return sdkMetrics{all: &sdkSeries{registry: registry, counters: map[string]*prometheus.CounterVec{}, gauges: map[string]*prometheus.GaugeVec{}, timers: map[string]*prometheus.HistogramVec{}}}
}

type sdkSeries struct {
	registry prometheus.Registerer
	mu       sync.Mutex
	// guards:
	counters map[string]*prometheus.CounterVec
	gauges   map[string]*prometheus.GaugeVec
	timers   map[string]*prometheus.HistogramVec
}

type sdkMetrics struct {
	all  *sdkSeries
	tags map[string]string
}

// WithTags is a handler with more tags.
func (m sdkMetrics) WithTags(tags map[string]string) client.MetricsHandler {
	merged := maps.Clone(m.tags)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, tags)
	return sdkMetrics{m.all, merged}
}

// labels are the values in the order of sdkLabels; a tag that a metric does not have is empty, which is none to Prometheus.
func (m sdkMetrics) labels() []string {
	values := make([]string, len(sdkLabels))
	for i, name := range sdkLabels {
		values[i] = m.tags[name]
	}
	return values
}

const sdkHelp = "Of the Temporal SDK; its documentation says what it means."

// Counter counts under name.
func (m sdkMetrics) Counter(name string) client.MetricsCounter {
	vec := series(m.all, m.all.counters, name, func() *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name + "_total", Help: sdkHelp}, sdkLabels)
	})
	counter := vec.WithLabelValues(m.labels()...)
	return counterFunc(func(n int64) {
		if n > 0 {
			counter.Add(float64(n))
		}
	})
}

// Gauge sets name.
func (m sdkMetrics) Gauge(name string) client.MetricsGauge {
	vec := series(m.all, m.all.gauges, name, func() *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: sdkHelp}, sdkLabels)
	})
	return gaugeFunc(vec.WithLabelValues(m.labels()...).Set)
}

// Timer measures name.
func (m sdkMetrics) Timer(name string) client.MetricsTimer {
	vec := series(m.all, m.all.timers, name, func() *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name + "_seconds", Help: sdkHelp, Buckets: []float64{.005, .02, .1, .5, 2, 10, 60, 600}}, sdkLabels)
	})
	timer := vec.WithLabelValues(m.labels()...)
	return timerFunc(func(d time.Duration) { timer.Observe(d.Seconds()) })
}

// series finds a metric by name, and makes and registers it the first time.
func series[V prometheus.Collector](all *sdkSeries, known map[string]V, name string, make func() V) V {
	all.mu.Lock()
	defer all.mu.Unlock()
	vec, ok := known[name]
	if !ok {
		vec = make()
		all.registry.MustRegister(vec)
		known[name] = vec
	}
	return vec
}

type (
	counterFunc func(int64)
	gaugeFunc   func(float64)
	timerFunc   func(time.Duration)
)

// Inc counts.
func (f counterFunc) Inc(n int64) { f(n) }

// Update sets.
func (f gaugeFunc) Update(v float64) { f(v) }

// Record measures.
func (f timerFunc) Record(d time.Duration) { f(d) }
