// Package lending decides which devices of a host a node of a cluster offers to virtual machines: of the functions that the
// agent's configuration names, those that are there and can be given away, and as many vGPUs as there is room for. It is pure.
package lending

import (
	"cmp"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vgpu"
)

// State is what is known beside the host's facts.
type State struct {
	// Given are the devices that virtual machines have, by name. They stay offered as they are, because a device that is
	// withdrawn while it is allocated could be allocated again when it comes back.
	Given map[string]bool
	// Refused says why a function cannot be given away in a form now, "" where it can: a few letters and dashes.
	Refused func(pool.Function) string
	// Locate says where a function is in its machine.
	Locate func(pci.Device) pool.Location
}

// Devices are what is offered, in the order of addresses.
func Devices(host *facts.Host, lendings []agentconfig.Lending, state State) []pool.Function {
	var all []pool.Function
	room := map[pci.Address]int{} // by the physical function, how many more vGPUs it may have
	for _, given := range []bool{true, false} {
		for i := range host.Devices {
			d := &host.Devices[i]
			o, ok := agentconfig.LendingOf(lendings, physical(d), d.IsGPU())
			if !ok || d.IsBridge() {
				continue
			}
			for _, f := range of(d, o, state.Given) {
				if state.Given[f.Name()] != given {
					continue
				}
				if o.Replicas > 0 && room[physical(d)] == o.Replicas {
					continue
				}
				room[physical(d)]++
				all = append(all, complete(f, d, state))
			}
		}
	}
	slices.SortFunc(all, func(a, b pool.Function) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Number, b.Number))
	})
	return all
}

// physical is the function of which an offer is: its own, or that on which a virtual one is.
func physical(d *facts.Device) pci.Address {
	if d.Virtual {
		return d.Parent
	}
	return d.Address
}

// of are the devices that one function can be, or is.
func of(d *facts.Device, o agentconfig.Lending, given map[string]bool) []pool.Function {
	one := func(form pool.Form) []pool.Function {
		return []pool.Function{{FunctionID: pool.FunctionID{Form: form, Address: d.Address}}}
	}
	switch {
	case o.Form == v1alpha1.BackendPassthrough && !d.Virtual:
		return one(pool.Passthrough)
	case o.Form == v1alpha1.BackendVF && d.Virtual:
		return one(pool.VF)
	case o.Form == v1alpha1.BackendVGPU && d.VGPU != nil && d.VGPU.Interface == "mdev":
		return mediated(d, o, given)
	case o.Form == v1alpha1.BackendVGPU && d.VGPU != nil:
		return typed(d, o, given)
	}
	return nil
}

// typed is a virtual function that can have the type, or has it for a virtual machine of Divvy's. A type that somebody else
// gave it is theirs.
func typed(d *facts.Device, o agentconfig.Lending, given map[string]bool) []pool.Function {
	f := pool.Function{FunctionID: pool.FunctionID{Form: pool.VGPU, Address: d.Address, Type: o.Type}}
	for _, t := range d.VGPU.Types {
		if vgpu.NumberOf(t.ID) == o.Type {
			f.TypeName = t.Name
		}
	}
	if given[f.Name()] || f.TypeName != "" && d.VGPU.Current == "" {
		return []pool.Function{f}
	}
	return nil
}

// most bounds the mediated devices of one type on one function. NVIDIA's types have 32 at most.
const most = 64

// mediated are the mediated devices of the type that the function has for virtual machines of Divvy's, and as many more as it
// can have now. Those keep the lowest numbers that are free, so that a device keeps its name while others come and go.
func mediated(d *facts.Device, o agentconfig.Lending, given map[string]bool) []pool.Function {
	at := slices.IndexFunc(d.VGPU.Types, func(t facts.VGPUType) bool { return vgpu.NumberOf(t.ID) == o.Type })
	left := 0
	f := pool.Function{FunctionID: pool.FunctionID{Form: pool.VGPU, Address: d.Address, Type: o.Type, Mediated: true}}
	if at >= 0 {
		left, f.TypeName = d.VGPU.Types[at].Available, d.VGPU.Types[at].Name
	}
	var all []pool.Function
	for f.Number = range most {
		switch {
		case given[f.Name()]:
		case left <= 0:
			continue
		default:
			left--
		}
		all = append(all, f)
	}
	return all
}

// complete adds what is known of the function.
func complete(f pool.Function, d *facts.Device, state State) pool.Function {
	f.Parent, f.Vendor, f.Product, f.Model, f.Group = pci.Address{}, d.Vendor, d.ID, d.Model, pool.NoGroup
	if d.Virtual && !f.Mediated {
		f.Parent = d.Parent
	}
	if !f.Mediated && d.Group != facts.NoGroup {
		f.Group = d.Group
	}
	if state.Locate != nil {
		location := state.Locate(d.Device)
		f.Location = &location
	}
	if reason := ""; state.Refused != nil && !state.Given[f.Name()] {
		if reason = state.Refused(f); reason != "" {
			f.Fault = &pool.Fault{Reason: reason}
		}
	}
	return f
}
