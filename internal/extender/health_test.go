package extender

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// A server whose core is never let go answers no question, and is not healthy: the liveness probe ends it.
func TestHealthWaitsForTheCore(t *testing.T) {
	w := newWorld(t)
	s := &server{core: w.core, options: Options{Log: slog.New(slog.DiscardHandler)}}
	probes := s.probes(prometheus.NewRegistry(), nil).Handler
	answered := make(chan int, 1)
	ask := func() {
		answer := httptest.NewRecorder()
		probes.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		answered <- answer.Code
	}
	w.core.mu.Lock()
	go ask()
	waits, stacks := false, make([]byte, 1<<20)
	for !waits && len(answered) == 0 {
		waits = strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "(*core).unseen")
	}
	w.core.mu.Unlock()
	if code := <-answered; !waits || code != http.StatusOK {
		t.Errorf("it answers %d, and waits for the core: %v", code, waits)
	}
}
