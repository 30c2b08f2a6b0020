// Package web shows an agent's GPUs and shares in a browser, beside its metrics. Everybody who reaches the port sees sums;
// owners see their shares, and root all, by a link that the agent's socket gives to whom the kernel says is asking.
//
// The link works once, and leads to an address that is a secret itself and lasts for hours. There are no cookies: a browser
// sends these to every port of this machine's name, behind which other users listen. A page's address it sends to nobody.
package web

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/overview"
	"github.com/divvy-gpu/divvy/internal/webpage"
)

// Source is the agent of which is shown.
type Source interface {
	// Recent may be a second old: it is to cost little.
	Recent(ctx context.Context) (*control.Listing, error)
}

// Config is what [New] works with.
type Config struct {
	Source Source
	// Node is the machine's name, or the node's in its cluster.
	Node string
	// Hosts are names by which browsers may ask, beside those of this machine for itself.
	Hosts []string
	// Off shows no pages.
	Off bool
	// Peer says who asks: a user of this machine. Nil tells of nobody.
	Peer func(r *http.Request) string
	// User is the name of a user.
	User func(uid int) string
	// Version is Divvy's.
	Version string
	Now     func() time.Time
	Log     *slog.Logger
}

// every is how long one look at the shares serves all browsers.
const every = time.Second

// Pages are an agent's.
type Pages struct {
	config  Config
	site    *webpage.Site
	secrets *secrets

	mu      sync.Mutex
	address string // where they are served, "" for nowhere
	last    *control.Listing
	at      time.Time
}

// New makes the pages. They are served where [Pages.Beside] says.
func New(c Config) *Pages {
	p := &Pages{config: c, secrets: newSecrets(c.Now)}
	p.site = webpage.New(webpage.Config{
		Of: c.Node, Version: c.Version, Overview: p.overview, Ended: p.ended, Peer: c.Peer, Every: every, Log: c.Log,
		Advice: "On this machine, divvy web prints a link that shows you your own shares, and root all.",
	})
	return p
}

// Rendered counts how often a page was rendered.
func (p *Pages) Rendered() int { return p.site.Rendered() }

// Link makes a link for a user. The error is a [control.Error].
func (p *Pages) Link(uid int) (string, error) {
	p.mu.Lock()
	address := p.address
	p.mu.Unlock()
	if address == "" {
		remedy := "When it has ended, start one that does: `divvy agent --metrics-address 127.0.0.1:9410`"
		if p.config.Off {
			remedy = "Its configuration turns the page off: write `web: {enabled: true}` there and start it again"
		}
		return "", control.Errorf(control.CodeRefused, "this agent serves no web page. %s", remedy)
	}
	return "http://" + address + "/open/" + p.secrets.invite(uid), nil
}

// Beside serves the pages at a listener beside what else is answered there. Other machines see none of them, whatever
// the listener's address is.
func (p *Pages) Beside(listener net.Listener, others http.Handler) http.Handler {
	at, ok := listener.Addr().(*net.TCPAddr)
	loopback := ok && at.IP.IsLoopback()
	if ok && !p.config.Off {
		host := at.IP.String()
		if !loopback {
			host = "127.0.0.1"
		}
		p.mu.Lock()
		p.address = net.JoinHostPort(host, fmt.Sprint(at.Port))
		p.mu.Unlock()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/healthz" || r.URL.Path == "/readyz":
			others.ServeHTTP(w, r)
		case loopback && !webpage.Local(r.Host, p.config.Hosts):
			misdirected(w, r)
		case r.URL.Path == "/metrics" || p.config.Off || !within(r):
			others.ServeHTTP(w, r)
		case !webpage.Local(r.Host, p.config.Hosts):
			misdirected(w, r)
		default:
			p.serve(w, r)
		}
	})
}

func misdirected(w http.ResponseWriter, r *http.Request) {
	http.Error(w, fmt.Sprintf("asked for by the name %.100q, which is not this machine's for itself: use 127.0.0.1 or localhost, or list the name below web.hosts in the agent's configuration", r.Host), http.StatusMisdirectedRequest)
}

// within reports whether a request came over the loopback interface.
func within(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// The paths below which a link's secret and that of a page stand.
const (
	openPath = "/open/"
	ownPath  = "/s/"
)

func (p *Pages) serve(w http.ResponseWriter, r *http.Request) {
	if secret, ok := strings.CutPrefix(r.URL.Path, openPath); ok {
		p.open(w, r, secret)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, ownPath)
	if !ok {
		p.site.Answer(w, r, webpage.Reader{}, strings.TrimPrefix(r.URL.Path, "/"))
		return
	}
	secret, path, _ := strings.Cut(rest, "/")
	uid, ok := p.secrets.reader(secret)
	if !ok {
		if webpage.Guard(w, r, false) {
			http.Error(w, "this page has ended: divvy web prints a link to a new one", http.StatusNotFound)
		}
		return
	}
	p.site.Answer(w, r, webpage.Reader{Key: fmt.Sprint(uid), Name: p.config.User(uid), First: uid == 0}, path)
}

// ended reports whether the page that a request asked for is a user's that has ended.
func (p *Pages) ended(r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.URL.Path, ownPath)
	if !ok {
		return false
	}
	secret, _, _ := strings.Cut(rest, "/")
	_, ok = p.secrets.reader(secret)
	return !ok
}

// open exchanges a link's secret for a page's. To ask for the headers alone uses nothing up.
func (p *Pages) open(w http.ResponseWriter, r *http.Request, secret string) {
	if !webpage.Guard(w, r, false) {
		return
	}
	if r.Method == http.MethodHead {
		return
	}
	own, ok := p.secrets.open(secret)
	if !ok {
		http.Error(w, "this link was used or is too old: divvy web prints a new one", http.StatusNotFound)
		return
	}
	w.Header().Set("Location", ownPath+own+"/")
	w.WriteHeader(http.StatusSeeOther)
}

// overview is what the reader with a key may see.
func (p *Pages) overview(ctx context.Context, key string) (*overview.Overview, error) {
	listed, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	return overviewOf(p.config.Node, listed, key, p.config.User), nil
}

// listTimeout bounds a listing, which takes some milliseconds.
const listTimeout = 5 * time.Second

// list asks the agent unless it was asked just now: readers of different pages share a listing.
func (p *Pages) list(ctx context.Context) (*control.Listing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil && time.Since(p.at) < every/2 {
		return p.last, nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	listed, err := p.config.Source.Recent(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the agent: %w", err)
	}
	p.last, p.at = listed, time.Now()
	return listed, nil
}
