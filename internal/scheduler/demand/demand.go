// Package demand says what pods ask of Divvy's devices, as requests for the allocator, and what they were given, as
// allocations of their claims. It is pure.
package demand

import (
	"errors"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// ErrElsewhere marks claims that the allocator cannot place: those that ask for other drivers' devices, for constraints
// across drivers, for all devices or for admin access. Kubernetes' own allocator places them.
var ErrElsewhere = errors.New("not for Divvy's allocator")

// ErrDemand marks claims that nothing can satisfy as they are written. The text is for whoever wrote the pod.
var ErrDemand = errors.New("invalid demand")

// Claim is one of a pod's claims.
type Claim struct {
	// UID is empty for a claim that the scheduler is to make.
	UID       types.UID
	Namespace string
	Name      string
	Spec      *resourcev1.ResourceClaimSpec
	// Allocation is what the claim has already, nil for nothing.
	Allocation *resourcev1.AllocationResult
}

// Published is what a cluster offers.
type Published interface {
	// DeviceClass returns a device class, nil where there is none.
	DeviceClass(name string) *resourcev1.DeviceClass
	// Serving returns which GPUs have devices that satisfy all of these CEL expressions: the classes of such GPUs and, where
	// an expression reads what differs from GPU to GPU, their UUIDs. An expression that does not compile serves none.
	Serving(expressions []string) (classes alloc.Classes, among alloc.Names)
	// Device returns the device that stands for a share on a node, and its pool.
	Device(node string, share *alloc.Share) (pool string, device *resourcev1.Device, ok bool)
	// Location returns the node and the GPU of a device. MIG instances have profile and start.
	Location(pool, device string) (node string, share alloc.Share, ok bool)
}
