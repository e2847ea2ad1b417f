package worker

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"portage/metastore"
	"portage/workflows/protocol"
)

const (
	// fleetLookBound is how long one look at the fleet may take for a scrape; fleetLookEvery is how long it is taken for the present.
	fleetLookBound = 4 * time.Second
	fleetLookEvery = 10 * time.Second
	// mostBlocked bounds the blocked moves that are counted.
	mostBlocked = 1000
)

// fleetMetrics say how the fleet is, from the metastore and from Temporal, so every worker says the same, also just after its start.
// What can not be asked is NaN or absent, and portage_fleet_view_up says so.
type fleetMetrics struct {
	cfg Config
	mu  sync.Mutex
	// guards:
	at   time.Time
	last fleetLook
}

// fleetLook is one look; an error says that its part is not known.
type fleetLook struct {
	rows                   metastore.FleetFigures
	rowsErr                error
	blocked                map[string]int
	rebalances, retirement int64
	rebalance              *protocol.RebalanceStatus // nil: none runs, or it does not answer
	temporalErr            error
}

var (
	upDesc        = prometheus.NewDesc("portage_fleet_view_up", "Whether the system answered when the fleet was last looked at.", []string{"system"}, nil)
	phasesDesc    = prometheus.NewDesc("portage_moves_in_progress", "Moves whose books are open, by phase; each side of a swap is one.", []string{"phase"}, nil)
	blockedDesc   = prometheus.NewDesc("portage_moves_blocked", "Running moves and swaps that wait for something, by its code.", []string{"code"}, nil)
	rebalanceDesc = prometheus.NewDesc("portage_rebalance_actions", "Actions of the fleet's running rebalance, by state.", []string{"state"}, nil)
	runningDesc   = prometheus.NewDesc("portage_rebalances_in_progress", "Running rebalances, those of decommissions among them.", nil, nil)
	leavingDesc   = prometheus.NewDesc("portage_decommissions_in_progress", "Running decommissions.", nil, nil)
	drainingDesc  = prometheus.NewDesc("portage_draining_brokers", "Brokers that take nothing more and give away what they have.", nil, nil)
	pausedDesc    = prometheus.NewDesc("portage_rebalances_paused", "1 while every rebalance of the fleet is held.", nil, nil)
	restoredDesc  = prometheus.NewDesc("portage_metastore_restored", "1 while there are rows of another Postgres timeline or server, whose partitions change nothing before portage reconcile.", nil, nil)
	samplesDesc   = prometheus.NewDesc("portage_load_sample_age_seconds", "Since the newest pass over the loads that plans are made with.", nil, nil)
)

// Describe names the series.
func (f *fleetMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upDesc, phasesDesc, blockedDesc, rebalanceDesc, runningDesc, leavingDesc, drainingDesc, pausedDesc, restoredDesc, samplesDesc} {
		to <- d
	}
}

// phasesShown are always there, so that an alert on one of them has something to compare with.
var phasesShown = []string{protocol.PhaseClaim, protocol.PhaseEnsure, protocol.PhaseCopy, protocol.PhaseCutover, protocol.PhaseCommit, protocol.PhaseConfirm}

