package faults

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// inForce waits until each policy refuses what it is there to refuse. The API server takes policies up a moment after they were
// made, and until then the scheduler of Kubernetes may give Divvy's devices too.
func (w *world) inForce() {
	w.t.Helper()
	ctx := w.t.Context()
	// The garbage collector would take away a claim whose owner is not there.
	owner, err := w.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: refused}}, metav1.CreateOptions{})
	w.must(err)
	owned := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	w.refuses("may not give devices", share(1, 1, 1), v1alpha1.Driver, nil)
	w.refuses(refusal, share(1, 1, 1), "gpu.example.com", owned)
	w.must(w.client.CoreV1().ConfigMaps(namespace).Delete(ctx, owner.Name, metav1.DeleteOptions{}))
}

// refuses waits until a device of a driver may not be given to a claim of these owners, and the API server gives this reason.
func (w *world) refuses(reason string, spec resourcev1.ResourceClaimSpec, driver string, owners []metav1.OwnerReference) {
	w.t.Helper()
	ctx, claims := w.t.Context(), w.client.ResourceV1().ResourceClaims(namespace)
	claim, err := claims.Create(ctx, &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: namespace, OwnerReferences: owners}, Spec: spec,
	}, metav1.CreateOptions{})
	w.must(err)
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: driver, Pool: "none", Device: "none"}},
	}}
	w.until(fmt.Sprintf("the policy that says %q is in force", reason), said, func() (bool, string) {
		_, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), reason), fmt.Sprint(err)
	})
	w.must(claims.Delete(ctx, claim.Name, metav1.DeleteOptions{}))
}
