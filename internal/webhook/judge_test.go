package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// templatesOf returns the name of the template of each claim that a patch adds to a pod without claims.
func templatesOf(patch dialect.Patch) []string {
	var names []string
	for _, step := range patch {
		added, _ := step.Value.([]corev1.PodResourceClaim)
		for i := range added {
			names = append(names, *added[i].ResourceClaimTemplateName)
		}
	}
	return names
}

// TestReviewsWriteNothing has a pod reviewed, for real and as a dry run: it carries the template that it names, and
// nothing is written, because a later review can still refuse the pod.
func TestReviewsWriteNothing(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	wet, err := w.judge.mutatePod(context.Background(), podRequest(t, asking))
	if err != nil || len(templatesOf(wet.patch)) != 1 {
		t.Fatalf("%v, %v", wet, err)
	}
	if got := carriedBy(t, wet.patch); !reflect.DeepEqual(got, templatesOf(wet.patch)) {
		t.Errorf("names %v, carries %v", templatesOf(wet.patch), got)
	}
	dry, err := w.judge.mutatePod(context.Background(), dryRun(podRequest(t, asking)))
	if !reflect.DeepEqual(dry, wet) || err != nil {
		t.Errorf("a dry run answers otherwise: %v, %v, %v", dry, wet, err)
	}
	if got := len(w.client.Actions()); got != 0 {
		t.Errorf("the API server is asked: %v", w.client.Actions())
	}
}

// carriedBy returns the names of the templates that a patched pod carries.
func carriedBy(t testing.TB, patch dialect.Patch) []string {
	t.Helper()
	pod := &corev1.Pod{}
	for _, step := range patch {
		if added, ok := step.Value.([]corev1.PodResourceClaim); ok {
			pod.Spec.ResourceClaims = added
		}
		if notes, ok := step.Value.(map[string]string); ok && step.Path == "/metadata/annotations" {
			pod.Annotations = notes
		}
	}
	carried, err := dialect.Carried(pod)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range carried {
		names = append(names, carried[i].Name)
	}
	return names
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
		if given, err := w.judge.mutatePod(context.Background(), request); err != nil || len(given.patch) != 0 {
			t.Errorf("%s: %v, %v", name, given, err)
		}
	}
	if got := w.writes(); got != "" {
		t.Errorf("wrote %q", got)
	}
}

// TestClusterFaults has the API server fail while a pod's claims are looked up.
func TestClusterFaults(t *testing.T) {
	claims := resourcev1.Resource("resourceclaims")
	for _, c := range []struct {
		fault error
		code  int32
		says  string
	}{
		{apierrors.NewForbidden(claims, "x", errors.New("not the server's business")), http.StatusForbidden, "not the server's business"},
		{apierrors.NewInternalError(errors.New("etcd is\naway")), http.StatusInternalServerError, "etcd is; away"},
		{apierrors.NewTooManyRequests("slow down", 1), http.StatusTooManyRequests, "slow down"},
		{apierrors.NewTimeoutError("slow", 1), http.StatusGatewayTimeout, "read the claim"},
		{context.DeadlineExceeded, http.StatusServiceUnavailable, "deadline exceeded"},
	} {
		w := newWorld(t, "{plain: {}}")
		w.client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.fault })
		request := podRequest(t, usingTwo)
		given, err := w.judge.validatePod(context.Background(), request)
		if err == nil {
			t.Fatalf("%v: a pod is let through though its claims cannot be read", c.fault)
		}
		text, err := writeReview(request, given, err)
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

// usingTwo is a pod whose container uses two claims.
const usingTwo = `{spec: {containers: [{name: main, resources: {claims: [{name: one}, {name: two}]}}],
	resourceClaims: [{name: one, resourceClaimName: a}, {name: two, resourceClaimName: b}]}}`

