package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// withScheduler is a configuration in which Divvy's scheduler runs.
const withScheduler = "{plain: {}}\nscheduler: {users: ['system:serviceaccount:divvy-system:divvy-scheduler']}"

// translated has the server translate a pod, and applies what a patch of a pod without annotations and claims does.
func (w *world) translated(t testing.TB, text string) *corev1.Pod {
	t.Helper()
	request := podRequest(t, text)
	given, err := w.judge.mutatePod(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(request.Object.Raw, pod); err != nil {
		t.Fatal(err)
	}
	pod.Namespace = request.Namespace
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources.Limits = nil
	}
	for _, step := range given.patch {
		switch value := step.Value.(type) {
		case []corev1.PodResourceClaim:
			pod.Spec.ResourceClaims = value
		case map[string]string:
			pod.Annotations = value
		case string:
			pod.Spec.SchedulerName = value
		}
	}
	return pod
}

// asked is the request about a pod, which was another one before if that is not nil.
func asked(t testing.TB, before, pod *corev1.Pod) *admissionv1.AdmissionRequest {
	t.Helper()
	request := podRequest(t, "{}")
	raw := func(pod *corev1.Pod) runtime.RawExtension {
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: text}
	}
	request.Object = raw(pod)
	if before != nil {
		request.Operation, request.OldObject = admissionv1.Update, raw(before)
	}
	return request
}

// TestNamesOfClaims has two pods of one template, as of a Deployment, translated: each names claims of its own.
func TestNamesOfClaims(t *testing.T) {
	w := newWorld(t, withScheduler)
	seen := make(map[string]bool)
	for range 50 {
		pod := w.translated(t, asking)
		if pod.Spec.SchedulerName != v1alpha1.SchedulerName || len(pod.Spec.ResourceClaims) != 1 || pod.Spec.ResourceClaims[0].ResourceClaimName == nil {
			t.Fatalf("scheduler %s, claims %+v", pod.Spec.SchedulerName, pod.Spec.ResourceClaims)
		}
		name := *pod.Spec.ResourceClaims[0].ResourceClaimName
		described, err := dialect.Described(pod)
		if _, ok := described[name]; !ok || err != nil || seen[name] {
			t.Fatalf("claim %s, described %v, %v", name, described, err)
		}
		seen[name] = true
		if _, err := w.judge.validateNotes(context.Background(), asked(t, nil, pod)); err != nil {
			t.Fatal(err)
		}
		// The patched pod is reviewed again if another webhook changed it.
		if given, err := w.judge.mutatePod(context.Background(), asked(t, nil, pod)); err != nil || len(given.patch) > 0 {
			t.Fatalf("again: %v, %v", given, err)
		}
	}
	if got := w.writes(); got != "" || len(w.client.Actions()) > 0 {
		t.Errorf("reviews wrote %q", got)
	}
}

// TestNotesAreChecked has pods created and changed with annotations that nobody could follow.
func TestNotesAreChecked(t *testing.T) {
	w := newWorld(t, withScheduler)
	pod := w.translated(t, asking)
	gangs := func(notes ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for i := 0; i < len(notes); i += 2 {
				p.Annotations[notes[i]] = notes[i+1]
			}
		}
	}
	for name, c := range map[string]struct {
		change          func(*corev1.Pod)
		create, updated string
	}{
		"another label":  {change: func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }},
		"edited claims":  {change: gangs(v1alpha1.ClaimsAnnotation, strings.Replace(pod.Annotations[v1alpha1.ClaimsAnnotation], "4Gi", "40Gi", 1)), updated: "divvy.dev/claims does not change"},
		"forged claims":  {change: gangs(v1alpha1.ClaimsAnnotation, strings.Replace(pod.Annotations[v1alpha1.ClaimsAnnotation], `"count":1`, `"count":99`, 1)), create: "99 devices", updated: "does not change"},
		"removed claims": {change: func(p *corev1.Pod) { delete(p.Annotations, v1alpha1.ClaimsAnnotation) }, updated: "does not change"},
		"models":         {change: gangs(v1alpha1.ModelsAnnotation, "A100"), updated: "divvy.dev/gpu-models does not change"},
		"bad models":     {change: gangs(v1alpha1.ModelsAnnotation, "$"), create: v1alpha1.ModelsAnnotation, updated: "does not change"},
		"a gang":         {change: gangs(v1alpha1.GangAnnotation, "g", v1alpha1.GangSizeAnnotation, "4096", v1alpha1.GangMinimumAnnotation, "1", v1alpha1.GangTopologyAnnotation, "rack=required,leaf=preferred")},
		"no size":        {gangs(v1alpha1.GangAnnotation, "g"), "gang-size is missing", "gang-size is missing"},
		"size 0":         {gangs(v1alpha1.GangAnnotation, "g", v1alpha1.GangSizeAnnotation, "0"), "no number from 1 to 4096", "no number from 1 to 4096"},
		"size 4097":      {gangs(v1alpha1.GangAnnotation, "g", v1alpha1.GangSizeAnnotation, "4097"), "no number from 1 to 4096", "no number from 1 to 4096"},
		"a large minimum": {gangs(v1alpha1.GangAnnotation, "g", v1alpha1.GangSizeAnnotation, "4", v1alpha1.GangMinimumAnnotation, "5"),
			"no number from 1 to 4", "no number from 1 to 4"},
		"a topology without a word": {gangs(v1alpha1.GangAnnotation, "g", v1alpha1.GangSizeAnnotation, "4", v1alpha1.GangTopologyAnnotation, "rack"),
			"LABEL=required", "LABEL=required"},
		"no gang":     {gangs(v1alpha1.GangSizeAnnotation, "4"), "needs divvy.dev/gang", "needs divvy.dev/gang"},
		"many lines":  {gangs(v1alpha1.GangAnnotation, "g\n\nx", v1alpha1.GangSizeAnnotation, "4"), "is no name", "is no name"},
		"no boolean":  {gangs(v1alpha1.GangAnnotation, "g", v1alpha1.GangSizeAnnotation, "4", v1alpha1.GangShareGPUsAnnotation, "yes"), "neither true nor false", "neither true nor false"},
		"not a label": {gangs(v1alpha1.GangAnnotation, "g", v1alpha1.GangSizeAnnotation, "4", v1alpha1.GangTopologyAnnotation, "a b=required"), "LABEL=required", "LABEL=required"},
	} {
		changed := pod.DeepCopy()
		c.change(changed)
		for want, before := range map[string]*corev1.Pod{"create " + c.create: nil, "update " + c.updated: pod} {
			_, err := w.judge.validateNotes(context.Background(), asked(t, before, changed))
			_, want, _ = strings.Cut(want, " ")
			if (err == nil) != (want == "") || err != nil && (!errors.Is(err, dialect.ErrRefused) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%s, update %v: %v, want %q", name, before != nil, err, want)
			}
		}
	}
	for what, request := range map[string]*admissionv1.AdmissionRequest{"pods": podRequest(t, `{metadata: {annotations: 4}}`), "the pod before": asked(t, pod, pod)} {
		request.OldObject.Raw = []byte("{")
		if _, err := w.judge.validateNotes(context.Background(), request); !errors.Is(err, errReview) {
			t.Errorf("%s that does not read: %v", what, err)
		}
	}
}

