package explanation

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

var noon = metav1.NewTime(time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC))

// podWith is a pod of Divvy's scheduler, changed as a test wants it.
func podWith(name string, change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: noon, Annotations: map[string]string{}, Labels: map[string]string{}},
		Spec:       corev1.PodSpec{SchedulerName: v1alpha1.SchedulerName},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func condition(status corev1.ConditionStatus, reason, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: status, Reason: reason, Message: message, LastTransitionTime: noon},
	}}
}

func event(pod, uid, reason, note string, at time.Duration) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint(pod, reason, at)}, Reason: reason, Note: note,
		EventTime: metav1.NewMicroTime(noon.Add(at)), Regarding: corev1.ObjectReference{Kind: "Pod", Name: pod, UID: types.UID(uid)},
	}
}

func reader(objects ...runtime.Object) Reader {
	return Reader{Client: fake.NewClientset(objects...), Objects: queueObjectsClient()}
}

func TestReasons(t *testing.T) {
	for _, c := range []struct {
		name         string
		change       func(*corev1.Pod)
		more         []runtime.Object
		state        State
		reason, next string
	}{
		{
			name: "the scheduler's reason", state: Waiting, reason: "no node has 8Gi free: the nearest is n1",
			change: func(p *corev1.Pod) {
				p.Status = condition(corev1.ConditionFalse, corev1.PodReasonUnschedulable, "no node has 8Gi free:\nthe nearest is n1")
			},
		},
		{
			name: "what would change a terminal", state: Waiting, reason: `\x1b[31mred\a`,
			change: func(p *corev1.Pod) {
				p.Status = condition(corev1.ConditionFalse, corev1.PodReasonUnschedulable, "\x1b[31mred\x07")
			},
		},
		{
			name: "not looked at", state: Waiting, reason: "scheduler divvy-scheduler has not looked at it yet",
			next: "if that stays so, check that it runs: kubectl get pods -A -l app.kubernetes.io/component=scheduler",
		},
		{
			name: "not looked at by another", state: Waiting, reason: "scheduler mine has not looked at it yet",
			next:   "if that stays so, check that a scheduler of this name runs",
			change: func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" },
		},
		{
			name: "not looked at by one whose name would change a terminal", state: Waiting, reason: "scheduler x\\x1b[31m reason: fine has not looked at it yet",
			next:   "if that stays so, check that a scheduler of this name runs",
			change: func(p *corev1.Pod) { p.Spec.SchedulerName = "x\x1b[31m\n  reason: fine" },
		},
		{
			name: "gated", state: Waiting, reason: "no scheduler may place it: it has the scheduling gates a, b",
			next: "whoever set the gates removes them, such as a queue that admits pods",
			change: func(p *corev1.Pod) {
				p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}, {Name: "b"}}
				p.Status = condition(corev1.ConditionFalse, corev1.PodReasonSchedulingGated, "")
			},
		},
		{
			name: "the stock scheduler's, with the controller's reason", state: Waiting, reason: "newer",
			change: func(p *corev1.Pod) {
				p.Spec.SchedulerName = corev1.DefaultSchedulerName
				p.Status = condition(corev1.ConditionFalse, corev1.PodReasonUnschedulable, "cannot allocate all claims")
			},
			more: []runtime.Object{
				event("p", "p", "NoShareFits", "older", 0), event("p", "p", "NoShareFits", "newer", time.Minute),
				event("p", "before", "NoShareFits", "of an earlier pod", time.Hour), event("p", "p", "Other", "no reason", time.Hour),
			},
		},
		{
			name: "the stock scheduler's, without it", state: Waiting, reason: "cannot allocate all claims",
			change: func(p *corev1.Pod) {
				p.Spec.SchedulerName = corev1.DefaultSchedulerName
				p.Status = condition(corev1.ConditionFalse, corev1.PodReasonUnschedulable, "cannot allocate all claims")
			},
		},
		{
			name: "bound and not prepared", state: Bound, reason: "the driver is too old",
			change: func(p *corev1.Pod) {
				p.Spec.NodeName, p.Status = "n1", condition(corev1.ConditionTrue, "", "")
			},
			more: []runtime.Object{event("p", "p", "PrepareFailed", "the driver is too old", 0)},
		},
		{
			name: "running", state: Bound,
			change: func(p *corev1.Pod) {
				p.Spec.NodeName, p.Status = "n1", condition(corev1.ConditionTrue, "", "")
				p.Status.Phase = corev1.PodRunning
			},
			more: []runtime.Object{event("p", "p", "PrepareFailed", "solved since", 0)},
		},
		{
			name: "ended", state: Ended, reason: "Failed: Evicted: the node was low on memory",
			change: func(p *corev1.Pod) {
				p.Spec.NodeName, p.Status = "n1", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "the node was low on memory"}
			},
		},
		{
			name: "deleted", state: Deleted, next: "its node ends it: look at the agent of node n1 if that takes long",
			change: func(p *corev1.Pod) {
				p.Spec.NodeName, p.DeletionTimestamp = "n1", &noon
				p.Finalizers = []string{"a/b"}
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := reader(append(c.more, podWith("p", c.change))...).Pod(t.Context(), "ns", "p")
			if err != nil {
				t.Fatal(err)
			}
			if e.State != c.state || e.Reason != c.reason || e.Next != c.next {
				t.Errorf("%s, %q, %q; want %s, %q, %q", e.State, e.Reason, e.Next, c.state, c.reason, c.next)
			}
		})
	}
	e, err := reader(podWith("p", func(p *corev1.Pod) { p.Spec.SchedulerName = "x\x1b[31m\n" })).Pod(t.Context(), "ns", "p")
	if err != nil || e.Scheduler != `x\x1b[31m` {
		t.Errorf("scheduler %q, %v", e.Scheduler, err)
	}
	if _, err := reader().Pod(t.Context(), "ns", "p"); !errors.Is(err, ErrNoPod) {
		t.Errorf("no pod: %v", err)
	}
}

