package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/internal/webhook"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// world is a judge and the cluster that it knows.
type world struct {
	judge  *judge
	client *fake.Clientset
	// caches
	slices, claims, quotas cache.Indexer
	mu                     sync.Mutex
	clock                  time.Time
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
	translator, err := webhook.NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\ndialects: " + dialects))
	if err != nil {
		t.Fatal(err)
	}
	index := func() cache.Indexer {
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
	w := &world{client: fake.NewClientset(objects...), slices: index(), claims: index(), quotas: index(), clock: noon}
	w.judge = &judge{
		translator: translator, client: w.client,
		published: resourcelisters.NewResourceSliceLister(w.slices),
		templates: templates{client: w.client, now: w.now},
		quotas: &quotas{
			held: corelisters.NewResourceQuotaLister(w.quotas), claims: resourcelisters.NewResourceClaimLister(w.claims),
			now: w.now, admitted: make(map[types.UID]admittedClaim),
		},
	}
	w.know(t, w.slices, &resourcev1.ResourceSlice{}, `{metadata: {name: s}, spec: {driver: divvy.dev, nodeName: n1, pool: {name: n1},
		devices: [{name: gpu-0-shared, allowMultipleAllocations: true, capacity: {memory: {value: 16Gi}}}, {name: gpu-0, capacity: {memory: {value: 16Gi}}}]}}`)
	return w
}

// know puts an object into a cache.
func (w *world) know(t testing.TB, into cache.Indexer, object runtime.Object, text string) {
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

func (w *world) templatesIn(t testing.TB, namespace string) []resourcev1.ResourceClaimTemplate {
	t.Helper()
	list, err := w.client.ResourceV1().ResourceClaimTemplates(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
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

func TestTemplateBeforeAnswer(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	patch, err := w.judge.mutatePod(context.Background(), podRequest(t, asking))
	if err != nil || len(patch.Templates()) != 1 {
		t.Fatalf("%v, %v", patch, err)
	}
	made := w.templatesIn(t, "space")
	if len(made) != 1 || made[0].Name != patch.Templates()[0] || made[0].Labels[webhook.ManagedLabel] != webhook.ManagedBy ||
		made[0].Annotations[webhook.UsedAnnotation] != "2026-11-22T12:00:00Z" || !webhook.Genuine(&made[0]) {
		t.Errorf("made %+v", made)
	}
	if got := w.writes(); got != "create" {
		t.Errorf("wrote %q", got)
	}
	// The next pod finds it, and notes its use only when the note is old.
	for _, step := range []struct {
		pass time.Duration
		want string
	}{{time.Minute, ""}, {RenewAfter, "patch"}, {time.Second, ""}} {
		w.pass(step.pass)
		again, err := w.judge.mutatePod(context.Background(), podRequest(t, asking))
		if err != nil || again.Templates()[0] != made[0].Name {
			t.Fatal(again, err)
		}
		if got := w.writes(); got != step.want {
			t.Errorf("after %s: wrote %q, want %q", step.pass, got, step.want)
		}
	}
	if got := w.templatesIn(t, "space")[0].Annotations[webhook.UsedAnnotation]; got != "2026-11-22T12:16:00Z" {
		t.Errorf("used at %s", got)
	}
}

func TestDryRunMakesNothing(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	var created []metav1.CreateOptions
	w.client.PrependReactor("create", "resourceclaimtemplates", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create := action.(clienttesting.CreateActionImpl)
		created = append(created, create.CreateOptions)
		return len(create.CreateOptions.DryRun) > 0, create.GetObject(), nil // as the API server: answered, not kept
	})
	dry, err := w.judge.mutatePod(context.Background(), dryRun(podRequest(t, asking)))
	if err != nil {
		t.Fatal(err)
	}
	if len(w.templatesIn(t, "space")) != 0 || len(created) != 1 || len(created[0].DryRun) != 1 || created[0].DryRun[0] != metav1.DryRunAll {
		t.Errorf("a dry run made a template: %+v", created)
	}
	wet, err := w.judge.mutatePod(context.Background(), podRequest(t, asking))
	if !reflect.DeepEqual(dry, wet) || err != nil {
		t.Errorf("a dry run answers otherwise: %v, %v, %v", dry, wet, err)
	}
	w.pass(time.Hour)
	w.writes()
	if _, err := w.judge.mutatePod(context.Background(), dryRun(podRequest(t, asking))); err != nil || w.writes() != "" {
		t.Errorf("a dry run notes a use: %v", err)
	}
}

func TestPodsThatAreNoneOfOurs(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	for name, change := range map[string]func(*admissionv1.AdmissionRequest){
		"an update":  func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update },
		"a deletion": func(r *admissionv1.AdmissionRequest) { r.Operation, r.Object.Raw = admissionv1.Delete, nil },
		"ephemeral containers": func(r *admissionv1.AdmissionRequest) {
			r.SubResource, r.Operation = "ephemeralcontainers", admissionv1.Update
		},
		"a binding":        func(r *admissionv1.AdmissionRequest) { r.SubResource = "binding" },
		"another resource": func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "podtemplates" },
		"another group":    func(r *admissionv1.AdmissionRequest) { r.Resource.Group = "example.com" },
		"a pod that asks nothing": func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = []byte(`{"spec":{"containers":[{"name":"a","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}`)
		},
		"a pod with an ephemeral container": func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = []byte(`{"spec":{"containers":[{"name":"a"}],"ephemeralContainers":[{"name":"e","resources":{"limits":{"divvy.dev/gpu":"1"}}}]}}`)
		},
	} {
		request := podRequest(t, asking)
		change(request)
		if patch, err := w.judge.mutatePod(context.Background(), request); err != nil || len(patch) != 0 {
			t.Errorf("%s: %v, %v", name, patch, err)
		}
	}
	if got := w.writes(); got != "" {
		t.Errorf("wrote %q", got)
	}
}

