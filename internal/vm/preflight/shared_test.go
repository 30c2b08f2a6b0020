package preflight

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// Where the host uses the card itself no other slot is advised, and no override of what ports keep apart. Beside another card both are.
func TestUsedCardItself(t *testing.T) {
	for used, helps := range map[string]bool{gpuAt: false, audioAt: false, diskAt: true} {
		for kind, want := range map[string]string{"route": "lead through another network card", "disk": "move what the host uses"} {
			h := sound()
			find(h, diskAt).Group = 2
			find(h, used).Uses = []facts.Use{{Kind: kind, Name: "x", At: "/"}}
			f := Judge(h, []facts.Device{*find(h, gpuAt)}, Question{For: QEMU})[0]
			advised := strings.Contains(f.Remedy, "pcie_acs_override") && strings.Contains(f.Remedy, "to another slot")
			if f.ID != "group.used" || advised != helps || !helps && !strings.Contains(f.Remedy, want) {
				t.Errorf("%s, %s: %+v", used, kind, f)
			}
		}
	}
}

// The claim that is advised for a group with other cards names each of them once, and is not refused. What has a group with others and cannot
// take them along is told so.
func TestSharedGroup(t *testing.T) {
	h := sound()
	h.Modules["vfio_pci"] = facts.Module{Loaded: true, Available: true}
	find(h, diskAt).Group = 2
	second := *find(h, diskAt)
	second.Address.Function = 1
	card := second
	card.Address, card.Driver = at("0000:03:00.0"), "mlx5_core"
	h.Devices = append(h.Devices, second, card)
	found := Judge(h, []facts.Device{*find(h, gpuAt)}, Question{For: QEMU})[0]
	_, claim, _ := strings.Cut(found.Remedy, "`")
	claim, _, _ = strings.Cut(claim, "`")
	if found.ID != "group.shared" || claim != "divvy vm claim --pci 0000:01:00.0 --form passthrough --also 0000:02:00.0 --also 0000:03:00.0" {
		t.Fatalf("%+v", found)
	}
	var also []pci.Address
	for _, text := range strings.Split(claim, " --also ")[1:] {
		also = append(also, at(text))
	}
	if plan, err := binding.Passthrough(h, at(gpuAt), also...); err != nil || len(plan.Members) != 5 {
		t.Errorf("%v, %v", plan.Members, err)
	}
	if _, err := binding.Passthrough(h, at(gpuAt)); err == nil || !strings.Contains(err.Error(), "--also 0000:02:00.0") {
		t.Errorf("%v", err)
	}
	h = withFunction(nil)
	find(h, vfAt).Group, find(h, diskAt).Group = 8, 8
	if f := Judge(h, []facts.Device{*find(h, vfAt)}, Question{For: QEMU})[0]; f.ID != "group.shared" || strings.Contains(f.Remedy, "--also") {
		t.Errorf("a virtual function: %+v", f)
	}
	h = withFunction(nil)
	find(h, vfAt).Group, find(h, gpuAt).Driver = 2, "nvidia"
	if f := Judge(h, []facts.Device{*find(h, vfAt)}, Question{For: QEMU})[0]; f.ID != "group.shared" {
		t.Errorf("in the group of its card: %+v", f)
	}
}

// One of anything is told in the singular.
func TestOne(t *testing.T) {
	for _, one := range []int{1, 2} {
		h := sound()
		find(h, gpuAt).VFs, find(h, gpuAt).VFsTotal = one, 16
		find(h, audioAt).Instances = one
		addSwitch(h)
		if one == 2 {
			addSwitch(h)
		}
		said := ""
		for _, f := range Judge(h, []facts.Device{*find(h, gpuAt)}, Question{For: QEMU}) {
			said += f.Evidence + "\n"
		}
		_, err := binding.Passthrough(func() *facts.Host { h.Modules["vfio_pci"] = facts.Module{Loaded: true}; return h }(), at(gpuAt))
		for _, things := range [][2]string{{" 1 virtual function,", " 2 virtual functions,"}, {" 1 MIG instance\n", " 2 MIG instances\n"}, {" 1 NVSwitch,", " 2 NVSwitches,"}} {
			if !strings.Contains(said, things[one-1]) {
				t.Errorf("there is no %q in\n%s", things[one-1], said)
			}
		}
		if want := []string{"it has 1 virtual function", "it has 2 virtual functions"}[one-1]; err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// What is not seen is told with root once.
func TestUnseenOnce(t *testing.T) {
	h := sound()
	h.Blind = []string{"the open files of 1 process may not be read"}
	for _, f := range Judge(h, []facts.Device{*find(h, gpuAt)}, Question{For: QEMU}) {
		if f.ID == "unseen" && (strings.Contains(f.Evidence, "root") || !strings.Contains(f.Remedy, "root of the machine itself")) {
			t.Errorf("%+v", f)
		}
	}
}
