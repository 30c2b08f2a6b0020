package faults

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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// trouble is what befalls requests on their way to the API server.
type trouble string

const (
	calm trouble = ""
	// slow lets each request wait.
	slow trouble = "slow"
	// busy refuses half of the requests as an API server with too many of them does.
	busy trouble = "busy"
	// deaf has a third of the writes done and loses the answer.
	deaf trouble = "deaf"
	// full refuses writes as an API server does whose etcd has no space left.
	full trouble = "full"
	// away cuts every connection.
	away trouble = "away"
	// blind ends the watches of claims, and refuses new ones.
	blind trouble = "blind"
)

// troubles are all of them that can befall.
var troubles = []trouble{slow, busy, deaf, full, away, blind}

// noSpace is what etcd says without space.
const noSpace = "etcdserver: mvcc: database space exceeded"

// front stands before the API server. The schedulers ask it, the test asks the API server itself.
type front struct {
	*httptest.Server
	proxy *httputil.ReverseProxy

	mutex sync.Mutex
	now   trouble
	// met counts the requests that met trouble, lists those which claims there are.
	met, lists int
	// sight ends with the watches of claims that go on.
	sight context.Context //nolint:containedctx // requests go on beside each other
	end   context.CancelFunc
}

// errLost marks answers that are lost on their way.
var errLost = errors.New("answer is lost")

func newFront(t *testing.T, server string) *front {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{}
	f.sight, f.end = context.WithCancel(t.Context())
	silent := log.New(io.Discard, "", 0) // connections are cut on purpose
	f.proxy = &httputil.ReverseProxy{
		ErrorLog:      silent,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1, // watches are told at once
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 64, //nolint:gosec // it signs its own certificate
		},
		ModifyResponse: func(r *http.Response) error {
			if f.is(deaf) && writes(r.Request) && rand.IntN(3) == 0 {
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
	t.Cleanup(func() {
		f.set(away) // who connects again meanwhile is cut off as well, or Close would wait for a watch that goes on
		f.Close()
	})
	return f
}

// set changes the trouble. Connections end when the API server is away.
func (f *front) set(next trouble) {
	f.mutex.Lock()
	f.now = next
	if next == blind {
		f.end()
		f.sight, f.end = context.WithCancel(context.WithoutCancel(f.sight))
	}
	f.mutex.Unlock()
	if next == away {
		f.CloseClientConnections()
	}
}

func (f *front) is(t trouble) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.now == t
}

// has counts the requests that have met trouble.
func (f *front) has() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.met
}

func writes(r *http.Request) bool { return r.Method != http.MethodGet }

// asked counts the requests which claims there are.
func (f *front) asked() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.lists
}

// onlyNames reports whether a request asks which claims there are, and not what they are.
func onlyNames(r *http.Request) bool {
	return ofClaims(r) && strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList")
}

func ofClaims(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/resourceclaims")
}

// follows reports whether a request would have somebody follow claims: it watches them or lists them as they are.
func follows(r *http.Request) bool {
	return ofClaims(r) && !onlyNames(r)
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mutex.Lock()
	now, sight := f.now, f.sight
	if now != calm {
		f.met++
	}
	if onlyNames(r) {
		f.lists++
	}
	f.mutex.Unlock()
	if follows(r) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(sight, cancel)() //nolint:contextcheck // what ends the sight ends the request too
		r = r.WithContext(ctx)
	}
	switch {
	case now == slow:
		timer := time.NewTimer(time.Duration(50+rand.IntN(700)) * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	case now == busy && rand.IntN(2) == 0:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, "TooManyRequests", "too many requests, please try again later")
		return
	case now == full && writes(r):
		refuse(w, http.StatusInternalServerError, "", noSpace)
		return
	case now == blind && follows(r):
		refuse(w, http.StatusServiceUnavailable, "ServiceUnavailable", "claims cannot be followed")
		return
	case now == away:
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

// Each trouble is what it says.
func TestTroubles(t *testing.T) {
	var done atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { done.Add(1) }))
	defer server.Close()
	f := newFront(t, server.URL)
	ask := func(method string) (code int, text string) {
		request, err := http.NewRequestWithContext(t.Context(), method, f.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := f.Client().Do(request)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close() //nolint:errcheck // only read
		all, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(all)
	}
	for now, want := range map[trouble]int{calm: http.StatusOK, slow: http.StatusOK, full: http.StatusInternalServerError, away: 0} {
		f.set(now)
		if code, text := ask(http.MethodPost); code != want || now == full && !strings.Contains(text, noSpace) {
			t.Errorf("%q: answered %d %s, want %d", now, code, text, want)
		}
	}
	for now, want := range map[trouble]int{busy: http.StatusTooManyRequests, deaf: 0} {
		f.set(now)
		seen := map[int]bool{}
		for range 60 {
			code, _ := ask(http.MethodPost)
			seen[code] = true
		}
		if len(seen) != 2 || !seen[http.StatusOK] || !seen[want] {
			t.Errorf("%q: answered %v, want %d and %d", now, seen, want, http.StatusOK)
		}
	}
	f.set(deaf)
	before := done.Load()
	for range 60 {
		ask(http.MethodPost)
	}
	if n := done.Load() - before; n < 60 {
		t.Errorf("%d of 60 writes were done", n)
	}
}
