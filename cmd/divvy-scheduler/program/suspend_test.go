package program

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/scheduler"
)

// suspending is a node of two GPUs that suspends shares, full with four pods of queue a, of which half is guaranteed to queue b. Its agent
// answers as it is told.
func suspending(t *testing.T, reason string) *queued {
	t.Helper()
	f := withQueues(t, newFleet(t, 1, 0))
	var gpus []pool.GPU
	for k := range 2 {
		gpus = append(gpus, pool.GPU{
			UUID: fmt.Sprintf("GPU-%08x-%04x-4333-8444-555555555555", 0, k), Index: k, Model: "NVIDIA H100 80GB HBM3", Capability: "9.0",
			Architecture: "Hopper", Memory: gpuMemory, DriverVersion: "575.54.15", CUDA: 12090, Suspends: true,
		})
	}
	pool.Divide(gpus, 2*gpuMemory, v1alpha1.Percent(5))
	resources, err := pool.Resources(nodeName(0), gpus)
	if err != nil {
		t.Fatal(err)
	}
	for name, published := range resources.Pools {
		for k, slice := range published.Slices {
			made := sliceOf(v1alpha1.Driver, 0, 100+k, slice.Devices)
			made.Spec.Pool.Name, made.Spec.Pool.ResourceSliceCount, made.Spec.Pool.Generation = name, int64(len(published.Slices)), 2
			made.Spec.SharedCounters, made.Spec.PerDeviceNodeSelection = slice.SharedCounters, slice.PerDeviceNodeSelection
			if _, err := f.client.ResourceV1().ResourceSlices().Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.suspend(ctx, reason)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	for _, name := range []string{"a", "b"} {
		f.queue(name, "{namespaces: [default], grace: 1s, resources: [{guaranteed: 1}]}")
	}
	return f
}

// borrow has queue a use both GPUs.
func (q *queued) borrow() {
	q.t.Helper()
	for i := range 4 {
		q.create(inQueue(q.t, "a", fmt.Sprint("a-", i), 36))
	}
	for _, p := range q.bound(4) {
		patch := []byte(`{"status":{"phase":"Running"}}`)
		if _, err := q.client.CoreV1().Pods(namespace).Patch(q.t.Context(), p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			q.t.Fatal(err)
		}
	}
}

// suspend answers orders as an agent does, with the reason for those that leave.
func (q *queued) suspend(ctx context.Context, reason string) {
	watch, err := q.client.ResourceV1().ResourceClaims(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	defer watch.Stop()
	out := map[types.UID]int64{}
	for event := range watch.ResultChan() {
		claim, ok := event.Object.(*resourcev1.ResourceClaim)
		if !ok || claim.Status.Allocation == nil {
			continue
		}
		order, err := v1alpha1.ParseSuspension(claim.Annotations[v1alpha1.SuspendAnnotation])
		switch {
		case err == nil && out[claim.UID] != order.Order:
			out[claim.UID] = order.Order
			q.answer(ctx, claim, v1alpha1.SuspensionAnswer(order.Order, reason, "memory of another program is in the way", metav1.Now()))
		case err != nil && out[claim.UID] != 0 && reason == v1alpha1.SuspendedReason:
			q.answer(ctx, claim, v1alpha1.SuspensionAnswer(out[claim.UID], v1alpha1.ResumedReason, "", metav1.Now()))
			delete(out, claim.UID)
		}
	}
}

func (q *queued) answer(ctx context.Context, claim *resourcev1.ResourceClaim, condition metav1.Condition) {
	r := &claim.Status.Allocation.Devices.Results[0]
	share := string(*r.ShareID)
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"devices": []resourcev1.AllocatedDeviceStatus{
		{Driver: r.Driver, Pool: r.Pool, Device: r.Device, ShareID: &share, Conditions: []metav1.Condition{condition}},
	}}})
	if err == nil {
		_, err = q.client.ResourceV1().ResourceClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil && ctx.Err() == nil {
		q.t.Errorf("answer for claim %s: %v", claim.Name, err)
	}
}

// ordered counts the claims that are ordered out of their GPUs, and those of them that are out.
func (q *queued) ordered(ctx context.Context) (ordered, out int) {
	claims, err := q.client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return -1, -1
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		if c.Annotations[v1alpha1.SuspendAnnotation] == "" {
			continue
		}
		ordered++
		if len(c.Status.Devices) > 0 && c.Status.Devices[0].Conditions[0].Status == metav1.ConditionTrue {
			out++
		}
	}
	return ordered, out
}

