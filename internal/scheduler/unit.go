package scheduler

import (
	"errors"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// Unit is a pod in one cycle: what it asks, where it goes, and what is written for that.
type Unit struct {
	Pod    *corev1.Pod
	Demand demand.Demand
	// Place is where the pod goes, once it was chosen.
	Place alloc.Assignment
	// Allocations are what its claims get there.
	Allocations []demand.Allocation
	// Existing are the claims that are there, by namespace and name.
	Existing map[string]*resourcev1.ResourceClaim
	// Team is the part of its gang with which the pod is placed, nil for a pod alone.
	Team *Team
	// Undone is set when what was noted and written for a unit that is not bound is taken back.
	Undone atomic.Bool
	// missing are claims that the scheduler is to make.
	missing  []demand.Claim
	reserved []string
	// taking is that whose place the unit has, nil for another place.
	taking  *Taking
	written []written
	// left are the revisions of claims from which on they have nothing of the unit's, by namespace and name.
	left map[string]string
}

func (u *Unit) note(claim *resourcev1.ResourceClaim, revision string) {
	if u.left == nil {
		u.left = map[string]string{}
	}
	u.left[claim.Namespace+"/"+claim.Name] = revision
}

// written is a claim as it may have been written. late tells that it may be written yet: nobody answered.
type written struct {
	claim *resourcev1.ResourceClaim
	late  bool
}

// Read reads what a pod asks. The error is demand's or [ErrWait]; with demand.ErrElsewhere the unit says what is known.
func (e *Engine) Read(pod *corev1.Pod) (*Unit, error) {
	claims, existing, err := e.claimsOf(pod)
	if err != nil {
		return nil, err
	}
	u := &Unit{Pod: pod, Existing: existing}
	for i := range claims {
		if claims[i].UID == "" {
			u.missing = append(u.missing, claims[i])
		}
	}
	u.Demand, err = demand.Of(pod, claims, e.ledger)
	return u, err
}

// Ready says why a pod cannot be planned yet, nil for one that can. Anybody may call it.
func (e *Engine) Ready(pod *corev1.Pod) error {
	_, _, err := e.claimsOf(pod)
	return err
}

// claimsOf finds a pod's claims: those that are there, and those that it describes.
func (e *Engine) claimsOf(pod *corev1.Pod) (claims []demand.Claim, existing map[string]*resourcev1.ResourceClaim, err error) {
	specs, err := e.described.of(pod)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrWait, err)
	}
	existing = map[string]*resourcev1.ResourceClaim{}
	for i := range pod.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrWait, err)
		}
		if name == nil {
			continue // nothing was generated for it, on purpose
		}
		spec, isDescribed := specs[*name]
		found, err := e.claims.Get(pod.Namespace, *name)
		switch {
		case err == nil:
			if err := mayUse(pod, found, owned || isDescribed); err != nil {
				return nil, nil, err
			}
			if isDescribed {
				if err := asDescribed(found, &spec); err != nil {
					return nil, nil, err
				}
			}
			existing[pod.Namespace+"/"+*name] = found
			claims = append(claims, demand.Claim{
				UID: found.UID, Namespace: found.Namespace, Name: found.Name, Spec: &found.Spec, Allocation: found.Status.Allocation,
			})
		case isDescribed && apierrors.IsNotFound(err):
			claims = append(claims, demand.Claim{Namespace: pod.Namespace, Name: *name, Spec: &spec})
		default:
			return nil, nil, fmt.Errorf("%w: %w", ErrWait, err)
		}
	}
	return claims, existing, nil
}

// mayUse says why a pod cannot use a claim that is there.
func mayUse(pod *corev1.Pod, claim *resourcev1.ResourceClaim, owned bool) error {
	switch {
	case claim.DeletionTimestamp != nil:
		return fmt.Errorf("%w: claim %s is being deleted", ErrWait, claim.Name)
	case owned && !metav1.IsControlledBy(claim, pod):
		return fmt.Errorf("%w: claim %s was not made for this pod", ErrWait, claim.Name)
	case claim.Status.Allocation != nil && !resourceclaim.CanBeReserved(claim) && !resourceclaim.IsReservedForPod(pod, claim, false):
		return fmt.Errorf("%w: claim %s is used by as many pods as can use one", ErrWait, claim.Name)
	}
	return nil
}

// Elsewhere reports whether Kubernetes' own allocator has to place a pod for which [Engine.Read] gave this error.
func Elsewhere(err error) bool { return errors.Is(err, demand.ErrElsewhere) }
