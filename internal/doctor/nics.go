package doctor

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/rdma"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// leastLocked is how much memory a program with RDMA cards can be expected to lock: NCCL registers its buffers, which are some
// hundred MiB.
const leastLocked = 1 << 30

// nics checks what stands between RDMA cards and programs. A machine without adapters has nothing to check.
func (h Host) nics() []Check {
	root := vfio.Files(filepath.Join("/", h.Root))
	if entries, err := fs.ReadDir(root, "sys/class/infiniband"); err != nil || len(entries) == 0 {
		return nil
	}
	host, err := facts.Look(root)
	if err != nil {
		return nil // no PCI devices can be listed, so nothing is known of cards
	}
	return nicChecks(host, rdma.Read(root, host), h.Limited)
}

// nicChecks is pure. Limited are as in [Host].
func nicChecks(host *facts.Host, cards *rdma.Host, limited []pci.Address) []Check {
	if len(cards.Adapters) == 0 {
		return nil
	}
	n := nicDoctor{host, cards}
	return slices.Concat(n.unfit(), n.namespaces(), n.memory(), n.limits(), n.limitsLeft(limited), n.addresses(), n.drivers(), n.infiniBand(), n.direct())
}

type nicDoctor struct {
	host  *facts.Host
	cards *rdma.Host
}

// plainName is an adapter's name, quoted where it could be taken for something else.
func plainName(name string) string {
	if rdma.Plain(name) {
		return name
	}
	return strconv.Quote(name)
}

// which are the names of the adapters for which something holds.
func (n nicDoctor) which(holds func(a *rdma.Adapter) bool) string {
	var names []string
	for i := range n.cards.Adapters {
		if holds(&n.cards.Adapters[i]) {
			names = append(names, plainName(n.cards.Adapters[i].Name))
		}
	}
	return strings.Join(names, ", ")
}

func nicCheck(id ID, status Status, found, next string) []Check {
	return []Check{{ID: id, Name: "RDMA cards", Status: status, Found: found, Next: next}}
}

func (n nicDoctor) unfit() (checks []Check) {
	for i := range n.cards.Adapters {
		if a := &n.cards.Adapters[i]; a.Unfit() != "" {
			checks = append(checks, nicCheck("nic.unfit", Warn, "no container can have adapter "+plainName(a.Name)+": "+a.Unfit(), "as the line says")...)
		}
	}
	return checks
}

func (n nicDoctor) namespaces() []Check {
	if n.cards.Mode != rdma.ModeExclusive {
		return nil
	}
	return nicCheck("nic.namespaces", Warn, "an adapter is seen in one network namespace alone (ib_core netns_mode), so that no container sees a card that is shared",
		"`rdma system set netns shared` before there are other namespaces, or `options ib_core netns_mode=1` in /etc/modprobe.d")
}

func (n nicDoctor) memory() []Check {
	if n.cards.Locked < 0 || n.cards.Locked >= leastLocked {
		return nil
	}
	return nicCheck("nic.memory-lock", Warn, fmt.Sprintf("programs may lock %d KiB of memory, and what is registered with a card is locked", n.cards.Locked>>10),
		"`ulimit -l unlimited`; for containers LimitMEMLOCK=infinity of the service of their runtime")
}

func (n nicDoctor) limits() []Check {
	switch n.cards.Limits {
	case facts.Yes:
		return nil
	case facts.Unknown:
		return nicCheck("nic.limits", Warn, "neither /sys/fs/cgroup/cgroup.controllers nor /proc/cgroups tells whether the kernel has the cgroup controller rdma, so no container gets a part of a shared card",
			"mount cgroups on the host at /sys/fs/cgroup")
	}
	return nicCheck("nic.limits", Warn, "the kernel offers no cgroup controller rdma, so a container that shares a card can take all of its handles and objects",
		"a kernel with CONFIG_CGROUP_RDMA, without cgroup_disable=rdma")
}

// limitsLeft tells of adapters that must not go.
func (n nicDoctor) limitsLeft(limited []pci.Address) []Check {
	adapters := n.which(func(a *rdma.Adapter) bool { return a.OnPCI && slices.Contains(limited, a.PCI.Address) })
	if adapters == "" {
		return nil
	}
	return nicCheck("nic.limits-left", Warn, "since the host started, containers had limits on "+adapters+". Linux keeps those of containers that have ended, and may stop when such an adapter is taken away",
		"load no driver of theirs anew and unbind none of them: restart the host instead")
}

