// Package rdma is what a host tells of its RDMA adapters: their device nodes, ports and addresses, the cards that they are on,
// and in which of them containers may have a part. It reads one snapshot from the root of a file system that the caller gives,
// beside that of package facts.
//
// It changes nothing. Names of the kernel's are foreign: one that cannot be written where it must stand is kept, and its
// adapter is given to nobody.
package rdma

import (
	"cmp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// Mode says who sees an adapter.
type Mode string

// The modes of the kernel. [ModeUnknown] is that of a host without the RDMA subsystem, and of a recording without it.
const (
	ModeUnknown Mode = ""
	// ModeShared shows each adapter in every network namespace.
	ModeShared Mode = "shared"
	// ModeExclusive shows an adapter in one network namespace alone.
	ModeExclusive Mode = "exclusive"
)

// Host is a snapshot of a machine's adapters.
type Host struct {
	// Adapters are ordered by PCI address, and by name where one function has several or none is known.
	Adapters []Adapter
	Mode     Mode
	// Manager is the node of the connection manager, nil where its module is not loaded.
	Manager *Node
	// Limits says whether the kernel can limit what a cgroup takes of adapters.
	Limits facts.Answer
	// Locked is how much memory a program without special rights may lock, as the reader is limited, in bytes; negative where
	// that is unknown.
	Locked int64
	// Peers is true where NVIDIA's module nvidia_peermem is loaded; OpenModule where NVIDIA's driver has open kernel modules,
	// which export GPU memory as dma-buf; Driver is its version, "" where there is none.
	Peers, OpenModule bool
	Driver            string
}

// Node is a character device.
type Node struct {
	// Name is that of its file below /dev/infiniband.
	Name         string
	Major, Minor uint32
}

// Adapter is one RDMA adapter.
type Adapter struct {
	Name string
	// Soft is true for one that software makes of a network device, which Parent names.
	Soft   bool
	Parent string
	// PCI is the function that it is on, for a soft one that of its network device; OnPCI is false where there is none.
	PCI   pci.Device
	OnPCI bool
	// Physical is the physical function of a virtual one.
	Physical pci.Address
	// VFs and VFsTotal are how many virtual functions the function has and could have.
	VFs, VFsTotal int
	// Driver is that of the function, Module the kernel module that it is in, "" where it is built in or unknown.
	Driver, Module string
	// Verbs is the node by which programs use the adapter, nil where there is none.
	Verbs *Node
	Ports []Port
	// Netdevs are the network devices of the function in the reader's network namespace, sorted.
	Netdevs []string
	// Uses are what the host itself does with the function's card: with the physical function, where that has no adapter too, as the
	// second one of a bond, or with a virtual one.
	Uses []facts.Use
	// NoGUID is true where the node's GUID is known to be zero.
	NoGUID bool
}

// Port is one port of an adapter. Texts are "" where they are unknown.
type Port struct {
	Number int
	// Link is ethernet or infiniband, State the kernel's word such as ACTIVE.
	Link, State string
	// Mbps is the rate, 0 where unknown.
	Mbps int
	// GIDs tells which addresses it has.
	GIDs GIDs
}

// GIDs are the addresses of a port.
type GIDs struct {
	// Known is false where none could be read.
	Known bool
	// Any counts those that are set among the first, Routable those of them that are no link-local ones.
	Any, Routable int
}

// The types of links.
const (
	Ethernet   = v1alpha1.LinkEthernet
	InfiniBand = v1alpha1.LinkInfiniBand
)

// Active is what a port's state is when it carries traffic.
const Active = "ACTIVE"

// Virtual reports whether the adapter is on a virtual function.
func (a *Adapter) Virtual() bool { return a.OnPCI && a.PCI.Virtual }

// Down reports whether it is known that no port carries traffic.
func (a *Adapter) Down() bool {
	return len(a.Ports) > 0 && !slices.ContainsFunc(a.Ports, func(p Port) bool { return p.State == "" || p.State == Active })
}

// Link is the type of the first port that tells one.
func (a *Adapter) Link() string {
	for _, p := range a.Ports {
		if p.Link != "" {
			return p.Link
		}
	}
	return ""
}

// Netdev is the network device that stands for the adapter, "" where none is here.
func (a *Adapter) Netdev() string {
	if a.Soft {
		return a.Parent
	}
	if len(a.Netdevs) == 0 {
		return ""
	}
	return a.Netdevs[0]
}

// longestName is what the kernel takes as the name of an adapter, IB_DEVICE_NAME_MAX without the zero behind it.
const longestName = 63

// Plain reports whether a name can stand in files, in attributes and in what the kernel's cgroups read.
func Plain(name string) bool {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.:-", r)
	}
	return name != "" && len(name) <= longestName && name[0] != '.' && name[0] != '-' &&
		!strings.ContainsFunc(name, func(r rune) bool { return !plain(r) })
}

func compare(a, b Adapter) int {
	first := func(on bool) int {
		if on {
			return 0
		}
		return 1
	}
	return cmp.Or(first(a.OnPCI)-first(b.OnPCI), a.PCI.Address.Compare(b.PCI.Address), strings.Compare(a.Name, b.Name))
}
