package agent

import (
	"cmp"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Held is what tenants hold of GPUs, for whoever places pods with slots, and a channel that is closed when that may have
// changed. A pod's share holds what the cluster asked for, also while it is suspended.
func (a *Agent) Held() (v1alpha1.NodeHeld, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := v1alpha1.NodeHeld{GPUs: []v1alpha1.GPUHeld{}, Shares: []v1alpha1.ShareHeld{}}
	others := map[string]*alloc.GPU{}
	for _, t := range a.sorted() {
		if s, ok := a.heldByPod(t); ok {
			held.Shares = append(held.Shares, s)
			continue
		}
		for _, uuid := range t.heldGPUs() {
			if others[uuid] == nil {
				others[uuid] = &alloc.GPU{UUID: uuid}
			}
			a.addHeld(others[uuid], t)
		}
	}
	for _, g := range others {
		one := v1alpha1.GPUHeld{UUID: g.UUID, Memory: g.Granted + g.TurnRoom(), Cores: g.Cores, Tenants: g.Tenants, Form: v1alpha1.Backend(g.Form)}
		if g.Fault != "" { // a tenant has the whole GPU
			one.Memory, one.Cores = max(one.Memory, a.gpu(g.UUID).Capacity()), max(one.Cores, v1alpha1.MaxCores)
		}
		held.GPUs = append(held.GPUs, one)
	}
	slices.SortFunc(held.GPUs, func(x, y v1alpha1.GPUHeld) int { return cmp.Compare(x.UUID, y.UUID) })
	slices.SortFunc(held.Shares, func(x, y v1alpha1.ShareHeld) int {
		return cmp.Or(cmp.Compare(x.Pod, y.Pod), cmp.Compare(x.Name, y.Name))
	})
	return held, a.changed
}

// heldGPUs are the UUIDs of the GPUs of which a tenant has something, each once.
func (t *tenant) heldGPUs() (uuids []string) {
	for _, s := range t.Shares {
		if !slices.Contains(uuids, s.UUID) {
			uuids = append(uuids, s.UUID)
		}
	}
	return uuids
}

// heldByPod is what a tenant holds that is a pod's share by slots. Agent.mu is held.
func (a *Agent) heldByPod(t *tenant) (held v1alpha1.ShareHeld, ok bool) {
	if t.Tenancy == nil {
		return held, false
	}
	if held.Pod, held.Name, ok = ShareOfKey(t.Tenancy.Key); !ok {
		return held, false
	}
	for _, s := range t.Tenancy.Shares {
		g := v1alpha1.GPUAssigned{UUID: s.UUID, Memory: s.Memory, Cores: s.Cores}
		if s.alone() {
			g.Memory, g.Cores, held.Whole = max(a.gpu(s.UUID).Capacity(), s.Memory, 1), v1alpha1.MaxCores, true
		} else if s.Instance != nil {
			return held, false // a part of the GPU of which slots know nothing
		}
		held.Offline = held.Offline || !s.alone() && s.Config.Class == v1alpha1.ClassOffline
		held.GPUs = append(held.GPUs, g)
	}
	return held, true
}
