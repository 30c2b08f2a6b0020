package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/internal/dialect"
	"github.com/divvy-gpu/divvy/internal/listener"
)

// OwnCertificates is the value of [Options.Certificates] with which the server makes its own certificates.
const OwnCertificates = "own"

// Options are what a server is started with.
type Options struct {
	Client kubernetes.Interface
	// Objects reads queues, where the configuration says that they are served.
	Objects    dynamic.Interface
	Translator *dialect.Translator
	// Reviews takes reviews over TLS, Plain answers metrics and probes; the server closes both.
	Reviews, Plain net.Listener
	// Callers are who may ask for reviews.
	Callers Callers
	// Certificates is [OwnCertificates] or a directory with tls.crt and tls.key.
	Certificates string
	// Namespace and Service name the Service that the API server calls; Hosts are further names of the server.
	Namespace, Service string
	Hosts              []string
	// Secret keeps own certificates; Configuration is the name of both webhook configurations, which learn whom to
	// trust.
	Secret, Configuration string
	// Linger is how long the server answers after it was told to end. Meanwhile the Service learns that it is not ready
	// and stops sending reviews.
	Linger time.Duration
	Log    *slog.Logger
}

// drain bounds how long reviews under way may take when the server ends.
const drain = longestWait + time.Second

const (
	// mostConnections is how many connections are open for reviews. API servers keep a few each.
	mostConnections = 256
	// mostProbing is how many connections for metrics and probes are open.
	mostProbing = 32
	// longestHeader is how long a connection may take for the handshake, and for the header of a request.
	longestHeader = 5 * time.Second
	// longestIdle is how long a connection without a request is kept.
	longestIdle = time.Minute
	headerBytes = 16 << 10
	// streams and windowBytes bound what one connection of HTTP/2 can have under way, and unread.
	streams     = 250
	windowBytes = 256 << 10
)

// errUnread says why a server is not ready.
var errUnread = errors.New("the cluster's GPUs, claims, quotas and LimitRanges have not been read yet")

// server is one run of Serve.
type server struct {
	options     Options
	keys        certificates
	connections *listener.Port
	trouble     func() error // of what is known of the cluster
	synced      atomic.Bool
	ending      atomic.Bool
}

// Serve answers reviews until the context ends, and then finishes those that have begun.
func Serve(ctx context.Context, o Options) error {
	s := &server{options: o}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	s.keys = s.certificates(background)

	known := newKnown(o.Client, o.Objects, o.Translator) //nolint:contextcheck // selectors are bounded by their cost, not by a context
	s.trouble = known.trouble
	known.start(background)
	defer known.shutdown()
	defer stop()
	registry := prometheus.NewRegistry()
	judge := &judge{
		translator: o.Translator, specs: newSpecs(o.Client), fleet: known.fleet, runtimes: &known.runtimes, ranges: known.ranges,
		quotas: &quotas{held: known.limits, accounts: known.accounts}, queues: &known.queues,
	}
	s.connections = listener.NewPort(o.Reviews, mostConnections)
	counts := newCounts(registry)
	counts.watch(registry, s.connections)
	reviews := s.reviews(judge.handler(counts, o.Log))
	probing := listener.NewPort(o.Plain, mostProbing)
	plain := &http.Server{
		Handler: s.probes(registry), ConnState: probing.State,
		ReadHeaderTimeout: longestHeader, ReadTimeout: longestWait, WriteTimeout: longestWait, IdleTimeout: longestIdle, MaxHeaderBytes: headerBytes,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}

	ended := make(chan error, 2)
	go func() { ended <- plain.Serve(probing) }()
	go func() {
		// Reviews wait for full caches: with an empty one the server would refuse valid requests.
		if err := known.wait(background); err != nil {
			ended <- err
			return
		}
		// Reading everything leaves several times as much behind as is kept, and nothing of that size comes again soon.
		debug.FreeOSMemory()
		s.synced.Store(true)
		o.Log.Info("answering reviews", "address", o.Reviews.Addr().String())
		ended <- reviews.ServeTLS(s.connections, "", "")
	}()
	select {
	case err := <-ended:
		return errors.Join(fmt.Errorf("serve reviews: %w", err), reviews.Close(), plain.Close())
	case <-ctx.Done():
	}
	return s.end(context.WithoutCancel(ctx), reviews, plain)
}

// reviews is the HTTP server for reviews.
func (s *server) reviews(handler http.Handler) *http.Server {
	o := s.options
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.keys.certificate()
		},
	}
	o.Callers.require(config)
	level := slog.LevelDebug
	if !o.Callers.everybody() {
		level = slog.LevelInfo // who is refused in the handshake may be an API server that is set up wrongly
	}
	return &http.Server{
		Handler:           o.Callers.unexpired(time.Now, handler),
		ConnState:         s.connections.State,
		ConnContext:       listener.WithConnection,
		ReadHeaderTimeout: longestHeader,
		ReadTimeout:       longestWait + longestHeader,
		WriteTimeout:      2 * longestWait,
		IdleTimeout:       longestIdle,
		MaxHeaderBytes:    headerBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streams, MaxReceiveBufferPerConnection: windowBytes, MaxReceiveBufferPerStream: windowBytes / 4},
		ErrorLog:          log.New(&listener.Seldom{To: slog.NewLogLogger(o.Log.Handler(), level).Writer(), Now: time.Now}, "", 0),
		TLSConfig:         config,
	}
}

// certificates starts what keeps them.
func (s *server) certificates(ctx context.Context) certificates {
	o := s.options
	return certificatesOf(ctx, Serving{
		Client: o.Client, Certificates: o.Certificates, Namespace: o.Namespace, Service: o.Service, Hosts: o.Hosts, Secret: o.Secret, Log: o.Log,
	}, o.Configuration)
}

// end answers reviews for a while longer, then finishes those under way.
func (s *server) end(ctx context.Context, reviews, plain *http.Server) error {
	s.ending.Store(true)
	linger := time.NewTimer(s.options.Linger)
	defer linger.Stop()
	<-linger.C
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	// A listener that has not been served is not the server's to close.
	_ = s.options.Reviews.Close()
	if err := errors.Join(reviews.Shutdown(ctx), plain.Shutdown(ctx)); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("end the server: %w", err)
	}
	return nil
}

// probes answers metrics and probes: healthy is a server that runs, ready is one that would answer a review.
func (s *server) probes(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.ready()) })
	return mux
}

func (s *server) ready() error {
	switch {
	case s.ending.Load():
		return errors.New("ending")
	case !s.synced.Load():
		if err := s.trouble(); err != nil {
			return fmt.Errorf("%w: %w", errUnread, err)
		}
		return errUnread
	}
	certificate, err := s.keys.certificate()
	if err == nil && certificate.Leaf != nil && time.Now().After(certificate.Leaf.NotAfter) {
		return fmt.Errorf("the serving certificate has expired at %s", certificate.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return err
}

func answer(w http.ResponseWriter, fault error) {
	if fault != nil {
		http.Error(w, fault.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}
