package simgpu

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
)

// Sysfs is the instance's stand-in for /sys.
func (i *Instance) Sysfs() string { return simfiles.Sysfs(i.Dir) }

// sysfs is a tree to be made: files with their content, and symbolic links.
type sysfs struct {
	machine *Machine
	files   map[string]string
	links   map[string]string
	// ports are the bridges that were made up, by the place that they lead to; taken are all addresses in use.
	ports map[string]string
	taken map[string]bool
}

// The class codes of what hangs in the tree.
const (
	classBridge = "0x060400"
	classGPU    = "0x030200"
	classNIC    = "0x020700"
)

// sysfs works out the tree. Above every switch there is a root port, and below it a port for each device, as there are
// in machines; their addresses are made up.
func (m *Machine) sysfs() *sysfs {
	s := &sysfs{machine: m, files: map[string]string{}, links: map[string]string{}, ports: map[string]string{}, taken: map[string]bool{}}
	for _, at := range m.Switches {
		s.taken[at.PCI] = true
	}
	for _, at := range m.GPUs {
		s.taken[at.PCI] = true
	}
	for _, at := range m.NICs {
		s.taken[at.PCI] = true
	}
	for number, node := range m.NUMANodes {
		s.files[fmt.Sprintf("devices/system/node/node%d/cpulist", number)] = node.CPUs
	}
	for _, at := range m.GPUs {
		s.device(at, classGPU, m.GPU.DeviceID, m.GPU.SubsystemID)
	}
	for i, nic := range m.NICs {
		folder := s.device(GPU{PCI: nic.PCI, Switch: nic.Switch, HostBridge: nic.HostBridge, NUMANode: nic.NUMANode}, classNIC, "0x102115b3", "0x002315b3")
		s.adapter(folder+"/infiniband/"+nic.Name, nic.Name, i)
	}
	return s
}

// nothing is the number of /dev/null. Containers get the nodes of adapters by their numbers, and the machine that simulates
// another one may have adapters of its own, of which nobody may get one by that.
const nothing = "1:3"

// adapter adds the RDMA adapter of a card in a folder.
func (s *sysfs) adapter(folder, name string, number int) {
	s.links["class/infiniband/"+name] = "../../" + folder
	for file, content := range map[string]string{
		"node_guid": fmt.Sprintf("5e00:0000:0000:%04x", number), "ports/1/rate": "200 Gb/sec (4X HDR)", "ports/1/state": "4: ACTIVE",
		"ports/1/link_layer": "InfiniBand",
	} {
		s.files[folder+"/"+file] = content
	}
	verbs := fmt.Sprintf("class/infiniband_verbs/uverbs%d/", number)
	s.files[verbs+"ibdev"], s.files[verbs+"dev"] = name, nothing
	s.files["class/misc/rdma_cm/dev"] = nothing
	s.files["fs/cgroup/cgroup.controllers"] = "cpu memory" // none limits an adapter that nobody has
}

// device adds a device with all that is above it, and returns its folder.
func (s *sysfs) device(at GPU, class, id, subsystem string) string {
	place, bridge, node := s.machine.place(at.Switch, at.HostBridge, at.NUMANode)
	folder := "devices/" + bridge
	if place >= 0 {
		upstream := s.machine.Switches[place].PCI
		folder = s.port(folder, upstream, rootBus(bridge), node)
		folder = s.add(folder, upstream, classBridge, "", "", node)
		folder = s.port(folder, at.PCI, nextBus(upstream), node)
	} else if busOf(at.PCI) != rootBus(bridge) {
		folder = s.port(folder, at.PCI, rootBus(bridge), node)
	}
	return s.add(folder, at.PCI, class, id, subsystem, node)
}

// port adds the bridge that leads to an address, once, on a bus.
func (s *sysfs) port(folder, to, bus string, node uint32) string {
	if s.ports[to] == "" {
		for number := 1; ; number++ {
			address := fmt.Sprintf("%s:%02x.%x", bus, number%32, number/32)
			if !s.taken[address] {
				s.taken[address], s.ports[to] = true, address
				break
			}
		}
	}
	return s.add(folder, s.ports[to], classBridge, "", "", node)
}

func (s *sysfs) add(folder, address, class, id, subsystem string, node uint32) string {
	folder = path.Join(folder, address)
	s.links["bus/pci/devices/"+address] = "../../../" + folder
	s.files[folder+"/class"] = class
	// NVML's form has the device in the high half and the vendor in the low; bridges are nobody's in particular.
	vendor, device := "0x8086", "0x0000"
	if len(id) == len("0x20f310de") {
		vendor, device = "0x"+id[6:], id[:6]
	}
	s.files[folder+"/vendor"], s.files[folder+"/device"] = vendor, device
	if len(subsystem) == len("0x20f310de") {
		s.files[folder+"/subsystem_vendor"], s.files[folder+"/subsystem_device"] = "0x"+subsystem[6:], subsystem[:6]
	}
	s.files[folder+"/numa_node"] = fmt.Sprint(node)
	if int(node) < len(s.machine.NUMANodes) {
		s.files[folder+"/local_cpulist"] = s.machine.NUMANodes[node].CPUs
	}
	if class == classGPU {
		s.files[folder+"/max_link_width"] = fmt.Sprint(s.machine.GPU.PCIe.Width)
		s.files[folder+"/max_link_speed"] = linkSpeeds[s.machine.GPU.PCIe.Generation]
	}
	return folder
}

// makeDevices makes the stand-ins of the device nodes. As on a machine with a driver,
// everybody may open them; what a job may not use is taken from it by a mount, which
// holds for root as a cgroup does, or by the files' modes.
func (m *Machine) makeDevices(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make simulated devices: %w", err)
	}
	for minor := range m.GPUs {
		path := filepath.Join(dir, fmt.Sprintf("nvidia%d", minor))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return fmt.Errorf("make simulated devices: %w", err)
		}
		if err := os.Chmod(path, 0o666); err != nil { // whatever the umask is
			return fmt.Errorf("make simulated devices: %w", err)
		}
	}
	return nil
}

// linkSpeeds are what the kernel prints of a link's generation.
var linkSpeeds = map[uint32]string{
	3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe", 6: "64.0 GT/s PCIe",
}

// rootBus is 0000:3a of pci0000:3a.
func rootBus(hostBridge string) string { return strings.TrimPrefix(hostBridge, "pci") }

// busOf is 0000:3b of 0000:3b:00.0.
func busOf(address string) string { return address[:strings.LastIndex(address, ":")] }

// nextBus is the bus on which the downstream ports of a switch are: the one after its own.
func nextBus(upstream string) string {
	domain, bus, _ := strings.Cut(busOf(upstream), ":")
	return fmt.Sprintf("%s:%02x", domain, hexadecimal(bus)+1)
}

// write makes the tree below a directory. Everybody may read it.
func (s *sysfs) write(dir string) error {
	for name, content := range s.files {
		if err := makeParent(filepath.Join(dir, name)); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o644); err != nil {
			return fmt.Errorf("write simulated sysfs: %w", err)
		}
	}
	for name, target := range s.links {
		if err := makeParent(filepath.Join(dir, name)); err != nil {
			return err
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("write simulated sysfs: %w", err)
		}
	}
	return nil
}

func makeParent(name string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("write simulated sysfs: %w", err)
	}
	return nil
}
