package webhook

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/divvy-gpu/divvy/internal/listener"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	made *x509.Certificate
	key  crypto.Signer
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	made, key, err := sign(template, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, made, key}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: a.made.Raw})
}

// certificate is one of a name, for a use, that is valid until a time from now.
func (a *authority) certificate(name string, use x509.ExtKeyUsage, until time.Duration) *tls.Certificate {
	a.t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(until),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use},
	}
	made, key, err := sign(template, a.made, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{made.Raw}, PrivateKey: key, Leaf: made}
}

// keys are certificates that a test changes.
type keys struct {
	atomic.Pointer[tls.Certificate]
}

func (k *keys) certificate() (*tls.Certificate, error) { return k.Load(), nil }

const serverName = "divvy-webhook.divvy-system.svc"

// secured is a server for reviews as Serve starts it, with a verdict of the test's.
type secured struct {
	url       string
	server    *server
	keys      *keys
	authority *authority
}

func newSecured(t *testing.T, callers Callers, judge verdict) *secured {
	t.Helper()
	s := &secured{keys: &keys{}, authority: newAuthority(t)}
	s.keys.Store(s.authority.certificate(serverName, x509.ExtKeyUsageServerAuth, time.Hour))
	port := listen(t)
	s.server = &server{options: Options{Callers: callers, Log: quiet()}, keys: s.keys, connections: listener.NewPort(port, mostConnections)}
	s.server.synced.Store(true)
	handler := &endpoint{path: "/", small: newLane(smallBytes), large: newLane(largeBytes), counts: newCounts(prometheus.NewRegistry()), log: quiet(), judge: judge}
	reviews := s.server.reviews(handler)
	ended := make(chan error, 1)
	go func() { ended <- reviews.ServeTLS(s.server.connections, "", "") }()
	t.Cleanup(func() { _ = reviews.Close(); <-ended })
	s.url = "https://" + port.Addr().String()
	return s
}

// client trusts the server and shows a certificate, if any.
func (s *secured) client(t *testing.T, shows *tls.Certificate) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(s.authority.made)
	config := &tls.Config{RootCAs: roots, ServerName: serverName, MinVersion: tls.VersionTLS12}
	if shows != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return shows, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (s *secured) ask(t *testing.T, client *http.Client) (int, error) {
	t.Helper()
	response, err := client.Post(s.url, "application/json", bytes.NewReader(reviewOf(t, "a", 10)))
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

func allow(context.Context, *admissionv1.AdmissionRequest) (admission, error) {
	return admission{}, nil
}

func TestCallers(t *testing.T) {
	theirs, other := newAuthority(t), newAuthority(t)
	callers, err := NewCallers(theirs.pem(), []string{"kube-apiserver", "second"})
	if err != nil {
		t.Fatal(err)
	}
	s := newSecured(t, callers, func(ctx context.Context, request *admissionv1.AdmissionRequest) (admission, error) {
		return allow(ctx, request)
	})
	for name, c := range map[string]struct {
		shows  *tls.Certificate
		served bool
	}{
		"the API server":         {theirs.certificate("kube-apiserver", x509.ExtKeyUsageClientAuth, time.Hour), true},
		"another of the names":   {theirs.certificate("second", x509.ExtKeyUsageClientAuth, time.Hour), true},
		"nobody":                 {nil, false},
		"another name":           {theirs.certificate("kubelet", x509.ExtKeyUsageClientAuth, time.Hour), false},
		"of another authority":   {other.certificate("kube-apiserver", x509.ExtKeyUsageClientAuth, time.Hour), false},
		"expired":                {theirs.certificate("kube-apiserver", x509.ExtKeyUsageClientAuth, -time.Minute), false},
		"a server's certificate": {theirs.certificate("kube-apiserver", x509.ExtKeyUsageServerAuth, time.Hour), false},
	} {
		code, err := s.ask(t, s.client(t, c.shows))
		if (code == http.StatusOK) != c.served || !c.served && err == nil { // no answer, not even a refusal
			t.Errorf("%s: %d, %v", name, code, err)
		}
	}
	everybody := newSecured(t, Callers{}, allow)
	if code, err := everybody.ask(t, everybody.client(t, nil)); code != http.StatusOK {
		t.Errorf("where no certificate is asked for: %d, %v", code, err)
	}
}

func TestNewCallersRefuses(t *testing.T) {
	good := newAuthority(t).pem()
	for _, c := range []struct {
		authority []byte
		names     []string
	}{{nil, []string{"a"}}, {[]byte("x"), []string{"a"}}, {good, nil}, {good, []string{""}}} {
		if _, err := NewCallers(c.authority, c.names); err == nil {
			t.Errorf("%.20q with names %q is taken", c.authority, c.names)
		}
	}
}

// A client's certificate that expires while its connection is open is good for what has begun and for nothing more.
func TestClientCertificateThatExpires(t *testing.T) {
	theirs := newAuthority(t)
	callers, err := NewCallers(theirs.pem(), []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	leaf := theirs.certificate("a", x509.ExtKeyUsageClientAuth, time.Minute).Leaf
	now := time.Now()
	handler := callers.unexpired(func() time.Time { return now }, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now = leaf.NotAfter.Add(time.Second) // it expires while the review is judged
		w.WriteHeader(http.StatusOK)
	}))
	for i, want := range []int{http.StatusOK, http.StatusUnauthorized} {
		recorder := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodPost, "/", nil)
		request.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
		handler.ServeHTTP(recorder, request)
		if recorder.Code != want || (recorder.Header().Get("Connection") == "close") != (want != http.StatusOK) {
			t.Errorf("request %d: %d %v", i, recorder.Code, recorder.Header())
		}
	}
}

// The server's own certificate expires during a review: the review is answered, no new connection is made with it, and
// the server says that it is not ready. A renewed one is served at once.
func TestServingCertificateThatExpires(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	s := newSecured(t, Callers{}, func(ctx context.Context, _ *admissionv1.AdmissionRequest) (admission, error) {
		began <- struct{}{}
		<-goOn
		return admission{}, ctx.Err()
	})
	if err := s.server.ready(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	ask := func(client *http.Client) {
		code, err := s.ask(t, client)
		if err == nil && code != http.StatusOK {
			err = errReview
		}
		answered <- err
	}
	client := s.client(t, nil)
	go ask(client)
	<-began
	s.keys.Store(s.authority.certificate(serverName, x509.ExtKeyUsageServerAuth, -time.Minute))
	goOn <- struct{}{}
	if err := <-answered; err != nil {
		t.Errorf("the review under way: %v", err)
	}
	if err := s.server.ready(); err == nil || !strings.Contains(err.Error(), "has expired") {
		t.Errorf("ready: %v", err)
	}
	if code, err := s.ask(t, s.client(t, nil)); err == nil {
		t.Errorf("a new connection: %d", code)
	}
	s.keys.Store(s.authority.certificate(serverName, x509.ExtKeyUsageServerAuth, time.Hour))
	go ask(s.client(t, nil))
	<-began
	goOn <- struct{}{}
	if err := <-answered; err != nil || s.server.ready() != nil {
		t.Errorf("with a new certificate: %v, ready %v", err, s.server.ready())
	}
}