func TestClaims(t *testing.T) {
	const made, gone = "divvy-aaaaaaaaaaaaaaaa", "divvy-bbbbbbbbbbbbbbbb"
	entry := func(name, claim, template string) corev1.PodResourceClaim {
		e := corev1.PodResourceClaim{Name: name}
		if claim != "" {
			e.ResourceClaimName = &claim
		}
		if template != "" {
			e.ResourceClaimTemplateName = &template
		}
		return e
	}
	pod := podWith("p", func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{entry("a", made, ""), entry("b", gone, ""), entry("c", "", "template"), entry("d", "waits", ""), entry("e", "has", "")}
		p.Annotations[v1alpha1.ClaimsAnnotation] = `{"` + made + `":{"devices":{"requests":[{"name":"gpu","exactly":{"deviceClassName":"gpu.divvy.dev","allocationMode":"ExactCount","count":1}}]}}}`
		p.Status = condition(corev1.ConditionFalse, corev1.PodReasonUnschedulable, "x")
	})
	waits := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "waits"}}
	has := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "has"}, Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Driver: v1alpha1.Driver, Pool: "n1", Device: "gpu-1", ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("8Gi"), "cores": resource.MustParse("30")}},
			{Driver: "nic.example.com", Pool: "p", Device: "nic-1"},
		}},
	}}}
	e, err := reader(pod, waits, has).Pod(t.Context(), "ns", "p")
	if err != nil {
		t.Fatal(err)
	}
	want := []Claim{
		{Name: made, State: Unmade}, {Name: gone, State: Absent}, {Name: "template", State: Unmade}, {Name: "waits", State: Unallocated},
		{Name: "has", State: Allocated, Devices: []Device{{v1alpha1.Driver, "n1", "gpu-1", 8 << 30, 30}, {"nic.example.com", "p", "nic-1", 0, 0}}},
	}
	if !reflect.DeepEqual(e.Claims, want) {
		t.Errorf("%+v, want %+v", e.Claims, want)
	}
	if e.Next != "claim "+gone+": create it, or create the pod again" {
		t.Errorf("next: %q", e.Next)
	}
}

// A pod whose claim is out of its GPU says for whom, and how it comes back.
func TestSuspended(t *testing.T) {
	for _, c := range []struct {
		ordered bool
		answer  string // of the agent, empty for none
		state   ClaimState
		reason  string
		next    string
	}{
		{false, "", Allocated, "", ""},
		{true, "", Leaving, "it is being suspended for pod speech/b of queue speech", ""},
		{true, v1alpha1.SuspendedReason, Suspended, "it is suspended for pod speech/b of queue speech: its programs wait, its memory is in the node's host memory", "it resumes by itself, when its turn has come and its GPUs have room"},
		{false, v1alpha1.SuspendedReason, Resuming, "its memory comes back to its GPUs", ""},
		{true, v1alpha1.RefusedReason, Leaving, "it is being suspended for pod speech/b of queue speech", ""},
		{false, v1alpha1.ResumedReason, Allocated, "", ""},
	} {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "has"}}
		claim.Status.Allocation = &resourcev1.AllocationResult{}
		if c.ordered {
			claim.Annotations = map[string]string{v1alpha1.SuspendAnnotation: `{"version":1,"order":1,"for":"speech/b","queue":"speech"}`}
		}
		if c.answer != "" {
			claim.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: v1alpha1.Driver, Conditions: []metav1.Condition{v1alpha1.SuspensionAnswer(1, c.answer, "", noon)}}}
		}
		pod := podWith("p", func(p *corev1.Pod) {
			name := "has"
			p.Spec.NodeName, p.Spec.ResourceClaims = "n1", []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
			p.Status = condition(corev1.ConditionTrue, "", "")
			p.Status.Phase = corev1.PodRunning
		})
		e, err := reader(pod, claim).Pod(t.Context(), "ns", "p")
		if err != nil || e.Claims[0].State != c.state || e.Reason != c.reason || e.Next != c.next {
			t.Errorf("%+v: %+v, %v", c, e, err)
		}
	}
}

