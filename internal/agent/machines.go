package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
)

// A virtual machine gets a device by a claim, which is no tenant: a GPU that is bound to vfio-pci has left the driver, and
// most devices never were GPUs of the agent's. The ledger of claims is the one word about it. While a claim has a GPU, no
// share begins there, no backend prepares it, and its silence is no fault.

// Machines is the ledger of the devices that virtual machines have.
type Machines interface {
	Take(ctx context.Context, w claims.Want, admit func(members []pci.Address) error) (claims.Claim, error)
	// Release ends a claim. Left is what somebody else changed meanwhile.
	Release(ctx context.Context, name string) (left []string, err error)
	// List are all devices, also those that somebody else than the ledger has, with a channel that is closed when they change.
	List() (all []claims.Claim, changed <-chan struct{})
	// Unread is why it cannot tell all that virtual machines have, nil where it can.
	Unread() error
	// Has tells who has a PCI function, or a part of it, such as one of its virtual functions.
	Has(function pci.Address) (h claims.Holder, taken bool)
	// Physical is the function of which another one is a virtual function.
	Physical(function pci.Address) (at pci.Address, virtual bool)
	reserver
}

// machineOf tells who has a GPU for a virtual machine.
func (a *Agent) machineOf(gpu backend.GPU) (h claims.Holder, taken bool) {
	if a.config.Machines == nil || gpu.PCI == "" {
		return h, false
	}
	at, err := pci.ParseAddress(gpu.PCI)
	if err != nil {
		return h, false
	}
	return a.config.Machines.Has(at)
}

// IsAway reports whether a GPU has left the driver for a virtual machine, or is about to.
func (a *Agent) IsAway(uuid string) bool {
	h, taken := a.machineOf(a.gpu(uuid))
	return taken && h.Form == v1alpha1.BackendPassthrough
}

// machineText says that a virtual machine has a GPU.
func machineText(h claims.Holder) string {
	who := "claim " + h.Owner + " has it for a virtual machine (" + string(h.Form) + ")"
	if h.Fault != "" {
		who += ", and it is stuck: " + h.Fault
	}
	return who
}

// machines returns the ledger, or why there is none.
func (a *Agent) machines(peer *control.Peer) (Machines, error) {
	switch {
	case a.config.Info.Simgpu != "":
		return nil, control.Errorf(control.CodeInvalid, "this agent serves a simulated machine, whose GPUs are no PCI devices: there is no VFIO, and no virtual machine can have one")
	case a.config.Machines == nil:
		return nil, control.Errorf(control.CodeInvalid, "your own agent ends with its last share, and gives no devices to virtual machines: start the system agent (%s)", rundir.Start(""))
	case peer.UID != 0:
		return nil, control.Errorf(control.CodeDenied, "a device of a virtual machine reaches past the driver: only root claims and releases one, for a user with --user")
	}
	return a.config.Machines, nil
}

// takeDevice claims a device for a virtual machine.
func (a *Agent) takeDevice(ctx context.Context, peer *control.Peer, p control.TakeDeviceParams) (*control.DeviceClaim, error) {
	ledger, err := a.machines(peer)
	if err != nil {
		return nil, err
	}
	w := claims.Want{Name: p.Name, UID: p.UID, Form: p.Form, Type: p.Type, Also: p.Also}
	switch {
	case p.Name != "" && !v1alpha1.IsName(p.Name):
		return nil, control.Errorf(control.CodeInvalid, "name %q: use at most 63 lower-case letters, digits, '-', '_' and '.', starting with a letter or digit", repeated(p.Name))
	case !p.Form.ForMachines():
		return nil, control.Errorf(control.CodeInvalid, "form %q is none of a virtual machine's: use passthrough, vf or vgpu", string(p.Form))
	}
	if w.Device, err = a.deviceNamed(p.GPU, p.PCI); err != nil {
		return nil, err
	}
	if w.Name == "" {
		w.Name = freeName(ledger)
	}
	there := a.hasClaim(w.Name)
	c, err := a.TakeDevice(ctx, w)
	if err != nil {
		a.config.Log.InfoContext(ctx, "a claim of a device is refused", "claim", w.Name, "form", w.Form, "device", w.Device, "user", process.UserName(w.UID), "error", repeated(err.Error()))
		return nil, machineError(err)
	}
	d := a.describeDevice(c)
	d.Existed = there
	return &d, nil
}

// hasClaim tells whether there is a claim of a name.
func (a *Agent) hasClaim(name string) bool {
	all, _ := a.Devices()
	return slices.ContainsFunc(all, func(c claims.Claim) bool { return c.Name == name })
}

// freeName is a name that no claim has.
func freeName(ledger Machines) string {
	all, _ := ledger.List()
	for n := 1; ; n++ {
		name := fmt.Sprintf("vm%d", n)
		if !slices.ContainsFunc(all, func(c claims.Claim) bool { return c.Name == name }) {
			return name
		}
	}
}

