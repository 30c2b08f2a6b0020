// Package claims is the ledger of the devices that virtual machines of this host have: whose each is, and in which form.
//
// A claim is written down before anything of the machine changes, and crossed out after all was put back. It keeps its device
// until it is released, also while no agent runs. What is changed of devices is in the books of those who make the forms.
package claims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/pci"
)

// The errors of a [Ledger].
var (
	// ErrInvalid is a claim that can never be made.
	ErrInvalid = errors.New("invalid claim")
	// ErrTaken says that a device, or a name, is another claim's.
	ErrTaken = errors.New("it is claimed already")
	// ErrUnknown says that there is no claim of a name.
	ErrUnknown = errors.New("there is no such claim")
	// ErrBusy says that somebody makes or releases the claim just now.
	ErrBusy = errors.New("it is being made or put back just now")
	// ErrOpen says that a virtual machine has a device open that was to be put back. A [Maker] returns it.
	ErrOpen = errors.New("a virtual machine has it open")
)

// Want is what somebody asks for.
type Want struct {
	// Name is the claim's, unique on the host: letters, digits, '-', '_' and '.', at most [MaxName] of them.
	Name string `json:"name"`
	// UID is whose virtual machine it is for. The device's nodes are that user's while the claim lasts.
	UID int `json:"uid"`
	// Form is how the device is given: one of those for which [v1alpha1.Backend.ForMachines] is true.
	Form v1alpha1.Backend `json:"form"`
	// Device is the PCI function.
	Device pci.Address `json:"device"`
	// Also are other cards of the device's IOMMU group that may go with it, each by one of its functions.
	Also []pci.Address `json:"also,omitempty"`
	// GPU is the driver's UUID of a GPU that the agent serves, empty for any other device.
	GPU string `json:"gpu,omitempty"`
	// Beside are the UUIDs of the other GPUs of the agent's that go with it.
	Beside []string `json:"beside,omitempty"`
	// Type is that of a vGPU, empty for other forms.
	Type string `json:"type,omitempty"`
	// Cluster is the claim of a cluster for which it is, as namespace/name; empty for none.
	Cluster string `json:"cluster,omitempty"`
}

// GPUs are the UUIDs of all GPUs of the agent's that the claim takes.
func (w Want) GPUs() []string {
	if w.GPU == "" {
		return w.Beside
	}
	return append([]string{w.GPU}, w.Beside...)
}

// MaxName is the longest name of a claim, in bytes.
const MaxName = 128

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// differs names what is asked for otherwise than a claim of the name has it, "" where nothing is.
func (w Want) differs(asked Want) string {
	var parts []string
	differ := func(what string, has, wants any) {
		if has, wants := fmt.Sprint(has), fmt.Sprint(wants); has != wants {
			parts = append(parts, fmt.Sprintf("%s %s, not %s", what, cmp.Or(has, "none"), cmp.Or(wants, "none")))
		}
	}
	differ("device", w.Device, asked.Device)
	differ("form", w.Form, asked.Form)
	differ("type", strconv.QuoteToASCII(w.Type), strconv.QuoteToASCII(asked.Type))
	differ("user", w.UID, asked.UID)
	differ("others of the group", listed(w.Also), listed(asked.Also))
	return strings.Join(parts, "; ")
}

// listed are addresses in their order.
func listed(all []pci.Address) string {
	var names []string
	for _, at := range slices.SortedFunc(slices.Values(all), pci.Address.Compare) {
		names = append(names, at.String())
	}
	return strings.Join(names, ", ")
}

// Given is what a virtual machine gets.
type Given struct {
	// Group is the IOMMU group, -1 for none.
	Group int `json:"group"`
	// Members are the PCI functions that belong to the claim, the device first.
	Members []pci.Address `json:"members,omitempty"`
	// Nodes are the device nodes that a virtual machine opens besides /dev/vfio/vfio.
	Nodes []string `json:"nodes,omitempty"`
	// Unreset are those of Members that nothing but a restart of the machine resets, as far as the kernel tells.
	Unreset []pci.Address `json:"unreset,omitempty"`
	// Mediated is the UUID of a mediated device, empty for a PCI function.
	Mediated string `json:"mediated,omitempty"`
	// Path is the device's folder in sysfs where QEMU must be given that, empty where the address suffices.
	Path string `json:"path,omitempty"`
	// TypeName is the driver's name of a vGPU's type.
	TypeName string `json:"typeName,omitempty"`
	// Notes tell people what others had set of the devices before, which is so again after the release.
	Notes []string `json:"notes,omitempty"`
}

// Phase is how far a claim is.
type Phase string

// The phases, in their order.
const (
	Taking  Phase = "taking"
	Held    Phase = "held"
	Leaving Phase = "leaving"
)

// Times say since when a claim is, and how far.
type Times struct {
	Since time.Time `json:"since"`
	Phase Phase     `json:"phase"`
}

