// Package vgpu gives virtual machines parts of NVIDIA's GPUs: mediated devices, and virtual functions with a type. NVIDIA's host
// driver for vGPU makes them and needs NVIDIA's licence.
//
// Types and what is left of them are read from sysfs each time, because others make vGPUs too. What Divvy makes is in the book of
// devices for virtual machines with its owner, and a GPU instance behind it in that of MIG instances. What is in no book is
// somebody else's: it is shown and never taken away.
package vgpu

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
	"github.com/divvy-gpu/divvy/internal/vm/vgpu"
)

// The errors of this package, besides those of binding, vfio and vgpu.
var (
	// ErrOwner says that an owner has a vGPU of another type or GPU already.
	ErrOwner = errors.New("the owner has another vGPU")
	// ErrInstances says that a type needs a GPU instance and none can be made.
	ErrInstances = errors.New("the type needs a GPU instance, and this agent makes none")
	// ErrLater says that it is not known yet whether an owner has a GPU instance.
	ErrLater = errors.New("the GPU instances of vGPUs are not known yet")
	// ErrUsed says that virtual functions are in use.
	ErrUsed = errors.New("virtual functions are in use")
)

// Book carries plans out and keeps what was made with its owners: [vfio.Book].
type Book interface {
	Bind(ctx context.Context, owner string, plan binding.Plan) error
	Release(ctx context.Context, owner string) ([]vfio.Foreign, error)
	Entries() []vfio.Entry
}

// Instances makes GPU instances and knows whose they are.
type Instances interface {
	// Make makes an instance of a MIG profile for an owner and returns its number. An owner who has one gets that.
	Make(ctx context.Context, gpu pci.Address, profile, owner string) (id int, err error)
	// Take takes an owner's instance away. That there is none is no error.
	Take(ctx context.Context, owner string) error
	// Owners are those who have instances, also half made ones.
	Owners() []string
}

// Options are what a [Backend] works with.
type Options struct {
	// Root has the machine's files.
	Root fs.FS
	Book Book
	// Instances is nil where no GPU instances can be made, or where Later says that [Backend.SetInstances] follows.
	Instances Instances
	Later     bool
	Log       *slog.Logger
}

// Backend makes vGPUs. Its functions may be called at the same time.
type Backend struct {
	options Options

	mu        sync.Mutex
	instances Instances
	later     bool
	// backed are the numbers of types that need a GPU instance, by name: they are told only once there is one.
	backed map[string]vgpu.Choice
}

// New returns a backend.
func New(options Options) *Backend {
	return &Backend{options: options, instances: options.Instances, later: options.Later, backed: map[string]vgpu.Choice{}}
}

// SetInstances gives a backend the GPU instances, nil for none, for who opens the driver later than the book. [Backend.Recover]
// must follow.
func (b *Backend) SetInstances(i Instances) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.instances, b.later = i, false
}

// made are the GPU instances, nil where none can be made or, with [ErrLater], where they are not known yet.
func (b *Backend) made() (Instances, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.later {
		return nil, ErrLater
	}
	return b.instances, nil
}

// Device is a vGPU that an owner has.
type Device struct {
	Owner string
	binding.VGPU
	// Function is the one on which a mediated device is, or that is given itself.
	Function pci.Address
	// Group is its IOMMU group, -1 if it has none; a virtual machine opens /dev/vfio/Group.
	Group int
	// Whole is false while it is being made or taken away.
	Whole bool
}

// Node is the device node that a virtual machine opens besides /dev/vfio/vfio.
func (d Device) Node() string { return fmt.Sprintf("/dev/vfio/%d", d.Group) }

// Device is what an owner has.
func (b *Backend) Device(owner string) (Device, bool) {
	for _, e := range b.options.Book.Entries() {
		if e.Owner == owner && e.Plan.Form == binding.FormVGPU && e.Plan.VGPU != nil {
			return b.device(e), true
		}
	}
	return Device{}, false
}