// TestQueuesOfPods has pods of a namespace with a queue reviewed when they are created and changed, and claims of extended
// resources.
func TestQueuesOfPods(t *testing.T) {
	w := newWorld(t, withQueues)
	w.knowQueues(t, queueText("vision", "{namespaces: [space]}"), queueText("speech", "{namespaces: [talk]}"))
	pod := w.translated(t, asking)
	refused := func(what string, err error, want string) {
		t.Helper()
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, dialect.ErrRefused) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	named := func(queue string) *corev1.Pod {
		named := pod.DeepCopy()
		named.Labels = map[string]string{v1alpha1.QueueLabel: queue}
		return named
	}
	for queue, want := range map[string]string{"vision": "", "speech": "queue speech is for pods of namespace talk"} {
		for what, before := range map[string]*corev1.Pod{"created": nil, "changed": pod} {
			_, err := w.judge.validateNotes(context.Background(), asked(t, before, named(queue)))
			refused(what+" in "+queue, err, want)
		}
	}
	given, err := w.judge.validateNotes(context.Background(), asked(t, nil, named("sound")))
	if refused("a queue to come", err, ""); len(given.warnings) != 1 || !strings.Contains(given.warnings[0], "there is no queue sound") {
		t.Errorf("warnings %q", given.warnings)
	}
	elsewhere := podRequest(t, `{spec: {schedulerName: other, resourceClaims: [{name: gpu, resourceClaimName: mine}]}}`)
	_, err = w.judge.validateNotes(context.Background(), elsewhere)
	refused("another scheduler", err, "the pod has claims and is for scheduler other")
	claim := claimRequest(t, strings.Replace(claimOf("1", "4Gi"), "metadata: {", "metadata: {annotations: {resource.kubernetes.io/extended-resource-claim: 'true'}, ", 1))
	claim.UserInfo.Username = "system:kube-scheduler"
	_, err = w.judge.validateClaim(context.Background(), claim)
	refused("an extended resource of another scheduler", err, "namespace space is of queue vision")
}

// TestNamesOfOtherQueues has a pod keep the queue that it names in another system's words.
func TestNamesOfOtherQueues(t *testing.T) {
	w := newWorld(t, strings.Replace(withQueues, "plain: {}", "plain: {}, kueue: {}", 1))
	w.knowQueues(t, queueText("vision", "{namespaces: [space]}"))
	pod := podRequest(t, strings.Replace(asking, "generateName: web-", "generateName: web-, labels: {kueue.x-k8s.io/queue-name: vision}", 1))
	given, err := w.judge.mutatePod(context.Background(), pod)
	if err != nil || !slices.ContainsFunc(given.patch, func(o dialect.Operation) bool {
		return o.Path == "/metadata/labels/divvy.dev~1queue" && o.Value == "vision"
	}) {
		t.Errorf("%+v, %v", given.patch, err)
	}
}

// FuzzNotes reads foreign annotations in pods that are created and changed: a refusal is one line.
func FuzzNotes(f *testing.F) {
	w := newWorld(f, withScheduler)
	pod := w.translated(f, asking)
	f.Add(v1alpha1.GangAnnotation, "g", v1alpha1.GangSizeAnnotation, "4")
	f.Add(v1alpha1.GangTopologyAnnotation, "a=required,b=preferred", v1alpha1.GangMinimumAnnotation, "\xff")
	f.Add(v1alpha1.ClaimsAnnotation, pod.Annotations[v1alpha1.ClaimsAnnotation], v1alpha1.ModelsAnnotation, "A100,\n")
	f.Fuzz(func(t *testing.T, a, one, b, other string) {
		changed := pod.DeepCopy()
		changed.Annotations[a], changed.Annotations[b] = one, other
		for _, before := range []*corev1.Pod{nil, pod} {
			_, err := w.judge.validateNotes(context.Background(), asked(t, before, changed))
			if err != nil && (!errors.Is(err, dialect.ErrRefused) || strings.ContainsAny(oneLine(err), "\n\r")) {
				t.Errorf("%q is not a refusal of one line", err)
			}
		}
	})
}
