package program

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler"
)

// A pod with a claim that the scheduler makes and one for another driver's device gets both on one node, from Kubernetes'
// own allocator, which counts what Divvy's has given.
func TestMixed(t *testing.T) {
	f := newFleet(t, 2, 1)
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	for i := range 2 {
		f.create(describing(t, fmt.Sprintf("single-%d", i), share(50, 10)))
	}
	f.bound(2)
	for i := range 3 {
		claim := otherClaim(fmt.Sprintf("nic-%d", i))
		f.makeClaim(claim)
		f.create(withClaim(describing(t, fmt.Sprintf("both-%d", i), share(25, 10)), claim))
	}
	f.bound(4)
	f.check()
}

// A pod that waits for a claim which somebody is to make is bound once that is there, also while the claim that the scheduler
// makes for it is not.
func TestClaimAfterItsPod(t *testing.T) {
	f := newFleet(t, 1, 1)
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	claim := otherClaim("nic")
	f.create(withClaim(describing(t, "both", share(25, 10)), claim))
	f.says("both", `"nic" not found`)
	f.makeClaim(claim)
	f.bound(1)
	f.check()
}

// otherClaim is a claim for a device of another driver.
func otherClaim(name string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "nic", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: otherDriver}},
		}}},
	}
}

// withClaim is a pod with one more claim.
func withClaim(pod *corev1.Pod, claim *resourcev1.ResourceClaim) *corev1.Pod {
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "nic", ResourceClaimName: &claim.Name})
	return pod
}

func (f *fleet) makeClaim(claim *resourcev1.ResourceClaim) {
	f.t.Helper()
	if _, err := f.client.ResourceV1().ResourceClaims(claim.Namespace).Create(f.t.Context(), claim, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// A pod whose claim has devices of a node that does not let it any more gets others elsewhere.
func TestLeavesNode(t *testing.T) {
	f := newFleet(t, 2, 1)
	f.run("first", crashing, []string{"DIVVY_CRASH_AFTER=" + scheduler.StepAllocated, "DIVVY_CRASH_MARKS=" + t.TempDir()}, single)
	made := f.create(describing(t, "pod", share(50, 10)))
	f.dead("first")
	claim, err := f.client.ResourceV1().ResourceClaims(namespace).Get(t.Context(), *made.Spec.ResourceClaims[0].ResourceClaimName, metav1.GetOptions{})
	if err != nil || claim.Status.Allocation == nil {
		t.Fatalf("%+v: %v", claim.Status, err)
	}
	from := claim.Status.Allocation.Devices.Results[0].Pool
	node, err := f.client.CoreV1().Nodes().Get(t.Context(), from, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Spec.Unschedulable = true
	if _, err := f.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	second := f.run("second", shipped, nil, single)
	if pods := f.bound(1); pods[0].Spec.NodeName == from {
		t.Errorf("it is on %s", from)
	}
	f.check()
	// Whoever takes over compares its ledger with a rebuild. No cycle runs by then, and what is written counts as written.
	f.until("the figures are told", func(ctx context.Context) (bool, string) {
		text, err := second.Get(ctx, "/metrics")
		for _, figure := range []string{"plan_seconds_count ", "ledger_differences 0\n", "unwritten_claims 0\n", "waiting_pods 0\n"} {
			if !strings.Contains(string(text), "\ndivvy_scheduler_"+figure) {
				return false, fmt.Sprintf("%s: %v", figure, err)
			}
		}
		return err == nil, fmt.Sprint(err)
	})
}

// A pod without a node does not keep a part of a GPU that was given twice. Where another pod uses its claim too, it says so.
func TestDisputedClaim(t *testing.T) {
	f := newFleet(t, 2, 1)
	ctx, claims := t.Context(), f.client.ResourceV1().ResourceClaims(namespace)
	byHand := func(name, user string) *corev1.Pod {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: share(50, 10)}
		if _, err := claims.Create(ctx, claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		p := pod(user)
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
		return p
	}
	// The first claim is a running pod's, and the others are given the same by hand.
	f.run("first", shipped, nil, single)
	running := f.create(byHand("running", "running"))
	f.bound(1)
	f.Process("first").Kill()
	f.dead("first")
	given, err := claims.Get(ctx, "running", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waits := f.create(byHand("waits", "waits"))
	f.create(byHand("shared", "shares"))
	for name, users := range map[string][]*corev1.Pod{"waits": {waits}, "shared": {running}} {
		claim, err := claims.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		claim.Status.Allocation = given.Status.Allocation.DeepCopy()
		shareID := types.UID(uuid.NewUUID())
		claim.Status.Allocation.Devices.Results[0].ShareID = &shareID
		for _, user := range users {
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: user.Name, UID: user.UID})
		}
		if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f.run("second", shipped, nil, single)
	f.says("shares", "which is fenced: it has too little memory left; delete this claim, or what else has a part of that GPU: default/running")
	f.bound(2)
	now := int64(0)
	if err := f.client.CoreV1().Pods(namespace).Delete(ctx, "running", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	for _, p := range f.bound(2) {
		from := given.Status.Allocation.Devices.Results[0].Pool
		if (p.Name == "shares") != (p.Spec.NodeName == from) {
			t.Errorf("%s is on %s, and the GPU that was given twice on %s", p.Name, p.Spec.NodeName, from)
		}
	}
}

// A pod that asks for a GPU as an extended resource gets it from Kubernetes' own plugin, which makes the claim late. What it
// found is noted before that, so that a pod with a share that comes next gets none of it.
func TestExtendedResources(t *testing.T) {
	f := newFleet(t, 1, 1)
	const name, one = corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix + v1alpha1.ClassWhole), "1"
	whole := pod("first")
	whole.Spec.PriorityClassName = "system-node-critical" // both are there before the scheduler, in any order
	whole.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse(one)}
	whole.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(one)
	f.create(whole)
	f.create(describing(t, "next", share(20, 10)))
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	f.waiting(1)
	if pods := f.bound(1); pods[0].Spec.NodeName == "" {
		t.Errorf("the pod that came first waits: %v", pods[0].Status)
	}
	if pods := f.check(); len(pods) != 1 {
		t.Errorf("given is %v", pods)
	}
}
