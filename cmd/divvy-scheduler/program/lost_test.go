package program

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// A gang that loses a node has its members there replaced, before others get their room; what was on the node counts no more.
func TestGangLosesNode(t *testing.T) {
	f := newFleet(t, 3, 2)
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	for i := range 4 {
		f.create(gangOf(t, "four", 4, i, 60))
	}
	lost := ""
	for _, p := range f.bound(4) {
		lost = p.Spec.NodeName
	}
	ctx, now := t.Context(), int64(0)
	nodes, pods := f.client.CoreV1().Nodes(), f.client.CoreV1().Pods(namespace)
	if err := nodes.Delete(ctx, lost, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := f.client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.nodeName=" + lost}); err != nil {
		t.Fatal(err)
	}
	// What the controller manager does with pods of a node that has gone.
	var again []string
	for i := range 4 {
		name := fmt.Sprint("four-", i)
		p, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Spec.NodeName != lost {
			continue
		}
		if err := pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
		again = append(again, name)
	}
	for i := range again {
		made := gangOf(t, "four", 4, 0, 60)
		made.Name = fmt.Sprint("again-", i)
		f.create(made)
	}
	for _, p := range f.bound(4) {
		if p.Spec.NodeName == lost {
			t.Errorf("%s is on the node that has gone", p.Name)
		}
	}
	if sums := f.check(); len(sums) != 4 {
		t.Errorf("four members are on %d GPUs", len(sums))
	}
}

// A member in the place of a lost one gets room before a pod that asks the same and has waited for longer.
func TestLostMemberIsReplacedFirst(t *testing.T) {
	f := newFleet(t, 1, 2)
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	for i := range 2 {
		f.create(gangOf(t, "two", 2, i, 60))
	}
	f.bound(2)
	now := int64(0)
	remove := func(name string) {
		t.Helper()
		if err := f.client.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
	}
	f.create(describing(t, "other-0", share(60, 10)))
	f.says("other-0", "")
	remove("two-0")
	f.bound(2)
	for i := range 3 { // in lines of their own
		waits := fmt.Sprint("waits-", i)
		f.create(describing(t, waits, share(60, 10+i)))
		f.says(waits, "")
	}
	again := gangOf(t, "two", 2, 0, 60)
	again.Name = "again"
	f.create(again)
	f.says("again", "")
	remove("other-0")
	for _, p := range f.bound(2) {
		if p.Spec.NodeName != "" && p.Name != "two-1" && p.Name != "again" {
			t.Errorf("%s has a node", p.Name)
		}
	}
	f.check()
}

// rooted gives all devices of a node's slices PCIe roots: one for each number of a GPU, and of another driver's device.
func (f *fleet) rooted(node int, root func(driver string, device int) string) {
	f.t.Helper()
	client := f.client.ResourceV1().ResourceSlices()
	all, err := client.List(f.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName(node)})
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range all.Items {
		slice := &all.Items[i]
		for k := range slice.Spec.Devices {
			d := &slice.Spec.Devices[k]
			if d.Attributes == nil {
				d.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
			}
			name := root(slice.Spec.Driver, k)
			d.Attributes[resourcev1.QualifiedName(deviceattribute.StandardDeviceAttributePCIeRoot)] = resourcev1.DeviceAttribute{StringValue: &name}
		}
		if _, err := client.Update(f.t.Context(), slice, metav1.UpdateOptions{}); err != nil {
			f.t.Fatal(err)
		}
	}
}

// A claim for a GPU and another driver's device under one PCIe root gets both there, and no part of a GPU that is given already.
func TestOneRootOfTwoDrivers(t *testing.T) {
	f := newFleet(t, 2, 2)
	for node := range 2 {
		f.rooted(node, func(_ string, device int) string { return fmt.Sprintf("pci%04d:%02d", node, device%2) })
	}
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	root := resourcev1.FullyQualifiedName(deviceattribute.StandardDeviceAttributePCIeRoot)
	for i := range 5 {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("both-", i), Namespace: namespace}, Spec: share(50, 10)}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourcev1.DeviceRequest{Name: "nic", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: otherDriver}})
		claim.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{Requests: []string{"gpu", "nic"}, MatchAttribute: &root}}
		if _, err := f.client.ResourceV1().ResourceClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		p := pod(claim.Name)
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "both", ResourceClaimName: &claim.Name}}
		f.create(p)
	}
	f.bound(4)
	f.create(describing(t, "small", share(30, 10)))
	f.bound(5)
	claims, err := f.client.ResourceV1().ResourceClaims(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range claims.Items {
		allocation := claims.Items[i].Status.Allocation
		if allocation == nil || len(allocation.Devices.Results) != 2 {
			continue
		}
		gpu, nic := allocation.Devices.Results[0].Device, allocation.Devices.Results[1].Device
		if odd := strings.Contains(gpu, "-0001-4333-"); odd != (nic == "nic-1" || nic == "nic-3") {
			t.Errorf("%s has %s and %s, which are under unlike roots", claims.Items[i].Name, gpu, nic)
		}
	}
	f.check()
}
