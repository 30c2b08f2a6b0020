package kube

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/deviceplugin"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// slotOwner has the devices that are given by slots. The kubelet does not say when one is free again, so a device stays ready
// until another container gets it.
const slotOwner = "slot"

// units are the devices as the kubelet counts them.
func (m *machines) units() ([]deviceplugin.MachineUnit, <-chan struct{}) {
	functions, changed := m.get()
	var units []deviceplugin.MachineUnit
	for i := range functions {
		f := &functions[i]
		u := deviceplugin.MachineUnit{ID: f.Name(), Resource: slotResource(f), NUMANode: -1, Faulty: f.Fault != nil}
		if f.Location != nil {
			u.NUMANode = f.Location.NUMANode
		}
		units = append(units, u)
	}
	return units, changed
}

// slotResource is the name under which devices of one kind are counted: divvy.dev/vf_1002_74b5 by the numbers of the function,
// divvy.dev/vgpu_471 by the type.
func slotResource(f *pool.Function) string {
	if f.Form == pool.VGPU {
		return fmt.Sprintf("%s/%s_%s", v1alpha1.Domain, f.Form, f.Type)
	}
	return fmt.Sprintf("%s/%s_%04x_%04x", v1alpha1.Domain, f.Form, f.Vendor, f.Product)
}

// giveSlot makes a device ready for a new container. A vGPU is made anew, so that it has nothing of the one before; one that a
// virtual machine still has open is refused.
func (m *machines) giveSlot(ctx context.Context, device string) (deviceplugin.MachineDevice, error) {
	id, ok := pool.ParseFunction(device)
	if !ok {
		return deviceplugin.MachineDevice{}, fmt.Errorf("%q is no device for virtual machines", device)
	}
	if id.Form == pool.VGPU {
		all, _ := m.agent.Devices()
		name := ownerName(slotOwner, id)
		for i := range all {
			if all[i].Name != name {
				continue
			}
			if err := m.release(ctx, name); err != nil {
				return deviceplugin.MachineDevice{}, fmt.Errorf("take it back from the container before: %w", err)
			}
		}
	}
	c, err := m.take(ctx, slotOwner, "", id)
	if err != nil {
		return deviceplugin.MachineDevice{}, err
	}
	given := deviceplugin.MachineDevice{Nodes: slices.Clone(c.Nodes)}
	if given.UUID = c.Mediated; !id.Mediated {
		given.Address, given.UUID = id.Address.String(), ""
	}
	return given, nil
}

// leftSlots gives back what an agent before this one gave by slots, where this one gives nothing so. It is nil where nothing is left.
func leftSlots(agent lender, log *slog.Logger) *machines {
	all, _ := agent.Devices()
	if !slices.ContainsFunc(all, func(c claims.Claim) bool {
		owner, _, ok := parseOwner(c.Name)
		return ok && owner == slotOwner
	}) {
		return nil
	}
	m := newMachines(agent, nil, func() (*facts.Host, error) { return &facts.Host{}, nil }, log)
	m.slots = true
	return m
}

// withdraw puts devices back that are given by slots and offered no more. One that a virtual machine has open stays: kept has why,
// by name. It is asked for again where again is true.
func (m *machines) withdraw(ctx context.Context, kept map[string]string, again bool) {
	offered, _ := m.get()
	all, _ := m.agent.Devices()
	for i := range all {
		name := all[i].Name
		owner, id, ok := parseOwner(name)
		if !ok || owner != slotOwner || slices.ContainsFunc(offered, func(f pool.Function) bool { return f.FunctionID == id }) {
			continue
		}
		before, tried := kept[name]
		if tried && !again { // to ask for it changes the ledger, which is what is waited for
			continue
		}
		err := m.release(ctx, name)
		if err == nil {
			delete(kept, name)
			m.log.InfoContext(ctx, "took back a device for virtual machines that is not offered any more", "device", id.Name())
			continue
		}
		if kept[name] = err.Error(); kept[name] != before {
			m.log.WarnContext(ctx, "cannot take back a device for virtual machines that is not offered any more, and will try again", "device", id.Name(), "error", err)
		}
	}
}
