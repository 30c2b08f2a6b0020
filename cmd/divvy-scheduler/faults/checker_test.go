package faults

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// picture is what the API has. Nothing else is known to the checker.
type picture struct {
	pods   []corev1.Pod
	claims []resourcev1.ResourceClaim
}

func (w *world) picture(ctx context.Context) (*picture, error) { return pictureOf(ctx, w.client) }

func pictureOf(ctx context.Context, client kubernetes.Interface) (*picture, error) {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the pods: %w", err)
	}
	claims, err := client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the claims: %w", err)
	}
	return &picture{pods.Items, claims.Items}, nil
}

// capacities are what devices have, by pool and name, also those that are not published any more.
type capacities map[string]map[resourcev1.QualifiedName]resource.Quantity

// capacities reads what is published.
func (w *world) capacities() capacities {
	w.t.Helper()
	all := capacities{}
	list, err := w.client.ResourceV1().ResourceSlices().List(w.t.Context(), metav1.ListOptions{})
	w.must(err)
	for i := range list.Items {
		spec := &list.Items[i].Spec
		for k := range spec.Devices {
			has := map[resourcev1.QualifiedName]resource.Quantity{}
			for name, capacity := range spec.Devices[k].Capacity {
				has[name] = capacity.Value
			}
			all[spec.Pool.Name+"/"+spec.Devices[k].Name] = has
		}
	}
	return all
}

// restless are contradictions between pods and claims. Each may be there for a moment, and none at rest.
func (p *picture) restless() (faults []string) {
	pods := map[types.UID]*corev1.Pod{}
	for i := range p.pods {
		pods[p.pods[i].UID] = &p.pods[i]
	}
	claims := map[string]*resourcev1.ResourceClaim{}
	for i := range p.claims {
		claim := &p.claims[i]
		claims[claim.Name] = claim
		faults = append(faults, forNobody(claim, pods)...)
	}
	for i := range p.pods {
		if p.pods[i].Spec.NodeName != "" {
			faults = append(faults, without(&p.pods[i], claims)...)
		}
	}
	return append(faults, p.parted()...)
}

// forNobody tells what a claim has for pods that are not there, or have no node.
func forNobody(claim *resourcev1.ResourceClaim, pods map[types.UID]*corev1.Pod) (faults []string) {
	for _, owner := range claim.OwnerReferences {
		if pods[owner.UID] == nil {
			faults = append(faults, fmt.Sprintf("claim %s is left of pod %s", claim.Name, owner.Name))
		}
	}
	if claim.Status.Allocation == nil {
		return faults
	}
	if !slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
		faults = append(faults, fmt.Sprintf("claim %s has devices, and whoever deletes it takes them from its pods", claim.Name))
	}
	if len(claim.Status.ReservedFor) == 0 {
		faults = append(faults, fmt.Sprintf("claim %s has devices for nobody", claim.Name))
	}
	for _, user := range claim.Status.ReservedFor {
		switch pod := pods[user.UID]; {
		case pod == nil:
			faults = append(faults, fmt.Sprintf("claim %s is reserved for pod %s, which is gone", claim.Name, user.Name))
		case pod.Spec.NodeName == "":
			faults = append(faults, fmt.Sprintf("claim %s has devices and pod %s no node", claim.Name, user.Name))
		case pod.Spec.NodeName != claim.Status.Allocation.Devices.Results[0].Pool:
			faults = append(faults, fmt.Sprintf("pod %s is on %s and claim %s of %s", user.Name, pod.Spec.NodeName, claim.Name, claim.Status.Allocation.Devices.Results[0].Pool))
		}
	}
	return faults
}

// without tells which claims a bound pod runs without.
func without(pod *corev1.Pod, claims map[string]*resourcev1.ResourceClaim) (faults []string) {
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			faults = append(faults, fmt.Sprintf("pod %s is bound without a claim: %v", pod.Name, err))
			continue
		}
		claim := claims[*name]
		switch {
		case claim == nil || claim.Status.Allocation == nil:
			faults = append(faults, fmt.Sprintf("pod %s is on %s and claim %s has no devices", pod.Name, pod.Spec.NodeName, *name))
		case !resourceclaim.IsReservedForPod(pod, claim, false):
			faults = append(faults, fmt.Sprintf("pod %s is on %s and claim %s not reserved for it", pod.Name, pod.Spec.NodeName, *name))
		}
	}
	return faults
}

