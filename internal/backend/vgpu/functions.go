package vgpu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
	"github.com/divvy-gpu/divvy/internal/vm/vgpu"
)

var (
	// ErrOthers says that virtual functions are somebody else's.
	ErrOthers = errors.New("it was not Divvy that enabled its virtual functions")
	// ErrChanging says that virtual functions are being enabled or taken away.
	ErrChanging = errors.New("their number changes just now")
)

// FunctionsOwner is the owner in the book of a device's virtual functions that were enabled on request.
func FunctionsOwner(device pci.Address) string { return "functions." + device.String() }

// Enabled are virtual functions that were enabled on request.
type Enabled struct {
	Device pci.Address
	Count  int
	Phase  vfio.Phase
	// Stuck says why a change does not end, empty where none is stuck.
	Stuck string
	// Changed is true where somebody else has changed their number since, to Now.
	Changed bool
	Now     int
}

// Enabled are all virtual functions that were enabled on request.
func (b *Backend) Enabled() (all []Enabled) {
	for _, e := range b.options.Book.Entries() {
		if e.Plan.Form != binding.FormFunctions {
			continue
		}
		one := Enabled{Device: e.Plan.Device, Count: e.Plan.Enabled(), Phase: e.Phase}
		if e.Stuck != nil {
			one.Stuck = e.Stuck.Error()
		}
		if e.Phase == vfio.Bound {
			one.Now, one.Changed = b.changed(one)
		}
		all = append(all, one)
	}
	return all
}

// changed tells whether a device has another number of functions than it was given. What cannot be read now has not changed.
func (b *Backend) changed(e Enabled) (now int, changed bool) {
	content, err := fs.ReadFile(b.options.Root, "sys/"+binding.DeviceFolder(e.Device)+"/sriov_numvfs")
	if err != nil {
		return e.Count, false
	}
	now, err = strconv.Atoi(strings.TrimSpace(string(content)))
	return now, err == nil && now != e.Count
}

// enabled are those of one device.
func (b *Backend) enabled(device pci.Address) (e Enabled, ours bool) {
	all := b.Enabled()
	at := slices.IndexFunc(all, func(e Enabled) bool { return e.Device == device })
	if at < 0 {
		return e, false
	}
	return all[at], true
}

// EnableFunctions gives a device virtual functions, which it must not have yet; count is their number, or [pci.AllFunctions].
// A device that has got as many on request already keeps them. One that the host uses gets none. What the kernel refuses is told
// with what helps.
func (b *Backend) EnableFunctions(ctx context.Context, device pci.Address, count int) error {
	e, ours := b.enabled(device)
	switch {
	case ours && e.Phase == vfio.Binding && e.Count == count: // somebody asked before, and both wait
		return b.options.Book.Bind(ctx, FunctionsOwner(device), binding.Plan{Form: binding.FormFunctions, Device: device, Group: facts.NoGroup})
	case ours && e.Phase != vfio.Bound:
		return fmt.Errorf("enable virtual functions of %s: %w%s", device, ErrChanging, claims.Because(e.Stuck))
	}
	found, err := vgpu.Read(b.options.Root, device)
	if err != nil {
		return err
	}
	if count == pci.AllFunctions {
		count = found.FunctionsTotal
	}
	if ours && found.FunctionsNow == e.Count && count == e.Count {
		return nil
	}
	if ours && found.FunctionsNow == 0 { // somebody took them away
		if found, err = b.anew(ctx, device); err != nil {
			return err
		}
	}
	plan, err := binding.EnableFunctions(found, count)
	if err != nil {
		return fmt.Errorf("%w%s", err, b.hint(found))
	}
	return b.enable(ctx, found, plan)
}

// anew reads a device after the functions that were enabled are crossed out.
func (b *Backend) anew(ctx context.Context, device pci.Address) (*vgpu.GPU, error) {
	if _, err := b.options.Book.Release(ctx, FunctionsOwner(device)); err != nil {
		return nil, err
	}
	return vgpu.Read(b.options.Root, device)
}

// enable carries a plan out.
func (b *Backend) enable(ctx context.Context, found *vgpu.GPU, plan binding.Plan) error {
	d := b.factsOf(found.Address)
	if uses := binding.UsesOf(d); uses != "" {
		return fmt.Errorf("enable virtual functions of %s: %w: %s", found.Address, binding.ErrUsed, uses)
	}
	err := b.options.Book.Bind(ctx, FunctionsOwner(found.Address), plan)
	var number syscall.Errno
	if errors.As(err, &number) {
		return fmt.Errorf("%w: %s, which can have %d: %s", err, nameOf(d), found.FunctionsTotal, advice(number, found))
	}
	return err
}

// hint says how the number of functions is changed that a device has.
func (b *Backend) hint(found *vgpu.GPU) string {
	_, ours := b.enabled(found.Address)
	switch {
	case found.FunctionsNow == 0:
		return ""
	case ours:
		return fmt.Sprintf(": `divvy vm functions %s --count 0` takes them away first", found.Address)
	}
	return ": it was not Divvy that enabled them, so whoever did takes them away first"
}

// factsOf is what the host tells of a device.
func (b *Backend) factsOf(device pci.Address) facts.Device {
	d := facts.Device{Device: pci.Device{Address: device}}
	if host, err := facts.Look(b.options.Root); err == nil {
		if found, there := host.Find(device); there {
			return found
		}
	}
	return d
}

