package extender

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/divvy-gpu/divvy/internal/extender/ledger"
	"github.com/divvy-gpu/divvy/internal/listener"
)

// counts are the server's metrics.
type counts struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	binds    *prometheus.CounterVec
	calls    prometheus.Counter
	fenced   *prometheus.GaugeVec
	leads    prometheus.Gauge
}

func newCounts(registry prometheus.Registerer, c *core) *counts {
	m := &counts{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "divvy_extender_requests_total",
			Help: "Questions of the scheduler, by verb (filter, prioritize, preempt, bind) and result: answered, refused, away or unreadable.",
		}, []string{"verb", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "divvy_extender_request_seconds",
			Help:    "Time from a question to its answer, by verb.",
			Buckets: []float64{.0005, .001, .002, .003, .005, .01, .02, .05, .1, .5, 2, 10},
		}, []string{"verb"}),
		binds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "divvy_extender_binds_total",
			Help: "Bindings written, by what became of them: bound, refused, unanswered, or undone after that.",
		}, []string{"result"}),
		calls: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "divvy_extender_calls_total", Help: "Pods about which the scheduler was told to ask again, because this replica heard later than the scheduler that they fit.",
		}),
		fenced: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "divvy_extender_fenced_gpus",
			Help: "GPUs that take no more shares, by reason: unclaimed (the agent holds a share that no pod has), differing (it holds something else than the pod says), exceeded (more is given than there is), surplus (the node has too many) and unreadable (of a node whose annotations cannot be read, as one).",
		}, []string{"reason"}),
		leads: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "divvy_extender_leads", Help: "1 while this replica answers, and 0 while it follows.",
		}),
	}
	registry.MustRegister(m.requests, m.duration, m.binds, m.calls, m.fenced, m.leads, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "divvy_extender_unseen_binds", Help: "Pods with a place that was reserved, and that watches have not yet told of with a node.",
	}, func() float64 { return float64(c.unseen()) }))
	for result := range map[string]bool{"bound": true, "refused": true, "unanswered": true, "undone": true} {
		m.binds.WithLabelValues(result)
	}
	m.fence(nil)
	return m
}

// fence counts fences.
func (m *counts) fence(all []ledger.Fence) {
	by := map[ledger.FenceKind]int{}
	for i := range all {
		by[all[i].Kind]++
	}
	for _, kind := range ledger.FenceKinds {
		m.fenced.WithLabelValues(string(kind)).Set(float64(by[kind]))
	}
}

// watch counts connections.
func (m *counts) watch(registry prometheus.Registerer, port *listener.Port) {
	registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "divvy_extender_connections", Help: "Connections of schedulers that are open.",
		}, func() float64 { open, _ := port.Figures(); return float64(open) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "divvy_extender_connections_closed_total", Help: "Connections of schedulers that were closed because too many were open.",
		}, func() float64 { _, closed := port.Figures(); return float64(closed) }),
	)
}

func (m *counts) done(verb, result string, began time.Time) {
	m.requests.WithLabelValues(verb, result).Inc()
	m.duration.WithLabelValues(verb).Observe(time.Since(began).Seconds())
}
