package native

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the broker's own counters; copies never count as produce or fetch traffic.
type Metrics struct {
	ProducedBytes  prometheus.Counter
	FetchedBytes   prometheus.Counter
	Parked         prometheus.Counter
	ParkRefused    prometheus.Counter
	FrozenSeconds  prometheus.Histogram
	FreezesExpired prometheus.Counter
}

// NewMetrics registers the broker's metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		ProducedBytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "portage_produced_bytes_total", Help: "Record batch bytes appended for clients."}),
		FetchedBytes:  prometheus.NewCounter(prometheus.CounterOpts{Name: "portage_fetched_bytes_total", Help: "Record batch bytes sent to clients."}),
		Parked:        prometheus.NewCounter(prometheus.CounterOpts{Name: "portage_parked_requests_total", Help: "Produce requests parked while a partition was frozen or opening."}),
		ParkRefused:   prometheus.NewCounter(prometheus.CounterOpts{Name: "portage_park_refused_total", Help: "Parked produce requests refused because the bound of the park passed."}),
		FrozenSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "portage_frozen_seconds", Help: "From the first parked request of a freeze until the partition took writes again, here or at its new owner.",
			Buckets: []float64{.01, .02, .04, .06, .08, .12, .2, .4, .8, 1.6, 5, 30}}),
		FreezesExpired: prometheus.NewCounter(prometheus.CounterOpts{Name: "portage_freeze_leases_expired_total", Help: "Freezes ended by their lease."}),
	}
	registry.MustRegister(m.ProducedBytes, m.FetchedBytes, m.Parked, m.ParkRefused, m.FrozenSeconds, m.FreezesExpired)
	return m
}

// Figures are what a broker has at one moment.
type Figures struct {
	Partitions  map[State]int // every state there is, also those that no partition is in
	ParkedBytes int64
	HeldRows    int
}

// Figures counts them now.
func (b *Broker) Figures() Figures {
	f := Figures{Partitions: map[State]int{StateGone: 0}}
	for state := range legal {
		f.Partitions[state] = 0
	}
	for _, p := range b.Partitions() {
		p.mu.Lock()
		f.Partitions[p.state]++
		f.ParkedBytes += p.parked
		p.mu.Unlock()
	}
	rows, _ := b.held.all()
	f.HeldRows = len(rows)
	return f
}
