package extender

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/extender/ledger"
)

const gib = 1 << 30

var weighted = &v1alpha1.ShareConfig{Policy: "weighted", Weight: 1, Class: "online", Backend: "slice"}

// nodeOf is a node with GPUs of 16 GiB.
func nodeOf(t testing.TB, name string, gpus int) *corev1.Node {
	t.Helper()
	var all v1alpha1.NodeGPUs
	for i := range gpus {
		all.GPUs = append(all.GPUs, v1alpha1.NodeGPU{UUID: fmt.Sprintf("GPU-%x-%d", name, i), Index: i, Model: "A", Memory: 16 * gib, NUMANode: -1})
	}
	text, err := all.Text()
	if err != nil {
		t.Fatal(err)
	}
	held, err := v1alpha1.NodeHeld{}.Text()
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.GPUsAnnotation: text, v1alpha1.HeldAnnotation: held}},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("256Gi")}},
	}
}

// podOf is a pod that asks for so many GiB of one GPU.
func podOf(t testing.TB, name string, gibs uint64) *corev1.Pod {
	t.Helper()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", Annotations: map[string]string{v1alpha1.RequestAnnotation: requestText(t, gibs)},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
	}
}

func requestText(t testing.TB, gibs uint64) string {
	t.Helper()
	text, err := v1alpha1.PodRequest{Shares: []v1alpha1.ShareRequired{{Name: "c", Containers: []string{"c"}, GPUs: 1, Memory: gibs * gib, Config: weighted}}}.Text()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// manner is how the API server takes a Binding.
type manner func(w http.ResponseWriter, do func())

// away closes the connection without an answer.
func away(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		conn.Close() //nolint:errcheck // it is to fail
	}
}

func lostAfter(w http.ResponseWriter, do func()) { do(); away(w) }
func lostBefore(w http.ResponseWriter, _ func()) { away(w) }
func broken(w http.ResponseWriter, _ func())     { status(w, http.StatusInternalServerError, "etcd") }
func forbidden(w http.ResponseWriter, _ func())  { status(w, http.StatusForbidden, "no") }
func brokenAfter(w http.ResponseWriter, d func()) {
	d()
	status(w, http.StatusInternalServerError, "etcd")
}

func status(w http.ResponseWriter, code int32, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Message: message,
		Reason: map[int32]metav1.StatusReason{409: metav1.StatusReasonConflict, 404: metav1.StatusReasonNotFound, 403: metav1.StatusReasonForbidden, 500: metav1.StatusReasonInternalError}[code],
	})
}

// world is an API server with pods, and an extender's core that hears of them when told.
type world struct {
	t      testing.TB
	core   *core
	binder *binder
	server *httptest.Server

	telling sync.Mutex // tells one after the other, as a watch does; mu is locked within

	mu    sync.Mutex
	pods  map[string]*corev1.Pod
	clock time.Time
	// next are the manners for the Bindings that come; without one they are done. unread are how many reads fail.
	next   []manner
	unread int
	posts  []corev1.Binding
	// patches are what was written to pods that is no Binding.
	patches []patch
}

type patch struct {
	path, name string
	text       []byte
}

