package scheduler

import (
	"encoding/json"
	"errors"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// An order is written with the revision that was seen, and again where what changed since does not matter. The agent finds the claim by
// a label that comes and goes with it.
func TestOrder(t *testing.T) {
	seen := func() *resourcev1.ResourceClaim {
		c := claimAt("claim", "1")
		c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: v1alpha1.Driver, Pool: "node-7", Device: "gpu-0"},
		}}}
		c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "p"}}
		return c
	}
	order := func(number int64) *v1alpha1.Suspension {
		return &v1alpha1.Suspension{Order: number, For: "b/p", Queue: "b"}
	}
	text := func(number int64) string {
		written, _ := order(number).Text() // it can be written
		return written
	}
	ordered := func(number int64) func(*resourcev1.ResourceClaim) {
		return func(c *resourcev1.ResourceClaim) {
			c.Annotations, c.Labels = map[string]string{v1alpha1.SuspendAnnotation: text(number)}, map[string]string{v1alpha1.SuspendNodeLabel: "node-7"}
		}
	}
	later := func(changes ...func(*resourcev1.ResourceClaim)) func(*resourcev1.ResourceClaim) {
		return func(c *resourcev1.ResourceClaim) {
			c.ResourceVersion = "2"
			for _, change := range changes {
				change(c)
			}
		}
	}
	for name, c := range map[string]struct {
		order *v1alpha1.Suspension // nil ends order 1
		there func(*resourcev1.ResourceClaim)
		fails bool
		want  string // the annotation that is there then
		tries int
	}{
		"ordered":                          {order(1), func(*resourcev1.ResourceClaim) {}, false, text(1), 1},
		"changed in what does not matter":  {order(1), later(), false, text(1), 2},
		"ordered already":                  {order(1), later(ordered(1)), false, text(1), 1},
		"ordered by another":               {order(1), later(ordered(2)), true, text(2), 1},
		"it has another pod":               {order(1), later(func(c *resourcev1.ResourceClaim) { c.Status.ReservedFor[0].UID = "q" }), true, "", 1},
		"it has nothing any more":          {order(1), later(func(c *resourcev1.ResourceClaim) { c.Status = resourcev1.ResourceClaimStatus{} }), true, "", 1},
		"it is another":                    {order(1), later(func(c *resourcev1.ResourceClaim) { c.UID = "another" }), true, "", 1},
		"ended":                            {nil, ordered(1), false, "", 1},
		"ended, and changed":               {nil, later(ordered(1)), false, "", 2},
		"ended already":                    {nil, later(), false, "", 1},
		"a newer order is not ended":       {nil, later(ordered(2)), false, text(2), 1},
		"another claim's order stays":      {nil, later(ordered(1), func(c *resourcev1.ResourceClaim) { c.UID = "another" }), true, text(1), 1},
		"what nobody can read is ended":    {nil, func(c *resourcev1.ResourceClaim) { c.Annotations = map[string]string{v1alpha1.SuspendAnnotation: "?"} }, false, "", 1},
		"an order of another is not taken": {order(2), later(ordered(1)), true, text(1), 1},
	} {
		there := seen()
		c.there(there)
		client := fake.NewClientset(there)
		tries := revisions(client)
		o := &Order{Claim: seen(), Suspension: c.order, Number: 1}
		err := (&Writer{Client: client}).Order(t.Context(), o)
		got, read := client.ResourceV1().ResourceClaims("a").Get(t.Context(), "claim", metav1.GetOptions{})
		if read != nil || (err != nil) != c.fails || got.Annotations[v1alpha1.SuspendAnnotation] != c.want || *tries != c.tries {
			t.Errorf("%s: after %d tries it has %q (%v, %v), and not after %d %q", name, *tries, got.Annotations[v1alpha1.SuspendAnnotation], err, read, c.tries, c.want)
		}
		if want := map[bool]string{true: "node-7"}[c.want != ""]; got.Labels[v1alpha1.SuspendNodeLabel] != want {
			t.Errorf("%s: its label is %q", name, got.Labels[v1alpha1.SuspendNodeLabel])
		}
	}
	if err := (&Writer{Client: fake.NewClientset()}).Order(t.Context(), &Order{Claim: seen(), Number: 1}); !apierrors.IsNotFound(err) {
		t.Errorf("a claim that has gone: %v", err)
	}
	refusing := fake.NewClientset(seen())
	refusing.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(resourcev1.Resource("resourceclaims"), "claim", errors.New("a policy"))
	})
	if err := (&Writer{Client: refusing}).Order(t.Context(), &Order{Claim: seen(), Suspension: order(1), Number: 1}); !apierrors.IsForbidden(err) {
		t.Errorf("an order that is refused: %v", err)
	}
}

// revisions has a fake API server refuse patches of claims that are not of the last revision or of another claim, and counts patches.
func revisions(client *fake.Clientset) (tries *int) {
	tries = new(int)
	client.PrependReactor("patch", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		*tries++
		patch, ok := action.(clienttesting.PatchAction)
		var object metav1.PartialObjectMetadata
		if !ok {
			return false, nil, nil
		}
		if err := json.Unmarshal(patch.GetPatch(), &object); err != nil {
			return true, nil, err
		}
		there, err := client.Tracker().Get(resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), patch.GetNamespace(), patch.GetName())
		if known, ok := there.(*resourcev1.ResourceClaim); err == nil && ok && (known.ResourceVersion != object.ResourceVersion || known.UID != object.UID) {
			return true, nil, apierrors.NewConflict(resourcev1.Resource("resourceclaims"), patch.GetName(), errors.New("changed"))
		}
		return false, nil, nil
	})
	return tries
}
