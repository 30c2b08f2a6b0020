package kube

import (
	"fmt"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
)

// slots returns what the node's annotation says about the GPUs, for the scheduler that binds pods to slots, and a channel
// that is closed when their health changes. What the administrator gives them changes with what is held of them.
func (p *publisher) slots() ([]v1alpha1.NodeGPU, <-chan struct{}) {
	faults, changed := p.Health.Faults()
	given, _ := p.Agent.Given()
	var gpus []v1alpha1.NodeGPU
	for _, gpu := range p.gpus {
		if p.machines.has(gpu) {
			continue // no pod has a share of it
		}
		kind := p.kinds[gpu.UUID]
		version := p.Library.Version()
		g := v1alpha1.NodeGPU{
			UUID: gpu.UUID, Index: gpu.Index, Model: gpu.Name, Memory: gpu.Capacity(), ContextBytes: gpu.ContextBytes,
			NUMANode: -1, Fault: faults[gpu.UUID].Text, Slots: v1alpha1.SlotsPerGPU, Suspends: p.Agent.Unsuspendable() == "",
			Architecture: kind.architecture, DriverVersion: pool.Semver(version.Driver), CUDAVersion: pool.CUDASemver(version.CUDA),
		}
		if location, ok := p.locations[gpu.UUID]; ok {
			g.NUMANode = max(location.NUMANode, -1)
			g.NVLinkClique, g.PCIeSwitch, g.PCIeRoot, g.PCIBusID = location.Clique, location.Switch, location.Root, location.PCI
		}
		if form, ok := given[gpu.UUID]; ok {
			if form.Backend != v1alpha1.BackendSlice && g.Fault == "" {
				g.Fault = fmt.Sprintf("the administrator gave it backend %s, and slots are of backend %s", form.Backend, v1alpha1.BackendSlice)
			}
			if form.Replicas > 0 {
				g.Slots = min(g.Slots, form.Replicas)
			}
		}
		gpus = append(gpus, g)
	}
	return gpus, changed
}