// gangs are members of a gang of three, of which two must run together.
func member(name, node string, notes ...string) *corev1.Pod {
	return podWith(name, func(p *corev1.Pod) {
		p.Spec.NodeName = node
		p.Annotations = map[string]string{v1alpha1.GangAnnotation: "g", v1alpha1.GangSizeAnnotation: "3", v1alpha1.GangMinimumAnnotation: "2", v1alpha1.GangTopologyAnnotation: "rack=required,leaf=preferred"}
		for i := 0; i < len(notes); i += 2 {
			p.Annotations[notes[i]] = notes[i+1]
		}
	})
}

func TestGangs(t *testing.T) {
	whole := Gang{Name: "ns/g", Size: 3, Minimum: 2, Topology: "rack=required,leaf=preferred"}
	for _, c := range []struct {
		name string
		more []runtime.Object
		want func(*Gang)
		next string
	}{
		{"one of two", nil, func(g *Gang) { g.Waiting, g.Missing = []string{"p"}, 1 }, "1 pod more of gang ns/g: nothing is held for a gang that is not complete"},
		{
			"a surplus member beside one that ended and one that runs",
			[]runtime.Object{member("a", "n1"), func() runtime.Object { p := member("b", "n2"); p.Status.Phase = corev1.PodSucceeded; return p }(), member("z", "")},
			func(g *Gang) {
				g.Ended, g.Bound, g.Waiting, g.Extra = 1, []Member{{"a", "n1"}}, []string{"p"}, []string{"z"}
			}, "",
		},
		{
			"members that disagree", []runtime.Object{member("q", "", v1alpha1.GangSizeAnnotation, "4")},
			func(g *Gang) {
				g.Waiting, g.Fault = []string{"p", "q"}, "the members of gang ns/g disagree about its size: ns/p says 3, ns/q says 4"
			}, "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := member("p", "")
			pod.Status = condition(corev1.ConditionFalse, corev1.PodReasonUnschedulable, "x")
			e, err := reader(append(c.more, pod)...).Pod(t.Context(), "ns", "p")
			if err != nil {
				t.Fatal(err)
			}
			want := whole
			c.want(&want)
			if !reflect.DeepEqual(e.Gang, &want) || e.Next != c.next {
				t.Errorf("%+v, %q; want %+v, %q", e.Gang, e.Next, want, c.next)
			}
		})
	}
	e, err := reader(podWith("p", func(p *corev1.Pod) { p.Annotations[v1alpha1.GangSizeAnnotation] = "3" })).Pod(t.Context(), "ns", "p")
	if err != nil || e.Gang == nil || !strings.Contains(e.Gang.Fault, "needs divvy.dev/gang") {
		t.Errorf("a gang without a name: %+v, %v", e, err)
	}
}

func TestGangsOfOthers(t *testing.T) {
	groups := schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}
	pod := podWith("p", func(p *corev1.Pod) { p.Labels["scheduling.x-k8s.io/pod-group"] = "g" })
	group := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": groups.GroupVersion().String(), "kind": "PodGroup", "metadata": map[string]any{"namespace": "ns", "name": "g"}, "spec": map[string]any{"minMember": int64(4)},
	}}
	r := reader(pod)
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{groups: "PodGroupList"}, group)
	r.Objects = objects
	e, err := r.Pod(t.Context(), "ns", "p")
	if err != nil || e.Gang == nil || e.Gang.Minimum != 4 || e.Gang.Missing != 3 {
		t.Errorf("%+v, %v", e.Gang, err)
	}
	asked := len(objects.Actions())
	if asked != 1 {
		t.Errorf("the group was asked for %d times", asked)
	}
	// Who may not read the object is told so, and not that there is none.
	objects.PrependReactor("get", "podgroups", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(groups.GroupResource(), "g", errors.New("not you"))
	})
	if _, err := r.Pod(t.Context(), "ns", "p"); err == nil || !apierrors.IsForbidden(err) {
		t.Errorf("without the right: %v", err)
	}
}
