package explanation

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Of a queue's pods those are told that are out of their GPUs, longest first: none that still leaves, or comes back.
func TestSleepersOfAQueue(t *testing.T) {
	var objects []runtime.Object
	add := func(name, reason string, ordered bool, since time.Duration) {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim-of-" + name}}
		claim.Status.Allocation = &resourcev1.AllocationResult{}
		if ordered {
			claim.Labels = map[string]string{v1alpha1.SuspendNodeLabel: v1alpha1.SuspendNode("n1")}
			claim.Annotations = map[string]string{v1alpha1.SuspendAnnotation: `{"version":1,"order":1,"for":"speech/b","queue":"speech"}`}
		}
		if reason != "" {
			claim.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: v1alpha1.Driver, Conditions: []metav1.Condition{v1alpha1.SuspensionAnswer(1, reason, "", metav1.NewTime(noon.Add(since)))}}}
		}
		pod := queued(name, 0, 0, nil, func(p *corev1.Pod) {
			p.Spec.NodeName, p.Spec.ResourceClaims[0].ResourceClaimName = "n1", &claim.Name
		})
		objects = append(objects, pod, claim)
	}
	add("works", "", false, 0)
	add("leaves", "", true, 0)
	add("refused", v1alpha1.RefusedReason, true, 0)
	add("late", v1alpha1.SuspendedReason, true, 2*time.Minute)
	add("early", v1alpha1.SuspendedReason, true, time.Minute)
	add("returns", v1alpha1.SuspendedReason, false, 0)
	r := queueReader(t, objects...)
	e, err := r.Queue(t.Context(), "vision", "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range e.Sleeping {
		e.Sleeping[i].Since = e.Sleeping[i].Since.UTC()
	}
	const reason = "its turn, and room on its GPUs of node n1; it left them for pod speech/b of queue speech"
	want := []Sleeper{{"ns", "early", noon.Add(time.Minute).UTC(), reason}, {"ns", "late", noon.Add(2 * time.Minute).UTC(), reason}}
	if !reflect.DeepEqual(e.Sleeping, want) {
		t.Errorf("%+v\nwant %+v", e.Sleeping, want)
	}
	r.Client.(*fake.Clientset).PrependReactor("list", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(resourcev1.Resource("resourceclaims"), "", nil)
	})
	if e, err := r.Queue(t.Context(), "vision", ""); err != nil || len(e.Sleeping) != 0 {
		t.Errorf("who may not read claims: %+v, %v", e, err)
	}
}
