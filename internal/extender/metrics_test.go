package extender

import (
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/extender/ledger"
	"github.com/divvy-gpu/divvy/internal/listener"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The reference of metrics is made from this file.
func TestMetricsAreTold(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := newCounts(registry, newCore(ledgerOf(t)))
	c.watch(registry, listener.NewPort(nil, 1))
	c.requests.WithLabelValues(VerbFilter, "answered").Inc()
	c.duration.WithLabelValues(VerbFilter)
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

// What pods and agents say differently is told by its reason, and told no more when it has ended.
func TestDifferencesAreTold(t *testing.T) {
	node := nodeOf(t, "a", 1)
	held, err := v1alpha1.NodeHeld{Shares: []v1alpha1.ShareHeld{{Pod: "gone", Name: "main", GPUs: []v1alpha1.GPUAssigned{{UUID: "GPU-61-0", Memory: gib}}}}}.Text()
	if err != nil {
		t.Fatal(err)
	}
	w, before := newWorld(t, node), node.DeepCopy()
	registry := prometheus.NewRegistry()
	f := &fences{core: w.core, client: fake.NewClientset(), now: w.now, counts: newCounts(registry, w.core), log: w.binder.log}
	told := func(want int) {
		t.Helper()
		f.look(t.Context())
		answer := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if line := fmt.Sprintf("divvy_extender_fenced_gpus{reason=%q} %d\n", ledger.FencedUnclaimed, want); !strings.Contains(answer.Body.String(), line) {
			t.Errorf("%s is not in %s", line, answer.Body.String())
		}
	}
	w.core.advance(w.now())
	told(0)
	node.Annotations[v1alpha1.HeldAnnotation] = held
	w.core.setNode(trimNode(node))
	w.core.advance(w.now())
	told(0)
	w.core.advance(w.now().Add(time.Hour))
	told(1)
	w.core.setNode(trimNode(before))
	told(0)
}

// BenchmarkFilter asks over HTTPS about all nodes, between bindings.
func BenchmarkFilter(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		b.Run(strconv.Itoa(nodes), func(b *testing.B) {
			w := newWorld(b)
			var names []string
			for i := range nodes {
				n := nodeOf(b, fmt.Sprintf("node-%04d.example", i), 8)
				names = append(names, fmt.Sprintf("%q", n.Name))
				w.core.setNode(trimNode(n))
			}
			h := &handler{core: w.core, binder: w.binder, away: func() error { return nil }, room: newRoom(roomBytes), counts: w.binder.counts, log: slog.New(slog.DiscardHandler)}
			config, err := InMemory()
			if err != nil {
				b.Fatal(err)
			}
			listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
			if err != nil {
				b.Fatal(err)
			}
			server := &http.Server{Handler: h.mux(), ReadHeaderTimeout: longestHeader}
			go server.Serve(listener) //nolint:errcheck // it ends with the benchmark
			defer server.Close()
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // it is this process's
			defer client.CloseIdleConnections()
			text := fmt.Sprintf(`{"Pod":{"metadata":{"name":"p","namespace":"default","uid":"uid-p","annotations":{"divvy.dev/request":%q}}},"Nodes":null,"NodeNames":[%s]}`, requestText(b, 10), strings.Join(names, ","))
			number := 0
			for b.Loop() {
				answer, err := client.Post("https://"+listener.Addr().String()+"/filter", "application/json", strings.NewReader(text)) //nolint:noctx // it is this process's
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, answer.Body); err != nil {
					b.Fatal(err)
				}
				_ = answer.Body.Close()
				pod := podOf(b, "q"+strconv.Itoa(number), 10)
				if pod.Spec.NodeName = fmt.Sprintf("node-%04d.example", number%nodes); number < 2*nodes {
					w.core.setPod(pod)
				}
				number++
			}
		})
	}
}
