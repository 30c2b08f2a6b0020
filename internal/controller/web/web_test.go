package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// gpuNode is a node, what it publishes, and claims on it, each NAMESPACE/NAME.
func gpuNode(name string, claims ...string) []runtime.Object {
	objects := []runtime.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
			Driver: v1alpha1.Driver, NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "gpu-0-shared",
				Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{v1alpha1.AttributeIndex: {IntValue: new(int64(0))}, v1alpha1.AttributeUUID: {StringValue: new("GPU-" + name)}},
				Capacity:   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{v1alpha1.CapacityMemory: {Value: resource.MustParse("40Gi")}},
			}},
		}},
	}
	for _, claim := range claims {
		namespace, own, _ := strings.Cut(claim, "/")
		objects = append(objects, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: own}, Status: resourcev1.ResourceClaimStatus{
			Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
				Driver: v1alpha1.Driver, Pool: name, Device: "gpu-0-shared", ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{
					v1alpha1.CapacityMemory: resource.MustParse("4Gi"), v1alpha1.CapacityCores: resource.MustParse("20")},
			}}}},
		}})
	}
	return objects
}

func waitingPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{v1alpha1.RequestAnnotation: "x"}},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no GPU has <b>40Gi</b> free"}}},
	}
}

// world is a cluster with a page, of which a test knows who may see what.
type world struct {
	pages *Pages
	log   *bytes.Buffer

	mu      sync.Mutex
	now     time.Time
	users   map[string]string   // by token
	may     map[string][]string // by user: nodes, pods, pods/NAMESPACE
	reviews int                 // of tokens
	asked   int                 // about rights
	fault   error
}

func (w *world) passes(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) reviewed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reviews
}

// review answers the API server's reviews.
func (w *world) review(action clienttesting.Action) (bool, runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	create, _ := action.(clienttesting.CreateAction)
	switch object := create.GetObject().(type) {
	case *authenticationv1.TokenReview:
		w.reviews++
		answer := object.DeepCopy()
		if name, ok := w.users[object.Spec.Token]; ok {
			answer.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: name, Groups: []string{"team"}}}
		}
		return true, answer, w.fault
	case *authorizationv1.SubjectAccessReview:
		w.asked++
		a := object.Spec.ResourceAttributes
		what := a.Resource
		if a.Namespace != "" {
			what += "/" + a.Namespace
		}
		answer := object.DeepCopy()
		answer.Status.Allowed = a.Verb == "list" && slices.Contains(object.Spec.Groups, "team") && slices.Contains(w.may[object.Spec.User], what)
		return true, answer, nil
	}
	return false, nil, nil
}

func testCertificate(t testing.TB) func() (*tls.Certificate, error) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	t.Cleanup(server.Close)
	c := server.TLS.Certificates[0]
	return func() (*tls.Certificate, error) { return &c, nil }
}

func newWorld(t testing.TB, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{now: noon, log: &bytes.Buffer{}, users: map[string]string{}, may: map[string][]string{}}
	client := fake.NewClientset(objects...)
	client.PrependReactor("create", "*", w.review)
	w.pages = New(Options{
		Client: client, Reviews: client, Certificate: testCertificate(t), Version: "test", Log: slog.New(slog.NewTextHandler(w.log, nil)),
		Now: func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.now },
	})
	t.Cleanup(func() { w.pages.caches.rest(true) })
	return w
}

func (w *world) user(token, name string, may ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.users[token], w.may[name] = name, may
}

func (w *world) ask(method, path string, header http.Header, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if header != nil {
		r.Header = header
	}
	answer := httptest.NewRecorder()
	w.pages.ServeHTTP(answer, r)
	return answer
}

func (w *world) get(path, token string) *httptest.ResponseRecorder {
	header := http.Header{}
	if token != "" {
		header.Set(TokenHeader, "Bearer "+token)
	}
	return w.ask(http.MethodGet, path, header, "")
}

func (w *world) post(body string, header http.Header) *httptest.ResponseRecorder {
	if header == nil {
		header = http.Header{"Sec-Fetch-Site": {"same-origin"}}
	}
	header.Set("Content-Type", "application/x-www-form-urlencoded")
	return w.ask(http.MethodPost, "/session", header, body)
}

// busy is a cluster with two nodes and three namespaces.
func busy() []runtime.Object {
	objects := append(gpuNode("n1", "red/train", "blue/infer"), gpuNode("n2", "green/batch")...)
	return append(objects, waitingPod("red", "late"), waitingPod("blue", "later"))
}

