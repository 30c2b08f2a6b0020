package dra

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
)

// single is a claim with a share of 600Mi, and the pod that uses it.
func single(i int) (*resourcev1.ResourceClaim, *corev1.Pod) {
	claim := claimWith(result("r", firstID, "600Mi", "0"))
	claim.Name, claim.UID = fmt.Sprintf("claim-%d", i), types.UID(fmt.Sprintf("cccccccc-0000-4000-8000-%012d", i))
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "team", fmt.Sprintf("pod-%d", i), types.UID(fmt.Sprintf("pod-uid-%d", i))
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(claim.Name)}}
	main := corev1.Container{Name: "main"}
	main.Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	pod.Spec.Containers = []corev1.Container{main}
	reserve(claim, pod)
	return claim, pod
}

// requests counts what the API server was asked, by verb and resource.
func (m *machine) requests() map[string]int {
	asked := map[string]int{}
	for _, action := range m.client.Actions() {
		asked[action.GetVerb()+" "+action.GetResource().Resource]++
	}
	m.client.ClearActions()
	return asked
}

// TestQuietNodeAsksNothing: an agent reads each claim once after it has started. While nothing changes it asks nothing for
// an hour, however many claims there are, and for a pod that comes or goes it reads that pod's claim.
func TestQuietNodeAsksNothing(t *testing.T) {
	const shares = 16
	var objects []runtime.Object
	var claims []*resourcev1.ResourceClaim
	var pods []*corev1.Pod
	for i := range shares {
		claim, pod := single(i)
		claims, pods, objects = append(claims, claim), append(pods, pod), append(objects, claim, pod)
	}
	m := newMachine(t, objects...)
	r := m.start()
	watch := m.watched(r)
	for _, action := range m.client.Actions() {
		if list, ok := action.(clienttesting.ListAction); ok && action.GetResource().Resource == "pods" {
			if got := list.GetListRestrictions().Fields.String(); got != "spec.nodeName="+nodeName {
				t.Errorf("the pods are listed by %q", got)
			}
		}
	}
	m.requests()
	for _, claim := range claims {
		m.mustPrepare(r, claim)
	}
	if asked := m.requests(); asked["get pods"] != 0 {
		t.Errorf("to prepare what the watch knows, %d pods were read", asked["get pods"])
	}
	now := time.Now()
	rec := newReconciler(r.driver)
	rec.now = func() time.Time { return now }
	hour := func() map[string]int {
		for range int(time.Hour / reconcileInterval) {
			now = now.Add(reconcileInterval)
			rec.endSlots(t.Context())
			rec.look(t.Context())
			rec.specifications(t.Context())
		}
		return m.requests()
	}
	if asked := hour(); asked["get resourceclaims"] != shares || len(asked) != 1 {
		t.Errorf("in the first hour it asked %v", asked)
	}
	if asked := hour(); len(asked) != 0 {
		t.Errorf("in a quiet hour it asked %v", asked)
	}
	m.removePod(watch, pods[3])
	if err := m.unprepare(r, claims[3]); err != nil {
		t.Error(err)
	}
	if asked := hour(); len(asked) != 0 {
		t.Errorf("in an hour after a pod has ended it asked %v", asked)
	}
	// A pod that shares a claim has it read once more.
	other := pods[4].DeepCopy()
	other.Name, other.UID = "other", "pod-uid-other"
	m.addPod(watch, other)
	if asked := hour(); asked["get resourceclaims"] != 1 || len(asked) != 1 {
		t.Errorf("in an hour after a pod has joined it asked %v", asked)
	}
	if n := len(r.agent.Tenancies()); n != shares-1 {
		t.Errorf("%d tenancies are left", n)
	}
}

