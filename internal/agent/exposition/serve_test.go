package exposition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// However many scrape at once, there is one rendering for all of them.
func TestScrapesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		handler := Handler(Probes{}, writer(func(out io.Writer) error {
			made++
			time.Sleep(time.Second / 2) // of the bubble's clock
			_, err := fmt.Fprintln(out, made)
			return err
		}))
		var asking sync.WaitGroup
		for range 50 {
			asking.Go(func() {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				if w.Code != http.StatusOK || w.Body.String() != "1\n" {
					t.Errorf("%d: %s", w.Code, w.Body)
				}
			})
		}
		asking.Wait()
		time.Sleep(fresh)
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil)); w.Body.String() != "2\n" {
			t.Errorf("a second later: %s", w.Body)
		}
	})
	broken := Handler(Probes{}, writer(func(io.Writer) error { return errors.New("the registry is broken") }))
	w := httptest.NewRecorder()
	if broken.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil)); w.Code != http.StatusInternalServerError {
		t.Errorf("a writer that fails: %d", w.Code)
	}
}

// Whoever waits for a rendering that never ends is told so.
func TestAScrapeThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		handler := Handler(Probes{}, writer(func(io.Writer) error { <-end; return nil }))
		go handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
		synctest.Wait()
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil)); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
		close(end)
	})
}

// mute is a client that asks and never reads.
type mute struct {
	http.ResponseWriter
	writing chan<- struct{}
	until   <-chan struct{}
}

func (m mute) Write(text []byte) (int, error) {
	m.writing <- struct{}{}
	<-m.until
	return len(text), nil
}

// Clients that never read keep nobody from being answered.
func TestScrapesThatAreNotRead(t *testing.T) {
	handler := Handler(Probes{}, writer(func(out io.Writer) error { _, err := io.WriteString(out, "told"); return err }))
	writing, until := make(chan struct{}), make(chan struct{})
	var waiting sync.WaitGroup
	for range 20 {
		waiting.Go(func() {
			handler.ServeHTTP(mute{httptest.NewRecorder(), writing, until}, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		})
		<-writing
	}
	w := httptest.NewRecorder()
	if handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil)); w.Code != http.StatusOK || w.Body.String() != "told" {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	close(until)
	waiting.Wait()
}

type writer func(io.Writer) error

func (w writer) Write(_ context.Context, out io.Writer) error { return w(out) }

func TestProbes(t *testing.T) {
	sick := errors.New("the kubelet does not know us yet")
	handler := Handler(Probes{Ready: func() error { return sick }}, shown(&teller{}))
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/": 404, "/debug/pprof/": 404} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		if answer.Code != want || want == 503 && !strings.Contains(answer.Body.String(), sick.Error()) {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
	}
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listener, err := Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if _, err := Listen(ctx, address); err == nil || !strings.Contains(err.Error(), "--metrics-address") {
		t.Errorf("an address that is taken: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, listener, Handler(Probes{}, shown(&teller{}))) }()
	answer, err := http.Get("http://" + address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := http.Get("http://" + address + "/healthz"); err == nil {
		t.Error("it still answers")
	}
}