// device is an entry of the book. The group of a mediated device is told once the device is there.
func (b *Backend) device(e vfio.Entry) Device {
	d := Device{Owner: e.Owner, VGPU: *e.Plan.VGPU, Function: e.Plan.Device, Group: e.Plan.Group, Whole: e.Phase == vfio.Bound}
	if d.Interface == vgpu.Mediated {
		d.Group = -1
		target, err := fs.ReadLink(b.options.Root, "sys/"+binding.MediatedFolder(d.UUID)+"/iommu_group")
		if group, wrong := strconv.ParseUint(path.Base(target), 10, 31); err == nil && wrong == nil {
			d.Group = int(group)
		}
	}
	return d
}

// tries bounds how often a vGPU is planned anew because others took what was planned.
const tries = 8

// Claim makes a vGPU of a type on a GPU, or on one of its virtual functions that is named. The type is named by its number or name.
// An owner who has such a one gets that. Where others are faster it tries what is left, and the error tells what there is.
func (b *Backend) Claim(ctx context.Context, owner string, gpu pci.Address, kind string) (Device, error) {
	if d, has := b.Device(owner); has {
		return b.same(d, gpu, kind)
	}
	if err := b.remapped(gpu); err != nil {
		return Device{}, err
	}
	var not []pci.Address
	for try := 1; ; try++ {
		at, err := b.try(ctx, owner, gpu, kind, not)
		if err == nil {
			d, has := b.Device(owner)
			if !has {
				return d, fmt.Errorf("make a vGPU on %s: %w: it was released meanwhile", gpu, vfio.ErrReturning)
			}
			return d, nil
		}
		if !another(err) || try == tries {
			return Device{}, errors.Join(err, b.undo(ctx, owner))
		}
		if at != (pci.Address{}) {
			not = append(not, at)
		}
	}
}

// remapped refuses a GPU whose functions vfio would refuse. What the kernel does not tell refuses nothing, and neither does a GPU
// with mediated devices, which are behind no IOMMU.
func (b *Backend) remapped(gpu pci.Address) error {
	found, err := vgpu.Read(b.options.Root, gpu)
	if err != nil || !slices.ContainsFunc(found.Functions, func(f vgpu.Function) bool { return f.Interface == vgpu.Vendor }) {
		return nil //nolint:nilerr // who reads it next tells
	}
	return binding.Remapped(facts.ReadIOMMU(b.options.Root), gpu)
}

// same tells whether what an owner has is what is asked for.
func (b *Backend) same(d Device, gpu pci.Address, kind string) (Device, error) {
	found, err := vgpu.Read(b.options.Root, gpu)
	if err != nil {
		return Device{}, err
	}
	on := slices.ContainsFunc(found.Functions, func(f vgpu.Function) bool { return f.Address == d.Function })
	alike := strings.EqualFold(kind, d.Type) || strings.HasSuffix(d.Type, "-"+kind) || strings.EqualFold(kind, d.Name) || strings.HasSuffix(strings.ToLower(d.Name), " "+strings.ToLower(kind))
	switch {
	case !on || !alike:
		return Device{}, fmt.Errorf("%w: %s (%+q) on %s", ErrOwner, d.Type, d.Name, d.Function)
	case !d.Whole:
		return Device{}, fmt.Errorf("make a vGPU on %s: %w", gpu, vfio.ErrReturning)
	}
	return d, nil
}

