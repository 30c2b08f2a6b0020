package webhook

import (
	"context"
	"encoding/json"
	"errors"
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

func TestTemplateBeforeAnswer(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	patch, err := w.judge.mutatePod(context.Background(), podRequest(t, asking))
	if err != nil || len(templatesOf(patch)) != 1 {
		t.Fatalf("%v, %v", patch, err)
	}
	made := w.templatesIn(t, "space")
	if len(made) != 1 || made[0].Name != templatesOf(patch)[0] || made[0].Labels[v1alpha1.ManagedLabel] != v1alpha1.ManagedBy ||
		made[0].Annotations[v1alpha1.UsedAnnotation] != "2026-11-22T12:00:00Z" || !dialect.Genuine(&made[0]) {
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
		if err != nil || templatesOf(again)[0] != made[0].Name {
			t.Fatal(again, err)
		}
		if got := w.writes(); got != step.want {
			t.Errorf("after %s: wrote %q, want %q", step.pass, got, step.want)
		}
	}
	if got := w.templatesIn(t, "space")[0].Annotations[v1alpha1.UsedAnnotation]; got != "2026-11-22T12:16:00Z" {
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
	name := templatesOf(patch)[0]
	template := w.templatesIn(t, "space")[0]
	template.Spec.Spec.Devices.Requests[0].Exactly.Count = 8
	if err := w.client.Tracker().Update(resourcev1.SchemeGroupVersion.WithResource("resourceclaimtemplates"), &template, "space"); err != nil {
		t.Fatal(err)
	}
	for _, request := range []*admissionv1.AdmissionRequest{podRequest(t, asking), dryRun(podRequest(t, asking))} {
		_, err = w.judge.mutatePod(context.Background(), request)
		if !errors.Is(err, dialect.ErrRefused) || !strings.Contains(err.Error(), name) {
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
		if made := w.templatesIn(t, "space"); len(made) != 1 || made[0].Name != templatesOf(patch)[0] || made[0].Annotations[v1alpha1.UsedAnnotation] != "2026-11-22T13:00:00Z" {
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

// TestPodsAtOnce has many pods of one shape reviewed at once: one template is made, and each pod names it.
func TestPodsAtOnce(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	var group sync.WaitGroup
	for range 24 {
		request := podRequest(t, asking)
		group.Go(func() {
			patch, err := w.judge.mutatePod(context.Background(), request)
			if err != nil || len(templatesOf(patch)) != 1 {
				t.Errorf("%v, %v", patch, err)
			}
		})
	}
	group.Wait()
	if made := w.templatesIn(t, "space"); len(made) != 1 {
		t.Errorf("%d templates", len(made))
	}
}
