package suite

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

func TestFunctions(t *testing.T) {
	guest.Require(t)
	for _, want := range []struct {
		function              guest.Function
		id, class, driver     string
		node                  string
		totalVirtualFunctions string
	}{
		{machine.SwitchedNVMe, "0x1b36:0x0010", "0x010802", "nvme", "0", "2"},
		{machine.SwitchedCard, "0x8086:0x10c9", "0x020000", "igb", "0", "7"},
		{machine.RootedNVMe, "0x1b36:0x0010", "0x010802", "nvme", "1", "2"},
		{machine.RootedCard, "0x8086:0x10c9", "0x020000", "igb", "1", "7"},
		{machine.Accelerator, "0x1234:0x11e8", "0x00ff00", "", "1", ""},
		{machine.Companion, "0x1b36:0x000d", "0x0c0330", "", "1", ""},
	} {
		f := want.function
		got := []string{f.Read("vendor") + ":" + f.Read("device"), f.Read("class"), f.Driver(), f.Read("numa_node"), f.Read("sriov_totalvfs")}
		if want := []string{want.id, want.class, want.driver, want.node, want.totalVirtualFunctions}; !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", f, got, want)
		}
	}
}

func TestGroups(t *testing.T) {
	guest.Require(t)
	for _, card := range []guest.Function{machine.RootedNVMe, machine.RootedCard} {
		for _, virtual := range card.Enable(t, 2) {
			if members := virtual.Members(); !slices.Equal(members, []guest.Function{virtual}) {
				t.Errorf("on a root port the group of %s has %v, want itself alone", virtual, members)
			}
		}
		if members := card.Members(); !slices.Equal(members, []guest.Function{card}) {
			t.Errorf("on a root port the group of %s has %v, want itself alone", card, members)
		}
	}
	nvme, card := guest.Function(machine.SwitchedNVMe), guest.Function(machine.SwitchedCard)
	members := nvme.Members()
	for _, f := range slices.Concat([]guest.Function{nvme, card}, nvme.Enable(t, 2), card.Enable(t, 2)) {
		members = nvme.Members()
		if !slices.Contains(members, f) {
			t.Errorf("behind the switch %s is not in the group %v", f, members)
		}
	}
	// Two ports, two cards, four virtual functions.
	if len(members) != 8 {
		t.Errorf("behind the switch the group has %v, want 8 members", members)
	}
	pair := []guest.Function{machine.Accelerator, machine.Companion}
	if members := pair[0].Members(); !slices.Equal(members, pair) {
		t.Errorf("the group of the accelerator has %v, want %v", members, pair)
	}
}

// The port above tells who has access control: the switch lacks it, a root port has it.
func TestAccessControl(t *testing.T) {
	guest.Require(t)
	for port, want := range map[guest.Function]bool{"0000:42:00.0": false, "0000:42:00.1": false, "0000:80:00.0": true, "0000:40:00.0": true} {
		if has := hasAccessControl(t, port); has != want {
			t.Errorf("%s has ACS: %t, want %t", port, has, want)
		}
	}
}

// hasAccessControl walks the extended capabilities, which begin at byte 256: the identity in 16 bits, and the place of
// the next in the upper 12 of 32.
func hasAccessControl(t *testing.T, f guest.Function) bool {
	t.Helper()
	configuration, err := os.ReadFile(f.Path("config"))
	if err != nil || len(configuration) < 4096 {
		t.Fatalf("read the configuration of %s: %d bytes, %v", f, len(configuration), err)
	}
	for at := 256; at >= 256; {
		if configuration[at] == 0x0d && configuration[at+1] == 0 {
			return true
		}
		at = int(configuration[at+3])<<4 | int(configuration[at+2])>>4
	}
	return false
}

func TestSockets(t *testing.T) {
	guest.Require(t)
	for processor, want := range []string{"0", "1"} {
		socket, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/physical_package_id", processor))
		if err != nil || string(socket) != want+"\n" {
			t.Errorf("processor %d is on socket %q, %v; want %s", processor, socket, err, want)
		}
		if _, err := os.Stat(fmt.Sprintf("/sys/devices/system/node/node%s/cpu%d", want, processor)); err != nil {
			t.Error(err)
		}
	}
}