// TestWhoSeesWhat asks as readers of different rights, by JSON and by page.
func TestWhoSeesWhat(t *testing.T) {
	w := newWorld(t, busy()...)
	w.user("t-all", "root", "nodes", "pods")
	w.user("t-nodes", "ops", "nodes")
	w.user("t-red", "ada", "pods/red")
	w.user("t-both", "eve", "nodes", "pods/blue")
	w.user("t-pods", "pod", "pods")
	w.user("t-none", "nil")
	for _, c := range []struct {
		token      string
		seen, kept []string
	}{
		{"t-all", []string{"n1", "n2", "train", "infer", "batch", `"late"`, `"later"`, `"count":2`}, []string{"You see"}},
		{"t-nodes", []string{"n1", "n2", `"count":2`, `"granted":8589934592`, `"waitingUnseen":2`, "hidden"}, []string{"train", "infer", "batch", `"late`}},
		{"t-red", []string{"n1", "train", `"late"`, `"count":1`, `"granted":4294967296`, `"cores":20`, "namespace red"}, []string{"n2", "infer", "batch", "later", "blue", "green", "waitingUnseen"}},
		{"t-both", []string{"n1", "n2", "infer", `"later"`, `"count":2`, `"waitingUnseen":1`}, []string{"train", "batch", `"late"`, `"red"`, ">red<"}},
		{"t-pods", []string{"n1", "n2", "train", "infer", "batch", "hidden"}, nil},
		{"t-none", []string{`"nodes":null`, "You see nothing"}, []string{"GPU-n1", "train", "late"}},
	} {
		answer := w.get("/cluster.json", c.token)
		if answer.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", c.token, answer.Code, answer.Body)
		}
		for _, text := range c.seen {
			if !strings.Contains(answer.Body.String(), text) {
				t.Errorf("%s does not see %s: %s", c.token, text, answer.Body)
			}
		}
		whole := answer.Body.String() + w.get("/", c.token).Body.String() + w.get("/node/n1", c.token).Body.String() + w.get("/?part", c.token).Body.String()
		for _, text := range c.kept {
			if strings.Contains(whole, text) {
				t.Errorf("%s sees %s", c.token, text)
			}
		}
	}
	page := w.get("/node/n1", "t-all").Body.String()
	if !strings.Contains(page, "red") || strings.Contains(w.get("/", "t-all").Body.String(), "<b>40Gi") {
		t.Error("a page lacks a share, or has markup of others")
	}
	if n := w.get("/node/n2", "t-red").Code; n != http.StatusNotFound {
		t.Errorf("a node that is not seen: %d", n)
	}
}

// TestWithoutAToken gets health and a form, and has nobody asked nor watched.
func TestWithoutAToken(t *testing.T) {
	w := newWorld(t, busy()...)
	if a := w.get("/healthz", ""); a.Code != http.StatusOK || a.Body.String() != "ok\n" {
		t.Errorf("health: %d %s", a.Code, a.Body)
	}
	page := w.get("/", "")
	if page.Code != http.StatusOK || !strings.Contains(page.Body.String(), `action="session"`) || strings.Contains(page.Body.String(), "n1") {
		t.Errorf("%d %s", page.Code, page.Body)
	}
	if a := w.get("/node/n1", ""); a.Code != http.StatusNotFound || strings.Contains(a.Body.String(), "GPU-n1") {
		t.Errorf("a node: %d", a.Code)
	}
	for _, path := range []string{"/cluster.json", "/overview.json"} {
		if a := w.get(path, ""); a.Code != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", path, a.Code, a.Body)
		}
	}
	if w.reviewed() != 0 || w.pages.caches.watch != nil {
		t.Error("who has no token has the API server asked")
	}
	for _, token := range []string{"unknown", "two words", "x\x00y", strings.Repeat("x", longestToken+1)} {
		if a := w.get("/", token); a.Code != http.StatusUnauthorized {
			t.Errorf("%.20q: %d", token, a.Code)
		}
	}
	if n := w.reviewed(); n != 1 {
		t.Errorf("%d reviews, want one: of what can be a token", n)
	}
	if a := w.ask(http.MethodGet, "/", http.Header{"Authorization": {"Basic eDp5"}}, ""); a.Code != http.StatusUnauthorized {
		t.Errorf("another scheme: %d", a.Code)
	}
}

// TestNoTokenIsTold has everything fail that has a token, and looks for it.
func TestNoTokenIsTold(t *testing.T) {
	w := newWorld(t, busy()...)
	w.fault = fmt.Errorf("the request failed")
	const secret = "secret-token"
	answers := []*httptest.ResponseRecorder{w.get("/", secret), w.post("token="+secret, nil), w.post("token=%zz"+secret, nil)}
	w.fault = nil
	w.user(secret, "ada", "nodes")
	answers = append(answers, w.post("token="+secret, nil), w.get("/", secret), w.get("/cluster.json", secret))
	for i, a := range answers {
		if strings.Contains(a.Body.String()+fmt.Sprint(a.Header()), secret) {
			t.Errorf("answer %d has the token", i)
		}
	}
	if answers[0].Code != http.StatusServiceUnavailable || answers[3].Code != http.StatusSeeOther {
		t.Errorf("%d, %d", answers[0].Code, answers[3].Code)
	}
	if strings.Contains(w.log.String(), secret) || !strings.Contains(w.log.String(), "cannot be told") {
		t.Errorf("the log: %s", w.log)
	}
}

// TestNothingIsWatchedUnseen stops watching.
func TestNothingIsWatchedUnseen(t *testing.T) {
	w := newWorld(t, busy()...)
	w.user("t", "ada", "nodes")
	w.get("/", "t")
	if w.pages.site.Kept() != 1 {
		t.Fatal("nothing is kept of what was shown")
	}
	if w.pages.caches.rest(false); w.pages.caches.watch == nil {
		t.Fatal("not watched while somebody looks")
	}
	w.passes(idle)
	if w.pages.caches.rest(false); w.pages.caches.watch != nil {
		t.Error("watched while nobody looks")
	}
	if w.pages.last != nil || w.pages.site.Kept() != 0 {
		t.Error("what was shown is kept while nobody looks")
	}
	if a := w.get("/cluster.json", "t"); !strings.Contains(a.Body.String(), "n1") {
		t.Errorf("who looks again: %d %s", a.Code, a.Body)
	}
}

// TestServe answers over TLS, and ends.
func TestServe(t *testing.T) {
	w := newWorld(t, busy()...)
	listener := listen(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.pages.Serve(ctx, listener, slog.New(slog.DiscardHandler)) }()
	served, err := w.pages.sessions.certificate()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(served.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	answer, err := client.Get("https://" + listener.Addr().String() + "/healthz")
	if err != nil || answer.StatusCode != http.StatusOK || answer.ProtoMajor != 2 {
		t.Errorf("%v %v", answer, err)
	}
	if err == nil {
		_ = answer.Body.Close()
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
