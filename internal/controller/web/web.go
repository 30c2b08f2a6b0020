// Package web shows the cluster's GPUs, shares and waiting pods in a browser, and to `divvy ls --cluster`. Each reader
// gives a token of the cluster, and sees the nodes and the pods of which the API server says that it may list them.
//
// The cluster is watched, reviewed and rendered only while somebody looks. Tokens come in headers or in a form, and stay
// in sealed cookies: none is in an address, a log line or an error.
package web

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/internal/explanation"
	"github.com/divvy-gpu/divvy/internal/listener"
	"github.com/divvy-gpu/divvy/internal/overview"
	"github.com/divvy-gpu/divvy/internal/webpage"
)

// TokenHeader has a reader's token where the API server's proxy passes a request on: it takes the header Authorization
// away.
const TokenHeader = "X-Divvy-Authorization"

// Options are what pages are made with.
type Options struct {
	// Client reads the cluster. Reviews asks who tokens are and what they may see; its own bound of requests keeps those who
	// try tokens from holding up anything else.
	Client, Reviews kubernetes.Interface
	// Certificate supplies the server's certificate, or an error while there is none.
	Certificate func() (*tls.Certificate, error)
	// Version is Divvy's.
	Version string
	Now     func() time.Time
	Log     *slog.Logger
}

// every is how long one look at the cluster serves all readers.
const every = 2 * time.Second

// Pages are the cluster's.
type Pages struct {
	site     *webpage.Site
	readers  *readers
	sessions *sessions
	caches   *caches
	door     *door
	now      func() time.Time
	log      *slog.Logger
	// stuck and most are stuckTime and mostConnections, but in tests.
	stuck time.Duration
	most  int

	turn chan struct{} // has one entry while somebody looks at the cluster; guards last and at
	last *overview.Overview
	at   time.Time
}

// New makes the pages.
func New(o Options) *Pages {
	p := &Pages{
		door: newDoor(), readers: newReaders(o.Reviews, o.Now), sessions: &sessions{certificate: o.Certificate, now: o.Now},
		caches: &caches{client: o.Client, now: o.Now, log: o.Log}, now: o.Now, log: o.Log, turn: make(chan struct{}, 1), stuck: stuckTime, most: mostConnections,
	}
	p.site = webpage.New(webpage.Config{
		Of: "the cluster", Cluster: true, Form: true, Version: o.Version, Overview: p.overview, Every: every, Log: o.Log,
		Note: "What GPUs and shares use at the moment is not shown here: divvy node NODE asks the node's agent.",
	})
	p.caches.rested = p.forget
	return p
}

// forget drops what was made of the cluster, which would stay in memory until somebody looks again.
func (p *Pages) forget() {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	p.last = nil
	p.site.Forget()
}

// ServeHTTP implements [http.Handler].
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer enter(p.door.requests)()
	path := strings.TrimPrefix(r.URL.Path, "/")
	token, given := p.tokenOf(r)
	found, leave := p.readers.kept(token), func() {}
	if found == nil {
		leave = enter(p.door.guests)
		defer leave()
	}
	switch {
	case path == "healthz":
		_, _ = fmt.Fprintln(w, "ok") // who asks is gone
		return
	case path == "session":
		p.session(w, r)
		return
	case found == nil && token == "":
		found = &reader{}
	case found == nil:
		var err error
		if found, err = p.readers.find(r.Context(), token, p.namespaces); err != nil {
			p.unsure(w, r, err)
			return
		}
	}
	if found.known {
		leave()
		p.site.Answer(w, r, webpage.Reader{Key: found.key(), Name: found.name}, path)
		return
	}
	p.refuse(w, r, path, given)
}

// refuse answers who has no token that the cluster takes: programs are told so, and browsers are shown the form.
func (p *Pages) refuse(w http.ResponseWriter, r *http.Request, path string, given bool) {
	if given || strings.HasSuffix(path, ".json") {
		webpage.Headers(w.Header(), true)
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "give a token that the cluster takes, in the header "+TokenHeader+": Bearer TOKEN", http.StatusUnauthorized)
		return
	}
	if _, err := r.Cookie(cookieName); err == nil {
		http.SetCookie(w, cookie(""))
	}
	p.site.Answer(w, r, webpage.Reader{}, path)
}

