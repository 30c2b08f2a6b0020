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

const (
	// fresh is for how long one rendering answers all scrapes: who does not read one keeps its memory for as long as a write may take.
	fresh = time.Second
	// longestWait is how long a scrape waits for a rendering: as long as Prometheus does.
	longestWait = 10 * time.Second
)

// Handler answers /metrics with what all the writers write, /healthz and /readyz. Answers are not compressed: that would
// cost a node more than all the rest, and a scrape's way is short.
func Handler(p Probes, writers ...Writer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", &scrapes{turn: make(chan struct{}, 1), writers: writers})
	mux.Handle("GET /healthz", probe(p.Healthy))
	mux.Handle("GET /readyz", probe(p.Ready))
	return mux
}

// scrapes answers with the same rendering who asks at about the same time.
type scrapes struct {
	writers []Writer
	// turn holds one entry while there is a rendering, and guards what was rendered last, and when.
	turn chan struct{}
	last []byte
	at   time.Time
}

// ServeHTTP implements http.Handler. Nobody else waits while it writes: a client may never read.
func (s *scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page, err := s.rendering(r.Context())
	if err != nil {
		status := http.StatusInternalServerError
		if errors.Is(err, context.DeadlineExceeded) {
			status = http.StatusServiceUnavailable
		}
		http.Error(w, err.Error(), status)
		return
	}
	w.Header().Set("Content-Type", ContentType)
	w.Header().Set("X-Content-Type-Options", "nosniff") // a browser shows names that users chose as text
	_, _ = w.Write(page)                                // the client is gone
}

// rendering is what all writers write. Nobody changes it.
func (s *scrapes) rendering(ctx context.Context) ([]byte, error) {
	waiting, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-waiting.Done():
		return nil, fmt.Errorf("wait for metrics that are being gathered: %w", waiting.Err())
	}
	if s.last != nil && time.Since(s.at) < fresh {
		return s.last, nil
	}
	begun := time.Now()
	var page bytes.Buffer
	for _, one := range s.writers {
		// It is for others too: who asked first may go away meanwhile.
		if err := one.Write(context.WithoutCancel(ctx), &page); err != nil {
			return nil, err
		}
	}
	s.last, s.at = page.Bytes(), begun
	return s.last, nil
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
		Handler: noting(handler), ConnContext: withConnection, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(ending) != nil {
			_ = server.Close() // remaining scrapes are dropped
		}
	})
	defer stop()
	if err := server.Serve(bounded(listener)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
