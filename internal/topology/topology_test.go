package topology

import (
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
)

func address(t *testing.T, text string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestBetween(t *testing.T) {
	at := func(text, bridge string, numa int, bridges ...string) pci.Device {
		d := pci.Device{Address: address(t, text), HostBridge: bridge, NUMANode: numa}
		for _, b := range bridges {
			d.Bridges = append(d.Bridges, address(t, b))
		}
		return d
	}
	const root, up, down1, down2 = "0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:02:01.0"
	gpu := at("0000:03:00.0", "pci0000:00", 0, root, up, down1)
	two := []Node{{0, "0-7"}, {1, "8-15"}}
	for name, test := range map[string]struct {
		other pci.Device
		nodes []Node
		want  string
	}{
		"itself":                  {gpu, two, "X"},
		"one switch":              {at("0000:04:00.0", "pci0000:00", 0, root, up, down2), two, "PIX"},
		"same port":               {at("0000:03:00.1", "pci0000:00", 0, root, up, down1), two, "PIX"},
		"two levels of switch":    {at("0000:06:00.0", "pci0000:00", 0, root, up, down2, "0000:04:00.0", "0000:05:00.0"), two, "PXB"},
		"other root port":         {at("0000:07:00.0", "pci0000:00", 0, "0000:00:02.0"), two, "PHB"},
		"on the host bridge":      {at("0000:00:03.0", "pci0000:00", 0), two, "PHB"},
		"other bridge, same node": {at("0000:41:00.0", "pci0000:40", 0, "0000:40:01.0"), two, "NODE"},
		"other node":              {at("0000:81:00.0", "pci0000:80", 1, "0000:80:01.0"), two, "SYS"},
		"unknown node":            {at("10000:e1:00.0", "pci10000:e0", -1, "10000:e0:02.0"), two, "SYS"},
		"unknown node, only one":  {at("10000:e1:00.0", "pci10000:e0", -1, "10000:e0:02.0"), two[:1], "NODE"},
	} {
		t.Run(name, func(t *testing.T) {
			host := &Host{Nodes: test.nodes}
			if got := host.Between(gpu, test.other).String(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if got := host.Between(test.other, gpu).String(); got != test.want {
				t.Errorf("the other way round: got %s, want %s", got, test.want)
			}
		})
	}
	unknown := at("10000:e2:00.0", "pci10001:00", -1)
	other := at("10000:e1:00.0", "pci10000:e0", -1)
	if got := (&Host{Nodes: two}).Between(unknown, other).String(); got != "SYS" {
		t.Errorf("two unknown places: got %s, want SYS", got)
	}
}

func TestNVLinksThroughSwitches(t *testing.T) {
	gpu := func(slot string, links int, clique string) GPU {
		g := GPU{Device: pci.Device{Address: address(t, slot)}, Clique: clique}
		for i := range links {
			g.Links = append(g.Links, Link{Number: i, Remote: address(t, "0000:c0:00.0"), Switch: true})
		}
		return g
	}
	full, less, alone, apart := gpu("0000:01:00.0", 18, "a"), gpu("0000:02:00.0", 17, "a"), gpu("0000:03:00.0", 0, "a"), gpu("0000:04:00.0", 18, "b")
	host := &Host{Nodes: []Node{{0, ""}, {1, ""}}}
	for _, test := range []struct {
		a, b GPU
		want string
	}{{full, full, "X"}, {full, less, "NV17"}, {full, alone, "PHB"}, {full, apart, "PHB"}} {
		if got := host.BetweenGPUs(test.a, test.b).String(); got != test.want {
			t.Errorf("%s to %s: got %s, want %s", test.a.Device.Address, test.b.Device.Address, got, test.want)
		}
	}
}

func TestAffinityMask(t *testing.T) {
	for list, want := range map[string]string{
		"0-15": "0000ffff", "0-31,64-95": "ffffffff,00000000,ffffffff", "0": "00000001", "": "", "a": "", "5-3": "", "0-99999": "",
	} {
		if got := affinityMask(list); got != want {
			t.Errorf("%q: got %q, want %q", list, got, want)
		}
	}
}
