// Package demand says what pods ask of Divvy's devices, as requests for the allocator, and what they were given, as
// allocations of their claims. It is pure.
//
// [Of] reads a pod and its claims. The allocator places [Demand.Pod]; [Demand.Allocations] writes the place into the claims,
// and [Adopt] reads such an allocation. An allocation is equal to one that Kubernetes' own allocator writes for the same
// claim and devices, but for the share IDs, so that either may schedule beside the other.
package demand

import (
	"errors"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// ErrElsewhere marks claims that the allocator cannot place: those that ask for other drivers' devices, for constraints
// that it does not know, for all devices or for admin access. Kubernetes' own allocator places them.
var ErrElsewhere = errors.New("not for Divvy's allocator")

// ErrDemand marks claims that nothing can satisfy as they are written. The text is one line for whoever wrote the pod.
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

// Key names the claim among all: "namespace/name".
func (c *Claim) Key() string { return c.Namespace + "/" + c.Name }

// Published is what a cluster offers.
type Published interface {
	// DeviceClass returns a device class by its name or by the extended resource that it gives, nil where there is none.
	DeviceClass(name string) *resourcev1.DeviceClass
	// Serving returns which GPUs have devices, other than MIG instances, that satisfy all of these CEL expressions: the
	// classes of such GPUs and, where an expression reads what differs from GPU to GPU, their UUIDs. An expression that does
	// not compile, or fails for a device, serves none.
	Serving(expressions []string) (classes alloc.Classes, among alloc.Names)
	// Instances is Serving for MIG instances, and for places where one can be made, by their profiles: those with less
	// memory come first, of equal ones those with fewer cores.
	Instances(expressions []string) []Instances
	// Device returns the device that stands for a share on a node, and its pool.
	// A share without a GPU stands for an RDMA card.
	Device(node string, share *alloc.Share) (pool string, device *resourcev1.Device, ok bool)
	// Location returns the node and the GPU of a device, or the RDMA card that it is. MIG instances have profile and start.
	Location(pool, device string) (node string, share alloc.Share, ok bool)
}

// Instances are GPUs that have, or can have, MIG instances of a profile.
type Instances struct {
	Profile string
	Classes alloc.Classes
	Among   alloc.Names
}

// Demand is what a pod asks.
type Demand struct {
	pod  alloc.Pod
	node string
	// claims are those without an allocation, wants what they ask in the order of the pod's claims for the allocator.
	claims    []Claim
	wants     []want
	elsewhere bool
}

// Pod is what the allocator is asked: one claim there for each request of a claim, and the pod's part of the host. The
// caller must not change it.
func (d *Demand) Pod() *alloc.Pod { return &d.pod }

// Node is the only node on which the pod can be, because a claim of it is allocated there, "" where none is.
func (d *Demand) Node() string { return d.node }

// Claims are the claims that have no allocation. The caller must not change them.
func (d *Demand) Claims() []Claim { return d.claims }

// want is one request of a claim. It has a way for each alternative of the pod's claim for the allocator.
type want struct {
	claim int // the place of its claim in Demand.claims
	ways  []way
	// pairs is true for all requests of a claim for pairs: of its shares each is a pair, and ways has what each GPU's request
	// asks alone.
	pairs bool
}
