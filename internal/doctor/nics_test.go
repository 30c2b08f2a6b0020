package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/rdma"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// sound is a host with one card of Ethernet, on which nothing is wrong.
func sound() (*facts.Host, *rdma.Host) {
	host := &facts.Host{Kernel: "6.12.1-amd64", ModulesKnown: true, Modules: map[string]facts.Module{
		"mlx5_core": {Loaded: true, Available: true, File: "updates/dkms/mlx5_core.ko.xz", Foreign: true},
	}}
	cards := &rdma.Host{Mode: rdma.ModeShared, Limits: facts.Yes, Locked: facts.Unlimited, Driver: "550.54.15", OpenModule: true}
	cards.Adapters = []rdma.Adapter{{
		Name: "mlx5_0", OnPCI: true, Driver: "mlx5_core", Module: "mlx5_core", Verbs: &rdma.Node{Name: "uverbs0"},
		Ports: []rdma.Port{{Number: 1, Link: rdma.Ethernet, State: rdma.Active, GIDs: rdma.GIDs{Known: true, Any: 2, Routable: 1}}},
	}}
	return host, cards
}

func function(a rdma.Adapter) rdma.Adapter {
	a.Name, a.PCI, a.NoGUID = "mlx5_1", pci.Device{Virtual: true}, true
	a.Ports = []rdma.Port{{Number: 1, Link: rdma.InfiniBand, State: rdma.Active}}
	return a
}

// Each fault is told by its id and nothing else is; a card on InfiniBand, and how GPU memory is reached, are told where all is well.
func TestNICChecks(t *testing.T) {
	for name, test := range map[string]struct {
		change func(host *facts.Host, cards *rdma.Host)
		id     ID
		status Status
		found  string
	}{
		"nothing":             {func(*facts.Host, *rdma.Host) {}, "nic.direct", OK, "by dma-buf"},
		"peers":               {func(_ *facts.Host, c *rdma.Host) { c.Peers = true }, "nic.direct", OK, "by nvidia_peermem"},
		"an old kernel":       {func(h *facts.Host, _ *rdma.Host) { h.Kernel = "5.11.22" }, "nic.direct", Warn, "not possible"},
		"closed modules":      {func(_ *facts.Host, c *rdma.Host) { c.OpenModule = false }, "nic.direct", Warn, "not possible"},
		"one namespace each":  {func(_ *facts.Host, c *rdma.Host) { c.Mode, c.Driver = rdma.ModeExclusive, "" }, "nic.namespaces", Warn, "netns_mode"},
		"little memory":       {func(_ *facts.Host, c *rdma.Host) { c.Locked, c.Driver = 8<<20, "" }, "nic.memory-lock", Warn, "8192 KiB"},
		"no controller":       {func(_ *facts.Host, c *rdma.Host) { c.Limits, c.Driver = facts.No, "" }, "nic.limits", Warn, "no cgroup controller rdma"},
		"no address":          {func(_ *facts.Host, c *rdma.Host) { c.Adapters[0].Ports[0].GIDs.Routable, c.Driver = 0, "" }, "nic.addresses", Warn, "mlx5_0"},
		"no node":             {func(_ *facts.Host, c *rdma.Host) { c.Adapters[0].Verbs, c.Driver = nil, "" }, "nic.unfit", Warn, "uverbs"},
		"no port":             {func(_ *facts.Host, c *rdma.Host) { c.Adapters[0].Ports, c.Driver = nil, "" }, "nic.unfit", Warn, "no port"},
		"a name of two lines": {func(_ *facts.Host, c *rdma.Host) { c.Adapters[0].Name, c.Driver = "a b\nc", "" }, "nic.unfit", Warn, `"a b\nc"`},
		"no file of the module": {func(h *facts.Host, c *rdma.Host) {
			h.Modules["mlx5_core"] = facts.Module{Loaded: true, Foreign: true}
			c.Driver = ""
		}, "nic.driver", Warn, "the driver mlx5_core of mlx5_0 lives only in a container"},
		"another file of it": {func(h *facts.Host, c *rdma.Host) {
			h.Modules["mlx5_core"] = facts.Module{Loaded: true, Available: true, Foreign: true, File: "kernel/net/mlx5_core.ko"}
			c.Driver, c.Adapters[0].Uses = "", []facts.Use{{Kind: "route", Name: "ens1"}}
		}, "nic.driver", Warn, "the host is off the network, whose default route goes through ens1"},
	} {
		host, cards := sound()
		test.change(host, cards)
		checks := nicChecks(host, cards, nil)
		if len(checks) != 1 || checks[0].ID != test.id || checks[0].Status != test.status || !strings.Contains(checks[0].Found, test.found) || (test.status != OK) != (checks[0].Next != "") {
			t.Errorf("%s: %+v, want %s %q", name, checks, test.id, test.found)
		}
		if strings.Contains(checks[0].Found, "\n") {
			t.Errorf("%s: %q has several lines", name, checks[0].Found)
		}
	}
	host, cards := sound()
	cards.Driver, cards.Adapters = "", append(cards.Adapters, function(cards.Adapters[0]))
	checks := nicChecks(host, cards, nil)
	if len(checks) != 2 || checks[0].ID != "nic.infiniband" || checks[0].Status != OK || !strings.Contains(checks[0].Found, "mlx5_1: macvlan and ipvlan do not work there; ipoib-cni") ||
		checks[1].ID != "nic.guid" || !strings.Contains(checks[1].Next, "ib-sriov-cni") {
		t.Errorf("on InfiniBand: %+v", checks)
	}
	cards.Adapters = nil
	if checks := nicChecks(host, cards, nil); checks != nil {
		t.Errorf("without cards: %+v", checks)
	}
}

