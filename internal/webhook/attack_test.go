package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// held is a server of one path, whose verdicts on requests named "held" wait until they may go on.
type held struct {
	url           string
	began, goOn   chan struct{}
	now, mostHeld atomic.Int32
	endpoint      *endpoint
}

func newHeld(t *testing.T) *held {
	t.Helper()
	h := &held{began: make(chan struct{}, 1000), goOn: make(chan struct{})}
	h.endpoint = &endpoint{
		path: "/", small: newLane(smallBytes), large: newLane(largeBytes), counts: newCounts(prometheus.NewRegistry()), log: quiet(),
		judge: func(_ context.Context, request *admissionv1.AdmissionRequest) (admission, error) {
			if request.Name == "held" {
				now := h.now.Add(1)
				for most := h.mostHeld.Load(); now > most && !h.mostHeld.CompareAndSwap(most, now); most = h.mostHeld.Load() {
				}
				h.began <- struct{}{}
				<-h.goOn
				h.now.Add(-1)
			}
			return admission{}, nil
		},
	}
	server := httptest.NewServer(h.endpoint)
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

// reviewOf is a review with a body of about so many bytes.
func reviewOf(t testing.TB, name string, bytes int) []byte {
	t.Helper()
	request := &admissionv1.AdmissionRequest{UID: "1", Name: name, Object: runtime.RawExtension{Raw: []byte(`{"a":"` + strings.Repeat("x", bytes) + `"}`)}}
	text, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (h *held) post(ctx context.Context, body []byte) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, firstOf(err, response.Body.Close())
}

func firstOf(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestLongBodies sends forty bodies of 7 MiB at once: one is in memory, and an ordinary review is answered meanwhile.
func TestLongBodies(t *testing.T) {
	const bodies, length = 40, 7 << 20
	h := newHeld(t)
	long := reviewOf(t, "held", length)
	var group sync.WaitGroup
	codes := make(chan int, bodies)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range bodies {
		group.Go(func() {
			code, err := h.post(ctx, long)
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			codes <- code
		})
	}
	<-h.began
	if code, err := h.post(t.Context(), reviewOf(t, "honest", 100)); code != http.StatusOK || err != nil {
		t.Errorf("an ordinary review meanwhile: %d, %v", code, err)
	}
	close(h.goOn)
	for range 5 { // the others go on as these
		// Those that did not get a turn in time are told to come again.
		if code := <-codes; code != http.StatusOK && code != http.StatusTooManyRequests {
			t.Errorf("status %d", code)
		}
	}
	cancel()
	group.Wait()
	if most := h.mostHeld.Load(); most != 1 {
		t.Errorf("%d bodies of %d bytes were judged at once", most, length)
	}
}

// TestManyReviews has as many small ones wait in their verdicts as the lane takes from one address.
func TestManyReviews(t *testing.T) {
	h := newHeld(t)
	most := smallBytes / 4 * 3 / leastBytes
	var group sync.WaitGroup
	for range 2 * most {
		group.Go(func() {
			if code, err := h.post(t.Context(), reviewOf(t, "held", 10)); err != nil || code != http.StatusOK && code != http.StatusTooManyRequests {
				t.Errorf("%d, %v", code, err)
			}
		})
	}
	for range most {
		<-h.began
	}
	if now := h.now.Load(); int(now) != most {
		t.Errorf("%d are judged at once, want %d", now, most)
	}
	close(h.goOn)
	group.Wait()
	if got := int(h.mostHeld.Load()); got != most {
		t.Errorf("%d were judged at once, want %d", got, most)
	}
}

// TestBodiesOfOtherLengths has bodies that are longer than any, that do not come, and that do not say how long they are.
func TestBodiesOfOtherLengths(t *testing.T) {
	h := newHeld(t)
	ask := func(header, body string) string {
		connection, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = connection.Close() }()
		if _, err := fmt.Fprintf(connection, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n%s\r\n\r\n%s", header, body); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(connection)
		if err != nil && len(text) == 0 {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(string(text), "\r\n")
		return line
	}
	good := string(reviewOf(t, "honest", 10))
	for header, c := range map[string]struct{ body, want string }{
		fmt.Sprintf("Content-Length: %d", longestReview+1): {"", "413"},
		"Content-Length: 1000":                             {"{", "408"},
		"Transfer-Encoding: chunked":                       {fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(good), good), "200"},
		fmt.Sprintf("Content-Length: %d", len(good)):       {good, "200"},
		"Content-Length: 0":                                {"", "400"},
	} {
		if got := ask(header, c.body); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", header, got, c.want)
		}
	}
	if h.endpoint.small.used != 0 || h.endpoint.large.used != 0 {
		t.Errorf("still counted: %d and %d bytes", h.endpoint.small.used, h.endpoint.large.used)
	}
}

// TestIdleConnections opens a thousand connections that ask nothing: a review is answered, and few stay open.
func TestIdleConnections(t *testing.T) {
	r := start(t, installed(t))
	r.ready(t)
	address := strings.TrimPrefix(r.reviews, "https://")
	for range 1000 {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = connection.Close() }()
	}
	if response, err := r.ask(t, PathMutatePods, podRequest(t, asking)); err != nil || !response.Allowed {
		t.Fatalf("%+v, %v", response, err)
	}
	metrics, err := http.Get(r.plain + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(metrics.Body)
	_ = metrics.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\ndivvy_webhook_connections ")
	line, _, _ := strings.Cut(after, "\n")
	if open, err := strconv.Atoi(line); err != nil || open > mostConnections {
		t.Errorf("%s connections are open, more than %d", line, mostConnections)
	}
}
