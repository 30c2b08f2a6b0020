package exposition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// DefaultAddress is where an agent listens that is told no other: for programs of the machine alone.
const DefaultAddress = "127.0.0.1:9410"

// Probes say whether the agent works; a nil probe always succeeds.
type Probes struct {
	// Healthy fails when only a restart can help.
	Healthy func() error
	// Ready fails while no claim can be prepared.
	Ready func() error
}

// Writer writes metrics.
type Writer interface {
	Write(ctx context.Context, out io.Writer) error
}

// mostScrapes is how many scrapes are answered at once; others are turned away.
const mostScrapes = 4

// Handler answers /metrics with what all the writers write, /healthz and /readyz. Answers are not compressed: that would
// cost a node more than all the rest, and a scrape's way is short.
func Handler(p Probes, writers ...Writer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", scrapes{turns: make(chan struct{}, mostScrapes), writers: writers})
	mux.Handle("GET /healthz", probe(p.Healthy))
	mux.Handle("GET /readyz", probe(p.Ready))
	return mux
}

type scrapes struct {
	turns   chan struct{}
	writers []Writer
}

// ServeHTTP implements http.Handler.
func (s scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	default:
		http.Error(w, fmt.Sprintf("%d scrapes are being answered: try again", mostScrapes), http.StatusServiceUnavailable)
		return
	}
	var page bytes.Buffer
	for _, one := range s.writers {
		if err := one.Write(r.Context(), &page); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Content-Type", ContentType)
	w.Header().Set("X-Content-Type-Options", "nosniff") // a browser shows names that users chose as text
	_, _ = w.Write(page.Bytes())                        // the client is gone
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

// Listen opens the address, such as 127.0.0.1:9410. It is called first, so that an address in use ends the agent early.
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
