package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// granted is one allocation: a share where it has memory, otherwise the device alone.
type granted struct{ pool, device, memory string }

func claimOf(name string, all ...granted) resourcev1.ResourceClaim {
	claim := resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: name}}
	claim.Status.Allocation = &resourcev1.AllocationResult{}
	for _, g := range all {
		result := resourcev1.DeviceRequestAllocationResult{Driver: v1alpha1.Driver, Pool: g.pool, Device: g.device}
		if g.memory != "" {
			id := types.UID(name)
			result.ShareID = &id
			result.ConsumedCapacity = map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacityMemory: resource.MustParse(g.memory)}
		}
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, result)
	}
	return claim
}

// A GPU that is published in two forms is one GPU.
func TestVerify(t *testing.T) {
	uuid, multiple := "GPU-1", true
	attributes := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{v1alpha1.AttributeUUID: {StringValue: &uuid}}
	capacity := map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{v1alpha1.CapacityMemory: {Value: resource.MustParse("16Gi")}}
	slices := []resourcev1.ResourceSlice{*sliceOf(v1alpha1.Driver, 1, 0, []resourcev1.Device{
		{Name: "shared", Attributes: attributes, Capacity: capacity, AllowMultipleAllocations: &multiple},
		{Name: "whole", Attributes: attributes, Capacity: capacity},
	})}
	const here = "node-0001"
	for name, test := range map[string]struct {
		claims []resourcev1.ResourceClaim
		want   string
	}{
		"fits":      {[]resourcev1.ResourceClaim{claimOf("a", granted{here, "shared", "4Gi"}), claimOf("b", granted{here, "shared", "12Gi"})}, ""},
		"too much":  {[]resourcev1.ResourceClaim{claimOf("a", granted{here, "shared", "4Gi"}), claimOf("b", granted{here, "shared", "13Gi"})}, "17Gi of 16Gi memory"},
		"twice":     {[]resourcev1.ResourceClaim{claimOf("a", granted{here, "whole", ""}), claimOf("b", granted{here, "whole", ""})}, "2 have it whole"},
		"both":      {[]resourcev1.ResourceClaim{claimOf("a", granted{here, "whole", ""}), claimOf("b", granted{here, "shared", "1Gi"})}, "1 have it whole and 1 a share"},
		"unknown":   {[]resourcev1.ResourceClaim{claimOf("a", granted{here, "other", ""})}, "which nobody publishes"},
		"elsewhere": {[]resourcev1.ResourceClaim{claimOf("a", granted{"node-0002", "shared", "1Gi"})}, "which nobody publishes"},
	} {
		if err := verify(slices, test.claims, nil); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
	pod := podOf(kind{name: "a", template: &resourcev1.ResourceClaimTemplate{}}, 1)
	if err := verify(slices, nil, []corev1.Pod{*pod}); err != nil {
		t.Errorf("a pod that waits: %v", err)
	}
	pod.Spec.NodeName = here
	if err := verify(slices, nil, []corev1.Pod{*pod}); err == nil || !strings.Contains(err.Error(), "runs without what it asks for") {
		t.Errorf("a pod without its claim: %v", err)
	}
	pod.Spec.NodeName = "node-0002"
	claim := claimOf(pod.Name, granted{here, "shared", "1Gi"})
	if err := verify(slices, []resourcev1.ResourceClaim{claim}, []corev1.Pod{*pod}); err == nil || !strings.Contains(err.Error(), "runs on node-0002 and has shared of node-0001") {
		t.Errorf("a pod beside its GPU: %v", err)
	}
}
