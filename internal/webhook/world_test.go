package webhook

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/internal/dialect"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// world is a judge and the cluster that it knows.
type world struct {
	judge  *judge
	client *fake.Clientset
	// what the server follows
	slices, classes, claims, quotas, ranges, runtimes, pods, queues cache.ReflectorStore

	// followed is since when the API server tells of claims
	followed time.Time

	mu    sync.Mutex
	clock time.Time
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

func newWorld(t testing.TB, dialects string, objects ...runtime.Object) *world {
	t.Helper()
	translator, err := dialect.NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\ndialects: " + dialects))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{client: fake.NewClientset(objects...), clock: noon, followed: noon.Add(-time.Hour)}
	fleet, limits, ranges := newFleet(w.now), limitsOf(translator), rangesOf(translator)
	accounts := newAccounts(fleet.sizes, w.now, func() time.Time { return w.followed })
	w.slices, w.classes, w.claims, w.quotas = fleet.sliceStore(), fleet.classStore(), accounts.store(), limits.store()
	w.ranges, w.pods = ranges.store(), accounts.podStore()
	w.judge = &judge{
		translator: translator, specs: newSpecs(w.client),
		fleet: fleet, runtimes: &runtimes{}, ranges: ranges,
		quotas: &quotas{held: limits, accounts: accounts}, queues: &queues{followed: translator.Queues()},
	}
	w.runtimes, w.queues = w.judge.runtimes.store(), w.judge.queues.store()
	w.know(t, w.slices, &resourcev1.ResourceSlice{}, `{metadata: {name: s}, spec: {driver: divvy.dev, nodeName: n1, pool: {name: n1},
		devices: [{name: gpu-0-shared, allowMultipleAllocations: true, capacity: {memory: {value: 16Gi}}}, {name: gpu-0, capacity: {memory: {value: 16Gi}}}]}}`)
	return w
}

// know tells the server of an object.
func (w *world) know(t testing.TB, into cache.ReflectorStore, object runtime.Object, text string) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if err := into.Add(object); err != nil {
		t.Fatal(err)
	}
}

// requestOf is the request by which the API server asks about an object in YAML.
func requestOf(t testing.TB, resource schema.GroupVersionResource, kind, object string) *admissionv1.AdmissionRequest {
	t.Helper()
	text, err := yaml.YAMLToJSONStrict([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	return &admissionv1.AdmissionRequest{
		UID: "11", Operation: admissionv1.Create, Namespace: "space",
		Kind:     metav1.GroupVersionKind{Group: resource.Group, Version: resource.Version, Kind: kind},
		Resource: metav1.GroupVersionResource(resource),
		Object:   runtime.RawExtension{Raw: text},
	}
}

func podRequest(t testing.TB, pod string) *admissionv1.AdmissionRequest {
	return requestOf(t, corev1.SchemeGroupVersion.WithResource("pods"), "Pod", pod)
}

func claimRequest(t testing.TB, claim string) *admissionv1.AdmissionRequest {
	return requestOf(t, resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), "ResourceClaim", claim)
}

func templateRequest(t testing.TB, template string) *admissionv1.AdmissionRequest {
	return requestOf(t, resourcev1.SchemeGroupVersion.WithResource("resourceclaimtemplates"), "ResourceClaimTemplate", template)
}

// asking is a pod as a Deployment's controller makes it: without namespace and name.
const asking = `{metadata: {generateName: web-}, spec: {containers: [{name: main, image: i, resources: {limits: {divvy.dev/gpu-memory: 4Gi}}}]}}`

func dryRun(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	yes := true
	request.DryRun = &yes
	return request
}

// writes returns the verbs of what was written since the last call.
func (w *world) writes() string {
	var verbs []string
	for _, action := range w.client.Actions() {
		switch action.GetVerb() {
		case "get", "list", "watch":
		default:
			verbs = append(verbs, action.GetVerb())
		}
	}
	w.client.ClearActions()
	return strings.Join(verbs, " ")
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
