package extender

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/internal/extender/ledger"
	"github.com/divvy-gpu/divvy/internal/lease"
	"github.com/divvy-gpu/divvy/internal/listener"
)

// Options are what a server is started with.
type Options struct {
	// Follow reads and watches pods and nodes.
	Follow kubernetes.Interface
	// Write writes Bindings and events. Lock is that of the election, and guards it.
	Write kubernetes.Interface
	Lock  *lease.Lock
	// List lists all pods as the API server has them now, and not as it remembers them.
	List     func(context.Context) (*metav1.PartialObjectMetadataList, error)
	Election Election
	// Again tells that the lease may be one of a process with the same identity that ended a moment ago.
	Again  bool
	Ledger ledger.Config
	// Questions takes what schedulers ask, over TLS as it says, Plain answers metrics and probes; the server closes both.
	Questions, Plain net.Listener
	TLS              *tls.Config
	// Step is told of each step of a binding, nil tells nobody.
	Step func(string)
	Log  *slog.Logger
}

const (
	// longestHeader is how long a connection may take for the handshake and for the header of a request.
	longestHeader = 5 * time.Second
	longestIdle   = 10 * time.Minute
	headerBytes   = 16 << 10
	// mostConnections is how many connections are open for questions. A scheduler keeps one or two. mostProbing is for metrics and
	// probes, each of which may make a new one.
	mostConnections = 256
	mostProbing     = 32
	// streams and windowBytes bound what one connection of HTTP/2 can have under way, and unread.
	streams     = 250
	windowBytes = 256 << 10
	// drain bounds how long questions under way may take when the server ends: one for a Binding reads the pod, writes, reads what it
	// conflicts with, writes again and reads what became of that. The pod has 35 s to end.
	drain = 2*longestWrite + 3*longestRead
	// tick is the time between two looks at what has become of bindings and GPUs.
	tick = time.Second
)

// server is one run of Serve.
type server struct {
	options Options
	core    *core
	known   *following
	binder  *binder
	counts  *counts
	leads   atomic.Bool
	ending  atomic.Bool
}

// Serve answers a scheduler while it holds the lease, until the context ends or the lease is lost, and finishes what has begun.
func Serve(ctx context.Context, o Options) error {
	l, err := ledger.New(o.Ledger) //nolint:contextcheck // selectors are bounded by their cost, not by a context
	if err != nil {
		return errors.Join(fmt.Errorf("make the ledger: %w", err), o.Questions.Close(), o.Plain.Close())
	}
	if o.Step == nil {
		o.Step = func(string) {}
	}
	s := &server{options: o, core: newCore(l)}
	registry := prometheus.NewRegistry()
	s.counts = newCounts(registry, s.core)
	s.binder = &binder{core: s.core, client: o.Write, now: time.Now, step: o.Step, counts: s.counts, log: o.Log}
	s.known = follow(o.Follow, s.core)

	running, stop := context.WithCancel(ctx)
	defer s.known.running.Wait()
	defer stop()
	s.known.start(running)
	asked, probed := listener.NewPort(o.Questions, mostConnections), listener.NewPort(o.Plain, mostProbing)
	questions, plain := s.questions(asked), s.probes(registry, probed)
	s.counts.watch(registry, asked)
	fault := make(chan error, 2)
	for _, serve := range []func() error{
		func() error { return questions.ServeTLS(asked, "", "") },
		func() error { return plain.Serve(probed) },
	} {
		go func() {
			if err := serve(); !errors.Is(err, http.ErrServerClosed) {
				fault <- err
				stop()
			}
		}()
	}
	worked, err := o.Election.lead(running, o.Lock, o.Log.Info, func(leading context.Context) error {
		return s.work(leading, questions)
	})
	stop()
	closed := errors.Join(questions.Close(), plain.Close())
	select {
	case unserved := <-fault:
		return fmt.Errorf("serve: %w", unserved)
	default:
	}
	switch {
	case worked != nil:
		return worked
	case ctx.Err() != nil:
		return closed
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: another replica works now, and this one restarts", ErrLeaseLost)
}

// work answers from when everything is known until the context ends; then it finishes what has begun, while it still holds the
// lease.
func (s *server) work(ctx context.Context, questions *http.Server) error {
	s.core.advance(time.Now())
	before := time.Now()
	if !s.known.wait(ctx) {
		return nil
	}
	if e := &s.options.Election; s.options.Again { // what that one wrote may yet be on its way
		if pause(ctx, e.Duration-e.Deadline-time.Since(before)) != nil {
			return nil
		}
	}
	err := s.known.catchUp(ctx, s.options.List, func(why string) {
		s.options.Log.InfoContext(ctx, "nothing is placed until all pods are known", "waits", why)
	})
	if err != nil {
		return nil // the context's
	}
	s.leads.Store(true)
	s.counts.leads.Set(1)
	s.options.Log.InfoContext(ctx, "answering the scheduler", "address", s.options.Questions.Addr().String())
	s.look(ctx)
	s.ending.Store(true)
	s.leads.Store(false)
	s.counts.leads.Set(0)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if err := questions.Shutdown(ending); err != nil {
		return fmt.Errorf("end the server: %w", err)
	}
	return nil
}

// look follows bindings and GPUs until the context ends or another replica may lead.
func (s *server) look(ctx context.Context) {
	fences := &fences{core: s.core, client: s.options.Write, now: time.Now, counts: s.counts, log: s.options.Log, identity: s.options.Election.Identity}
	caller := &caller{core: s.core, client: s.options.Write, now: time.Now, counts: s.counts, log: s.options.Log}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := s.options.Lock.Held(); err != nil {
			s.options.Log.ErrorContext(ctx, "another replica may answer now", "error", err)
			return
		}
		s.core.advance(time.Now())
		s.binder.look(ctx)
		fences.look(ctx)
		caller.look(ctx)
	}
}

