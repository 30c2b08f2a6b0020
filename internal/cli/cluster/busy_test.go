package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestBusyAPIServer asks one that is busy, and says so for a second each time. Whoever waits no longer than that learns
// the reason, not only that it is too late; whoever waits longer gets an answer. The log has one line.
func TestBusyAPIServer(t *testing.T) {
	var asked, refusals atomic.Int32 // how often it was asked, and how many more are refused
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if refusals.Add(-1) < 0 {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"kind":"ResourceClaim","apiVersion":"resource.k8s.io/v1","metadata":{"name":"c"}}`)
			return
		}
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests, please try again later", http.StatusTooManyRequests)
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "config")
	config := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: "` + server.URL + `"}}]}`
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	c := connection{kubeconfig: path, qps: 100, burst: 100}
	client, err := c.connect(slog.New(slog.NewTextHandler(&text, nil)), "test")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(wait time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		_, err := client.ResourceV1().ResourceClaims("space").Get(ctx, "c", metav1.GetOptions{})
		return err
	}
	// The answer itself may take as long where the machine is busy, but not each time.
	for tries := 1; ; tries++ {
		refusals.Store(1)
		before := asked.Load()
		err := ask(900 * time.Millisecond)
		if errors.Is(err, context.DeadlineExceeded) && tries < 10 {
			continue
		}
		if !apierrors.IsTooManyRequests(err) || asked.Load()-before != 1 {
			t.Errorf("asked %d times: %v", asked.Load()-before, err)
		}
		break
	}
	refusals.Store(1)
	before := asked.Load()
	if err := ask(time.Minute); err != nil || asked.Load()-before != 2 {
		t.Errorf("asked %d times: %v", asked.Load()-before, err)
	}
	if got := strings.Count(text.String(), "the API server is busy; trying again"); got != 1 {
		t.Errorf("%d lines: %s", got, text.String())
	}
}

// The log has a line in ten seconds, however often the API server says so.
func TestBusyIsToldSeldom(t *testing.T) {
	now := time.Unix(1000, 0)
	b := &busy{now: func() time.Time { return now }}
	lines := 0
	for range 30 {
		if b.due() {
			lines++
		}
		now = now.Add(time.Second)
	}
	if lines != 3 {
		t.Errorf("%d lines in 30 seconds", lines)
	}
}