func TestTemplateOfAnotherContent(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	patch, err := w.judge.mutatePod(context.Background(), podRequest(t, asking))
	if err != nil {
		t.Fatal(err)
	}
	name := patch.Templates()[0]
	template := w.templatesIn(t, "space")[0]
	template.Spec.Spec.Devices.Requests[0].Exactly.Count = 8
	if err := w.client.Tracker().Update(resourcev1.SchemeGroupVersion.WithResource("resourceclaimtemplates"), &template, "space"); err != nil {
		t.Fatal(err)
	}
	for _, request := range []*admissionv1.AdmissionRequest{podRequest(t, asking), dryRun(podRequest(t, asking))} {
		_, err = w.judge.mutatePod(context.Background(), request)
		if !errors.Is(err, webhook.ErrRefused) || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one that names %s", err, name)
		}
	}
	// In another namespace it is another template.
	request := podRequest(t, asking)
	request.Namespace = "elsewhere"
	if _, err := w.judge.mutatePod(context.Background(), request); err != nil {
		t.Error(err)
	}
}

// TestTemplateThatGoes has the template collected between its review and the note of its use.
func TestTemplateThatGoes(t *testing.T) {
	for _, fault := range []error{
		apierrors.NewNotFound(resourcev1.Resource("resourceclaimtemplates"), "divvy-x"),
		apierrors.NewConflict(resourcev1.Resource("resourceclaimtemplates"), "divvy-x", errors.New("another uid")),
	} {
		w := newWorld(t, "{plain: {}}")
		if _, err := w.judge.mutatePod(context.Background(), podRequest(t, asking)); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Hour)
		gone := false
		w.client.PrependReactor("patch", "resourceclaimtemplates", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if gone {
				return false, nil, nil
			}
			gone = true
			if err := w.client.Tracker().Delete(action.GetResource(), action.GetNamespace(), action.(clienttesting.PatchAction).GetName()); err != nil {
				t.Error(err)
			}
			return true, nil, fault
		})
		patch, err := w.judge.mutatePod(context.Background(), podRequest(t, asking))
		if err != nil || !gone {
			t.Fatal(err)
		}
		if made := w.templatesIn(t, "space"); len(made) != 1 || made[0].Name != patch.Templates()[0] || made[0].Annotations[webhook.UsedAnnotation] != "2026-11-22T13:00:00Z" {
			t.Errorf("the pod's template is not there: %+v", made)
		}
	}
}

