package explanation

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// departments are two queues of research: vision has lent 1.5 of its GPUs to speech.
func departments(t *testing.T) []runtime.Object {
	use := func(fields string) string {
		return "observedGeneration: 2, running: 3, waiting: 2, resources: [{unit: gpus, " + fields + "}]"
	}
	return []runtime.Object{
		queueObjectOf(t, "research", "grace: 1m, resources: [{guaranteed: 8, limit: 12}]", use(`guaranteed: "8", entitled: "8", used: "8", lent: "0", borrowed: "0", demand: "10"`)),
		queueObjectOf(t, "vision", "parent: research, minimumRunTime: 10m, namespaces: [ns], resources: [{guaranteed: 4}]", use(`guaranteed: "4", entitled: "2.5", used: "2.5", lent: "1.5", borrowed: "0", demand: "2.5"`)),
		queueObjectOf(t, "speech", "parent: research, resources: [{guaranteed: 5, limit: 6}]", use(`guaranteed: "4", entitled: "5.5", used: "5.5", lent: "0", borrowed: "1.5", demand: "7.5"`)),
		queueObjectOf(t, "eu", "parent: speech", ""),
	}
}

func queueReader(t *testing.T, objects ...runtime.Object) Reader {
	return Reader{Client: fake.NewClientset(objects...), Objects: queueObjectsClient(departments(t)...)}
}

