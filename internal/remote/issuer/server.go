package issuer

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/listener"
	"github.com/divvy-gpu/divvy/internal/remote/identity"
)

// Options are what a [Server] works with.
type Options struct {
	// Client asks the API server.
	Client kubernetes.Interface
	// Namespace is that of the release, and Agents the user of the agents' service account.
	Namespace, Agents string
	// Names are those by which agents reach the server.
	Names []string
	Log   *slog.Logger
}

// Server answers agents. Each replica of the controller has one.
type Server struct {
	options   Options
	judge     judge
	authority *identity.Authority

	mu   sync.Mutex
	last *tls.Certificate // its own
}

// mostConnections bounds those that are open, mostOfPeer those of one address: a node has one agent.
const (
	mostConnections = 1024
	mostOfPeer      = 16
)

// Serve answers agents until ctx is done. It closes the listener.
func Serve(ctx context.Context, l net.Listener, o Options) error {
	a := await(ctx, o)
	if a == nil {
		return l.Close()
	}
	s := newServer(o, a)
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate(time.Now()) }},
		ErrorLog:  slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		ConnState: busy,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.ServeTLS(listener.New(l, listener.Bounds{Most: mostConnections, Each: mostOfPeer}), "", "")
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("answer agents: %w", err)
}

// await is the authority, once it can be read, and nil when ctx is done.
func await(ctx context.Context, o Options) *identity.Authority {
	said := ""
	for ctx.Err() == nil {
		a, err := open(ctx, o.Client, o.Namespace)
		if err == nil {
			return a
		}
		if text := err.Error(); text != said && ctx.Err() == nil {
			o.Log.Error("no certificates are issued, and this will be tried again", "error", err)
			said = text
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
	return nil
}

// busy tells the bounds which connections wait for a request.
func busy(conn net.Conn, state http.ConnState) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	if one, ok := conn.(*listener.Connection); ok {
		one.Busy(state == http.StateActive)
	}
}

func newServer(o Options, a *identity.Authority) *Server {
	return &Server{options: o, judge: judge{client: o.Client, agents: o.Agents}, authority: a}
}

// certificate is the server's own, which is made anew when half of its time has gone.
func (s *Server) certificate(now time.Time) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && s.last.Leaf.NotAfter.Sub(now) > hostFor/2 {
		return s.last, nil
	}
	certificate, key, err := s.authority.IssueServer(s.options.Names, hostFor)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate just made: %w", err)
	}
	s.last = &pair
	return s.last, nil
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := s.answer(r)
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(answer) // who has gone gets none
	case refused(err):
		s.options.Log.Warn("no certificate was issued", "from", r.RemoteAddr, "error", err)
		http.Error(w, err.Error(), http.StatusForbidden)
	default:
		s.options.Log.Error("no certificate was issued", "from", r.RemoteAddr, "error", err)
		http.Error(w, "the controller cannot tell now: its log says why", http.StatusServiceUnavailable)
	}
}

// answer issues what a request asks for, if that may be.
func (s *Server) answer(r *http.Request) (*issued, error) {
	if r.Method != http.MethodPost || r.URL.Path != pathClaim && r.URL.Path != pathHost || r.URL.RawQuery != "" {
		return nil, fmt.Errorf("%w: there is nothing but POST %s and POST %s", ErrRefused, pathClaim, pathHost)
	}
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		return nil, fmt.Errorf("%w: there is no token", ErrRefused)
	}
	node, err := s.judge.node(r.Context(), token)
	if err != nil {
		return nil, err
	}
	if r.URL.Path == pathHost {
		return s.host(r.Context(), node)
	}
	var claim Claim
	if err := decode(r.Body, &claim); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	hosts, err := s.judge.hosts(r.Context(), claim, node)
	if err != nil {
		return nil, err
	}
	bundle, err := s.authority.Issue(v1alpha1.RemoteClient(node, string(claim.UID)), ClientFor)
	if err != nil {
		return nil, err
	}
	bundle.Hosts = hosts
	text, err := bundle.Encode()
	return &issued{Bundle: string(text)}, err
}

// host issues the certificate of a node that has GPUs for others, for its name and the address that it publishes.
func (s *Server) host(ctx context.Context, node string) (*issued, error) {
	names := []string{node}
	address, err := s.judge.address(ctx, node)
	if err != nil {
		return nil, err
	}
	if address != "" {
		names = append(names, address)
	}
	for _, name := range names {
		if slices.Contains(s.options.Names, name) {
			return nil, fmt.Errorf("%w: %s is the controller's, and not node %s's", ErrRefused, name, node)
		}
	}
	certificate, key, err := s.authority.IssueServer(names, hostFor)
	if err != nil {
		return nil, err
	}
	authority, _, err := s.authority.Encode()
	return &issued{Authority: string(authority), Certificate: string(certificate), Key: string(key)}, err
}

// decode reads one message, of which every field is known.
func decode(r io.Reader, into any) error {
	decoder := json.NewDecoder(io.LimitReader(r, mostBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("read a message: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("read a message: more than one")
	}
	return nil
}
