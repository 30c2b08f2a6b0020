package simgpu

import (
	"os"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/topology"
)

// The tree says of every machine what its file says, to those who read the trees of real machines.
func TestSysfs(t *testing.T) {
	for name, want := range map[string][2]topology.Kind{ // between GPUs 0 and 1, and the first and the last
		"a800x8": {topology.PIX, topology.SYS},
		"h100x8": {topology.NODE, topology.SYS},
	} {
		m, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		host := built(t, m)
		last := len(host.GPUs) - 1
		got := [2]topology.Kind{host.Between(host.GPUs[0].Device, host.GPUs[1].Device).Kind, host.Between(host.GPUs[0].Device, host.GPUs[last].Device).Kind}
		if got != want {
			t.Errorf("%s: GPUs are %v apart, want %v", name, got, want)
		}
		if len(host.NICs) != len(m.NICs) {
			t.Errorf("%s: %d of %d NICs", name, len(host.NICs), len(m.NICs))
		}
	}
	for _, name := range []string{"a100-80g", "t4", "h100x8", "a800x8"} {
		m, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		host := built(t, m)
		for i, gpu := range host.GPUs {
			_, bridge, node := m.place(m.GPUs[i].Switch, m.GPUs[i].HostBridge, m.GPUs[i].NUMANode)
			if gpu.Device.HostBridge != bridge || gpu.Device.NUMANode != int(node) || gpu.Device.Vendor != 0x10de || gpu.Device.Class != 0x030200 {
				t.Errorf("%s: GPU %d is %+v", name, i, gpu.Device)
			}
		}
		if len(host.Nodes) != len(m.NUMANodes) {
			t.Errorf("%s: NUMA nodes %v", name, host.Nodes)
		}
	}
}

func built(t *testing.T, m *Machine) *topology.Host {
	t.Helper()
	dir := t.TempDir()
	if err := m.sysfs().write(dir); err != nil {
		t.Fatal(err)
	}
	var infos []topology.GPUInfo
	for i, at := range m.GPUs {
		address, err := pci.ParseAddress(at.PCI)
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, topology.GPUInfo{Index: i, PCI: address})
	}
	host, err := topology.Build(os.DirFS(dir), infos)
	if err != nil {
		t.Fatalf("%s: %v", m.Name, err)
	}
	return host
}
