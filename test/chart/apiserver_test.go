package chart_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/bench/plane"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// longest bounds every wait for something that takes a moment, on a busy machine.
const longest = 5 * time.Minute

// newPlane starts an API server, with an authorization mode if one is given. It skips where Kubernetes' programs were not built.
func newPlane(t *testing.T, authorization string) *plane.Plane {
	t.Helper()
	components, err := plane.Components("../..")
	if err != nil {
		installtest.Missing(t, "kubernetes", err)
	}
	return startPlane(t, plane.Options{Components: components, Authorization: authorization, Log: t.Logf})
}

// startPlane starts an API server until the test ends.
func startPlane(t *testing.T, options plane.Options) *plane.Plane {
	t.Helper()
	p, err := plane.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestOneWriter asks an API server with the chart's policy, as different users.
func TestOneWriter(t *testing.T) {
	p := newPlane(t, "")
	documents := rendered(t, newest, "scheduler: {enabled: true}\nallocators: []")
	for _, policy := range find[*admissionregistrationv1.ValidatingAdmissionPolicy](t, documents) {
		if policy.Name != "divvy-allocations" {
			continue
		}
		if _, err := p.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, binding := range find[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, documents) {
		if binding.Name != "divvy-allocations" {
			continue
		}
		if _, err := p.Client().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	as := func(user string) kubernetes.Interface {
		config := p.Config()
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	claims := p.Client().ResourceV1().ResourceClaims("default")
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim"}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: v1alpha1.ClassWhole, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}},
	}}}
	if _, err := claims.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	write := func(user string, devices ...string) error {
		current, err := claims.Get(t.Context(), "claim", metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Status.Allocation = nil
		for _, driver := range devices {
			current.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
				Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: driver, Pool: "n1", Device: "a"}},
			}}
		}
		_, err = as(user).ResourceV1().ResourceClaims("default").UpdateStatus(t.Context(), current, metav1.UpdateOptions{})
		return err
	}
	const stranger, forbidden = "system:serviceaccount:elsewhere:scheduler", "user system:serviceaccount:elsewhere:scheduler may not give devices of divvy.dev to claims: create the pod again with spec.schedulerName divvy-scheduler, or add the user to the value allocators of Divvy's chart"
	var refused error
	// The API server takes a moment to hear of a policy.
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, longest, true, func(context.Context) (bool, error) {
		refused = write(stranger, v1alpha1.Driver)
		if refused == nil {
			return false, write(manager)
		}
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(refused.Error(), forbidden) {
		t.Errorf("a stranger is told: %v", refused)
	}
	if err := write(stock, v1alpha1.Driver); err == nil {
		t.Error("the stock scheduler may write, and it was taken out")
	}
	for _, step := range []struct {
		user    string
		devices []string
	}{{stranger, []string{"gpu.example.com"}}, {manager, nil}, {scheduler, []string{v1alpha1.Driver}}, {stranger, []string{v1alpha1.Driver}}, {manager, nil}} {
		if err := write(step.user, step.devices...); err != nil {
			t.Errorf("%s writes %v: %v", step.user, step.devices, err)
		}
	}
}
