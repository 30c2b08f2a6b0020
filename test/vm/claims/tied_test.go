package claims

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// A card without an address is given to nobody while a macvlan device of the host lies on it, or a container's.
func TestMacvlan(t *testing.T) {
	guest.Require(t)
	card := guest.Function(machine.RootedCard)
	dev := card.Netdev(t)
	guest.Run(t, "ip", "link", "set", dev, "up")
	t.Run("of the host", func(t *testing.T) {
		guest.Run(t, "ip", "link", "add", "mac0", "link", dev, "type", "macvlan", "mode", "bridge")
		t.Cleanup(func() { _ = exec.Command("ip", "link", "delete", "mac0").Run() })
		refused(t, card, "passthrough", "network device mac0 lies on "+dev)
	})
	t.Run("of a container", func(t *testing.T) {
		guest.Namespace(t, "pod")
		guest.Run(t, "ip", "link", "add", "mac1", "link", dev, "type", "macvlan", "mode", "bridge")
		guest.Run(t, "ip", "link", "set", "mac1", "netns", "pod")
		guest.Run(t, guest.In("pod", "ip", "address", "add", "10.9.8.1/24", "dev", "mac1")...)
		guest.Run(t, guest.In("pod", "ip", "link", "set", "mac1", "up")...)
		refused(t, card, "passthrough", "network device "+dev+" has another one on it in another network namespace")
	})
}

// A function is given to nobody while a container has its network device, and it is given afterwards.
func TestMovedNetdev(t *testing.T) {
	guest.Require(t)
	const moved = "its network device is in another network namespace"
	card := guest.Function(machine.RootedCard)
	if err := card.Write("sriov_numvfs", "2"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = card.Write("sriov_numvfs", "0") })
	virtual := card.Virtual()[0]
	has := func(f guest.Function) func() bool {
		return func() bool { found, _ := filepath.Glob(f.Path("net/*")); return len(found) == 1 }
	}
	guest.WaitFor(t, "the virtual function's network device", has(virtual))
	for _, test := range []struct {
		form   string
		device guest.Function
	}{{"vf", virtual}, {"passthrough", card}} {
		t.Run(test.form, func(t *testing.T) {
			if test.device == card {
				if err := card.Write("sriov_numvfs", "0"); err != nil {
					t.Fatal(err)
				}
			}
			dev := test.device.Netdev(t)
			guest.Namespace(t, "pod")
			guest.Run(t, "ip", "link", "set", dev, "netns", "pod")
			refused(t, test.device, test.form, moved)
			guest.Run(t, guest.In("pod", "ip", "link", "set", dev, "netns", "1")...)
			guest.WaitFor(t, "the network device's return", has(test.device))
			if _, err := settled("vm", "claim", "back", "--pci", string(test.device), "--form", test.form); err != nil {
				t.Error(err)
			}
			if _, err := settled("vm", "release", "back"); err != nil {
				t.Error(err)
			}
		})
	}
}