func TestClusterFaults(t *testing.T) {
	templates := resourcev1.Resource("resourceclaimtemplates")
	terminating := apierrors.NewForbidden(templates, "x", errors.New("unable to create new content in namespace space because it is being terminated"))
	for _, c := range []struct {
		verb  string
		fault error
		code  int32
		says  string
	}{
		{"create", terminating, http.StatusForbidden, "being terminated"},
		{"create", apierrors.NewForbidden(templates, "x", errors.New("exceeded quota: few, requested: count/resourceclaimtemplates.resource.k8s.io=1")), http.StatusForbidden, "exceeded quota: few"},
		{"create", apierrors.NewInternalError(errors.New("etcd is\naway")), http.StatusInternalServerError, "etcd is; away"},
		{"get", apierrors.NewTimeoutError("slow", 1), http.StatusGatewayTimeout, "read the claim template"},
		{"get", context.DeadlineExceeded, http.StatusServiceUnavailable, "deadline exceeded"},
	} {
		w := newWorld(t, "{plain: {}}")
		w.client.PrependReactor(c.verb, "resourceclaimtemplates", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.fault })
		request := podRequest(t, asking)
		patch, err := w.judge.mutatePod(context.Background(), request)
		if err == nil || patch != nil {
			t.Fatalf("%v: a pod is let through without its template", c.fault)
		}
		text, err := writeReview(request, patch, err)
		if err != nil {
			t.Fatal(err)
		}
		var review admissionv1.AdmissionReview
		if err := json.Unmarshal(text, &review); err != nil {
			t.Fatal(err)
		}
		result := review.Response.Result
		if review.Response.Allowed || result.Code != c.code || !strings.Contains(result.Message, c.says) || strings.Contains(result.Message, "\n") {
			t.Errorf("%v: %+v, want %d and %q in one line", c.fault, result, c.code, c.says)
		}
	}
}

func TestValidatePod(t *testing.T) {
	spec := func(class string) resourcev1.ResourceClaimSpec {
		return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}}}}
	}
	w := newWorld(t, "{plain: {}}",
		&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "a"}, Spec: spec("share.divvy.dev")},
		&resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "b"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec("gpu.divvy.dev")}},
	)
	pod := func(second string) string {
		return `{spec: {containers: [{name: main, resources: {claims: [{name: one}, {name: two}]}}], resourceClaims: [{name: one, resourceClaimName: a}, {name: two, ` + second + `}]}}`
	}
	if _, err := w.judge.validatePod(context.Background(), podRequest(t, pod("resourceClaimTemplateName: b"))); !errors.Is(err, webhook.ErrRefused) {
		t.Errorf("two tenants in one container: %v", err)
	}
	for _, second := range []string{"resourceClaimName: absent", "resourceClaimTemplateName: absent", "fieldOfTomorrow: g"} {
		if _, err := w.judge.validatePod(context.Background(), podRequest(t, pod(second))); err != nil {
			t.Errorf("%s: %v", second, err)
		}
	}
	w.client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	if _, err := w.judge.validatePod(context.Background(), podRequest(t, pod("resourceClaimTemplateName: b"))); err == nil {
		t.Error("what could not be read is let through")
	}
}

func TestValidateClaimsAndTemplates(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	good := `devices: {requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {memory: 4Gi}}}}]}`
	bad := `devices: {requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {memory: 1, cores: 900}}}}]}`
	other := `devices: {requests: [{name: nic, exactly: {deviceClassName: nic.example.com, capacity: {requests: {memory: 1, cores: 900}}}}]}`
	for spec, valid := range map[string]bool{good: true, bad: false, other: true} {
		_, first := w.judge.validateClaim(context.Background(), claimRequest(t, "{metadata: {name: c}, spec: {"+spec+"}}"))
		_, second := w.judge.validateTemplate(context.Background(), templateRequest(t, "{metadata: {name: c}, spec: {spec: {"+spec+"}}}"))
		for _, err := range []error{first, second} {
			if (err == nil) != valid || err != nil && !errors.Is(err, webhook.ErrClaim) {
				t.Errorf("%s: %v", spec, err)
			}
		}
	}
	_, refusal := w.judge.validateClaim(context.Background(), claimRequest(t, "{spec: {"+bad+"}}"))
	if got := status(refusal); strings.Contains(got.Message, "\n") || !strings.Contains(got.Message, "cores 900") || !strings.Contains(got.Message, "memory 1") || got.Code != http.StatusForbidden {
		t.Errorf("%+v", got)
	}
	update := claimRequest(t, "{spec: {"+bad+"}}")
	update.Operation = admissionv1.Update
	if _, err := w.judge.validateClaim(context.Background(), update); err != nil {
		t.Errorf("an update, in which a spec cannot change: %v", err)
	}
}

const limited = `{metadata: {name: team, namespace: space}, spec: {hard: {requests.divvy.dev/gpu-memory: 16Gi}}}`