// addresses tells of ports of Ethernet that are up and have no address by which others reach them.
func (n nicDoctor) addresses() []Check {
	lacking := n.which(func(a *rdma.Adapter) bool {
		return slices.ContainsFunc(a.Ports, func(p rdma.Port) bool {
			return p.Link == rdma.Ethernet && p.State == rdma.Active && p.GIDs.Known && p.GIDs.Routable == 0
		})
	})
	if lacking == "" {
		return nil
	}
	return nicCheck("nic.addresses", Warn, "no address by which other machines are reached (GID): "+lacking, "give the network device an IP address: `ip address add ADDRESS dev NAME`")
}

// drivers tells of modules that the host cannot load itself: they came from a container.
func (n nicDoctor) drivers() (checks []Check) {
	var told []string
	for i := range n.cards.Adapters {
		a := &n.cards.Adapters[i]
		why := n.elsewhere(a.Module)
		if why == "" || slices.Contains(told, a.Module) {
			continue
		}
		told = append(told, a.Module)
		found := fmt.Sprintf("the driver %s of %s lives only in a container: %s. When that ends, so do the cards", plainName(a.Module), plainName(a.Name), why)
		if route := n.route(a.Module); route != "" {
			found += ", and the host is off the network, whose default route goes through " + plainName(route)
		}
		checks = append(checks, nicCheck("nic.driver", Warn, found, "install the driver on the host, or have the host's own network on a card with a driver of its kernel")...)
	}
	return checks
}

// elsewhere is why a loaded module is not the host's own, "" where it is or that is not known.
func (n nicDoctor) elsewhere(module string) string {
	m, known := n.host.Modules[module]
	switch {
	case !known || !m.Loaded || m.Builtin || !n.host.ModulesKnown:
		return ""
	case !m.Available || m.File == "":
		return "the host has no file of the module"
	case m.Foreign && strings.HasPrefix(m.File, "kernel/"):
		return "the loaded module was not made with the kernel, and the host's file " + path.Base(m.File) + " was"
	}
	return ""
}

// route is the network device of the host's default route, if its card has that module.
func (n nicDoctor) route(module string) string {
	for i := range n.cards.Adapters {
		for _, use := range n.cards.Adapters[i].Uses {
			if n.cards.Adapters[i].Module == module && use.Kind == "route" {
				return use.Name
			}
		}
	}
	return ""
}

func (n nicDoctor) infiniBand() (checks []Check) {
	fabric := n.which(func(a *rdma.Adapter) bool { return a.Link() == rdma.InfiniBand })
	if fabric == "" {
		return nil
	}
	checks = nicCheck("nic.infiniband", OK, "InfiniBand: "+fabric+": macvlan and ipvlan do not work there; ipoib-cni attaches shared cards, and ib-sriov-cni virtual functions", "")
	if lacking := n.which(func(a *rdma.Adapter) bool { return a.Virtual() && a.Link() == rdma.InfiniBand && a.NoGUID }); lacking != "" {
		checks = append(checks, nicCheck("nic.guid", Warn, "functions without a GUID, which get no address of the fabric: "+lacking,
			"`ip link set CARD vf NUMBER node_guid GUID` and `port_guid GUID`, or ib-sriov-cni, which sets them")...)
	}
	return checks
}

// The first kernel whose verbs take dma-buf (Linux 5.12, ib_umem_dmabuf_get).
const dmabufMajor, dmabufMinor = 5, 12

// direct tells whether a card can reach GPU memory by itself. A machine without NVIDIA's driver has none of it.
func (n nicDoctor) direct() []Check {
	switch {
	case n.cards.Driver == "":
		return nil
	case n.cards.Peers:
		return nicCheck("nic.direct", OK, "GPUDirect RDMA is possible by nvidia_peermem", "")
	case n.cards.OpenModule && newer(n.host.Kernel, dmabufMajor, dmabufMinor):
		return nicCheck("nic.direct", OK, "GPUDirect RDMA is possible by dma-buf, where the card's driver takes it", "")
	}
	return nicCheck("nic.direct", Warn, "GPUDirect RDMA is not possible: neither nvidia_peermem is loaded, nor has NVIDIA's driver open kernel modules on Linux 5.12 or later. Data between GPU and card goes through the host's memory",
		"`modprobe nvidia_peermem`, or NVIDIA's open kernel modules")
}

// newer reports whether a kernel's release is a version or a later one.
func newer(release string, major, minor int) bool {
	first, rest, _ := strings.Cut(release, ".")
	second, _, _ := strings.Cut(rest, ".")
	second, _, _ = strings.Cut(second, "-")
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(second)
	return errA == nil && errB == nil && (a > major || a == major && b >= minor)
}