// TestValidatePodReadsWhatItCarries has a translated pod use a claim of its own beside the one that it carries, whose
// template is not made yet.
func TestValidatePodReadsWhatItCarries(t *testing.T) {
	own := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "a"}}
	own.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: v1alpha1.ClassShare}}}
	w := newWorld(t, "{plain: {}}", own)
	pod := &corev1.Pod{}
	if err := readObject(podRequest(t, asking), pod); err != nil {
		t.Fatal(err)
	}
	made, err := w.judge.translator.Translate(pod, dialect.Inventory{})
	if err == nil {
		err = made.Carry(pod)
	}
	if err != nil {
		t.Fatal(err)
	}
	name := made.Templates[0].Name
	carried, err := json.Marshal(map[string]resourcev1.ResourceClaimSpec{name: made.Templates[0].Spec.Spec})
	if err != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(string(carried))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(usingTwo, "resourceClaimName: b", "resourceClaimTemplateName: "+name, 1)
	text = strings.Replace(text, "{spec:", "{metadata: {annotations: {"+v1alpha1.TemplatesAnnotation+": "+string(quoted)+"}}, spec:", 1)
	if _, err := w.judge.validatePod(context.Background(), podRequest(t, text)); !errors.Is(err, dialect.ErrRefused) {
		t.Errorf("two tenants in one container: %v", err)
	}
}

func TestValidatePod(t *testing.T) {
	spec := func(class string) resourcev1.ResourceClaimSpec {
		return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}}}}
	}
	w := newWorld(t, "{plain: {}}",
		&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "a"}, Spec: spec(v1alpha1.ClassShare)},
		&resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "b"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec(v1alpha1.ClassWhole)}},
	)
	pod := func(second string) string {
		return `{spec: {containers: [{name: main, resources: {claims: [{name: one}, {name: two}]}}], resourceClaims: [{name: one, resourceClaimName: a}, {name: two, ` + second + `}]}}`
	}
	if _, err := w.judge.validatePod(context.Background(), podRequest(t, pod("resourceClaimTemplateName: b"))); !errors.Is(err, dialect.ErrRefused) {
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
			if (err == nil) != valid || err != nil && !errors.Is(err, dialect.ErrClaim) {
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

// TestPodsAtOnce has many pods of one shape reviewed at once: all name one template.
func TestPodsAtOnce(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	var group sync.WaitGroup
	var mu sync.Mutex
	named := make(map[string]bool)
	for range 24 {
		request := podRequest(t, asking)
		group.Go(func() {
			given, err := w.judge.mutatePod(context.Background(), request)
			if err != nil || len(templatesOf(given.patch)) != 1 {
				t.Errorf("%v, %v", given, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			named[templatesOf(given.patch)[0]] = true
		})
	}
	group.Wait()
	if len(named) != 1 {
		t.Errorf("they name %v", named)
	}
}

// TestWarnings has a pod ask for a part of a GPU in a cluster of more sizes than a claim can tell apart: it is admitted,
// and whoever creates it is told what some GPUs give less.
func TestWarnings(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	for n := range 10 {
		w.know(t, w.slices, &resourcev1.ResourceSlice{}, fmt.Sprintf("{metadata: {name: s%d, uid: s%d}, spec: {driver: divvy.dev, pool: {name: n%d}, devices: [{name: gpu, allowMultipleAllocations: true, capacity: {memory: {value: %dGi}}}]}}", n, n, n, 8*(n+1)))
	}
	request := podRequest(t, "{metadata: {name: p}, spec: {containers: [{name: main, resources: {limits: {divvy.dev/gpu-memory-percent: 50}}}]}}")
	given, err := w.judge.mutatePod(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	text, err := writeReview(request, given, err)
	if err != nil {
		t.Fatal(err)
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(text, &review); err != nil {
		t.Fatal(err)
	}
	if r := review.Response; !r.Allowed || len(r.Patch) == 0 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "percent less than that part") {
		t.Errorf("the answer is %+v", r)
	}
}
