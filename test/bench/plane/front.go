package plane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// Trouble is what befalls requests on their way to the API server.
type Trouble string

// The troubles.
const (
	Calm Trouble = ""
	// Slow lets each request wait.
	Slow Trouble = "slow"
	// Busy refuses half of the requests as an API server with too many of them does.
	Busy Trouble = "busy"
	// Deaf has a third of the writes done and loses the answer.
	Deaf Trouble = "deaf"
	// Full refuses writes as an API server does whose etcd has no space left.
	Full Trouble = "full"
	// Away cuts every connection.
	Away Trouble = "away"
	// Blind ends requests that follow something, and refuses new ones.
	Blind Trouble = "blind"
)

// Troubles are all of them that can befall.
var Troubles = []Trouble{Slow, Busy, Deaf, Full, Away, Blind}

// NoSpace is what etcd says without space.
const NoSpace = "etcdserver: mvcc: database space exceeded"

// Front stands before the API server. Programs ask it, and who judges them asks the API server itself.
type Front struct {
	*httptest.Server
	proxy *httputil.ReverseProxy
	sees  func(*http.Request) (follows bool)

	mutex sync.Mutex
	now   Trouble
	// met counts the requests that met trouble.
	met int
	// sight ends with the requests that follow something.
	sight context.Context //nolint:containedctx // requests go on beside each other
	end   context.CancelFunc
}

// errLost marks answers that are lost on their way.
var errLost = errors.New("answer is lost")

// NewFront stands before a server. It shows sees each request, which says whether that is one that [Blind] ends.
func NewFront(server string, sees func(*http.Request) (follows bool)) (*Front, error) {
	target, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("stand before the API server: %w", err)
	}
	f := &Front{sees: sees}
	f.sight, f.end = context.WithCancel(context.Background())
	silent := log.New(io.Discard, "", 0) // connections are cut on purpose
	f.proxy = &httputil.ReverseProxy{
		ErrorLog:      silent,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1, // watches are told at once
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 64, //nolint:gosec // it signs its own certificate
		},
		ModifyResponse: func(r *http.Response) error {
			if f.is(Deaf) && writes(r.Request) && rand.IntN(3) == 0 {
				_ = r.Body.Close()
				return errLost
			}
			return nil
		},
		// Nothing is answered: the connection ends.
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { cut(w) },
	}
	f.Server = httptest.NewUnstartedServer(f)
	f.Config.ErrorLog = silent
	f.StartTLS() // tokens are sent to such servers alone
	return f, nil
}

// Close ends it. Who connects again meanwhile is cut off as well: it would wait for a watch that goes on.
func (f *Front) Close() {
	f.Set(Away)
	f.end()
	f.Server.Close()
}

// Set changes the trouble. Connections end when the API server is away.
func (f *Front) Set(next Trouble) {
	f.mutex.Lock()
	f.now = next
	if next == Blind {
		f.end()
		f.sight, f.end = context.WithCancel(context.WithoutCancel(f.sight))
	}
	f.mutex.Unlock()
	if next == Away {
		f.CloseClientConnections()
	}
}

func (f *Front) is(t Trouble) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.now == t
}

// Met counts the requests that have met trouble.
func (f *Front) Met() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.met
}

func writes(r *http.Request) bool { return r.Method != http.MethodGet }

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	follows := f.sees(r)
	f.mutex.Lock()
	now, sight := f.now, f.sight
	if now != Calm {
		f.met++
	}
	f.mutex.Unlock()
	if follows {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(sight, cancel)() //nolint:contextcheck // what ends the sight ends the request too
		r = r.WithContext(ctx)
	}
	switch {
	case now == Slow:
		timer := time.NewTimer(time.Duration(50+rand.IntN(700)) * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	case now == Busy && rand.IntN(2) == 0:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, "TooManyRequests", "too many requests, please try again later")
		return
	case now == Full && writes(r):
		refuse(w, http.StatusInternalServerError, "", NoSpace)
		return
	case now == Blind && follows:
		refuse(w, http.StatusServiceUnavailable, "ServiceUnavailable", "this cannot be followed")
		return
	case now == Away:
		cut(w)
		return
	}
	f.proxy.ServeHTTP(w, r)
}

func refuse(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":%q}`, reason, code, message) //nolint:errcheck // whoever asked is gone
}

func cut(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		conn.Close()
	}
}