func TestQuotaOfPods(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	w.know(t, w.quotas, &corev1.ResourceQuota{}, limited)
	w.know(t, w.claims, &resourcev1.ResourceClaim{}, `{metadata: {name: old, namespace: space, uid: u0}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {memory: 10Gi}}}}]}}}`)
	w.know(t, w.claims, &resourcev1.ResourceClaim{}, `{metadata: {name: far, namespace: elsewhere, uid: u1}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}]}}}`)
	if _, err := w.judge.mutatePod(context.Background(), podRequest(t, asking)); err != nil {
		t.Errorf("4Gi beside 10Gi: %v", err)
	}
	two := `{spec: {containers: [{name: a, resources: {limits: {divvy.dev/gpu-memory: 4Gi}}}, {name: b, resources: {limits: {divvy.dev/gpu-memory: 4Gi}}}]}}`
	w.writes()
	_, err := w.judge.mutatePod(context.Background(), podRequest(t, two))
	if !errors.Is(err, webhook.ErrRefused) || !strings.Contains(err.Error(), `quota "team" allows 16Gi of requests.divvy.dev/gpu-memory: 10Gi are used, and 8Gi more would be 18Gi`) {
		t.Errorf("two of 4Gi from one template beside 10Gi: %v", err)
	}
	if got := w.writes(); got != "" {
		t.Errorf("a refused pod wrote %q", got)
	}
	request := podRequest(t, two)
	request.Namespace = "elsewhere"
	if _, err := w.judge.mutatePod(context.Background(), request); err != nil {
		t.Errorf("a namespace without a quota: %v", err)
	}
}

func claimOf(uid, memory string) string {
	return `{metadata: {name: c` + uid + `, uid: u` + uid + `}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {memory: ` + memory + `}}}}]}}}`
}

func TestQuotaOfClaimsBehindTheCache(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	w.know(t, w.quotas, &corev1.ResourceQuota{}, limited)
	check := func(uid, memory string) error {
		_, err := w.judge.validateClaim(context.Background(), claimRequest(t, claimOf(uid, memory)))
		return err
	}
	if err := check("1", "10Gi"); err != nil {
		t.Fatal(err)
	}
	if err := check("2", "8Gi"); !errors.Is(err, webhook.ErrRefused) {
		t.Errorf("what was just let through is forgotten: %v", err)
	}
	if err := check("1", "10Gi"); err != nil {
		t.Errorf("a claim stands in its own way: %v", err)
	}
	// The cache catches up: the claim counts once, and no more when it is gone.
	seen := &resourcev1.ResourceClaim{}
	w.know(t, w.claims, seen, strings.Replace(claimOf("1", "10Gi"), "name: c1", "name: c1, namespace: space", 1))
	if err := check("3", "6Gi"); err != nil {
		t.Errorf("6Gi beside 10Gi: %v", err)
	}
	if err := w.claims.Delete(seen); err != nil {
		t.Fatal(err)
	}
	w.pass(admittedFor + time.Second)
	if err := check("4", "16Gi"); err != nil {
		t.Errorf("a claim that was not made after all is remembered: %v", err)
	}
	// A dry run is checked and not counted.
	w.pass(admittedFor + time.Second)
	if _, err := w.judge.validateClaim(context.Background(), dryRun(claimRequest(t, claimOf("5", "16Gi")))); err != nil {
		t.Fatal(err)
	}
	if err := check("6", "16Gi"); err != nil {
		t.Errorf("a dry run counts: %v", err)
	}
}

// TestQuotaOfManyAtOnce lets claims through that come at once, and no more than the quota has room for.
func TestQuotaOfManyAtOnce(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	w.know(t, w.quotas, &corev1.ResourceQuota{}, limited)
	var admitted sync.Map
	var group sync.WaitGroup
	for i := range 24 {
		request := claimRequest(t, claimOf(fmt.Sprint(i), "4Gi"))
		group.Go(func() {
			if _, err := w.judge.validateClaim(context.Background(), request); err == nil {
				admitted.Store(i, true)
			}
		})
	}
	group.Wait()
	n := 0
	admitted.Range(func(any, any) bool { n++; return true })
	if n != 4 {
		t.Errorf("%d claims of 4Gi were let through a quota of 16Gi", n)
	}
}

// TestPodsAtOnce has many pods of one shape reviewed at once: one template is made, and each pod names it.
func TestPodsAtOnce(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	var group sync.WaitGroup
	for range 24 {
		request := podRequest(t, asking)
		group.Go(func() {
			patch, err := w.judge.mutatePod(context.Background(), request)
			if err != nil || len(patch.Templates()) != 1 {
				t.Errorf("%v, %v", patch, err)
			}
		})
	}
	group.Wait()
	if made := w.templatesIn(t, "space"); len(made) != 1 {
		t.Errorf("%d templates", len(made))
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
