package explanation

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// ClaimState is how far a claim has come.
type ClaimState string

// The states of claims.
const (
	// Unmade is of a claim that the scheduler, or Kubernetes from a template, is still to make.
	Unmade ClaimState = "to be made"
	// Absent is of a claim that nobody makes by itself.
	Absent ClaimState = "missing"
	// Unallocated is of a claim without devices.
	Unallocated ClaimState = "waiting"
	// Allocated is of a claim with devices.
	Allocated ClaimState = "allocated"
	// Leaving is of a claim that is ordered out of its GPUs, Suspended of one that has left them, Resuming of one that comes back.
	Leaving   ClaimState = "leaving"
	Suspended ClaimState = "suspended"
	Resuming  ClaimState = "resuming"
)

// Claim is a claim of a pod.
type Claim struct {
	// Name is that of the claim. For one that is to be made from a template it is the template's.
	Name    string     `json:"name"`
	State   ClaimState `json:"state"`
	Devices []Device   `json:"devices,omitempty"`
	// For names for whom a claim leaves its GPUs, or has left them, in the words of messages.
	For string `json:"for,omitempty"`
}

// Device is what a claim has of one device.
type Device struct {
	Driver string `json:"driver"`
	// Pool is that of the device; for Divvy's it is the node.
	Pool   string `json:"pool"`
	Device string `json:"device"`
	// Memory and Cores are amounts of Divvy's devices that the claim takes: bytes, and percent of the GPU's time.
	Memory int64 `json:"memory,omitempty"`
	Cores  int64 `json:"cores,omitempty"`
}

// claims are all of a pod, in its order.
func (r Reader) claims(ctx context.Context, pod *corev1.Pod) ([]Claim, error) {
	// An annotation that cannot be read is the webhook's and the scheduler's to refuse: its claims then just do not exist.
	described, _ := dialect.Described(pod)
	var all []Claim
	for i := range pod.Spec.ResourceClaims {
		named := &pod.Spec.ResourceClaims[i]
		name, generated, err := resourceclaim.Name(pod, named)
		switch {
		case err != nil && named.ResourceClaimTemplateName != nil: // not yet made
			all = append(all, Claim{Name: *named.ResourceClaimTemplateName, State: Unmade})
			continue
		case err != nil:
			return nil, fmt.Errorf("find the claim of entry %s: %w", named.Name, err)
		case name == nil: // the template asks for nothing
			continue
		}
		claim, err := r.Client.ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, *name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			state := Absent
			if _, ok := described[*name]; ok {
				state = Unmade
			}
			all = append(all, Claim{Name: *name, State: state})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read claim %s: %w", *name, err)
		}
		if generated && resourceclaim.IsForPod(pod, claim, false) != nil {
			all = append(all, Claim{Name: *name, State: Absent})
			continue
		}
		all = append(all, claimOf(claim))
	}
	return all, nil
}

func claimOf(claim *resourcev1.ResourceClaim) Claim {
	c := Claim{Name: claim.Name, State: Unallocated}
	if claim.Status.Allocation == nil {
		return c
	}
	c.State, c.For = suspensionOf(claim)
	for i := range claim.Status.Allocation.Devices.Results {
		result := &claim.Status.Allocation.Devices.Results[i]
		d := Device{Driver: result.Driver, Pool: result.Pool, Device: result.Device}
		if d.Driver == v1alpha1.Driver {
			memory, cores := result.ConsumedCapacity[v1alpha1.CapacityMemory], result.ConsumedCapacity[v1alpha1.CapacityCores]
			swap := result.ConsumedCapacity[v1alpha1.CapacitySwapMemory] // the limit of a swap share
			d.Memory, d.Cores = cmp.Or(swap.Value(), memory.Value()), cores.Value()
		}
		c.Devices = append(c.Devices, d)
	}
	return c
}

// suspensionOf is how far a claim with devices is on its way out of its GPUs and back, and for whom it leaves.
func suspensionOf(claim *resourcev1.ResourceClaim) (state ClaimState, whom string) {
	out := false
	for i := range claim.Status.Devices {
		if answer := v1alpha1.SuspensionAnswerOf(&claim.Status.Devices[i]); answer != nil && answer.Status == metav1.ConditionTrue {
			out = true
		}
	}
	order, err := v1alpha1.ParseSuspension(claim.Annotations[v1alpha1.SuspendAnnotation])
	switch {
	case err == nil && out:
		return Suspended, oneLine(order.Whom())
	case err == nil:
		return Leaving, oneLine(order.Whom())
	case out:
		return Resuming, ""
	}
	return Allocated, ""
}