// Collect looks at the fleet, unless somebody just did.
func (f *fleetMetrics) Collect(to chan<- prometheus.Metric) {
	l := f.look()
	set := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	set(upDesc, oneIf(l.rowsErr == nil), "metastore")
	set(upDesc, oneIf(l.temporalErr == nil), "temporal")
	for _, phase := range phasesShown {
		set(phasesDesc, orUnknown(float64(l.rows.MovesByPhase[phase]), l.rowsErr), phase)
		delete(l.rows.MovesByPhase, phase)
	}
	for phase, n := range l.rows.MovesByPhase {
		set(phasesDesc, float64(n), phase)
	}
	set(drainingDesc, orUnknown(float64(l.rows.Draining), l.rowsErr))
	set(pausedDesc, orUnknown(oneIf(l.rows.Paused), l.rowsErr))
	set(restoredDesc, orUnknown(oneIf(l.rows.Restored), l.rowsErr))
	age := math.NaN()
	if l.rowsErr == nil && l.rows.SampleAge != nil {
		age = l.rows.SampleAge.Seconds()
	}
	set(samplesDesc, age)
	for code, n := range l.blocked {
		set(blockedDesc, orUnknown(float64(n), l.temporalErr), code)
	}
	set(runningDesc, orUnknown(float64(l.rebalances), l.temporalErr))
	set(leavingDesc, orUnknown(float64(l.retirement), l.temporalErr))
	var status protocol.RebalanceStatus
	if l.rebalance != nil {
		status = *l.rebalance
	}
	for state, n := range map[string]int{"waiting": status.Waiting, "in_flight": len(status.InFlight), "moved": status.Counts.Moved, "failed": status.Counts.Failed,
		"held": status.Counts.Held, "skipped": status.Counts.Skipped, "cancelled": status.Counts.Cancelled} {
		set(rebalanceDesc, orUnknown(float64(n), l.temporalErr), state)
	}
}

func (f *fleetMetrics) look() fleetLook {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at.IsZero() || time.Since(f.at) >= fleetLookEvery {
		ctx, cancel := context.WithTimeout(context.Background(), fleetLookBound)
		defer cancel()
		f.last = f.lookNow(ctx)
		f.at = time.Now()
	}
	shown := f.last
	shown.rows.MovesByPhase = map[string]int{} // Collect takes it apart
	for phase, n := range f.last.rows.MovesByPhase {
		shown.rows.MovesByPhase[phase] = n
	}
	return shown
}

func (f *fleetMetrics) lookNow(ctx context.Context) (l fleetLook) {
	l.rows, l.rowsErr = f.cfg.Store.Figures(ctx)
	// No code is blocked unless one is found: "none" is there so that the metric always is.
	l.blocked = map[string]int{"none": 0}
	l.temporalErr = f.askTemporal(ctx, &l)
	return l
}

func (f *fleetMetrics) askTemporal(ctx context.Context, l *fleetLook) error {
	running := "ExecutionStatus = 'Running' AND TaskQueue = '" + f.cfg.TaskQueue + "'"
	count := func(what string) (int64, error) {
		answer, err := f.cfg.Temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: fmt.Sprintf("WorkflowType = '%s' AND %s", what, running)})
		return answer.GetCount(), err
	}
	var err error
	if l.rebalances, err = count(protocol.WorkflowRebalance); err != nil {
		return err
	}
	if l.retirement, err = count(protocol.WorkflowDecommission); err != nil {
		return err
	}
	waiting, err := f.cfg.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{PageSize: mostBlocked,
		Query: fmt.Sprintf("WorkflowType IN ('%s', '%s') AND %s != 'none' AND %s", protocol.WorkflowMove, protocol.WorkflowSwap, protocol.AttributeBlocked, running)})
	if err != nil {
		return err
	}
	for _, execution := range waiting.GetExecutions() {
		var code string
		if p, ok := execution.GetSearchAttributes().GetIndexedFields()[protocol.AttributeBlocked]; ok && converter.GetDefaultDataConverter().FromPayload(p, &code) == nil {
			l.blocked[code]++
		}
	}
	if l.rebalances > 0 { // one that does not answer within the bound is shown as none
		if value, err := f.cfg.Temporal.QueryWorkflow(ctx, protocol.RebalanceWorkflowID(f.cfg.TaskQueue), "", protocol.QueryStatus); err == nil {
			var status protocol.RebalanceStatus
			if value.Get(&status) == nil {
				l.rebalance = &status
			}
		}
	}
	return nil
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// orUnknown is v, or NaN when it could not be asked.
func orUnknown(v float64, err error) float64 {
	if err != nil {
		return math.NaN()
	}
	return v
}