// machineError is an error of a claim with its code.
func machineError(err error) error {
	var known *control.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, claims.ErrInvalid):
		return &control.Error{Code: control.CodeInvalid, Message: err.Error()}
	case errors.Is(err, claims.ErrUnknown):
		return control.Errorf(control.CodeNotFound, "%v: `divvy vm ls` lists them", err)
	}
	return &control.Error{Code: control.CodeRefused, Message: err.Error()}
}

// TakeDevice claims a device. GPUs of its IOMMU group that the agent serves must have no shares, and leave the driver; a part
// of a GPU, by whatever address it is named, only keeps shares away from it. What the same claim has already is not taken again.
func (a *Agent) TakeDevice(ctx context.Context, w claims.Want) (c claims.Claim, err error) {
	if a.config.Machines == nil {
		return c, control.Errorf(control.CodeInvalid, "this agent gives no devices to virtual machines")
	}
	named := append([]pci.Address{w.Device}, w.Also...)
	w.GPU, w.Beside = "", nil
	for _, gpu := range a.among(named) {
		if at, err := pci.ParseAddress(gpu.PCI); err == nil && at == w.Device {
			w.GPU = gpu.UUID
		} else {
			w.Beside = append(w.Beside, gpu.UUID)
		}
	}
	there := a.hasClaim(w.Name)
	take := func() error {
		c, err = a.config.Machines.Take(ctx, w, func(members []pci.Address) error {
			if there { // its GPUs were not closed to shares
				return control.Errorf(control.CodeRefused, "claim %s was released just now: ask again", w.Name)
			}
			return a.admitMembers(w, named, members)
		})
		return err
	}
	switch {
	case there: // it has the GPU already, or it is somebody else's
		err = take()
	case w.Form == v1alpha1.BackendVGPU:
		err = a.withPartOf(ctx, append(a.physical(named), named...), take)
	default:
		err = a.WithGPUs(ctx, named, func() error { return a.withPartOf(ctx, a.physical(named), take) })
	}
	a.tellMachines()
	if err != nil {
		return c, err
	}
	if there {
		return c, nil
	}
	a.logClaim(ctx, "a virtual machine has a device", c)
	a.events.add(control.Event{Kind: control.EventGPU, UUID: w.GPU, User: process.UserName(w.UID), Text: fmt.Sprintf("claim %s has %s for a virtual machine (%s)", c.Name, c.Device, c.Form)})
	return c, nil
}

// logClaim writes what became of a claim to the log.
func (a *Agent) logClaim(ctx context.Context, happened string, c claims.Claim, more ...any) {
	attrs := []any{"claim", c.Name, "form", c.Form, "devices", c.Members, "user", claimantOf(c)}
	if len(c.Members) == 0 {
		attrs[5] = []pci.Address{c.Device}
	}
	if c.Type != "" {
		attrs = append(attrs, "type", c.Type)
	}
	if c.Cluster != "" {
		attrs = append(attrs, "cluster", c.Cluster)
	}
	a.config.Log.InfoContext(ctx, happened, append(attrs, more...)...)
}

// admitMembers refuses a group with a GPU that was not named, on which there may be shares. It looks for shares again: the claim of another
// part, for which a GPU was not closed, may have ended before this one was in the ledger, by which none begins from now on.
func (a *Agent) admitMembers(w claims.Want, named, members []pci.Address) error {
	for _, gpu := range a.among(append(a.physical(named), named...)) {
		if err := a.unshared(gpu); err != nil {
			return err
		}
	}
	for _, gpu := range a.among(members) {
		at, _ := pci.ParseAddress(gpu.PCI) // it was one of them
		if !slices.Contains(named, at) {
			return control.Errorf(control.CodeRefused, "GPU %d (%s) is in the same IOMMU group as %s and would go with it: name it with --also", gpu.Index, at, w.Device)
		}
	}
	return nil
}

// among are the GPUs that the agent serves among PCI functions, by index.
func (a *Agent) among(functions []pci.Address) (gpus []backend.GPU) {
	for _, gpu := range a.gpus {
		if at, err := pci.ParseAddress(gpu.PCI); err == nil && slices.Contains(functions, at) {
			gpus = append(gpus, gpu)
		}
	}
	return gpus
}

// WithGPUs calls do while those of the PCI functions that are GPUs of the agent's have no shares and no form, get none, and no
// process of the agent's has the driver open. A GPU with shares is an error that names them.
func (a *Agent) WithGPUs(ctx context.Context, functions []pci.Address, do func() error) error {
	gpus := a.among(functions)
	if len(gpus) == 0 {
		return do()
	}
	for _, gpu := range gpus { // in the order of indexes, as everybody takes turns
		release, err := a.closeUnshared(ctx, gpu)
		if err != nil {
			return err
		}
		defer release()
		f := a.formings[gpu.UUID]
		f.turn.Lock()
		defer f.turn.Unlock()
		if err := a.leaveInTurn(ctx, gpu); err != nil {
			return fmt.Errorf("take back what was changed of GPU %d for shares: %w", gpu.Index, err)
		}
	}
	if a.config.LetGo == nil {
		return do()
	}
	return a.config.LetGo(do)
}

