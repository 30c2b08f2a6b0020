package webhook

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/divvy-gpu/divvy/internal/listener"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The reference of metrics is made from this file.
func TestMetricsAreTold(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := newCounts(registry)
	c.watch(registry, listener.NewPort(nil, 1))
	c.reviews.WithLabelValues("/mutate-pods", "allowed").Inc()
	c.duration.WithLabelValues("/mutate-pods")
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	const golden = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(golden, answer.Body.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.Body.String(); got != string(want) {
		t.Errorf("told are\n%s\nwant\n%s", got, want)
	}
}
