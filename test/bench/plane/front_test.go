package plane

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// Each trouble is what it says.
func TestTroubles(t *testing.T) {
	var done atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { done.Add(1) }))
	defer server.Close()
	f, err := NewFront(server.URL, func(r *http.Request) bool { return r.Method == http.MethodHead })
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
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
	for now, want := range map[Trouble]int{Calm: http.StatusOK, Slow: http.StatusOK, Full: http.StatusInternalServerError, Away: 0, Blind: http.StatusOK} {
		f.Set(now)
		if code, text := ask(http.MethodPost); code != want || now == Full && !strings.Contains(text, NoSpace) {
			t.Errorf("%q: answered %d %s, want %d", now, code, text, want)
		}
	}
	f.Set(Blind)
	if code, _ := ask(http.MethodHead); code != http.StatusServiceUnavailable {
		t.Errorf("what is to be followed is answered %d", code)
	}
	for now, want := range map[Trouble]int{Busy: http.StatusTooManyRequests, Deaf: 0} {
		f.Set(now)
		seen := map[int]bool{}
		for range 60 {
			code, _ := ask(http.MethodPost)
			seen[code] = true
		}
		if len(seen) != 2 || !seen[http.StatusOK] || !seen[want] {
			t.Errorf("%q: answered %v, want %d and %d", now, seen, want, http.StatusOK)
		}
	}
	f.Set(Deaf)
	before := done.Load()
	for range 60 {
		ask(http.MethodPost)
	}
	if n := done.Load() - before; n < 60 {
		t.Errorf("%d of 60 writes were done", n)
	}
	if f.Met() < 180 {
		t.Errorf("%d requests met trouble", f.Met())
	}
}
