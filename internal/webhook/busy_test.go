package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/divvy-gpu/divvy/internal/dialect"
)

// busyAPI is an API server without objects, which can be too busy to answer.
type busyAPI struct {
	busy atomic.Bool
	mu   sync.Mutex
	end  chan struct{} // of all watches that are open
	open atomic.Int32
}

func (b *busyAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	switch {
	case b.busy.Load():
		w.WriteHeader(http.StatusTooManyRequests)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Reason: metav1.StatusReasonTooManyRequests, Code: http.StatusTooManyRequests, Message: "too many requests, please try again later",
		})
	case query.Get("watch") != "":
		b.watch(w, r, query.Get("sendInitialEvents") == "true")
	default:
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
		})
	}
}

// watch says that there is nothing, and then nothing more until it is to end.
func (b *busyAPI) watch(w http.ResponseWriter, r *http.Request, initial bool) {
	kind := map[string]string{
		"resourceclaims": "resource.k8s.io/v1 ResourceClaim", "resourceslices": "resource.k8s.io/v1 ResourceSlice",
		"deviceclasses": "resource.k8s.io/v1 DeviceClass", "runtimeclasses": "node.k8s.io/v1 RuntimeClass", "resourcequotas": "v1 ResourceQuota",
		"limitranges": "v1 LimitRange",
	}[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]]
	version, kind, _ := strings.Cut(kind, " ")
	b.mu.Lock()
	end := b.end
	b.mu.Unlock()
	b.open.Add(1)
	defer b.open.Add(-1)
	if initial {
		_, _ = fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", kind, version)
	}
	if flusher, ok := w.(http.Flusher); ok {
		flusher.Flush()
	}
	select {
	case <-end:
	case <-r.Context().Done():
	}
}

// set begins or ends a time in which it is too busy. Open watches end when it begins.
func (b *busyAPI) set(busy bool) {
	b.busy.Store(busy)
	if busy {
		b.mu.Lock()
		defer b.mu.Unlock()
		close(b.end)
		b.end = make(chan struct{})
	}
}

// connectBusy starts such an API server, which is busy, and returns a client of it.
func connectBusy(t *testing.T) (*busyAPI, kubernetes.Interface) {
	t.Helper()
	b := &busyAPI{end: make(chan struct{})}
	b.busy.Store(true)
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return b, client
}

// TestAPIServerThatIsBusy starts the server while the API server answers 429 to all its questions. It waits, and says
// why in one line. Later it goes on answering reviews while the API server is busy again.
func TestAPIServerThatIsBusy(t *testing.T) {
	b, client := connectBusy(t)
	translator, err := dialect.NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\ndialects: {plain: {}}"))
	if err != nil {
		t.Fatal(err)
	}
	id, err := renewIdentity(nil, []string{serverName}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	keys := t.TempDir()
	write(t, keys, id, keyCertificate, keyPrivate)
	reviews, plain := listen(t), listen(t)
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, Options{
			Client: client, Translator: translator, Reviews: reviews, Plain: plain, Certificates: keys,
			Namespace: "divvy-system", Service: "divvy-webhook", Log: quiet(),
		})
	}()
	defer func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	probe := func(want func(code int, text string) bool) {
		t.Helper()
		last := ""
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			response, err := http.Get("http://" + plain.Addr().String() + "/readyz")
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if last = string(text); err == nil && want(response.StatusCode, last) {
				return
			}
		}
		t.Fatalf("the probe says %q", last)
	}
	probe(func(code int, text string) bool {
		return code == http.StatusServiceUnavailable && strings.Count(text, "\n") == 1 &&
			strings.Contains(text, "have not been read yet: ") && strings.Contains(text, "resourceclaims: ") && strings.Contains(text, "too many requests")
	})
	b.set(false)
	probe(func(code int, _ string) bool { return code == http.StatusOK })
	b.set(true)
	roots := x509.NewCertPool()
	roots.AddCert(id.authorities[0])
	ask := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: serverName, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
	body := reviewOf(t, "honest", 10)
	response, err := ask.Post("https://"+reviews.Addr().String()+PathMutatePods, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
		t.Errorf("a review meanwhile: %s", response.Status)
	}
}

// TestFollowingKnowsWhenItIsTold has watches end and the API server be too busy to open others.
func TestFollowingKnowsWhenItIsTold(t *testing.T) {
	b, client := connectBusy(t)
	translator, err := dialect.NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\ndialects: {plain: {}}"))
	if err != nil {
		t.Fatal(err)
	}
	k := newKnown(client, nil, translator)
	ctx, stop := context.WithCancel(context.Background())
	k.start(ctx)
	defer k.shutdown()
	defer stop()
	until := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("never %s; trouble: %v", what, k.trouble())
			}
		}
	}
	told := func() bool { return !k.accounts.followed().IsZero() }
	until("in trouble", func() bool { return k.trouble() != nil })
	if told() {
		t.Error("it is told of claims by an API server that answers nothing")
	}
	b.set(false)
	until("told", func() bool { return told() && k.trouble() == nil })
	b.set(true)
	until("not told", func() bool { return !told() && k.trouble() != nil })
	b.set(false)
	until("told again", func() bool { return told() && k.trouble() == nil })
}
