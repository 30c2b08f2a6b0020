package kube

import (
	"errors"
	"maps"
	"os"
	"slices"

	"github.com/divvy-gpu/divvy/internal/agent/dra"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// machines are what the node offers to virtual machines, nil where it offers nothing. A node that has stopped that goes on
// while claims have devices, which the file handed tells.
func (k *node) machines(slots bool, handed string) *machines {
	lendings := k.Rules.Lendings()
	if len(lendings) == 0 {
		if _, err := os.Stat(handed); err != nil {
			return nil
		}
	}
	if k.Facts == nil {
		k.Log.Warn("nothing is offered to virtual machines: a simulated machine has no VFIO")
		return nil
	}
	m := newMachines(k.Agent, lendings, k.Facts, k.Log)
	m.slots = slots
	if err := m.look(); err != nil { // before anybody asks on which GPU a function is
		k.Log.Warn("cannot see what the node could offer to virtual machines, and will try again", "error", err)
	}
	return m
}

// given is the interface, nil for nothing.
func (m *machines) given() dra.Machines {
	if m == nil {
		return nil
	}
	return m
}

// has reports whether a GPU is offered to virtual machines.
func (m *machines) has(gpu backend.GPU) bool {
	if m == nil {
		return false
	}
	at, err := pci.ParseAddress(gpu.PCI)
	_, ok := agentconfig.LendingOf(m.lendings, at, true)
	return err == nil && ok
}

// machineForms gives GPUs the forms in which they are offered to virtual machines, whatever else they are given.
type machineForms struct {
	givers
	lendings []agentconfig.Lending
}

// Given implements [givers].
func (o machineForms) Given() (map[string]agentconfig.Form, <-chan struct{}) {
	given, changed := o.givers.Given()
	given = maps.Clone(given)
	for _, gpu := range o.GPUs() {
		at, err := pci.ParseAddress(gpu.PCI)
		if err != nil {
			continue
		}
		if lending, ok := agentconfig.LendingOf(o.lendings, at, true); ok {
			if given == nil {
				given = map[string]agentconfig.Form{}
			}
			given[gpu.UUID] = agentconfig.Form{Backend: lending.Form}
		}
	}
	return given, changed
}

// gpuOf is the UUID of the GPU on which a function is, "" where the driver has no GPU there.
func (p *publisher) gpuOf(id pool.FunctionID) string {
	at := id.Address
	if p.machines != nil {
		at = p.machines.physical(at)
	}
	for _, gpu := range p.gpus {
		if address, err := pci.ParseAddress(gpu.PCI); err == nil && address == at {
			return gpu.UUID
		}
	}
	return ""
}

// offered are the devices for virtual machines of GPUs that have got that form, and of those that the driver has not.
func (p *publisher) offered(shapes map[string]published) ([]pool.Function, <-chan struct{}) {
	if p.machines == nil {
		return nil, nil
	}
	all, changed := p.machines.get()
	all = slices.DeleteFunc(all, func(f pool.Function) bool {
		now, ok := shapes[p.gpuOf(f.FunctionID)]
		return ok && (now.withdrawn || now.form != f.Form)
	})
	for i := range all {
		all[i].Changing = shapes[p.gpuOf(all[i].FunctionID)].next
	}
	return all, changed
}

// refusal says why a function cannot be given away now, in a few letters and dashes, "" where it can. Of a vGPU nothing is
// known before it is made but that there is room.
func refusal(host *facts.Host, f pool.Function) string {
	var err error
	switch f.Form {
	case pool.Passthrough:
		_, err = binding.Passthrough(host, f.Address)
	case pool.VF:
		_, err = binding.Function(host, f.Address)
	}
	for _, known := range refusals {
		if errors.Is(err, known.err) {
			return known.reason
		}
	}
	return ""
}

// refusals are those by which a device is not offered. That the agent's own processes hold a GPU does not count: they let go.
var refusals = []struct {
	err    error
	reason string
}{
	{binding.ErrNoGroup, "no-iommu-group"}, {binding.ErrRemap, "interrupts-not-remapped"}, {binding.ErrModule, "no-vfio-module"}, {binding.ErrUsed, "used-by-host"}, {binding.ErrDisplay, "display"},
	{binding.ErrDivided, "divided"}, {binding.ErrOverride, "driver-override"}, {binding.ErrShared, "group-shared"}, {binding.ErrBusy, "driver-changing"},
}
