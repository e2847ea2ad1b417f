package brokeragent

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"portage/brokeragent/native"
)

// metrics registers what the agent counts. docs/metrics.md lists all of it, held by a test. No series is of one partition: a
// broker may have a hundred thousand.
func (a *Agent) metrics() {
	a.unfenced = prometheus.NewCounter(prometheus.CounterOpts{Name: "portage_unfenced_orders_total", Help: "Orders accepted without controller epoch and token."})
	a.sentBytes = prometheus.NewCounter(prometheus.CounterOpts{Name: "portage_copy_sent_bytes_total", Help: "Segment bytes sent to other brokers by moves."})
	a.copiedBytes = prometheus.NewCounter(prometheus.CounterOpts{Name: "portage_copy_received_bytes_total", Help: "Segment bytes received from other brokers by moves."})
	a.fsynced = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "portage_fsync_seconds", Help: "Flushes of records to the disk, each before what it holds is acknowledged.",
		Buckets: []float64{.0005, .001, .002, .004, .008, .016, .032, .064, .128, .256, .512, 1, 4}})
	a.registry.MustRegister(a.unfenced, a.sentBytes, a.copiedBytes, a.fsynced, figures{a}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// Registry is what /metrics shows.
func (a *Agent) Registry() prometheus.Gatherer { return a.registry }

// figures are read when somebody asks. What can not be read is NaN: unknown, and not 0.
type figures struct{ agent *Agent }

var (
	partitionsDesc = prometheus.NewDesc("portage_partitions", "Partitions that this broker has or knows, by state.", []string{"state"}, nil)
	parkedDesc     = gaugeDesc("portage_parked_bytes", "Produced bytes that wait now for a frozen or opening partition.")
	heldDesc       = gaugeDesc("portage_held_rows", "Rows of the metastore that the agent holds durably.")
	sessionsDesc   = gaugeDesc("portage_copy_sessions", "Moves whose copy this broker takes now.")
	reservedDesc   = gaugeDesc("portage_copy_reserved_bytes", "Room promised to the copies this broker takes.")
	diskTotalDesc  = gaugeDesc("portage_disk_total_bytes", "Size of the file system of the data folder.")
	diskFreeDesc   = gaugeDesc("portage_disk_free_bytes", "What is free there.")
	diskFloorDesc  = gaugeDesc("portage_disk_floor_bytes", "What copies leave free there.")
	beatDesc       = gaugeDesc("portage_heartbeat_age_seconds", "Since the metastore last acknowledged a heartbeat.")
	trashDesc      = gaugeDesc("portage_trash_copies", "Former copies in trash.")
	trashBytesDesc = gaugeDesc("portage_trash_bytes", "Bytes of former copies in trash.")
	asideDesc      = gaugeDesc("portage_quarantined_copies", "Former copies that hold records their owner does not have.")
	asideBytesDesc = gaugeDesc("portage_quarantined_bytes", "Bytes of copies in quarantine.")
	asideRecsDesc  = gaugeDesc("portage_quarantined_records", "Offsets in quarantined copies that are nowhere else.")
)

func gaugeDesc(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }

// Describe names the series.
func (f figures) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{partitionsDesc, parkedDesc, heldDesc, sessionsDesc, reservedDesc, diskTotalDesc, diskFreeDesc, diskFloorDesc, beatDesc, trashDesc, trashBytesDesc,
		asideDesc, asideBytesDesc, asideRecsDesc} {
		to <- d
	}
}

// Collect reads them.
func (f figures) Collect(to chan<- prometheus.Metric) {
	a := f.agent
	set := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	has := a.native.Figures()
	for state, n := range has.Partitions {
		set(partitionsDesc, float64(n), string(state))
	}
	set(parkedDesc, float64(has.ParkedBytes))
	set(heldDesc, float64(has.HeldRows))
	set(sessionsDesc, float64(len(a.sessions.ids())))
	set(reservedDesc, float64(a.sessions.reserved("")))
	total, free, err := a.root.disk()
	set(diskTotalDesc, known(float64(total), err))
	set(diskFreeDesc, known(float64(free), err))
	set(diskFloorDesc, float64(a.cfg.DiskFloorBytes))
	age := math.NaN()
	if at := a.beatAt.Load(); at != nil {
		age = time.Since(*at).Seconds()
	}
	set(beatDesc, age)
	f.kept(a.native.Trash(), set)
}

func (f figures) kept(t *native.Trash, set func(*prometheus.Desc, float64, ...string)) {
	trash, aside, err := t.Kept()
	set(trashDesc, known(float64(trash.Copies), err))
	set(trashBytesDesc, known(float64(trash.Bytes), err))
	set(asideDesc, known(float64(aside.Copies), err))
	set(asideBytesDesc, known(float64(aside.Bytes), err))
	_, records, err := t.Quarantined()
	set(asideRecsDesc, known(float64(records), err))
}

// known is v, or NaN when reading it failed.
func known(v float64, err error) float64 {
	if err != nil {
		return math.NaN()
	}
	return v
}