// told waits until an event with a reason has a text.
func (q *queued) told(reason, text string) {
	q.t.Helper()
	q.until(fmt.Sprintf("somebody is told %s: %s", reason, text), func(ctx context.Context) (bool, string) {
		events, err := q.client.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return false, err.Error()
		}
		for i := range events.Items {
			if strings.Contains(events.Items[i].Note, text) {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", events.Items)
	})
}

// Borrowers leave their GPU for queue b and keep their pods. They come back by themselves when b has ended, also for the next leader.
func TestSuspends(t *testing.T) {
	f := suspending(t, v1alpha1.SuspendedReason)
	first := f.run("first", shipped, nil, single)
	f.borrow()
	f.create(inQueue(t, "b", "b-0", 60))
	f.runs("b", 1)
	if n := f.running(t.Context(), "a"); n != 4 {
		t.Errorf("a keeps %d of 4 pods", n)
	}
	f.told(scheduler.ReasonSuspended, "for pod default/b-0 of queue b (rule entitlement): its programs wait, its memory is in the node's host memory")
	f.until("queue a says so", func(ctx context.Context) (bool, string) {
		s := f.standing(ctx, "a").Status
		return s.Running == 2 && s.Waiting == 2 && slices.ContainsFunc(s.Conditions, func(c v1alpha1.QueueCondition) bool {
			return c.Type == string(scheduler.ConditionSuspended) && strings.HasPrefix(c.Message, "2 pods are suspended")
		}), fmt.Sprintf("%+v", s)
	})
	if ordered, out := f.ordered(t.Context()); ordered != 2 || out != 2 {
		t.Errorf("%d claims are ordered out, and %d are", ordered, out)
	}
	first.Kill()
	f.run("second", shipped, nil, single)
	f.create(inQueue(t, "a", "a-late", 36))
	f.says("a-late", "no quota")
	if ordered, out := f.ordered(t.Context()); ordered != 2 || out != 2 {
		t.Errorf("while b runs, %d claims are ordered out, and %d are", ordered, out)
	}
	if err := f.client.CoreV1().Pods(namespace).Delete(t.Context(), "a-late", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := f.client.CoreV1().Pods(namespace).Delete(t.Context(), "b-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.until("all come back", func(ctx context.Context) (bool, string) {
		ordered, out := f.ordered(ctx)
		return ordered == 0, fmt.Sprint(ordered, out)
	})
	f.told(scheduler.ReasonResumed, "its programs go on")
	if n := f.running(t.Context(), "a"); n != 4 {
		t.Errorf("a keeps %d of 4 pods", n)
	}
	f.check()
}

// A victim that its agent does not suspend ends, and is told why.
func TestSuspensionRefused(t *testing.T) {
	f := suspending(t, v1alpha1.RefusedReason)
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	f.borrow()
	f.create(inQueue(t, "b", "b-0", 60))
	f.runs("b", 1)
	f.told(scheduler.ReasonNotAllowed, "it is not suspended but ended: the agent of its node refuses: memory of another program is in the way")
	f.told(reasonReclaimed, "ends within 1s for pod default/b-0 of queue b")
	if n := f.running(t.Context(), "a"); n != 2 {
		t.Errorf("a keeps %d pods", n)
	}
	f.check()
}
