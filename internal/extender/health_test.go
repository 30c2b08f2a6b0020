package extender

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
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

// A replica with which no scheduler can have a connection is not ready, also while it leads.
func TestReadyWithACertificate(t *testing.T) {
	w := newWorld(t)
	e := Election{Leases: fake.NewClientset().CoordinationV1(), Namespace: "divvy-system", Name: "extender", Identity: "me", Duration: 2 * time.Hour, Deadline: time.Hour}
	s := &server{options: Options{Lock: e.Lock(), Election: e, Log: slog.New(slog.DiscardHandler)}, core: w.core, known: follow(fake.NewClientset(), w.core)}
	for i := range s.known.synced {
		s.known.synced[i] = func() bool { return true }
	}
	s.leads.Store(true)
	if err := s.options.Lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
		t.Fatal(err)
	}
	probes := s.probes(prometheus.NewRegistry(), nil).Handler
	ends := func(at time.Time) *tls.Certificate {
		return &tls.Certificate{Leaf: &x509.Certificate{NotAfter: at}}
	}
	for name, test := range map[string]struct {
		certificate *tls.Certificate
		fault       error
		want        string
	}{
		"there is one":  {ends(time.Now().Add(time.Hour)), nil, "ok"},
		"there is none": {nil, errors.New("tls.crt: no such file"), "tls.crt: no such file"},
		"it has ended":  {ends(time.Now().Add(-time.Hour)), nil, "has expired"},
	} {
		s.options.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return test.certificate, test.fault }}
		answer := httptest.NewRecorder()
		probes.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if (answer.Code == http.StatusOK) != (test.want == "ok") || !strings.Contains(answer.Body.String(), test.want) {
			t.Errorf("%s: %d %s", name, answer.Code, answer.Body)
		}
	}
}