func newWorld(t testing.TB, nodes ...*corev1.Node) *world {
	t.Helper()
	policy, err := alloc.PolicyNamed(alloc.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.New(ledger.Config{Policy: policy, Grace: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, core: newCore(l), pods: map[string]*corev1.Pod{}, clock: time.Unix(1e9, 0)}
	for _, n := range nodes {
		w.core.setNode(trimNode(n))
	}
	w.server = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: w.server.URL, QPS: 1e6, Burst: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	w.binder = &binder{core: w.core, client: client, now: w.now, step: func(string) {}, counts: newCounts(prometheus.NewRegistry(), w.core), log: slog.New(slog.DiscardHandler)}
	return w
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock = w.clock.Add(d)
}

// add makes a pod; the core is told of it.
func (w *world) add(pods ...*corev1.Pod) {
	for _, pod := range pods {
		w.mu.Lock()
		w.pods[pod.Name] = pod
		w.mu.Unlock()
		w.tell(pod.Name)
	}
}

// change changes a pod; the core is not told of it.
func (w *world) change(name string, how func(*corev1.Pod)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pod := w.pods[name].DeepCopy()
	how(pod)
	revision, _ := strconv.Atoi(pod.ResourceVersion)
	pod.ResourceVersion = strconv.Itoa(revision + 1)
	w.pods[name] = pod
}

func (w *world) remove(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, name)
}

// tell tells the core what the API server has of a pod.
func (w *world) tell(name string) {
	w.telling.Lock()
	defer w.telling.Unlock()
	if pod := w.pod(name); pod != nil {
		w.core.setPod(trimPod(pod))
	} else {
		w.core.dropPod("default", name)
	}
}

func (w *world) pod(name string) *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods[name]
}

func (w *world) manners(all ...manner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = all
}

func (w *world) serve(out http.ResponseWriter, r *http.Request) {
	name := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/default/pods/"), "/")[0]
	if r.Method == http.MethodGet {
		w.mu.Lock()
		fails := w.unread > 0
		w.unread--
		w.mu.Unlock()
		switch pod := w.pod(name); {
		case fails:
			status(out, http.StatusInternalServerError, "etcd")
		case pod == nil:
			status(out, http.StatusNotFound, "gone")
		default:
			out.Header().Set("Content-Type", "application/json")
			pod = pod.DeepCopy()
			pod.Kind, pod.APIVersion = "Pod", "v1"
			_ = json.NewEncoder(out).Encode(pod)
		}
		return
	}
	if r.Method == http.MethodPatch {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			w.t.Error(err)
		}
		w.mu.Lock()
		w.patches = append(w.patches, patch{r.URL.Path, name, text})
		w.mu.Unlock()
		out.Header().Set("Content-Type", "application/json")
		_, _ = out.Write(text)
		return
	}
	var b corev1.Binding
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	w.posts = append(w.posts, b)
	var how manner
	if len(w.next) > 0 {
		how, w.next = w.next[0], w.next[1:]
	}
	w.mu.Unlock()
	do := func() {
		if why := w.bind(&b); why != "" {
			status(out, http.StatusConflict, why)
			return
		}
		out.Header().Set("Content-Type", "application/json")
		_, _ = out.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
	}
	if how == nil {
		do()
		return
	}
	how(out, func() { w.bind(&b) })
}

// bind does what an API server does, and says why not.
func (w *world) bind(b *corev1.Binding) (why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pod := w.pods[b.Name]
	switch {
	case pod == nil || pod.UID != b.UID:
		return "another UID"
	case pod.ResourceVersion != b.ResourceVersion:
		return "another revision"
	case pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil:
		return "already assigned or being deleted"
	}
	pod = pod.DeepCopy()
	pod.Spec.NodeName = b.Target.Name
	for key, value := range b.Annotations {
		pod.Annotations[key] = value
	}
	revision, _ := strconv.Atoi(pod.ResourceVersion)
	pod.ResourceVersion = strconv.Itoa(revision + 1)
	w.pods[b.Name] = pod
	return ""
}

// ask binds a pod.
func (w *world) ask(name, node string) error {
	return w.binder.bind(w.t.Context(), binding{name, "default", "uid-" + name, node})
}

// fits are the nodes on which a pod fits.
func (w *world) fits(pod *corev1.Pod, nodes ...string) []string {
	answer := w.core.filter(question{pod, nodes})
	if len(answer.fits)+len(answer.refused) != len(nodes) {
		w.t.Errorf("%d nodes and %d answers", len(nodes), len(answer.fits)+len(answer.refused))
	}
	slices.Sort(answer.fits)
	return answer.fits
}

// room reports whether a node has so many GiB on one GPU.
func (w *world) room(node string, gibs uint64) bool {
	return len(w.fits(podOf(w.t, "probe", gibs), node)) == 1
}
