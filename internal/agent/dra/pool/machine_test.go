package pool

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/topology"
)

// machine describes the GPUs of a simulated machine as its agent would, with UUIDs that show the index.
func machine(t *testing.T, name string) []GPU {
	t.Helper()
	m, err := simgpu.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	major, minor, _ := strings.Cut(m.Driver.CUDA, ".")
	cuda, err := strconv.Atoi(major)
	if err != nil {
		t.Fatal(err)
	}
	tenth, err := strconv.Atoi(minor)
	if err != nil {
		t.Fatal(err)
	}
	host := hostOf(t, m)
	locations := Locations(host)
	var gpus []GPU
	for _, placed := range host.GPUs {
		location := locations[placed.UUID]
		gpus = append(gpus, GPU{
			UUID: placed.UUID, Index: placed.Index, Model: m.GPU.Name, Architecture: m.GPU.Architecture,
			Memory: uint64(m.GPU.Memory - m.GPU.Reserved), DriverVersion: m.Driver.Version, CUDA: cuda*1000 + tenth*10, Location: &location,
		})
	}
	return gpus
}

// hostOf locations the GPUs as sysfs would: below a switch there are a root port, its upstream and a downstream port.
func hostOf(t *testing.T, m *simgpu.Machine) *topology.Host {
	t.Helper()
	address := func(text string) pci.Address {
		parsed, err := pci.ParseAddress(text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	host := &topology.Host{}
	for i := range m.NUMANodes {
		host.Nodes = append(host.Nodes, topology.Node{Number: i})
	}
	for i, at := range m.GPUs {
		device := pci.Device{Address: address(at.PCI), HostBridge: at.HostBridge, NUMANode: int(at.NUMANode), Bridges: []pci.Address{{Bus: 0xff}}}
		for _, s := range m.Switches {
			if s.PCI == at.Switch {
				device.HostBridge, device.NUMANode = s.HostBridge, int(s.NUMANode)
				device.Bridges = []pci.Address{{Bus: 0xff}, address(s.PCI), {Bus: 0xfe}}
			}
		}
		gpu := topology.GPU{Index: i, UUID: uuidOf(i), Name: m.GPU.Name, Device: device}
		for link := range m.NVLink.Links {
			gpu.Links = append(gpu.Links, topology.Link{Number: int(link), Switch: true})
		}
		host.GPUs = append(host.GPUs, gpu)
	}
	return host
}

func uuidOf(i int) string {
	return fmt.Sprintf("GPU-%08x-2222-4333-8444-555555555555", i)
}
