// Package vfio gives devices to virtual machines by plans of internal/vm/binding, and keeps a book of them so that all is put
// back when it is needed no more.
//
// A step is written down before it is made and crossed out after it was undone. An agent that ends between any two steps
// leaves a book from which the next one knows what is to be undone. What somebody else changed meanwhile is left as they
// made it.
//
// A write may sleep in the kernel beyond SIGKILL while anybody holds the device, so a process of its own makes the writes. One
// that takes too long makes the device stuck: whoever asked is told who holds it, nobody waits for it but a goroutine, and
// once the write has ended after all the plan goes on, or is undone if it is wanted no more. An agent that starts meanwhile
// finds the process again by the book.
package vfio

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// The errors of a [Book].
var (
	// ErrTaken says that another owner has a device of the group.
	ErrTaken = errors.New("it is given already")
	// ErrReturning says that a device is being put back.
	ErrReturning = errors.New("it is being put back")
	// ErrChanged says that a device is not as it was planned for.
	ErrChanged = errors.New("it changed since this was planned")
	// ErrKept says that a write had no effect.
	ErrKept = errors.New("the kernel did not do it")
	// ErrVanished says that a device is gone.
	ErrVanished = errors.New("the device is gone")
	// ErrOpen says that a virtual machine has a device open that was to be put back.
	ErrOpen = errors.New("a virtual machine has it open")
	// ErrUnseen says that nobody can tell whether a virtual machine has a device open.
	ErrUnseen = errors.New("whether a virtual machine has it open cannot be seen: the kernel has the group, and its node below /dev/vfio is missing here")
	// ErrClosed says that the book was closed.
	ErrClosed = errors.New("the book was closed")
)

// StuckError says that a write about a device has not ended, and who keeps it from that as far as it is known.
type StuckError struct {
	// Device is the one that was asked for, Step what has not ended.
	Device pci.Address
	Step   string
	// Returning is true where it is being put back, which goes on by itself.
	Returning bool
	// Since is when the write began, as far as this agent knows.
	Since   time.Time
	Holders []facts.Holder
	// Unseen says why there may be other holders, empty where all are seen.
	Unseen string
	// Slow is true where virtual functions come or go, for which the kernel may need long by itself, and nobody is seen in its way.
	Slow bool
}

func (e *StuckError) Error() string {
	if e.Slow {
		return fmt.Sprintf("the kernel is still at work to %s: nobody is seen in its way, and it goes on by itself; `divvy vm ls` shows how far it is", e.Step)
	}
	who := "nobody that can be seen holds it"
	switch {
	case len(e.Holders) > 0:
		who = binding.Named(e.Holders) + ": end them first"
	case e.Unseen != "":
		who += ": " + e.Unseen
	default:
		who += ": " + inNoList
	}
	if e.Returning {
		who += "; once that has ended the change goes on by itself"
	}
	return fmt.Sprintf("%s is stuck: the kernel has not ended to %s; %s", e.Device, e.Step, who)
}

// inNoList says who is not seen wherever one looks.
const inNoList = "a descriptor on its way through a socket, or one that io_uring keeps, is in no process's list"

// Phase is how far an entry has come.
type Phase string

// The phases, in their order.
const (
	Binding   Phase = "binding"
	Bound     Phase = "bound"
	Returning Phase = "returning"
)

// Entry is a device that is given, or on the way to that or back.
type Entry struct {
	// Owner is for whom, in the caller's words.
	Owner string       `json:"owner"`
	Plan  binding.Plan `json:"plan"`
	Phase Phase        `json:"phase"`
	// Begun is how many steps of the plan were begun and not undone; the last one may not have been made.
	Begun int `json:"begun"`
	// Writer is the process that makes writes for it, zero for none.
	Writer process.ID `json:"writer,omitzero"`
	// Stuck is set while a write about it does not end. It is not in the file.
	Stuck *StuckError `json:"-"`
}

// Foreign is something about a device that somebody else changed after Divvy did, or keeps from being as it was. It was left
// as it is.
type Foreign struct {
	Device pci.Address
	// What is a file or link of sysfs below the device's folder, Found what it has, Before what it had at first.
	What, Found, Before string
	// Override is the driver_override of somebody else's that keeps a driver from having its function back, "" for none.
	Override string
	// Fault is why it could not be undone, nil where nobody tried.
	Fault error
}