// parted are gangs of which some members have nodes and fewer than their size. A gang that lost one may wait for another.
func (p *picture) parted() (faults []string) {
	bound, sizes, lossy := map[string]int{}, map[string]int{}, map[string]bool{}
	for i := range p.pods {
		name, ok := p.pods[i].Annotations[v1alpha1.GangAnnotation]
		if !ok {
			continue
		}
		if p.pods[i].Labels[lossLabel] != "" {
			lossy[name] = true
		}
		size, err := strconv.Atoi(p.pods[i].Annotations[v1alpha1.GangSizeAnnotation])
		if err != nil {
			faults = append(faults, fmt.Sprintf("gang %s: %v", name, err))
		}
		sizes[name] = size
		if p.pods[i].Spec.NodeName != "" {
			bound[name]++
		}
	}
	for name, n := range bound {
		if n < sizes[name] && !lossy[name] {
			faults = append(faults, fmt.Sprintf("of gang %s %d members of %d have nodes", name, n, sizes[name]))
		}
	}
	slices.Sort(faults)
	return faults
}

// testDevice is the only device of tests of the checker.
const testDevice = "node-000/gpu"

// testPicture are two pods of one gang that share a device.
func testPicture() *picture {
	pod := func(name string) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "5"}, Spec: corev1.PodSpec{NodeName: "node-000"}}
		p.Annotations = map[string]string{v1alpha1.GangAnnotation: "both", v1alpha1.GangSizeAnnotation: "2"}
		claimName := "claim-" + name
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claimName}}
		return p
	}
	p := &picture{pods: []corev1.Pod{pod("a"), pod("b")}}
	p.claims = []resourcev1.ResourceClaim{testClaim("40Gi", &p.pods[0]), testClaim("40Gi", &p.pods[1])}
	return p
}

// testClaim is a pod's claim with a part of the device.
func testClaim(memory string, pod *corev1.Pod) resourcev1.ResourceClaim {
	c := resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + pod.Name, ResourceVersion: "4", Finalizers: []string{resourcev1.Finalizer}}}
	c.OwnerReferences = []metav1.OwnerReference{{UID: pod.UID, Name: pod.Name}}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
		Pool: "node-000", Device: "gpu", ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacityMemory: resource.MustParse(memory)},
	}}}}
	return c
}

// Each kind of contradiction is found, and a cluster without any has none.
func TestChecker(t *testing.T) {
	for name, test := range map[string]struct {
		change func(p *picture)
		want   int
	}{
		"none":                {func(*picture) {}, 0},
		"of another node":     {func(p *picture) { p.pods[0].Spec.NodeName = "node-001" }, 1},
		"without a claim":     {func(p *picture) { p.claims = p.claims[:1] }, 1},
		"without devices":     {func(p *picture) { p.claims[0].Status.Allocation = nil }, 1},
		"left of a pod":       {func(p *picture) { p.pods = p.pods[1:]; p.pods[0].Annotations = nil }, 2},
		"not bound, and gang": {func(p *picture) { p.pods[0].Spec.NodeName = "" }, 2},
		"reserved for nobody": {func(p *picture) { p.claims[0].Status.ReservedFor = nil }, 2},
		"not protected":       {func(p *picture) { p.claims[0].Finalizers = nil }, 1},
		"gang of three": {func(p *picture) {
			p.pods[0].Annotations[v1alpha1.GangSizeAnnotation] = "3"
			p.pods[1].Annotations = nil
		}, 1},
	} {
		p := testPicture()
		test.change(p)
		if faults := p.restless(); len(faults) != test.want {
			t.Errorf("%s: found %q, want %d", name, faults, test.want)
		}
	}
}