// slotted is a pod that got a share by slots, and its tenancy.
func slotted(name string) (*corev1.Pod, agent.Tenancy) {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "team", name, types.UID("slot-"+name)
	text, err := v1alpha1.PodRequest{Version: 1, Shares: []v1alpha1.ShareRequired{{
		Name: "main", Containers: []string{"main"}, GPUs: 1, Memory: gib, Cores: 10,
		Config: &v1alpha1.ShareConfig{Policy: v1alpha1.PolicyWeighted, Weight: 100, Class: v1alpha1.ClassOnline, Backend: v1alpha1.BackendSlice},
	}}}.Text()
	if err != nil {
		panic(err)
	}
	pod.Annotations = map[string]string{v1alpha1.RequestAnnotation: text}
	return pod, agent.Tenancy{
		Key: agent.PodKey(string(pod.UID), "main"), Name: "team/" + name, Namespace: "team", Pods: []string{name},
		Shares: []agent.TenancyShare{{UUID: firstID, Memory: gib, Cores: 10}},
	}
}

// TestSlotsEndWithTheirPods: what slots granted before the node had claims ends with its pod: at once for a pod that the
// agent saw, after a while for one that had gone before it started, never while a process lives there or while it is not
// known which pods there are.
func TestSlotsEndWithTheirPods(t *testing.T) {
	stays, one := slotted("stays")
	ends, two := slotted("ends")
	_, three := slotted("gone-before")
	finished, four := slotted("finished")
	m := newMachine(t, stays, ends, finished)
	r := m.start()
	for _, tenancy := range []agent.Tenancy{one, two, three, four} {
		if _, err := r.agent.Prepare(t.Context(), tenancy); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	rec := newReconciler(r.driver)
	rec.now = func() time.Time { return now }
	hour := func() (left []string) {
		for range int(time.Hour / reconcileInterval) {
			now = now.Add(reconcileInterval)
			rec.endSlots(t.Context())
			rec.look(t.Context())
		}
		for _, tenancy := range r.agent.Tenancies() {
			left = append(left, tenancy.Name)
		}
		return left
	}
	if left := hour(); len(left) != 4 {
		t.Errorf("while no pods are known only %v are left", left)
	}
	watch := m.watched(r)
	rec.endSlots(t.Context())
	if n := len(r.agent.Tenancies()); n != 4 {
		t.Errorf("%d are left at once", n)
	}
	if left := hour(); !slices.Equal(left, []string{"team/stays", "team/ends", "team/finished"}) {
		t.Errorf("after an hour %v are left", left)
	}
	over := finished.DeepCopy()
	over.Status.Phase = corev1.PodSucceeded
	if err := m.client.Tracker().Update(podResource, over, "team"); err != nil {
		t.Fatal(err)
	}
	<-watch.ended
	end := m.live(r, "team/ends")
	m.removePod(watch, ends)
	rec.endSlots(t.Context())
	if n := len(r.agent.Tenancies()); n != 2 {
		t.Errorf("%d are left, of which one has a process", n)
	}
	end()
	rec.endSlots(t.Context())
	if left := r.agent.Tenancies(); len(left) != 1 || left[0].Key != one.Key {
		t.Errorf("%+v are left", left)
	}
	m.removePod(watch, stays)
	rec.endSlots(t.Context())
	m.mustBeEmpty(r)
}

// TestSlotKeys: a pod tells the keys of its shares to an agent that found them by their pages alone.
func TestSlotKeys(t *testing.T) {
	pod, tenancy := slotted("p")
	light, err := lightenPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	if got := slotKeys(light.(*corev1.Pod)); !slices.Equal(got, []string{tenancy.Key}) {
		t.Errorf("%v, want %s", got, tenancy.Key)
	}
	pod.Annotations[v1alpha1.RequestAnnotation] = "{"
	if got := slotKeys(pod); len(got) != 0 {
		t.Errorf("of an annotation that cannot be read: %v", got)
	}
	if got := slotKeys(&corev1.Pod{}); len(got) != 0 {
		t.Errorf("of a pod without one: %v", got)
	}
}
