package worker

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"

	"portage/planner"
	"portage/workflows/protocol"
)

// NewRegistry makes the registry of one worker process, with what is counted of the process itself.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// metrics are what this worker did. Sums over all workers of a fleet are the fleet's; a step that is repeated because its
// answer was lost is counted twice. docs/metrics.md lists all of it, held by a test.
type metrics struct {
	claimed, ended         *prometheus.CounterVec
	copied                 prometheus.Counter
	frozen, planned        prometheus.Histogram
	released               prometheus.Counter
	unknownClaims, actions prometheus.Gauge
	peak, excess           *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		claimed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portage_moves_claimed_total", Help: "Claims of moves and swaps that were made; one that starts over claims anew."}, []string{"kind"}),
		ended:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portage_moves_ended_total", Help: "Claims that have ended, by outcome."}, []string{"kind", "outcome"}),
		copied:  prometheus.NewCounter(prometheus.CounterOpts{Name: "portage_moves_copied_bytes_total", Help: "Bytes that finished copies of moves have fetched."}),
		frozen: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "portage_move_frozen_seconds", Help: "How long writes were held by a move that committed; 0 when none had to wait.",
			Buckets: []float64{.01, .02, .04, .06, .08, .12, .2, .4, .8, 1.6, 5, 30}}),
		planned: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "portage_plan_duration_seconds", Help: "Looking at the fleet, planning, and keeping the plan.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30}}),
		released:      prometheus.NewCounter(prometheus.CounterOpts{Name: "portage_orphaned_claims_released_total", Help: "Claims that the Supervisor took back because their workflow run was gone."}),
		unknownClaims: prometheus.NewGauge(prometheus.GaugeOpts{Name: "portage_claims_unknown", Help: "Claims whose workflow run Temporal could not be asked about, in the last pass of the Supervisor here."}),
		actions:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "portage_plan_actions", Help: "Actions of the last plan that was made here."}),
		peak: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "portage_plan_imbalance_ratio", Help: "Highest load of a broker in terms of its share, before and after the last plan made here; 1 is even."},
			[]string{"goal", "when"}),
		excess: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "portage_plan_excess_ratio", Help: "What is above the brokers' bands, in terms of all load, before and after the last plan made here."},
			[]string{"goal", "when"}),
	}
	for _, kind := range []string{"move", "swap"} { // so that an increase from nothing is seen
		m.claimed.WithLabelValues(kind)
		for _, outcome := range []string{"committed", "aborted"} {
			m.ended.WithLabelValues(kind, outcome)
		}
	}
	for _, g := range []planner.Goal{planner.NWIn, planner.NWOut, planner.Disk, planner.PartitionCount} {
		for _, when := range []string{"before", "after"} {
			m.peak.WithLabelValues(g.String(), when)
			m.excess.WithLabelValues(g.String(), when)
		}
	}
	registry.MustRegister(m.claimed, m.ended, m.copied, m.frozen, m.planned, m.released, m.unknownClaims, m.actions, m.peak, m.excess)
	return m
}

// Planned takes the figures of a plan.
func (m *metrics) Planned(plan *planner.Plan) {
	m.actions.Set(float64(len(plan.Actions)))
	for _, g := range plan.Goals {
		goal, all := g.Goal.String(), max(g.Mean*float64(len(plan.Brokers)), 1)
		m.peak.WithLabelValues(goal, "before").Set(g.PeakBefore)
		m.peak.WithLabelValues(goal, "after").Set(g.PeakAfter)
		m.excess.WithLabelValues(goal, "before").Set(float64(g.ExcessBefore) / all)
		m.excess.WithLabelValues(goal, "after").Set(float64(g.ExcessAfter) / all)
	}
}

// counting hears how every activity ended.
type counting struct {
	interceptor.WorkerInterceptorBase
	metrics *metrics
}

// InterceptActivity puts the counting in front of an activity.
func (c *counting) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	i := &countingActivity{metrics: c.metrics}
	i.Next = next
	return i
}

type countingActivity struct {
	interceptor.ActivityInboundInterceptorBase
	metrics *metrics
}

// ExecuteActivity runs the activity and takes what it says of itself.
func (c *countingActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	began := time.Now()
	result, err := c.Next.ExecuteActivity(ctx, in)
	if err == nil {
		c.metrics.done(activity.GetInfo(ctx).ActivityType.Name, in.Args, result, time.Since(began))
	}
	return result, err
}

// done counts one activity that succeeded.
func (m *metrics) done(name string, args []any, result any, took time.Duration) {
	switch name {
	case protocol.ActivityClaim:
		m.claimed.WithLabelValues("move").Inc()
	case protocol.ActivitySwapClaim:
		m.claimed.WithLabelValues("swap").Inc()
	case protocol.ActivityCopy:
		if r, ok := result.(protocol.CopyResult); ok {
			m.copied.Add(float64(r.BytesCopied))
		}
	case protocol.ActivityCommit, protocol.ActivityPromote:
		m.ended.WithLabelValues("move", "committed").Inc()
	case protocol.ActivitySwapCommit:
		m.ended.WithLabelValues("swap", "committed").Inc()
	case protocol.ActivityAbort:
		if r, ok := result.(protocol.AbortResult); ok && !r.Committed {
			m.ended.WithLabelValues("move", "aborted").Inc()
		}
	case protocol.ActivitySwapAbort:
		if r, ok := result.(protocol.AbortResult); ok && !r.Committed {
			m.ended.WithLabelValues("swap", "aborted").Inc()
		}
	case protocol.ActivityFinish:
		if r, ok := result.(protocol.FinishResult); ok {
			m.frozen.Observe(r.FrozenMS / 1000)
		}
	case protocol.ActivityPlan:
		m.planned.Observe(took.Seconds())
	case protocol.ActivitySupervise:
		if pass, ok := result.(protocol.SupervisorPass); ok {
			m.released.Add(float64(len(pass.Released)))
			m.unknownClaims.Set(float64(pass.Unknown))
		}
	}
}
