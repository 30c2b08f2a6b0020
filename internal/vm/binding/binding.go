// Package binding works out which writes below /sys give a device to virtual machines, and how each of them is undone. It
// writes nothing: package vfio carries a plan out.
//
// A plan holds one law: after any number of its steps, the undoing of those in reverse gives the first state.
package binding

import (
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// Why no plan is made. A [Refusal] has one of them.
var (
	ErrNoDevice = errors.New("there is no such PCI function")
	ErrBridge   = errors.New("it is a bridge, which stays with the host")
	ErrVirtual  = errors.New("it is a virtual function, which is given by itself")
	ErrPhysical = errors.New("it is no virtual function")
	ErrNoGroup  = errors.New("it is in no IOMMU group")
	ErrRemap    = errors.New("vfio refuses it")
	ErrModule   = errors.New("the module vfio-pci is not loaded")
	ErrUsed     = errors.New("the host uses it")
	ErrDisplay  = errors.New("the console is drawn on it")
	ErrDivided  = errors.New("it is divided")
	ErrBusy     = errors.New("its driver is changing")
	ErrOverride = errors.New("another tool has set its driver_override")
	ErrShared   = errors.New("its group has another device, which was not named")
	ErrHeld     = errors.New("processes have it open")
	ErrApart    = errors.New("it is not in the same group")
)

// Refusal says why a device is not given, of which device that is true, and what there is.
type Refusal struct {
	// Asked is the device that was asked for, Device the one of its group that is in the way.
	Asked, Device pci.Address
	// Why is one of the errors of this package.
	Why error
	// Detail names what is in the way. It may have names that others chose.
	Detail string
}

func (r *Refusal) Error() string {
	text := fmt.Sprintf("give %s to a virtual machine: ", r.Asked)
	if errors.Is(r.Why, ErrFunctions) {
		text = fmt.Sprintf("enable virtual functions of %s: ", r.Asked)
	}
	switch {
	case r.Device == r.Asked:
	case errors.Is(r.Why, ErrApart), errors.Is(r.Why, ErrNoDevice):
		text += fmt.Sprintf("%s cannot go with it: ", r.Device)
	default:
		text += fmt.Sprintf("%s is in the same group: ", r.Device)
	}
	text += r.Why.Error()
	if r.Detail != "" {
		text += ": " + r.Detail
	}
	return text
}

func (r *Refusal) Unwrap() error { return r.Why }

// Form is what a virtual machine gets.
type Form string

// The forms.
const (
	// FormPassthrough is a physical function with the rest of its group.
	FormPassthrough Form = "passthrough"
	// FormFunction is one virtual function, bound to vfio-pci.
	FormFunction Form = "vf"
	// FormVGPU is a mediated device, or a virtual function with a type.
	FormVGPU Form = "vgpu"
)

// Driver is the one that gives devices to virtual machines.
const Driver = "vfio-pci"

// Plan is how a device gets its form.
type Plan struct {
	Form Form `json:"form"`
	// Device is the one that was asked for.
	Device pci.Address `json:"device"`
	// Group is its IOMMU group, [facts.NoGroup] for none. Members are the functions that the virtual machine gets, Device the
	// first of them.
	Group   int           `json:"group"`
	Members []pci.Address `json:"members"`
	Steps   []Step        `json:"steps"`
	// Unreset are those members that nothing but a restart of the machine resets, as far as the kernel tells.
	Unreset []pci.Address `json:"unreset,omitempty"`
	// Notes tell people what is not as usual after the device was put back, because it was not before.
	Notes []string `json:"-"`
	// Nodes are the device nodes that a virtual machine opens besides /dev/vfio/vfio. That of a mediated device is known once
	// the device is made.
	Nodes []string `json:"nodes"`
	// VGPU is set for [FormVGPU].
	VGPU *VGPU `json:"vgpu,omitempty"`
}

// Kind is what a step does.
type Kind string

// The kinds of steps.
const (
	// Unbind takes a function from its driver.
	Unbind Kind = "unbind"
	// Reset does nothing at first; undone, it resets the function before its driver gets it back.
	Reset Kind = "reset"
	// Override says which driver alone may take a function.
	Override Kind = "override"
	// Probe has that driver take it.
	Probe Kind = "probe"
)

// Step is one write, and the one that undoes it.
type Step struct {
	Kind Kind `json:"kind"`
	// Device is the function that changes.
	Device pci.Address `json:"device"`
	// Do is zero for a step that is an undoing alone.
	Do   Write `json:"do"`
	Undo Write `json:"undo"`
	// State tells how far the step is: it has Before, and After once the step is made. The zero State tells nothing.
	State  State  `json:"state"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Alike is true where State tells the same whoever made the step, so that only who wrote it can tell whose it is.
	Alike bool `json:"alike,omitempty"`
}

// Write is one to a file of sysfs.
type Write struct {
	// Path is below /sys. The empty path is no write.
	Path  string `json:"path,omitempty"`
	Value string `json:"value,omitempty"`
	// Group is a link below /sys to an IOMMU group that nobody may have open, before and during the write.
	Group string `json:"group,omitempty"`
	// Leave is a file that appears once the write was made, and Take one that is gone then; package vfio sets both.
	Leave string `json:"leave,omitempty"`
	Take  string `json:"take,omitempty"`
	// Owner is for whom the write is made, as that file says.
	Owner string `json:"owner,omitempty"`
}

// State is a file of sysfs whose content tells something, or a link whose target's last part does. One that is missing, and
// a file with (null), tell "".
type State struct {
	// Path is below /sys.
	Path string `json:"path,omitempty"`
	Link bool   `json:"link,omitempty"`
	// Mark asks for the time of the file's last change instead of its content.
	Mark bool `json:"mark,omitempty"`
}

// String names the step for people.
func (s Step) String() string {
	switch s.Kind {
	case Unbind:
		return fmt.Sprintf("take %s from driver %s", s.Device, s.Before)
	case Reset:
		return fmt.Sprintf("reset %s afterwards", s.Device)
	case Override:
		return fmt.Sprintf("set driver_override of %s to %s", s.Device, s.After)
	case Probe:
		return fmt.Sprintf("give %s to driver %s", s.Device, s.After)
	}
	return s.describe()
}

// Undoing names for people that the step is undone.
func (s Step) Undoing() string {
	switch s.Kind {
	case Unbind:
		return fmt.Sprintf("give %s back to driver %s", s.Device, s.Before)
	case Override:
		return fmt.Sprintf("set driver_override of %s back to %q", s.Device, s.Before)
	case Probe:
		return fmt.Sprintf("take %s from driver %s", s.Device, s.After)
	case Withhold:
		return fmt.Sprintf("let drivers of the host have virtual functions of %s", s.Device)
	case Enable:
		return fmt.Sprintf("disable %s virtual functions of %s", s.After, s.Device)
	case Mediate:
		return fmt.Sprintf("take away mediated device %s of %s", s.Do.Value, s.Device)
	case Back:
		return fmt.Sprintf("take GPU instance %s from behind %s", s.After, s.Device)
	case Type:
		return fmt.Sprintf("take the type %s from %s", s.After, s.Device)
	}
	return s.String()
}

// DeviceFolder is where sysfs has a function, below /sys.
func DeviceFolder(at pci.Address) string { return "bus/pci/devices/" + at.String() }

const driversFolder = "bus/pci/drivers/"