// away says why nothing is answered, nil if it is.
func (s *server) away() error {
	switch {
	case s.ending.Load():
		return fmt.Errorf("%w: this replica of divvy scheduler-extender ends", errAway)
	case !s.known.known():
		return fmt.Errorf("%w: divvy scheduler-extender has not read the cluster's pods and nodes yet", errAway)
	case !s.leads.Load():
		return fmt.Errorf("%w: this replica of divvy scheduler-extender does not hold lease %s/%s", errAway, s.options.Election.Namespace, s.options.Election.Name)
	}
	if err := s.options.Lock.Held(); err != nil {
		return fmt.Errorf("%w: %w", errAway, err)
	}
	return nil
}

// ready says why no scheduler is answered, nil if one is. Without a certificate none gets as far as a question.
func (s *server) ready() error {
	if err := s.away(); err != nil || s.options.TLS.GetCertificate == nil {
		return err
	}
	certificate, err := s.options.TLS.GetCertificate(&tls.ClientHelloInfo{})
	switch {
	case err != nil:
		return fmt.Errorf("%w: find the certificate to answer with: %w", errAway, err)
	case certificate.Leaf != nil && time.Now().After(certificate.Leaf.NotAfter):
		return fmt.Errorf("%w: the serving certificate has expired at %s", errAway, certificate.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// questions is the server for schedulers.
func (s *server) questions(port *listener.Port) *http.Server {
	h := &handler{core: s.core, binder: s.binder, away: s.away, room: newRoom(roomBytes), counts: s.counts, log: s.options.Log}
	// A scheduler that is set up wrongly is told of, and not each of many.
	faults := &listener.Seldom{To: slog.NewLogLogger(s.options.Log.Handler(), slog.LevelInfo).Writer(), Now: time.Now}
	return &http.Server{
		Handler: h.mux(), TLSConfig: s.options.TLS, ConnState: port.State, ConnContext: listener.WithConnection,
		ReadHeaderTimeout: longestHeader, ReadTimeout: longestHeader + longestWait + longestBody, WriteTimeout: longestWait + longestBody + drain + longestSend,
		IdleTimeout: longestIdle, MaxHeaderBytes: headerBytes,
		// The time-outs above do not end a connection of HTTP/2 whose other end takes nothing at all.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streams, MaxReceiveBufferPerConnection: windowBytes, MaxReceiveBufferPerStream: windowBytes / 2, WriteByteTimeout: longestSend,
		},
		ErrorLog: log.New(faults, "", 0),
	}
}

// probes answers metrics and probes: healthy is a server that runs and whose core is not kept by anybody for good, standing one that knows the cluster and would answer if it led,
// ready one that answers.
func (s *server) probes(registry *prometheus.Registry, port *listener.Port) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		s.core.unseen() // which waits for the core as every question does
		probed(w, nil)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { probed(w, s.ready()) })
	mux.HandleFunc("GET /standingz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.away(); !s.known.known() || s.ending.Load() {
			probed(w, err)
			return
		}
		probed(w, nil)
	})
	return &http.Server{
		Handler: mux, ConnState: port.State, ReadHeaderTimeout: longestHeader, ReadTimeout: longestBody, WriteTimeout: longestSend, IdleTimeout: longestIdle, MaxHeaderBytes: headerBytes,
		ErrorLog: slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
	}
}

func probed(w http.ResponseWriter, fault error) {
	if fault != nil {
		http.Error(w, fault.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}