func TestAmountsOfAQueue(t *testing.T) {
	r := queueReader(t)
	e, err := r.Queue(t.Context(), "speech", "")
	if err != nil {
		t.Fatal(err)
	}
	want := []AmountLine{
		{"guaranteed", "4", "of 5 that are written, there is no more"},
		{"entitled", "5.5", "4 guaranteed, and 1.5 of what others leave idle; 2 more are asked for"},
		{"used", "5.5", "all that it is entitled to"},
		{"borrowed", "1.5", "lent by vision (1.5)"},
		{"lent", "0", ""},
		{"demand", "7.5", "what its pods hold or ask for"},
		{"limit", "6", "of queue speech"},
		{"limit", "12", "of queue research"},
	}
	if len(e.Amounts) != 1 || !reflect.DeepEqual(e.Amounts[0].Lines, want) {
		t.Errorf("%+v, want %+v", e.Amounts, want)
	}
	minute, minutes := v1alpha1.Duration(time.Minute), v1alpha1.Duration(10*time.Minute)
	if !reflect.DeepEqual(e.Path, []string{"research"}) || e.Grace != (Inherited{minute, "research"}) || e.MinimumRunTime != (Inherited{}) || len(e.Parts) != 1 || e.Parts[0].Name != "eu" {
		t.Errorf("%+v", e)
	}
	if e, err = r.Queue(t.Context(), "vision", ""); err != nil || e.MinimumRunTime != (Inherited{minutes, "vision"}) || e.Amounts[0].Lines[1].From != "guaranteed; no more is asked for" || e.Amounts[0].Lines[4].From != "to speech (1.5)" {
		t.Errorf("%+v, %v", e, err)
	}
	for u, want := range map[v1alpha1.QueueUse]string{
		{Used: 2000, Entitled: 1000}: "1 more than it is entitled to: pods may end for others",
		{Used: 500, Entitled: 1000}:  "0.5 less than it is entitled to",
	} {
		u.Unit = v1alpha1.UnitGPUs
		if got := within(u); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if _, err := r.Queue(t.Context(), "nobody", ""); !errors.Is(err, ErrNoQueue) {
		t.Errorf("no queue: %v", err)
	}
}

// queued is a pod with a claim.
func queued(name string, at time.Duration, priority int32, labels map[string]string, change func(*corev1.Pod)) *corev1.Pod {
	return podWith(name, func(p *corev1.Pod) {
		p.CreationTimestamp = metav1.NewTime(noon.Add(at))
		p.Spec.Priority = &priority
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		p.Labels = labels
		if change != nil {
			change(p)
		}
	})
}

func TestLineOfAQueue(t *testing.T) {
	says := func(text string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status = condition(corev1.ConditionFalse, corev1.PodReasonUnschedulable, text) }
	}
	ganged := func(p *corev1.Pod) {
		p.Annotations[v1alpha1.GangAnnotation], p.Annotations[v1alpha1.GangSizeAnnotation] = "g", "2"
	}
	ends := func(p *corev1.Pod) {
		p.Spec.NodeName, p.DeletionTimestamp, p.Finalizers = "n1", &metav1.Time{Time: noon.Add(time.Minute)}, []string{"a/b"}
	}
	disrupts := func(p *corev1.Pod) {
		ends(p)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "QuotaReclaimed", Message: "for speech"}}
	}
	inVision := map[string]string{v1alpha1.QueueLabel: "vision"}
	elsewhere := queued("other", 0, 0, inVision, nil)
	elsewhere.Namespace = "other"
	r := queueReader(t,
		queued("first", time.Minute, 5, nil, says("waits for 4 pods of queue speech to end,\nuntil 12:00:30")),
		queued("young", 2*time.Minute, 0, nil, nil),
		queued("old", time.Minute, 0, inVision, says("no room")),
		queued("spare", 0, 9, map[string]string{v1alpha1.QuotaLabel: "opportunistic"}, says("no room")),
		queued("g-0", 3*time.Minute, 0, nil, ganged), queued("g-1", 0, 0, nil, ganged),
		queued("foreign", 0, 0, map[string]string{v1alpha1.QueueLabel: "speech"}, nil), // vision's, because speech is not for ns
		elsewhere,
		podWith("no-gpus", nil),
		queued("gated", 0, 0, nil, func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}} }),
		queued("bound", 0, 0, nil, func(p *corev1.Pod) { p.Spec.NodeName = "n1" }),
		queued("victim", 0, 0, nil, ends), event("victim", "victim", "QuotaReclaimed", "ends within 30s for pod ns/s of queue speech", 0),
		queued("disrupted", 0, 0, nil, disrupts), queued("deleted", 0, 0, nil, ends),
	)
	e, err := r.Queue(t.Context(), "vision", "")
	if err != nil {
		t.Fatal(err)
	}
	at := func(d time.Duration) time.Time { return noon.Add(d) }
	const none, b = "no scheduler has looked at it yet", v1alpha1.QuotaBorrowing
	want := []Waiter{
		{"ns", "first", 0, b, 5, at(time.Minute), "waits for 4 pods of queue speech to end, until 12:00:30"},
		{"ns", "g", 2, b, 0, at(0), none},
		{"ns", "foreign", 0, b, 0, at(0), none},
		{"ns", "old", 0, b, 0, at(time.Minute), "no room"},
		{"ns", "young", 0, b, 0, at(2 * time.Minute), none},
		{"ns", "spare", 0, v1alpha1.QuotaOpportunistic, 9, at(0), "no room"},
	}
	for i := range e.Line {
		e.Line[i].Since = e.Line[i].Since.UTC()
	}
	if !reflect.DeepEqual(e.Line, want) {
		t.Errorf("%+v\nwant %+v", e.Line, want)
	}
	if len(e.Ending) != 2 || e.Ending[0].Reason != "for speech" || e.Ending[1].Reason != "ends within 30s for pod ns/s of queue speech" || !e.Ending[1].Until.Equal(at(time.Minute)) {
		t.Errorf("%+v", e.Ending)
	}
	for pod, want := range map[string]*QueuePlace{"old": {"vision", 3, 6}, "g-1": {"vision", 1, 6}, "gated": {Name: "vision"}, "no-gpus": nil} {
		object, err := r.Client.CoreV1().Pods("ns").Get(t.Context(), pod, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if p, err := r.place(t.Context(), object); err != nil || !reflect.DeepEqual(p, want) {
			t.Errorf("pod %s: %+v, %v; want %+v", pod, p, err, want)
		}
	}
	if e, err = r.Queue(t.Context(), "vision", "other"); err != nil || len(e.Line) != 0 {
		t.Errorf("of another namespace: %+v, %v", e, err)
	}
}

// Who may read only some namespaces is told to name one.
func TestQueueWithoutTheRightToAllPods(t *testing.T) {
	r := queueReader(t)
	client := fake.NewClientset()
	client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetNamespace() == "" {
			return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("not you"))
		}
		return false, nil, nil
	})
	r.Client = client
	if _, err := r.Queue(t.Context(), "vision", ""); err == nil || !strings.Contains(err.Error(), "--namespace") {
		t.Errorf("%v", err)
	}
	if _, err := r.Queue(t.Context(), "vision", "ns"); err != nil {
		t.Error(err)
	}
	if p, err := r.place(t.Context(), queued("p", 0, 0, nil, nil)); err != nil || p == nil || *p != (QueuePlace{Name: "vision"}) {
		t.Errorf("%+v, %v", p, err)
	}
}
