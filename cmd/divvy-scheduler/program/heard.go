package program

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// heard is the framework for Kubernetes' own plugin: the core hears for which claims it finds devices. Nothing else tells of
// the claim for a pod's extended resources before that is written.
type heard struct {
	fwk.Handle
	core *core
}

// SharedDRAManager implements fwk.Handle.
func (h heard) SharedDRAManager() fwk.SharedDRAManager {
	return heardManager{h.Handle.SharedDRAManager(), h.core}
}

type heardManager struct {
	fwk.SharedDRAManager
	core *core
}

// ResourceClaims implements fwk.SharedDRAManager.
func (m heardManager) ResourceClaims() fwk.ResourceClaimTracker {
	return heardTracker{m.SharedDRAManager.ResourceClaims(), m.core}
}

type heardTracker struct {
	fwk.ResourceClaimTracker
	core *core
}

// SignalClaimPendingAllocation implements fwk.ResourceClaimTracker. It is called in Reserve, by the cycle's goroutine.
func (t heardTracker) SignalClaimPendingAllocation(uid types.UID, claim *resourcev1.ResourceClaim) error {
	err := t.ResourceClaimTracker.SignalClaimPendingAllocation(uid, claim)
	if err == nil {
		t.core.found = append(t.core.found, claim)
	}
	return err
}