// String tells it to people.
func (f Foreign) String() string {
	switch {
	case f.Fault != nil:
		return fmt.Sprintf("%s of %s failed: %v", f.What, f.Device, f.Fault)
	case f.Override != "":
		return fmt.Sprintf("%[1]s has no driver now and was with %[2]s: somebody else has set its driver_override to %[3]q, which is left: for the driver, as root, "+
			"`echo > /sys/bus/pci/devices/%[1]s/driver_override && echo %[1]s > /sys/bus/pci/drivers_probe`", f.Device, f.Before, f.Override)
	case f.What == "driver" && f.Found == "":
		return fmt.Sprintf("%[1]s has no driver now and was with %[2]s, which is not loaded any more: load it, and as root `echo %[1]s > /sys/bus/pci/drivers_probe`", f.Device, f.Before)
	}
	return fmt.Sprintf("%s of %s is %q now and was %q: somebody changed it, so it is left", f.What, f.Device, f.Found, f.Before)
}

// Machine is what a [Book] needs of the machine.
type Machine interface {
	Kernel
	Processes
}

// Kernel is what a plan is carried out by.
type Kernel interface {
	// State is what sysfs tells.
	State(s binding.State) (string, error)
	// Exists tells whether sysfs has a file or folder.
	Exists(path string) bool
	// Start starts a process that makes writes.
	Start() (Writer, error)
}

// Processes tells who keeps a device from being put back.
type Processes interface {
	// Holders are the processes that have nodes of devices open.
	Holders(devices []pci.Address) (facts.Held, error)
	// Openers are the processes that have the VFIO node of a group open, which a link below /sys names. Where the node should be
	// there and is not, it is [ErrUnseen].
	Openers(group string) (facts.Held, error)
	// Node is the VFIO node of a group, which a link below /sys names, "" where there is none.
	Node(group string) string
}

// Writer is a process that makes one write after the other.
type Writer interface {
	ID() process.ID
	// Write returns at once; its outcome comes by the channel, or the process ends before. Writes do not overlap.
	Write(w binding.Write) <-chan error
	// Ended is closed when the process has ended.
	Ended() <-chan struct{}
	// Close has the process end, after the write that it makes.
	Close()
}

// Limits are how long things may take.
type Limits struct {
	// Look is after which time of a write it is looked who holds the device. If somebody does, the device is stuck.
	Look time.Duration
	// Write is how long a write may take before the device is stuck, whoever holds it.
	Write time.Duration
}

// Usual are the limits of an agent.
var Usual = Limits{Look: 500 * time.Millisecond, Write: 2 * time.Second}

// Config is how a [Book] is kept.
type Config struct {
	Path    string
	Machine Machine
	Limits  Limits
	// Now is the clock; left out it is the machine's.
	Now func() time.Time
	// Step is called after each step, so that a test can end the agent there; it may be nil.
	Step func(name string)
	// Late is told what became of a device that was stuck: its entry, without which it was put back; nil for no listener.
	Late func(e Entry, there bool, left []Foreign, err error)
}

// FileName is the book's, in an agent's directory.
const FileName = "vfio.json"

// touches tells whether two plans are about a common function or group.
func touches(a, b binding.Plan) bool {
	if a.Group != facts.NoGroup && a.Group == b.Group {
		return true
	}
	if a.VGPU != nil && b.VGPU != nil && a.VGPU.UUID != "" && a.VGPU.UUID == b.VGPU.UUID {
		return true
	}
	if a.Form == binding.FormFunctions && b.Form == binding.FormFunctions && a.Device == b.Device {
		return true
	}
	// The function on which a mediated device is, and the one that has virtual functions, are no members of those plans.
	return slices.ContainsFunc(append(slices.Clone(a.Members), a.Device), func(m pci.Address) bool { return slices.Contains(b.Members, m) }) ||
		slices.Contains(a.Members, b.Device)
}

// ended returns an error if the book was closed, or never was readable.
func (b *Book) ended() error {
	if b.broken != nil {
		return b.broken
	}
	select {
	case <-b.closed:
		return ErrClosed
	default:
		return nil
	}
}