// nameOf names a device for people: by its model, or by its numbers.
func nameOf(d facts.Device) string {
	switch {
	case d.Model != "":
		return fmt.Sprintf("%+q", d.Model)
	case d.Vendor == 0:
		return "the device"
	}
	return fmt.Sprintf("%04x:%04x", d.Vendor, d.ID)
}

// advice says what helps where the kernel refuses virtual functions.
func advice(number syscall.Errno, gpu *vgpu.GPU) string {
	switch {
	case number == syscall.ENOENT && gpu.Driver == "":
		return "it has no driver, which has to make them: load the vendor's driver for hosts of virtual machines"
	case number == syscall.ENOENT && gpu.Driver == binding.VGPUDriver:
		return fmt.Sprintf("driver nvidia makes none by this file: its host driver for vGPU does with `/usr/lib/nvidia/sriov-manage -e %s`", gpu.Address)
	case number == syscall.ENOENT:
		return fmt.Sprintf("driver %s makes none by this file: the vendor's driver for hosts of virtual machines has to, such as AMD's gim by its parameter vf_num", gpu.Driver)
	case number == syscall.ERANGE:
		return "its driver allows fewer now"
	case number == syscall.ENOMEM || number == syscall.ENOSPC:
		return "there is no room for so many: ask for fewer, switch on SR-IOV and Above 4G Decoding in the firmware, or start the kernel with pci=realloc"
	case number == syscall.EBUSY:
		return "somebody else changes them just now, or has the device"
	}
	return fmt.Sprintf("driver %s does not make so many now, and `dmesg` may say why: some take no number but certain ones, and none while the device is in use", gpu.Driver)
}

// Virtual are the virtual functions that a device has.
func (b *Backend) Virtual(device pci.Address) ([]pci.Address, error) {
	found, err := vgpu.Read(b.options.Root, device)
	if err != nil {
		return nil, err
	}
	all := make([]pci.Address, len(found.Virtual))
	for i, f := range found.Virtual {
		all[i] = f.Address
	}
	return all, nil
}

// DisableFunctions takes away the virtual functions that were enabled on request, while nobody uses one. Those that somebody else
// enabled are an error; that there are none is not. What others changed since is left and returned.
func (b *Backend) DisableFunctions(ctx context.Context, device pci.Address) ([]vfio.Foreign, error) {
	made, err := b.List(device)
	if err != nil {
		return nil, err
	}
	found, err := vgpu.Read(b.options.Root, device)
	if err != nil {
		return nil, err
	}
	if _, ours := b.enabled(device); !ours {
		if found.FunctionsNow == 0 {
			return nil, nil
		}
		return nil, fmt.Errorf("disable the virtual functions of %s: %w: whoever did takes them away, or root by `echo 0 > /sys/%s/sriov_numvfs`", device, ErrOthers, binding.DeviceFolder(device))
	}
	used := func(format string, args ...any) error {
		return fmt.Errorf("disable the virtual functions of %s: %w: %s", device, ErrUsed, fmt.Sprintf(format, args...))
	}
	if len(made) > 0 {
		return nil, used("%s", ofVGPU(made[0]))
	}
	for _, f := range found.Virtual {
		for _, e := range b.options.Book.Entries() {
			if e.Plan.Device == f.Address && e.Owner != FunctionsOwner(device) {
				return nil, used("claim %s has %s: `divvy vm release %s` takes it back", e.Owner, f.Address, e.Owner)
			}
		}
		// No driver got one from Divvy but the one that makes vGPUs of it.
		if f.Driver != "" && (f.Driver != found.Driver || f.Driver != binding.VGPUDriver) {
			return nil, used("%s", b.withDriver(f))
		}
	}
	return b.options.Book.Release(ctx, FunctionsOwner(device))
}

// ofVGPU says whose a vGPU is that is in the way, and how it is taken away.
func ofVGPU(d Device) string {
	switch {
	case d.Owner != "":
		return fmt.Sprintf("%s has a vGPU of claim %s: `divvy vm release %s` takes it away", d.Function, d.Owner, d.Owner)
	case d.UUID != "":
		return fmt.Sprintf("%s has a vGPU of somebody else's: whoever made it takes it away, or root by `echo 1 > /sys/%s/remove`", d.Function, binding.MediatedFolder(d.UUID))
	}
	return fmt.Sprintf("%s has a vGPU of somebody else's: whoever made it takes it away, or root by `echo 0 > /sys/%s/nvidia/current_vgpu_type`", d.Function, binding.DeviceFolder(d.Function))
}

// withDriver says which driver has a function to which Divvy gave none, who uses it, and how it is taken from that.
func (b *Backend) withDriver(f vgpu.Function) string {
	d := b.factsOf(f.Address)
	who := "nobody is seen to have it open"
	network, _ := d.Network()
	switch {
	case len(d.Holders) > 0:
		who = binding.Named(d.Holders) + ": end that first"
	case binding.UsesOf(d) != "":
		who = "the host uses it: " + binding.UsesOf(d) + ": end that first"
	case network != "":
		who = network + ": end that first"
	}
	return fmt.Sprintf("%s is with %s, a driver that it has by somebody else; %s; then, as root, `echo %s > /sys/bus/pci/drivers/%s/unbind`", f.Address, f.Driver, who, f.Address, f.Driver)
}
