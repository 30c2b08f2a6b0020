package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/internal/dialect"
)

// running is a server on the loopback with its own certificates.
type running struct {
	client         *fake.Clientset
	reviews, plain string
	end            context.CancelFunc
	ended          chan error
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func start(t *testing.T, client *fake.Clientset) *running {
	t.Helper()
	translator, err := dialect.NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\ndialects: {plain: {}}"))
	if err != nil {
		t.Fatal(err)
	}
	reviews, plain := listen(t), listen(t)
	ctx, end := context.WithCancel(context.Background())
	r := &running{client: client, reviews: "https://" + reviews.Addr().String(), plain: "http://" + plain.Addr().String(), end: end, ended: make(chan error, 1)}
	go func() {
		r.ended <- Serve(ctx, Options{
			Client: client, Translator: translator, Reviews: reviews, Plain: plain, Certificates: OwnCertificates,
			Namespace: "divvy-system", Service: "divvy-webhook", Hosts: []string{"127.0.0.1"},
			Secret: "certificates", Configuration: DefaultConfiguration, Log: quiet(),
		})
	}()
	t.Cleanup(func() {
		end()
		if err := <-r.ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return r
}

// ready asks the probe until it says so.
func (r *running) ready(t *testing.T) {
	t.Helper()
	for {
		response, err := http.Get(r.plain + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return
		}
	}
}

// ask posts a review as an API server would that trusts what it was told to.
func (r *running) ask(t *testing.T, path string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundles(t, r.client)[0])
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request})
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Post(r.reviews+path+"?timeout=10s", "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(response.Body).Decode(&review); err != nil {
		return nil, fmt.Errorf("status %d: %w", response.StatusCode, err)
	}
	return review.Response, nil
}

func TestServe(t *testing.T) {
	// The configurations are trusted by the time that the certificate is served: ready waits for the latter.
	client := installed(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "team"}, Spec: corev1.ResourceQuotaSpec{Hard: quotaOf("8Gi")}}
	if err := client.Tracker().Add(quota); err != nil {
		t.Fatal(err)
	}
	r := start(t, client)
	r.ready(t)
	response, err := r.ask(t, PathMutatePods, podRequest(t, asking))
	if err != nil || !response.Allowed || len(response.Patch) == 0 {
		t.Fatalf("%+v, %v", response, err)
	}
	response, err = r.ask(t, PathMutatePods, podRequest(t, strings.Replace(asking, "4Gi", "9Gi", 1)))
	if err != nil || response.Allowed || !strings.Contains(response.Result.Message, `quota "team" allows 8Gi`) {
		t.Errorf("beyond the quota: %+v, %v", response, err)
	}
	metrics, err := http.Get(r.plain + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = metrics.Body.Close() }()
	text, err := io.ReadAll(metrics.Body)
	if err != nil || !strings.Contains(string(text), `divvy_webhook_reviews_total{path="/mutate-pods",result="patched"} 1`) {
		t.Errorf("%s, %v", text, err)
	}
}

func quotaOf(memory string) corev1.ResourceList {
	var spec corev1.ResourceQuotaSpec
	if err := json.Unmarshal([]byte(`{"hard":{"requests.divvy.dev/gpu-memory":"`+memory+`"}}`), &spec); err != nil {
		return nil
	}
	return spec.Hard
}

// TestServeAnswersWhatHasBegun ends the server while a review is under way.
func TestServeAnswersWhatHasBegun(t *testing.T) {
	client := installed(t)
	under, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		once.Do(func() { close(under) })
		<-goOn
		return false, nil, nil
	})
	r := start(t, client)
	r.ready(t)
	type answer struct {
		response *admissionv1.AdmissionResponse
		err      error
	}
	answered := make(chan answer, 1)
	request := podRequest(t, usingTwo)
	go func() {
		response, err := r.ask(t, PathValidatePods, request)
		answered <- answer{response, err}
	}()
	<-under
	r.end()
	close(goOn)
	if a := <-answered; a.err != nil || !a.response.Allowed {
		t.Errorf("a review under way: %+v, %v", a.response, a.err)
	}
}

// TestServeIsNotReadyBeforeItKnows has the list of published GPUs fail at first.
func TestServeIsNotReadyBeforeItKnows(t *testing.T) {
	client := installed(t)
	asked, open := make(chan struct{}, 100), make(chan struct{})
	client.PrependReactor("list", "resourceslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked <- struct{}{}
		<-open
		return true, &resourcev1.ResourceSliceList{}, nil
	})
	r := start(t, client)
	<-asked
	for path, want := range map[string]int{"/readyz": http.StatusServiceUnavailable, "/healthz": http.StatusOK} {
		response, err := http.Get(r.plain + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, response.StatusCode, want)
		}
	}
	close(open)
	r.ready(t)
}