// another tells whether an error is that somebody else was faster.
func another(err error) bool {
	for _, known := range []error{vfio.ErrTaken, vfio.ErrOpen, vfio.ErrChanged, vfio.ErrVanished, vfio.ErrKept, vgpu.ErrLate, syscall.EBUSY, syscall.ENOSPC, syscall.EINVAL, syscall.ENODEV, syscall.ENOENT} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// try makes a vGPU from what there is now, or nothing, and returns the virtual function that it was to take.
func (b *Backend) try(ctx context.Context, owner string, gpu pci.Address, kind string, not []pci.Address) (at pci.Address, err error) {
	found, err := vgpu.Read(b.options.Root, gpu)
	if err != nil {
		return at, err
	}
	if err := found.Offers(); err != nil { // before an instance is made for it
		return at, fmt.Errorf("make a vGPU of type %+q: %w", kind, err)
	}
	choice, err := found.Resolve(kind)
	profile := vgpu.Profile(choice.Name)
	if err != nil {
		profile = vgpu.Profile(kind)
	}
	w := binding.Wanted{Type: choice, Not: slices.Concat(not, b.taken())}
	if profile != "" {
		return b.backedBy(ctx, owner, found, kind, profile, w)
	}
	if err != nil {
		return at, err
	}
	if choice.Interface == vgpu.Mediated {
		w.UUID = newUUID()
	}
	plan, err := binding.MakeVGPU(found, w)
	if err != nil {
		return at, err
	}
	if choice.Interface == vgpu.Vendor {
		at = plan.Device
	}
	return at, b.options.Book.Bind(ctx, owner, plan)
}

// taken are the functions that the book has given to somebody as a whole.
func (b *Backend) taken() (all []pci.Address) {
	for _, e := range b.options.Book.Entries() {
		all = append(all, e.Plan.Members...)
	}
	return all
}

// newUUID is a random one, as version 4 has them.
func newUUID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // it does not fail
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// Release takes away all that an owner has. What others changed since is left and returned. That there is nothing is no error.
// What a virtual machine has open stays, with [vfio.ErrOpen]. After any other error something is left, for which it is called again.
func (b *Backend) Release(ctx context.Context, owner string) ([]vfio.Foreign, error) {
	left, err := b.options.Book.Release(ctx, owner)
	if err != nil {
		return left, err
	}
	instances, err := b.made()
	if err != nil || instances == nil {
		return left, err
	}
	return left, instances.Take(ctx, owner)
}

// undo takes away what is half made.
func (b *Backend) undo(ctx context.Context, owner string) error {
	_, err := b.Release(context.WithoutCancel(ctx), owner)
	return err
}

// Recover takes away GPU instances behind which nothing stands, after the book was recovered, and first those from functions that
// were only asked for the number of a type: that is no vGPU.
func (b *Backend) Recover(ctx context.Context) error {
	instances, err := b.made()
	if err != nil || instances == nil {
		return err
	}
	var faults []error
	for _, e := range b.options.Book.Entries() {
		if e.Plan.Form == binding.FormVGPU && e.Plan.VGPU != nil && e.Plan.VGPU.Type == "" && e.Phase == vfio.Bound {
			_, err := b.options.Book.Release(ctx, e.Owner)
			faults = append(faults, err)
		}
	}
	for _, owner := range instances.Owners() {
		if _, has := b.Device(owner); !has {
			faults = append(faults, instances.Take(ctx, owner))
		}
	}
	return errors.Join(faults...)
}

// List is every vGPU of a GPU, whoever made it. Those of others have no owner.
func (b *Backend) List(gpu pci.Address) ([]Device, error) {
	entries := b.options.Book.Entries() // before what is there: what the book says then is there already, or is being made
	found, err := vgpu.Read(b.options.Root, gpu)
	if err != nil {
		return nil, err
	}
	var all []Device
	ours := func(f vgpu.Function, uuid string) (vfio.Entry, bool) {
		at := slices.IndexFunc(entries, func(e vfio.Entry) bool {
			return e.Plan.Form == binding.FormVGPU && e.Plan.VGPU != nil && e.Plan.Device == f.Address && e.Plan.VGPU.UUID == uuid
		})
		if at < 0 {
			return vfio.Entry{}, false
		}
		return entries[at], true
	}
	for _, f := range found.Functions {
		made := slices.Clone(f.Made)
		if f.Current != "" {
			made = append(made, vgpu.Made{Type: f.Current})
		}
		for _, m := range made {
			d := b.device(vfio.Entry{Phase: vfio.Bound, Plan: binding.Plan{Device: f.Address, Group: f.Group, VGPU: &binding.VGPU{Interface: f.Interface, Type: m.Type, UUID: m.UUID}}})
			if e, is := ours(f, m.UUID); is && e.Plan.VGPU.Type == m.Type {
				d = b.device(e)
			}
			all = append(all, d)
		}
	}
	return all, nil
}
