package cluster

import (
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// toldEvery is the least time between two lines that say that the API server is busy.
const toldEvery = 10 * time.Second

// busy passes requests on, and says in the log that the API server answers 429: Kubernetes' libraries try again without
// a word. An answer that says to come again after whoever asks has stopped waiting is passed on without that: they would
// sleep until then, and end with nothing but that it is too late.
type busy struct {
	next http.RoundTripper
	log  *slog.Logger
	now  func() time.Time

	mu   sync.Mutex // guards told
	told time.Time
}

// RoundTrip implements [http.RoundTripper].
func (b *busy) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := b.next.RoundTrip(request)
	if err != nil || answer.StatusCode != http.StatusTooManyRequests {
		return answer, err
	}
	if b.due() {
		b.log.Warn("the API server is busy; trying again", "method", request.Method, "path", request.URL.Path)
	}
	seconds, wrong := strconv.Atoi(answer.Header.Get("Retry-After"))
	if deadline, ok := request.Context().Deadline(); ok && wrong == nil && b.now().Add(time.Duration(seconds)*time.Second).After(deadline) {
		answer.Header.Del("Retry-After")
	}
	return answer, nil
}

func (b *busy) due() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if !b.told.IsZero() && now.Sub(b.told) < toldEvery {
		return false
	}
	b.told = now
	return true
}
