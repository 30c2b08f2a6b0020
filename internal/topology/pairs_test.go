package topology_test

import (
	"fmt"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/topology"
)

func TestPairsOfRecordedHosts(t *testing.T) {
	for name, want := range map[string]string{"a800x8": "8 8, 8 8, 8 8", "h100x8": "8 8, 8 8, 8 8"} {
		host := recorded(t, name)
		if got := most(host.Pairs()); got != want {
			t.Errorf("%s has %s pairs, want %s", name, got, want)
		}
	}
}

func most(pairs topology.Pairs) string {
	text := ""
	for reach := range topology.Reach(topology.Reaches) {
		gpus, own := pairs.Most(reach)
		text += fmt.Sprintf(", %d %d", gpus, own)
	}
	return text[2:]
}

// Two GPUs share the one card of their switch; a third has one of its socket, and gets it though the first could have it too.
func TestPairsShareCards(t *testing.T) {
	at := func(bus uint8, bridge string, node int, ports ...uint8) pci.Device {
		d := pci.Device{Address: pci.Address{Bus: bus}, HostBridge: bridge, NUMANode: node}
		for _, p := range ports {
			d.Bridges = append(d.Bridges, pci.Address{Bus: p})
		}
		return d
	}
	host := &topology.Host{
		Nodes: []topology.Node{{Number: 0}, {Number: 1}},
		GPUs: []topology.GPU{
			{Index: 0, Device: at(1, "a", 0, 0x80, 0x81, 0x82)}, {Index: 1, Device: at(2, "a", 0, 0x80, 0x81, 0x83)},
			{Index: 2, Device: at(3, "b", 0)}, {Index: 3, Device: at(4, "c", 1)},
		},
		NICs: []topology.NIC{{Name: "x", Device: at(9, "a", 0, 0x80, 0x81, 0x84)}, {Name: "y", Device: at(10, "d", 0)}},
	}
	if got := most(host.Pairs()); got != "2 1, 2 1, 3 2" {
		t.Errorf("pairs are %s", got)
	}
}
