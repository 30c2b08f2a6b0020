package controller

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The reference of metrics is made from this file.
func TestMetricsAreTold(t *testing.T) {
	registry := prometheus.NewRegistry()
	newController(fake.NewClientset(), v1alpha1.SchedulerName, "me", silent(), registry)
	answer := httptest.NewRecorder()
	probes(registry).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
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
