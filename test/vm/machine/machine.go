// Package machine describes the guest as arguments of QEMU. It reads and starts nothing.
package machine

import (
	"fmt"
	"slices"
	"strings"
)

// Token is the word of the kernel's command line by which tests know that they are in the guest, and may break it.
const Token = "divvy.vm=a-machine-to-break"

// Shape is what varies of the guest. The zero value has all that a host for virtual machines needs.
type Shape struct {
	// NoIOMMU leaves the machine without one: firmware has no table of it.
	NoIOMMU bool
	// NoRemapping leaves the IOMMU without interrupt remapping.
	NoRemapping bool
	// Off has the kernel leave the IOMMU alone.
	Off bool
	// Append is added to the kernel's command line.
	Append string
}

var shapes = map[string]Shape{
	"whole":       {},
	"iommu-none":  {NoIOMMU: true},
	"iommu-off":   {Off: true},
	"no-remapper": {NoRemapping: true},
}

// Named returns the shape of a name, or an error that lists the names there are.
func Named(name string) (Shape, error) {
	shape, known := shapes[name]
	if !known {
		names := make([]string, 0, len(shapes))
		for name := range shapes {
			names = append(names, name)
		}
		slices.Sort(names)
		return Shape{}, fmt.Errorf("no shape %q: there are %s", name, strings.Join(names, ", "))
	}
	return shape, nil
}

// memory of the guest in MiB, half of it on each socket.
const memory = 1536

// CommandLine returns that of the kernel. Without no_timer_check a busy host makes the kernel find its timer broken, and
// panic=-1 has a panic end QEMU. With oops=panic so does a fault in the kernel, after which locks are held for ever.
func (s Shape) CommandLine() string {
	words := []string{"console=ttyS0", "quiet", "no_timer_check", "tsc=unstable", "panic=-1", "oops=panic", "mitigations=off", Token}
	if !s.Off {
		words = append(words, "intel_iommu=on")
	} else {
		words = append(words, "intel_iommu=off")
	}
	return strings.TrimSpace(strings.Join(words, " ") + " " + s.Append)
}

// Disk is the name of the one disk, on SwitchedNVMe.
const Disk = "disk0"

// Arguments returns those of QEMU for a guest without files and ports: the caller adds the kernel, its memory disk, what is
// on [Disk], and two serial ports, of the kernel's console and of the wire. KVM is never used, and no device reaches the host's network.
func (s Shape) Arguments() []string {
	arguments := []string{
		"-M", "q35,kernel-irqchip=split", "-accel", "tcg,thread=multi", "-cpu", "max", "-nodefaults", "-no-user-config",
		"-no-reboot", "-display", "none", "-m", fmt.Sprint(memory),
		"-smp", "2,sockets=2,cores=1,threads=1",
	}
	for node := range 2 {
		arguments = append(arguments,
			"-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=%dM", node, memory/2),
			"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d,memdev=m%d", node, node, node))
	}
	switch {
	case s.NoIOMMU:
	case s.NoRemapping:
		arguments = append(arguments, "-device", "intel-iommu,intremap=off")
	default:
		arguments = append(arguments, "-device", "intel-iommu,intremap=on")
	}
	// The network cards are wired to each other and to nothing else.
	arguments = append(arguments, "-netdev", "hubport,id=wire0,hubid=0", "-netdev", "hubport,id=wire1,hubid=0")
	for _, device := range slices.Concat(switched, rooted) {
		arguments = append(arguments, "-device", device)
	}
	return arguments
}

// switched stand behind a switch that has no ACS, on the first socket: whatever is below it is one group.
var switched = []string{
	"pxb-pcie,id=bridge0,bus=pcie.0,bus_nr=64,numa_node=0",
	"pcie-root-port,id=port0,bus=bridge0,chassis=1,slot=1",
	"x3130-upstream,id=switch0,bus=port0",
	"xio3130-downstream,id=down0,bus=switch0,chassis=2,slot=0,addr=0.0,multifunction=on",
	"xio3130-downstream,id=down1,bus=switch0,chassis=3,slot=1,addr=0.1",
	"nvme-subsys,id=subsystem0,nqn=subsystem0",
	"nvme,bus=down0,id=nvme0,serial=switched,subsys=subsystem0," + functions,
	"nvme-ns,bus=nvme0,drive=" + Disk,
	"igb,bus=down1,netdev=wire0,mac=52:54:00:00:00:01,romfile=",
}

// rooted stand on root ports of the second socket: each function is a group, but the accelerator, whose companion has
// another function of its slot.
var rooted = []string{
	"pxb-pcie,id=bridge1,bus=pcie.0,bus_nr=128,numa_node=1",
	"pcie-root-port,id=port1,bus=bridge1,chassis=5,slot=5",
	"nvme-subsys,id=subsystem1,nqn=subsystem1",
	"nvme,bus=port1,serial=rooted,subsys=subsystem1," + functions,
	"pcie-root-port,id=port2,bus=bridge1,chassis=6,slot=6",
	"igb,bus=port2,netdev=wire1,mac=52:54:00:00:00:02,romfile=",
	"pcie-root-port,id=port3,bus=bridge1,chassis=7,slot=7",
	"edu,bus=port3,addr=0.0,multifunction=on",
	"qemu-xhci,bus=port3,addr=0.1",
}

// functions gives an NVMe controller two virtual ones, with the queues and interrupts that they need.
const functions = "sriov_max_vfs=2,sriov_vq_flexible=4,sriov_vi_flexible=2,max_ioqpairs=6,msix_qsize=5"

// Addresses of the guest's functions. The virtual functions of a card follow it in the listing of its virtfn links.
const (
	// SwitchedNVMe and SwitchedCard are behind the switch without ACS, in one group.
	SwitchedNVMe = "0000:43:00.0"
	SwitchedCard = "0000:44:00.0"
	// RootedNVMe and RootedCard are on root ports of the other socket, each a group of its own.
	RootedNVMe = "0000:81:00.0"
	RootedCard = "0000:82:00.0"
	// Accelerator is on such a port as well, in one group with Companion, a USB controller in its slot.
	Accelerator = "0000:83:00.0"
	Companion   = "0000:83:00.1"
)
