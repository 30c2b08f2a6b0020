package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/divvy-gpu/divvy/internal/listener"
)

// counts are the server's metrics.
type counts struct {
	reviews  *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newCounts(registry prometheus.Registerer) *counts {
	c := &counts{
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "divvy_webhook_reviews_total",
			Help: "Admission reviews answered, by path and result: allowed, patched, refused, failed, unreadable or busy.",
		}, []string{"path", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "divvy_webhook_review_seconds",
			Help:    "Time from the first byte of a review to its answer.",
			Buckets: []float64{.001, .005, .02, .1, .5, 2, 10},
		}, []string{"path"}),
	}
	registry.MustRegister(c.reviews, c.duration)
	return c
}

// watch counts connections.
func (c *counts) watch(registry prometheus.Registerer, connections *listener.Port) {
	registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "divvy_webhook_connections", Help: "Connections that are open for reviews.",
		}, func() float64 { open, _ := connections.Figures(); return float64(open) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "divvy_webhook_connections_closed_total", Help: "Connections closed because too many were open.",
		}, func() float64 { _, closed := connections.Figures(); return float64(closed) }),
	)
}

func (c *counts) done(path, result string, began time.Time) {
	c.reviews.WithLabelValues(path, result).Inc()
	c.duration.WithLabelValues(path).Observe(time.Since(began).Seconds())
}
