package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Probes say whether the agent works; a nil probe always succeeds.
type Probes struct {
	// Healthy fails when only a restart can help.
	Healthy func() error
	// Ready fails while no claim can be prepared.
	Ready func() error
}

// Handler answers /metrics, /healthz and /readyz.
func (m *Metrics) Handler(p Probes) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		// The others are exported although one metric has an error.
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4,
	}))
	mux.Handle("GET /healthz", probe(p.Healthy))
	mux.Handle("GET /readyz", probe(p.Ready))
	return mux
}

func probe(check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if check != nil {
			if err := check(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "ok") //nolint:errcheck // the client is gone
	})
}

// Listen opens the address, such as :9410. It is called first, so that an address in use ends the agent early.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w: choose another --metrics-address", err)
	}
	return listener, nil
}

// Serve answers on the listener until ctx is done, and closes it.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(ending) != nil {
			_ = server.Close() // remaining scrapes are dropped
		}
	})
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
