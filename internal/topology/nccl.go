package topology

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// The elements and attributes of NCCL's topology file, version 1 (NCCL_TOPO_FILE in NCCL's documentation). NCCL
// names a PCIe switch by its upstream port and merges the host bridges of one NUMA node.
type (
	ncclSystem struct {
		XMLName xml.Name   `xml:"system"`
		Version int        `xml:"version,attr"`
		CPUs    []*ncclCPU `xml:"cpu"`
	}
	ncclCPU struct {
		NUMA     string     `xml:"numaid,attr"`
		Affinity string     `xml:"affinity,attr,omitempty"`
		Arch     string     `xml:"arch,attr"`
		PCI      []*ncclPCI `xml:"pci"`
	}
	ncclPCI struct {
		Bus             string     `xml:"busid,attr"`
		Class           string     `xml:"class,attr"`
		Vendor          string     `xml:"vendor,attr,omitempty"`
		Device          string     `xml:"device,attr,omitempty"`
		SubsystemVendor string     `xml:"subsystem_vendor,attr,omitempty"`
		Subsystem       string     `xml:"subsystem_device,attr,omitempty"`
		LinkSpeed       string     `xml:"link_speed,attr"`
		LinkWidth       int        `xml:"link_width,attr"`
		GPU             *ncclGPU   `xml:"gpu"`
		NIC             *ncclNIC   `xml:"nic"`
		PCI             []*ncclPCI `xml:"pci"`
	}
	ncclGPU struct {
		Dev     int          `xml:"dev,attr"`
		NVLinks []ncclNVLink `xml:"nvlink"`
	}
	ncclNVLink struct {
		Target string `xml:"target,attr"`
		Count  int    `xml:"count,attr"`
		Class  string `xml:"tclass,attr"`
	}
	ncclNIC struct {
		Nets []ncclNet `xml:"net"`
	}
	ncclNet struct {
		Name  string `xml:"name,attr"`
		Dev   int    `xml:"dev,attr"`
		Speed int    `xml:"speed,attr"`
		Port  int    `xml:"port,attr"`
		GUID  string `xml:"guid,attr,omitempty"`
	}
)

const (
	classBridge = "0x060400"
	classGPU    = "0x030200"
	classSwitch = "0x068000" // NVSwitch
)

// PrintNCCL writes NCCL's topology file. The host's processor architecture is given as arch, such as x86_64.
func (h *Host) PrintNCCL(w io.Writer, arch string) error {
	tree := ncclSystem{Version: 1}
	for _, gpu := range h.GPUs {
		place := tree.attach(h, gpu.Device, arch)
		place.GPU = &ncclGPU{Dev: gpu.Index, NVLinks: remotes(gpu)}
	}
	for i, nic := range h.NICs {
		place := tree.attach(h, nic.Device, arch)
		if place.NIC == nil {
			place.NIC = &ncclNIC{}
		}
		place.NIC.Nets = append(place.NIC.Nets, ncclNet{nic.Name, i, nic.SpeedMbps, 1, nic.GUID})
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(tree); err != nil {
		return fmt.Errorf("print NCCL topology: %w", err)
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return fmt.Errorf("print NCCL topology: %w", err)
	}
	return nil
}

// remotes counts a GPU's links by the device at the other end.
func remotes(gpu GPU) []ncclNVLink {
	var found []ncclNVLink
	for _, link := range gpu.Links {
		class := classGPU
		if link.Switch {
			class = classSwitch
		}
		target := link.Remote.String()
		i := slices.IndexFunc(found, func(other ncclNVLink) bool { return other.Target == target })
		if i < 0 {
			found = append(found, ncclNVLink{target, 0, class})
			i = len(found) - 1
		}
		found[i].Count++
	}
	return found
}

// attach finds or adds the path from the processor to a device. Of the ports above a device, every second one
// upwards is a switch's upstream port. The others are the switches' downstream ports and the root port.
func (t *ncclSystem) attach(h *Host, device pci.Device, arch string) *ncclPCI {
	siblings := &t.cpu(h, device.NUMANode, arch).PCI
	for i := len(device.Bridges) % 2; i+1 < len(device.Bridges); i += 2 {
		siblings = &node(siblings, &ncclPCI{
			Bus: device.Bridges[i].String(), Class: classBridge, LinkSpeed: device.LinkSpeed, LinkWidth: device.LinkWidth,
		}).PCI
	}
	return node(siblings, &ncclPCI{
		Bus: device.Address.String(), Class: fmt.Sprintf("0x%06x", device.Class),
		Vendor: hex(device.Vendor), Device: hex(device.ID),
		SubsystemVendor: hex(device.SubsystemVendor), Subsystem: hex(device.Subsystem),
		LinkSpeed: device.LinkSpeed, LinkWidth: device.LinkWidth,
	})
}

func hex(value uint16) string {
	return fmt.Sprintf("0x%04x", value)
}

func node(siblings *[]*ncclPCI, wanted *ncclPCI) *ncclPCI {
	for _, sibling := range *siblings {
		if sibling.Bus == wanted.Bus {
			return sibling
		}
	}
	*siblings = append(*siblings, wanted)
	return wanted
}

func (t *ncclSystem) cpu(h *Host, numa int, arch string) *ncclCPU {
	name := strconv.Itoa(numa)
	for _, cpu := range t.CPUs {
		if cpu.NUMA == name {
			return cpu
		}
	}
	cpu := &ncclCPU{NUMA: name, Arch: arch}
	for _, known := range h.Nodes {
		if known.Number == numa {
			cpu.Affinity = affinityMask(known.CPUs)
		}
	}
	t.CPUs = append(t.CPUs, cpu)
	slices.SortFunc(t.CPUs, func(a, b *ncclCPU) int { return compareNames(a.NUMA, b.NUMA) })
	return cpu
}
