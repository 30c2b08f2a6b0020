package pool

import (
	"os"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/internal/hostfile"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/topology"
)

// recorded is a machine of testdata/hosts.
func recorded(t testing.TB, name string) *topology.Host {
	t.Helper()
	file, err := os.Open("../../../../testdata/hosts/" + name + ".host")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	kept, err := hostfile.Parse(file, name)
	if err != nil {
		t.Fatal(err)
	}
	host, err := kept.Topology()
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// gpusOn are a recorded machine's GPUs with so much memory each.
func gpusOn(host *topology.Host, memory uint64) []GPU {
	locations := Locations(host)
	var gpus []GPU
	for i := range host.GPUs {
		location := locations[host.GPUs[i].UUID]
		gpus = append(gpus, GPU{UUID: host.GPUs[i].UUID, Index: host.GPUs[i].Index, Memory: memory, Location: &location})
	}
	return gpus
}

// cardOf is a card of a recorded machine that so many claims can share.
func cardOf(nic *topology.NIC, rail, slots int) resourcev1.Device {
	location := LocationOf(nic.Device, nil)
	n := NIC{Key: strings.NewReplacer(":", "-", ".", "-").Replace(location.PCI), Adapter: nic.Name, Rail: rail, Slots: slots, Location: &location}
	return n.device()
}

// withCards adds cards to a scheduler's node.
func (s *scheduler) withCards(cards ...resourcev1.Device) *scheduler {
	s.slices[0].Spec.Devices = append(s.slices[0].Spec.Devices, cards...)
	return s
}

// cardsBeside are cards below the host bridges of GPUs, one for each bridge.
func cardsBeside(gpus []GPU) []resourcev1.Device {
	var cards []resourcev1.Device
	for i := 0; i < len(gpus); i += 2 {
		nic := topology.NIC{Name: "mlx5_0", Device: pci.Device{Address: pci.Address{Bus: uint8(0x80 + i)}, HostBridge: gpus[i].Location.Root, NUMANode: gpus[i].Location.NUMANode}}
		cards = append(cards, cardOf(&nic, i/2, 8))
	}
	return cards
}