// closeUnshared keeps shares from a GPU that has none. Release opens it again.
func (a *Agent) closeUnshared(ctx context.Context, gpu backend.GPU) (release func(), err error) {
	if err := a.unshared(gpu); err != nil {
		return nil, err
	}
	return a.closeGPU(ctx, gpu, false, func(string) {})
}

// unshared returns an error that names the shares of a GPU.
func (a *Agent) unshared(gpu backend.GPU) error {
	a.mu.Lock()
	users := a.usersOf(gpu)
	a.mu.Unlock()
	if len(users) > 0 {
		return control.Errorf(control.CodeRefused, "GPU %d has shares: %s: end them first", gpu.Index, strings.Join(users, ", "))
	}
	return nil
}

// withPartOf is WithGPUs for a part of a GPU, which stays with its driver.
func (a *Agent) withPartOf(ctx context.Context, functions []pci.Address, do func() error) error {
	for _, gpu := range a.among(functions) {
		if h, taken := a.machineOf(gpu); taken && (h.Form == v1alpha1.BackendVGPU || h.Form == v1alpha1.BackendVF) {
			continue
		}
		release, err := a.closeUnshared(ctx, gpu)
		if err != nil {
			return err
		}
		defer release()
	}
	return do()
}

// physical are the functions of which some functions are virtual ones, each once.
func (a *Agent) physical(functions []pci.Address) (all []pci.Address) {
	for _, f := range functions {
		if at, virtual := a.config.Machines.Physical(f); virtual && !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	return all
}

// releaseDevice ends a claim.
func (a *Agent) releaseDevice(ctx context.Context, peer *control.Peer, p control.ReleaseDeviceParams) (*control.DeviceReleased, error) {
	if _, err := a.machines(peer); err != nil {
		return nil, err
	}
	all, _ := a.Devices()
	for _, c := range all {
		if c.Name == p.Name && c.Cluster != "" {
			return nil, control.Errorf(control.CodeDenied, "claim %s is the cluster's (%s), which releases it when its pod has ended", p.Name, repeated(c.Cluster))
		}
	}
	left, err := a.endClaim(ctx, p.Name)
	if err != nil {
		return nil, machineError(err)
	}
	return &control.DeviceReleased{Left: left}, nil
}

// ReleaseDevice ends a claim, and returns when the device is as it was.
func (a *Agent) ReleaseDevice(ctx context.Context, name string) error {
	_, err := a.endClaim(ctx, name)
	return err
}

// endClaim ends a claim, and tells what somebody else changed meanwhile, which is left.
func (a *Agent) endClaim(ctx context.Context, name string) (left []string, err error) {
	all, _ := a.Devices()
	at := slices.IndexFunc(all, func(c claims.Claim) bool { return c.Name == name })
	left, err = a.config.Machines.Release(ctx, name) // whoever asks the driver about other GPUs keeps none from coming back
	if at < 0 {
		return left, err
	}
	c := all[at]
	if a.leaves(c) {
		a.config.Renew()
	}
	a.tellMachines()
	if err != nil {
		a.logClaim(ctx, "a device of a virtual machine cannot be put back", c, "error", repeated(err.Error()))
		return left, err
	}
	a.logClaim(ctx, "a device of a virtual machine was put back", c, "left", len(left))
	a.events.add(control.Event{Kind: control.EventGPU, UUID: c.GPU, User: claimantOf(c), Text: fmt.Sprintf("claim %s has ended, and %s was put back", c.Name, c.Device)})
	a.welcome(c)
	return left, nil
}

// welcome has the agent start again if one of a claim's GPUs, which have come back, was not there when it started.
func (a *Agent) welcome(c claims.Claim) {
	for _, uuid := range c.GPUs() {
		if a.gpu(uuid).Index < 0 && a.config.Returned != nil {
			a.config.Returned(uuid)
			return // that serves all of them
		}
	}
}

// leaves reports whether GPUs that the agent serves leave the driver for a claim.
func (a *Agent) leaves(c claims.Claim) bool {
	return a.config.Renew != nil && c.Form != v1alpha1.BackendVGPU && len(a.among(append([]pci.Address{c.Device}, c.Members...))) > 0
}

// Devices are those that virtual machines have, with a channel that is closed when they change.
func (a *Agent) Devices() (all []claims.Claim, changed <-chan struct{}) {
	if a.config.Machines == nil {
		return nil, nil
	}
	return a.config.Machines.List()
}

// tellMachines has everybody look again at which GPUs can have shares.
func (a *Agent) tellMachines() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.announce()
}

// TellMachine tells of a claim that something befell of which nobody asked. Where it has ended, its GPUs are served again.
func (a *Agent) TellMachine(c claims.Claim, text string) {
	all, _ := a.Devices()
	if !slices.ContainsFunc(all, func(other claims.Claim) bool { return other.Name == c.Name }) {
		defer a.welcome(c)
		if a.leaves(c) {
			a.config.Renew()
		}
	}
	a.events.add(control.Event{Kind: control.EventGPU, UUID: c.GPU, User: claimantOf(c), Text: repeated(fmt.Sprintf("claim %s of a virtual machine, %s: %s", c.Name, c.Device, text))})
	a.tellMachines()
}