// tokenOf is the token of a request, "" for none. It reports whether a header had it.
func (p *Pages) tokenOf(r *http.Request) (token string, given bool) {
	for _, name := range []string{TokenHeader, "Authorization"} {
		if text := r.Header.Get(name); text != "" {
			scheme, token, _ := strings.Cut(text, " ")
			if !strings.EqualFold(scheme, "Bearer") {
				return "", true
			}
			return strings.TrimSpace(token), true
		}
	}
	sealed, err := r.Cookie(cookieName)
	if err != nil {
		return "", false
	}
	token, err = p.sessions.open(sealed.Value)
	if err != nil {
		return "", false
	}
	return token, false
}

// unsure answers where it cannot be found out what a reader may see.
func (p *Pages) unsure(w http.ResponseWriter, r *http.Request, err error) {
	webpage.Headers(w.Header(), true)
	if r.Context().Err() == nil {
		p.log.WarnContext(r.Context(), "a reader of the web page cannot be told anything", "error", err)
	}
	w.Header().Set("Retry-After", "2")
	text := "it cannot be found out what you may see: try again in a moment"
	if errors.Is(err, errReading) {
		text = errReading.Error() + ": try again in a moment"
	}
	http.Error(w, text, http.StatusServiceUnavailable)
}

// overview is what readers with a key see.
func (p *Pages) overview(ctx context.Context, key string) (*overview.Overview, error) {
	if key == "" {
		o := overview.New(p.now())
		o.Nodes, o.Hidden = nil, nobody
		return o, nil
	}
	var by rights
	if err := json.Unmarshal([]byte(key), &by); err != nil {
		return nil, fmt.Errorf("decode a reader's rights: %w", err)
	}
	all, err := p.whole(ctx)
	if err != nil {
		return nil, err
	}
	return by.shown(all), nil
}

// namespaces are those with something to see.
func (p *Pages) namespaces(ctx context.Context) ([]string, error) {
	all, err := p.whole(ctx)
	if err != nil {
		return nil, err
	}
	return namespacesOf(all), nil
}

// whole is everything: looked at just now, or anew.
func (p *Pages) whole(ctx context.Context) (*overview.Overview, error) {
	if err := take(ctx, p.turn); err != nil {
		return nil, err
	}
	defer func() { <-p.turn }()
	if p.last != nil && time.Since(p.at) < every/2 {
		return p.last, nil
	}
	begun := time.Now()
	from, err := p.caches.source(ctx)
	if err != nil {
		return nil, err
	}
	all, err := explanation.Whole(ctx, from, p.now())
	if err != nil {
		return nil, fmt.Errorf("look at the cluster: %w", err)
	}
	p.last, p.at = all, begun
	return all, nil
}

const (
	// mostStreams bounds what one connection has under way; an API server's proxy opens another one for more.
	mostStreams = 100
	// headerBytes is room for a token in a header, a cookie and what API servers add.
	headerBytes = 32 << 10
	headerTime  = 5 * time.Second
	answerTime  = 30 * time.Second
	idleTime    = time.Minute
	// stuckTime is how long a connection may take no byte.
	stuckTime = 10 * time.Second
)

// Serve answers at a listener until the context ends, and closes it.
func (p *Pages) Serve(ctx context.Context, l net.Listener, log *slog.Logger) error {
	server := &http.Server{
		Handler: p, ConnState: note,
		ReadHeaderTimeout: headerTime, ReadTimeout: answerTime, WriteTimeout: answerTime, IdleTimeout: idleTime, MaxHeaderBytes: headerBytes,
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: mostStreams, WriteByteTimeout: p.stuck},
		ErrorLog:  slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.sessions.certificate() }},
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var under sync.WaitGroup
	under.Go(func() { p.caches.run(ctx) })
	under.Go(func() {
		<-ctx.Done()
		_ = server.Close() // what was under way is asked for again
	})
	err := server.ServeTLS(listener.New(l, listener.Bounds{Most: p.most}), "", "")
	ended := ctx.Err() != nil
	stop()
	under.Wait()
	if ended && errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the web page: %w", err)
}
