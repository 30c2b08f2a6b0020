package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// Functions enables virtual functions of devices.
type Functions interface {
	// SetFunctions gives a device that has none as many as count says, or takes away those that it enabled where count is 0. Left
	// is what somebody else changed meanwhile.
	SetFunctions(ctx context.Context, device pci.Address, count int) (left []string, err error)
	// EnabledFunctions are those that it enabled.
	EnabledFunctions() []control.Functions
}

// setFunctions changes how many virtual functions a device has.
func (a *Agent) setFunctions(ctx context.Context, peer *control.Peer, p control.SetFunctionsParams) (*control.Functions, error) {
	if _, err := a.machines(peer); err != nil {
		return nil, err
	}
	device, err := a.deviceNamed(p.GPU, p.PCI)
	if err != nil {
		return nil, err
	}
	f, err := a.SetFunctions(ctx, device, p.Count)
	if err != nil {
		return nil, machineError(err)
	}
	return &f, nil
}

// deviceNamed is the PCI function that is meant by a GPU's index or UUID, or by an address.
func (a *Agent) deviceNamed(gpu string, at *pci.Address) (device pci.Address, err error) {
	switch {
	case (gpu == "") == (at == nil):
		return device, control.Errorf(control.CodeInvalid, "name one device: a GPU by its index or UUID, or any device by its PCI address")
	case at != nil:
		return *at, nil
	case len(a.gpus) == 0:
		return device, control.Errorf(control.CodeNotFound, "GPU %s is not known: this agent serves none of NVIDIA's driver, by which a GPU has an index and a UUID; name it by its PCI address, such as 0000:3b:00.0 (`lspci -D` lists them)", repeated(gpu))
	}
	uuids, err := a.resolve([]string{gpu})
	if err != nil {
		return device, err
	}
	if device, err = pci.ParseAddress(a.gpu(uuids[0]).PCI); err != nil {
		return device, control.Errorf(control.CodeInvalid, "the driver tells no PCI address of GPU %s: name it by that", gpu)
	}
	return device, nil
}

// SetFunctions changes how many virtual functions a device has. A GPU of the agent's must have no shares, and gets none meanwhile, and
// no process of the agent's has the driver open.
func (a *Agent) SetFunctions(ctx context.Context, device pci.Address, count int) (f control.Functions, err error) {
	if a.config.Functions == nil {
		return f, control.Errorf(control.CodeInvalid, "this agent enables no virtual functions")
	}
	f = control.Functions{Device: device}
	set := func() error {
		f.Left, err = a.config.Functions.SetFunctions(ctx, device, count)
		return err
	}
	change := set
	if a.config.LetGo != nil && len(a.among([]pci.Address{device})) > 0 {
		change = func() error { return a.config.LetGo(set) }
	}
	before := a.enabledOf(device)
	err = a.withPartOf(ctx, []pci.Address{device}, change)
	if slow := new(vfio.StuckError); count == 0 && errors.As(err, &slow) && slow.Slow {
		err = a.outlast(ctx, device, err)
	}
	if err != nil {
		a.tellMachines() // it may be stuck
		return f, err
	}
	after := a.enabledOf(device)
	if f.Count = after.Count; after.Count != before.Count {
		text := fmt.Sprintf("%s has %d virtual functions", device, f.Count)
		if f.Count == 0 {
			text = fmt.Sprintf("the virtual functions of %s that Divvy enabled are gone", device)
		}
		event := control.Event{Kind: control.EventGPU, Text: text}
		if gpus := a.among([]pci.Address{device}); len(gpus) > 0 {
			event.UUID = gpus[0].UUID
		}
		a.events.add(event)
	}
	a.tellMachines()
	after.Left = f.Left
	if after.Count == 0 {
		return f, nil
	}
	return after, nil
}

// How long a command waits for a kernel that takes functions away slowly, and the time between two looks.
const (
	removeTime = 20 * time.Second
	removePace = 100 * time.Millisecond
)

// outlast waits until the kernel has taken a device's functions away, and returns an error where it is still at work. Shares and the
// driver do not wait meanwhile.
func (a *Agent) outlast(ctx context.Context, device pci.Address, slow error) error {
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	ticker := time.NewTicker(removePace)
	defer ticker.Stop()
	for a.enabledOf(device).Phase == claims.Leaving {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return slow
		}
	}
	if a.enabledOf(device).Phase != "" {
		return slow
	}
	return nil
}

// enabledFunctions are the virtual functions that Divvy enabled.
func (a *Agent) enabledFunctions() []control.Functions {
	all := []control.Functions{}
	if a.config.Functions == nil {
		return all
	}
	for _, f := range a.config.Functions.EnabledFunctions() {
		if gpus := a.among([]pci.Address{f.Device}); len(gpus) > 0 {
			f.Index = &gpus[0].Index
		}
		all = append(all, f)
	}
	return all
}

// enabledOf are those of one device.
func (a *Agent) enabledOf(device pci.Address) control.Functions {
	all := a.enabledFunctions()
	if at := slices.IndexFunc(all, func(f control.Functions) bool { return f.Device == device }); at >= 0 {
		return all[at]
	}
	return control.Functions{Device: device}
}
