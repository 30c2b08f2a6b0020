package chart_test

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/chart/render"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiadmission "k8s.io/apiserver/pkg/admission"
)

const (
	scheduler = "system:serviceaccount:divvy-system:divvy-scheduler"
	stock     = "system:kube-scheduler"
	manager   = "system:serviceaccount:kube-system:resource-claim-controller"
)

// allocated is a claim with a device of each driver, for each pod a reservation.
func allocated(drivers, pods string) runtime.Object {
	claim := &resourcev1.ResourceClaim{}
	claim.SetGroupVersionKind(resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"))
	for _, pod := range strings.Fields(pods) {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod, UID: types.UID(pod)})
	}
	for i, driver := range strings.Fields(drivers) {
		if i == 0 {
			claim.Status.Allocation = &resourcev1.AllocationResult{}
		}
		driver, device, _ := strings.Cut(driver, "/")
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{Request: "gpu", Driver: driver, Pool: "n1", Device: device})
	}
	return claim
}

func TestAllocationsAreTheSchedulers(t *testing.T) {
	const ours, other = v1alpha1.Driver + "/a", "gpu.example.com/a"
	const again, add = " may not give devices of divvy.dev to claims: create the pod again ", " or add the user to the value allocators of Divvy's chart"
	const without, with = "without spec.schedulerName,", "with spec.schedulerName divvy-scheduler,"
	for _, c := range []struct {
		name, values, user string
		old, new           runtime.Object
		want               string
	}{
		{"the stock scheduler", "", stock, allocated("", ""), allocated(ours, "p"), ""},
		{"another scheduler", "", "system:serviceaccount:volcano:volcano", allocated("", ""), allocated(ours, "p"), without},
		{"another that was named", `allocators: ["system:serviceaccount:volcano:volcano"]`, "system:serviceaccount:volcano:volcano", allocated("", ""), allocated(ours, "p"), ""},
		{"our account, whose scheduler is off", "", scheduler, allocated("", ""), allocated(ours, "p"), without},
		{"ours", "scheduler: {enabled: true}", scheduler, allocated("", ""), allocated(ours, "p"), ""},
		{"the stock one beside ours", "scheduler: {enabled: true}", stock, allocated("", ""), allocated(ours, "p"), ""},
		{"the stock one, taken out", "scheduler: {enabled: true}\nallocators: []", stock, allocated("", ""), allocated(ours, "p"), with},
		{"ours in the stock one's place", "scheduler: {replacesDefault: true}\nallocators: []", stock, allocated("", ""), allocated(ours, "p"), ""},
		{"another beside it", "scheduler: {replacesDefault: true}", "other", allocated("", ""), allocated(ours, "p"), without},
		{"an administrator", "", "kubernetes-admin", allocated("", ""), allocated(ours, ""), without},
		{"one device of ours among others", "", "other", allocated("", ""), allocated(other+" "+ours, "p"), without},
		{"other devices", "", "other", allocated("", ""), allocated(other, "p"), ""},
		{"another device of ours", "", "other", allocated(ours, ""), allocated(v1alpha1.Driver+"/b", ""), without},
		{"ours given away", "", "other", allocated(ours, ""), allocated(other, ""), without},
		{"clearing", "", manager, allocated(ours, "p"), allocated("", ""), ""},
		{"a reservation", "", manager, allocated(ours, "p"), allocated(ours, "p q"), ""},
		{"a reservation that ends", "", manager, allocated(ours, "p"), allocated(ours, ""), ""},
		{"no allocation at all", "", manager, allocated("", "p"), allocated("", ""), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := policies(t, rendered(t, newest, c.values))["divvy-allocations"]
			want := c.want
			if want != "" {
				want = "user " + c.user + again + c.want + add
			}
			if got := p.refused(t, attempt{c.user, "", apiadmission.Update, "status", c.old, c.new}); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	if p := policies(t, rendered(t, oldest, ""))["divvy-allocations"]; p != nil {
		t.Error("a policy about claims where there are none")
	}
	if _, err := render.Chart(dir, render.Options{Namespace: namespace, Kubernetes: newest, Values: "allocators: []"}); err == nil || !strings.Contains(err.Error(), "nobody could give GPUs") {
		t.Errorf("nobody may allocate: %v", err)
	}
}

// TestClaimsWithDevicesKeepTheirFinalizer keeps claims from being deleted while they have devices.
func TestClaimsWithDevicesKeepTheirFinalizer(t *testing.T) {
	p := policies(t, rendered(t, newest, ""))["divvy-held"]
	claim := func(drivers string, finalizers ...string) runtime.Object {
		made, _ := allocated(drivers, "p").(*resourcev1.ResourceClaim)
		made.Finalizers = finalizers
		return made
	}
	const ours, other = v1alpha1.Driver + "/a", "gpu.example.com/a"
	const finalizer, another = resourcev1.Finalizer, "example.com/audit"
	for _, c := range []struct {
		name     string
		old, new runtime.Object
		refused  bool
	}{
		{"with devices", claim(ours, finalizer), claim(ours), true},
		{"one of several", claim(other+" "+ours, another, finalizer), claim(other+" "+ours, another), true},
		{"another finalizer", claim(ours, another, finalizer), claim(ours, finalizer), false},
		{"given", claim(ours), claim(ours, finalizer), false},
		{"without devices", claim("", finalizer), claim(""), false},
		{"with other devices", claim(other, finalizer), claim(other), false},
	} {
		if why := p.refused(t, attempt{"anybody", "", apiadmission.Update, "", c.old, c.new}); (why != "") != c.refused || strings.HasPrefix(why, "error") {
			t.Errorf("%s: %q", c.name, why)
		}
	}
}
