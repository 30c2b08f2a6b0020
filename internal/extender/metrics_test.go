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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

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
