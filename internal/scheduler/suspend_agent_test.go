package scheduler

import (
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// agent looks at one claim, and answers.
func (w *suspending) agent(key string, refuses bool) {
	w.t.Helper()
	claim := w.api[key]
	if claim == nil || claim.Status.Allocation == nil {
		return
	}
	text, ordered := claim.Annotations[v1alpha1.SuspendAnnotation]
	var order v1alpha1.Suspension
	if ordered {
		var err error
		if order, err = v1alpha1.ParseSuspension(text); err != nil {
			w.t.Fatal(err)
		}
	}
	last := int64(0)
	if len(claim.Status.Devices) > 0 {
		c := v1alpha1.SuspensionAnswerOf(&claim.Status.Devices[0])
		if last = c.ObservedGeneration; ordered && last == order.Order && c.Reason != v1alpha1.ResumedReason {
			return
		}
	}
	switch {
	case ordered && refuses:
		w.answer(key, order.Order, v1alpha1.RefusedReason)
	case ordered:
		w.out[key] = true
		w.answer(key, order.Order, v1alpha1.SuspendedReason)
	case w.out[key]:
		delete(w.out, key)
		if used := w.used(func(c *resourcev1.ResourceClaim) bool { return !w.out[c.Namespace+"/"+c.Name] }); slices.Max(used) > suspendingGPU {
			w.t.Errorf("claim %s comes back to GPUs of which %v GiB are used", key, used)
		}
		w.answer(key, last, v1alpha1.ResumedReason)
	}
}

func (w *suspending) answer(key string, order int64, reason string) {
	claim := w.api[key].DeepCopy()
	r := &claim.Status.Allocation.Devices.Results[0]
	share := string(*r.ShareID)
	claim.Status.Devices = []resourcev1.AllocatedDeviceStatus{{
		Driver: r.Driver, Pool: r.Pool, Device: r.Device, ShareID: &share,
		Conditions: []metav1.Condition{v1alpha1.SuspensionAnswer(order, reason, "because", metav1.NewTime(w.now))},
	}}
	w.put(key, claim)
}

// used is how many GiB of each GPU claims have.
func (w *suspending) used(counts func(*resourcev1.ResourceClaim) bool) []int {
	by := map[string]int{}
	for _, claim := range w.api {
		if claim.Status.Allocation != nil && counts(claim) {
			r := &claim.Status.Allocation.Devices.Results[0]
			memory := r.ConsumedCapacity[v1alpha1.CapacityMemory]
			by[r.Device] += int(memory.Value() / gib)
		}
	}
	return append(slices.Collect(maps.Values(by)), 0)
}

// judge looks at what claims say: never is more given than there is, and the ledger depends on the objects alone.
func (w *suspending) judge(when string) {
	w.t.Helper()
	suspended := func(c *resourcev1.ResourceClaim) (ordered, answered, refused bool) {
		read, err := v1alpha1.ParseSuspension(c.Annotations[v1alpha1.SuspendAnnotation])
		if len(c.Status.Devices) > 0 {
			a := v1alpha1.SuspensionAnswerOf(&c.Status.Devices[0])
			answered = a.Status == metav1.ConditionTrue
			refused = a.Reason == v1alpha1.RefusedReason && a.ObservedGeneration == read.Order
		}
		return err == nil, answered, refused
	}
	if used := w.used(func(c *resourcev1.ResourceClaim) bool { o, a, _ := suspended(c); return !o || !a }); slices.Max(used) > suspendingGPU {
		w.t.Fatalf("%s: %v GiB of GPUs are given, and each has %d", when, used, suspendingGPU)
	}
	if used := w.used(func(c *resourcev1.ResourceClaim) bool { o, a, r := suspended(c); return o && !r || a }); slices.Max(used) > suspendingHost {
		w.t.Fatalf("%s: %v GiB of the host are given, and there are %d for each GPU", when, used, suspendingHost)
	}
	policy, err := alloc.PolicyNamed(comparedPolicy)
	if err != nil {
		w.t.Fatal(err)
	}
	rebuilt, err := w.e.ledger.Rebuilt(policy)
	if err != nil {
		w.t.Fatal(err)
	}
	if different := w.e.ledger.Difference(rebuilt); different != "" {
		w.t.Fatalf("%s: the ledger differs from a rebuild: %s", when, different)
	}
}