// Claim is a device that somebody has, or that is on the way to them or back.
type Claim struct {
	Want
	Given
	Times
	// Before are the owners that its nodes had, in the order of Nodes.
	Before []Ownership `json:"before,omitempty"`
	// Fault says what keeps it from being taken or put back, such as who holds the device. It is not in the file.
	Fault string `json:"-"`
	// Foreign is true for what is in no ledger, and somebody else's.
	Foreign bool `json:"-"`
}

// Made is what a virtual machine is given: the UUID of a mediated device, or else the address of a PCI function.
func (c Claim) Made() string {
	switch {
	case c.Mediated != "":
		return c.Mediated
	case len(c.Members) > 0: // of a part of a GPU it is another one than the device
		return c.Members[0].String()
	}
	return c.Device.String()
}

// Has reports whether a PCI function belongs to the claim.
func (c Claim) Has(function pci.Address) bool {
	return c.Device == function || slices.Contains(c.Members, function)
}

// Holder is who has a PCI function.
type Holder struct {
	// Owner is the claim's name, or the words of who else has it.
	Owner string
	Form  v1alpha1.Backend
	// Foreign is true where it is no claim of the ledger's.
	Foreign bool
	// Fault is what keeps it from being taken or put back.
	Fault string
}

// Standing is how it is with what an owner has.
type Standing struct {
	// There is false where the owner has nothing.
	There bool
	// What is the device and its form, for people.
	What string
	// Stuck says why a change does not end, and who holds the device; empty where none is stuck.
	Stuck string
	// Lost says what is gone of it, or was changed by somebody else since; empty where all is as it was given.
	Lost string
}

// Maker gives devices of one form. Owners are the names of claims. Its functions may be called at the same time.
type Maker interface {
	// Take gives an owner a device, or nothing. Admit is asked before anything changes, with the functions that the owner would
	// get. What does not end in time is an error, and stands until it has ended.
	Take(ctx context.Context, want Want, admit func(members []pci.Address) error) (Given, error)
	// Release puts back all that an owner has, and tells what others changed meanwhile, which is left. That there is nothing
	// is no error; [ErrOpen] is one after which the owner still has all. After any other one something is left, for which Release
	// is called again.
	Release(ctx context.Context, owner string) (left []string, err error)
	// Standing tells what an owner has.
	Standing(owner string) Standing
}

// Ownership is whose a device node is.
type Ownership struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
	// Mode are the bits of permission, 0 where they are not known. An owner may have changed them, so they are put back too.
	Mode uint32 `json:"mode,omitempty"`
}

// Nodes are the device nodes of a machine.
type Nodes interface {
	Owner(node string) (Ownership, error)
	// SetOwner changes owner and mode, and takes away what else was permitted of the node.
	SetOwner(node string, to Ownership) error
}

// check returns why a claim can never be made.
func (l *Ledger) check(w Want) error {
	switch {
	case len(w.Name) > MaxName || !validName.MatchString(w.Name):
		return fmt.Errorf("%w: name %.128q: use at most %d letters, digits, '-', '_' and '.', starting with a letter or digit", ErrInvalid, w.Name, MaxName)
	case w.UID < 0:
		return fmt.Errorf("%w: user %d", ErrInvalid, w.UID)
	case l.config.Makers[w.Form] == nil:
		return fmt.Errorf("%w: this agent gives no devices of form %s", ErrInvalid, w.Form)
	case w.Type != "" && w.Form != v1alpha1.BackendVGPU:
		return fmt.Errorf("%w: form %s has no types: a type is for form vgpu", ErrInvalid, w.Form)
	case len(w.Also) > 0 && w.Form != v1alpha1.BackendPassthrough:
		return fmt.Errorf("%w: form %s gives one device alone: others are for form passthrough", ErrInvalid, w.Form)
	}
	return nil
}

// clash returns an error if another claim has one of the functions, or a container. Parts of one GPU go beside each other. The
// lock is held.
func (l *Ledger) clash(w Want, members []pci.Address) error {
	wanted := append([]pci.Address{w.Device}, members...)
	for _, c := range l.claims {
		if c.Name == w.Name || c.Form == v1alpha1.BackendVGPU && w.Form == v1alpha1.BackendVGPU {
			continue
		}
		if at := slices.IndexFunc(wanted, c.Has); at >= 0 {
			return fmt.Errorf("%w: %s is with claim %s", ErrTaken, wanted[at], c.Name)
		}
	}
	for _, r := range l.reserved {
		if at := slices.IndexFunc(wanted, func(m pci.Address) bool { return slices.Contains(r.Functions, m) }); at >= 0 {
			return fmt.Errorf("%w: containers use %s by the cluster's claim %s: end its pods first", ErrTaken, wanted[at], r.Name)
		}
	}
	return nil
}
