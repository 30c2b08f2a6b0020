package dra

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
)

const (
	gib      = 1 << 30
	nodeName = "n1"
	firstID  = "GPU-00000000-0000-4000-8000-000000000001"
	otherID  = "GPU-00000000-0000-4000-8000-000000000002"
	uidA     = types.UID("aaaaaaaa-0000-4000-8000-000000000001")
	uidB     = types.UID("bbbbbbbb-0000-4000-8000-000000000002")
)

// result is a share of a GPU that the scheduler gave.
func result(request, uuid, memory, cores string) resourcev1.DeviceRequestAllocationResult {
	return resourcev1.DeviceRequestAllocationResult{
		Request: request, Driver: v1alpha1.Driver, Pool: nodeName, Device: pool.Name(uuid, pool.Shared),
		ShareID: ptr.To(types.UID("share-" + request)),
		ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{
			v1alpha1.CapacityMemory: resource.MustParse(memory), v1alpha1.CapacityCores: resource.MustParse(cores), v1alpha1.CapacitySlots: resource.MustParse("1"),
		},
	}
}

// swapResult is a swap share that takes these amounts of the GPU and of the host.
func swapResult(request, uuid, memory, swap string) resourcev1.DeviceRequestAllocationResult {
	r := result(request, uuid, memory, "0")
	r.ConsumedCapacity[v1alpha1.CapacitySwapMemory] = resource.MustParse(swap)
	return r
}

func wholeResult(request, uuid string) resourcev1.DeviceRequestAllocationResult {
	return resourcev1.DeviceRequestAllocationResult{Request: request, Driver: v1alpha1.Driver, Pool: nodeName, Device: pool.Name(uuid, pool.Whole)}
}

// configured is an opaque configuration, given as fields of a ShareConfig.
func configured(source resourcev1.AllocationConfigSource, fields string, requests ...string) resourcev1.DeviceAllocationConfiguration {
	text := `{"apiVersion":"divvy.dev/v1alpha1","kind":"ShareConfig"` + fields + `}`
	if !json.Valid([]byte(text)) {
		panic(text)
	}
	return resourcev1.DeviceAllocationConfiguration{
		Source: source, Requests: requests,
		DeviceConfiguration: resourcev1.DeviceConfiguration{
			Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: v1alpha1.Driver, Parameters: runtime.RawExtension{Raw: []byte(text)}},
		},
	}
}

const (
	fromClaim = resourcev1.AllocationConfigSourceClaim
	fromClass = resourcev1.AllocationConfigSourceClass
)

// claimWith is claim a, allocated.
func claimWith(results ...resourcev1.DeviceRequestAllocationResult) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: uidA},
		Status: resourcev1.ResourceClaimStatus{
			Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: results}},
		},
	}
}

func withConfig(claim *resourcev1.ResourceClaim, configs ...resourcev1.DeviceAllocationConfiguration) *resourcev1.ResourceClaim {
	claim.Status.Allocation.Devices.Config = configs
	return claim
}

func reserve(claim *resourcev1.ResourceClaim, pods ...*corev1.Pod) {
	for _, pod := range pods {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{
			Resource: "pods", Name: pod.Name, UID: pod.UID,
		})
	}
}

// podOf is a pod whose containers use requests of claims: "a" is the whole claim
// a, "a/r" a request of it.
func podOf(name string, containers map[string][]ref) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("pod-" + name)}}
	for _, claim := range []string{"a", "b"} {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "the-" + claim, ResourceClaimName: ptr.To(claim)})
	}
	for _, container := range slices.Sorted(maps.Keys(containers)) {
		c := corev1.Container{Name: container}
		for _, r := range containers[container] {
			c.Resources.Claims = append(c.Resources.Claims, corev1.ResourceClaim{Name: "the-" + r.claim, Request: r.request})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

type ref struct{ claim, request string }

func noDefaults([]string, *allocation) (v1alpha1.NodeDefaults, error) {
	return v1alpha1.NodeDefaults{}, nil
}
