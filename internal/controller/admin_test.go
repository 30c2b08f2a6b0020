package controller

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Admin access takes nothing of a GPU, and a claim that waits for it alone needs none.
func TestAdminAccessTakesNothing(t *testing.T) {
	yes := true
	claim := &resourcev1.ResourceClaim{
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "all", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: v1alpha1.ClassWhole, AdminAccess: &yes}},
		}}},
		Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{Request: "all", Driver: v1alpha1.Driver, Pool: "n1", Device: "gpu-1", AdminAccess: &yes}},
		}}},
	}
	if taken := takingsOf(claim); len(taken) != 0 {
		t.Errorf("it takes %+v", taken)
	}
	if needs, missing := (&cluster{}).needs(claim); len(needs) != 0 || missing != "" {
		t.Errorf("it needs %+v, %q", needs, missing)
	}
	claim.Status.Allocation.Devices.Results[0].AdminAccess = nil
	if len(takingsOf(claim)) != 1 {
		t.Error("a share takes nothing either")
	}
}