// Adapters on which containers had limits are named, and no others.
func TestLimitsLeft(t *testing.T) {
	host, cards := sound()
	cards.Driver, cards.Adapters = "", append(cards.Adapters, cards.Adapters[0], cards.Adapters[0])
	for i, name := range []string{"mlx5_0", "mlx5_1", "rxe0"} {
		cards.Adapters[i].Name, cards.Adapters[i].PCI.Address = name, pci.Address{Bus: uint8(i)}
	}
	cards.Adapters[2].OnPCI, cards.Adapters[2].PCI = false, pci.Device{}
	checks := nicChecks(host, cards, []pci.Address{{Bus: 1}, {Bus: 7}})
	if len(checks) != 1 || checks[0].ID != "nic.limits-left" || checks[0].Status != Warn || !strings.Contains(checks[0].Found, "limits on mlx5_1.") || !strings.Contains(checks[0].Next, "restart the host") {
		t.Errorf("%+v", checks)
	}
	if checks := nicChecks(host, cards, []pci.Address{{Bus: 7}}); len(checks) > 0 {
		t.Errorf("of a card that is gone: %+v", checks)
	}
}

// A driver is not called foreign where the host's modules are not known, it is built in, or it is in the host's folder.
func TestDriversThatAreTheHosts(t *testing.T) {
	for name, change := range map[string]func(h *facts.Host){
		"modules that cannot be read": func(h *facts.Host) {
			h.ModulesKnown, h.Modules["mlx5_core"] = false, facts.Module{Loaded: true, Foreign: true}
		},
		"built in": func(h *facts.Host) { h.Modules["mlx5_core"] = facts.Module{Loaded: true, Builtin: true} },
		"the kernel's": func(h *facts.Host) {
			h.Modules["mlx5_core"] = facts.Module{Loaded: true, Available: true, File: "kernel/mlx5_core.ko"}
		},
		"not of interest": func(h *facts.Host) { delete(h.Modules, "mlx5_core") },
	} {
		host, cards := sound()
		cards.Driver = ""
		change(host)
		if checks := nicChecks(host, cards, nil); len(checks) > 0 {
			t.Errorf("%s: %+v", name, checks)
		}
	}
}

func TestNewer(t *testing.T) {
	for release, want := range map[string]bool{"5.12.0": true, "5.11.22": false, "6.1": true, "5.12-rc1": true, "4.18.0-553.el8": false, "": false, "x.y": false} {
		if got := newer(release, 5, 12); got != want {
			t.Errorf("%q: %v", release, got)
		}
	}
}

// A device that somebody holds while its driver is to be changed keeps readers of its files asleep. Doctor goes on without it.
func TestNICsBesideAStuckDevice(t *testing.T) {
	root := t.TempDir()
	device := filepath.Join(root, "sys/devices/pci0000:00/0000:00:05.0")
	stuck := filepath.Join(device, "driver_override")
	if err := errors.Join(
		os.MkdirAll(device, 0o755), os.MkdirAll(filepath.Join(root, "sys/class/infiniband/mlx5_0"), 0o755), os.MkdirAll(filepath.Join(root, "sys/bus/pci/devices"), 0o755),
		os.WriteFile(filepath.Join(device, "class"), []byte("0x030200\n"), 0o600),
		os.WriteFile(filepath.Join(device, "vendor"), []byte("0x10de\n"), 0o600), os.WriteFile(filepath.Join(device, "device"), []byte("0x20b5\n"), 0o600), syscall.Mkfifo(stuck, 0o600),
		os.Symlink("../../../devices/pci0000:00/0000:00:05.0", filepath.Join(root, "sys/bus/pci/devices/0000:00:05.0")),
	); err != nil {
		t.Fatal(err)
	}
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		Host{Root: root}.nics()
	}()
	select {
	case <-looked:
	case <-time.After(30 * time.Second):
		t.Error("doctor sleeps with the device")
	}
	end, err := os.OpenFile(stuck, os.O_RDWR, 0) // whoever reads it wakes up
	if err != nil {
		t.Fatal(err)
	}
	if err := end.Close(); err != nil {
		t.Fatal(err)
	}
	<-looked
}
