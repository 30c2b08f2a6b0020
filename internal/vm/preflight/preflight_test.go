package preflight

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/test/docs"
)

func at(text string) pci.Address {
	address, err := pci.ParseAddress(text)
	if err != nil {
		panic(err) //nolint:forbidigo // a table of tests
	}
	return address
}

const (
	portAt, gpuAt, audioAt, diskAt, usbAt = "0000:00:01.0", "0000:01:00.0", "0000:01:00.1", "0000:02:00.0", "0000:00:14.0"
)

// sound is a host on which nothing is wrong.
func sound() *facts.Host {
	device := func(address string, class uint32, vendor, id uint16, driver string, group int) facts.Device {
		return facts.Device{Device: pci.Device{Address: at(address), Class: class, Vendor: vendor, ID: id}, Driver: driver, Group: group, ResetKnown: true, Resets: []string{"flr"}}
	}
	gpu := device(gpuAt, 0x030000, facts.NVIDIA, 0x2684, "vfio-pci", 2)
	gpu.Bridges = []pci.Address{at(portAt)}
	gpu.BARs = []facts.BAR{{Number: 1, Size: 32 << 30, Memory: true, Wide: true, Placed: true}}
	gpu.Nodes = []string{"vfio/2"}
	port := device(portAt, 0x060400, 0x8086, 0x1234, "pcieport", 1)
	port.Port = &facts.Port{Readable: true, HasACS: true, Apart: true}
	return &facts.Host{
		Kernel: "6.12.0", CPU: facts.CPU{Vendor: "GenuineIntel", Virtualization: facts.Yes, AddressBits: 46}, KVM: facts.Yes,
		IOMMU:   facts.IOMMU{Units: []string{"dmar0"}, Tables: []string{"DMAR"}, TablesKnown: true, Remapping: facts.Yes},
		Modules: map[string]facts.Module{"vfio_pci": {Available: true}}, ModulesKnown: true,
		Memory: facts.Memory{Total: 64 << 30}, Locked: facts.Unlimited,
		Devices: []facts.Device{
			port, device(usbAt, 0x0c0330, 0x8086, 0x4321, "xhci_hcd", 3), gpu,
			device(audioAt, 0x040300, facts.NVIDIA, 0x22ba, "vfio-pci", 2), device(diskAt, 0x010802, 0x144d, 0xa80a, "nvme", 4),
		},
	}
}

func find(h *facts.Host, address string) *facts.Device {
	for i := range h.Devices {
		if h.Devices[i].Address == at(address) {
			return &h.Devices[i]
		}
	}
	return nil
}

// faults break a sound host in one way each.
var faults = []struct {
	id     ID
	status Status
	ask    Question
	spoil  func(h *facts.Host)
	want   string // in the evidence or the remedy
}{
	{"iommu.firmware", Fail, Question{}, func(h *facts.Host) { h.IOMMU.Units, h.IOMMU.Tables = nil, nil; ungroup(h) }, "VT-d"},
	{"iommu.firmware", Fail, Question{}, func(h *facts.Host) {
		h.CPU.Hypervisor, h.IOMMU.Units, h.IOMMU.Tables = true, nil, nil
		ungroup(h)
	}, "this machine is a virtual one"},
	{"iommu.kernel", Fail, Question{}, func(h *facts.Host) { h.IOMMU.Units = nil; ungroup(h) }, "intel_iommu=on"},
	{"iommu.kernel", Fail, Question{}, func(h *facts.Host) { h.IOMMU.Units = nil; h.Parameters = []string{"iommu=off"}; ungroup(h) }, "take iommu=off out"},
	{"iommu.kernel", Fail, Question{}, func(h *facts.Host) { h.IOMMU.Units, h.IOMMU.Tables = nil, []string{"IVRS"}; ungroup(h) }, "AMD-Vi"},
	{"iommu.kernel", Fail, Question{}, func(h *facts.Host) {
		h.IOMMU.Units, h.Parameters = nil, []string{"intel_iommu=on,sm_on"}
		ungroup(h)
	}, "see in the kernel's log"},
	{"iommu", Fail, Question{}, func(h *facts.Host) { h.IOMMU.Units, h.IOMMU.TablesKnown = nil, false; ungroup(h) }, "not seen"},
	{"interrupts", Fail, Question{}, func(h *facts.Host) { h.IOMMU.Remapping = facts.No; h.Parameters = []string{"intremap=off"} }, "take intremap=off out"},
	{"interrupts", Unknown, Question{}, func(h *facts.Host) { h.IOMMU.Remapping = facts.Unknown }, "log"},
	{"interrupts", Fail, Question{}, func(h *facts.Host) { h.IOMMU.Remapping, h.IOMMU.Tables = facts.No, nil }, "vfio refuses them"},
	{"iommu.unsafe", Warn, Question{}, func(h *facts.Host) { h.IOMMU.Unsafe = true }, "forge"},
	{"iommu.unsafe", Warn, Question{}, func(h *facts.Host) {
		h.IOMMU.Remapping, h.IOMMU.Unsafe, h.IOMMU.UnsafeInterrupts = facts.No, true, true
	}, "forge"},
	{"acs.override", Warn, Question{}, func(h *facts.Host) { h.Parameters = []string{"pcie_acs_override=downstream"} }, "the price is isolation"},
	{"group.none", Fail, Question{}, func(h *facts.Host) { find(h, gpuAt).Group = facts.NoGroup; find(h, audioAt).Group = facts.NoGroup }, "no IOMMU group"},
	{"group.used", Fail, Question{}, func(h *facts.Host) {
		d := find(h, diskAt)
		d.Group, d.Uses = 2, []facts.Use{{Kind: "disk", Name: "nvme0n1p2", At: "/"}}
	}, "nvme0n1p2 is mounted at /"},
	{"group.used", Fail, Question{}, func(h *facts.Host) { find(h, gpuAt).Uses = []facts.Use{{Kind: "route", Name: "eth0"}} }, "default route leads through eth0"},
	{"group.used", Fail, Question{}, func(h *facts.Host) { find(h, gpuAt).Connected = []string{"ens5", "vlan7"} }, "network device ens5, vlan7 has an address or a route"},
	{"group.used", Fail, Question{}, func(h *facts.Host) {
		find(h, gpuAt).Uses = []facts.Use{{Kind: "disk", Name: "sda", At: "perhaps in a pool of ZFS"}}
	}, "sda is perhaps in a pool of ZFS"},
	{"group.shared", Fail, Question{}, func(h *facts.Host) { find(h, diskAt).Group = 2; find(h, portAt).Port = &facts.Port{Readable: true} }, "port 0000:00:01.0 has no ACS"},
	{"group.shared", Fail, Question{}, func(h *facts.Host) {
		find(h, diskAt).Group = 2
		find(h, portAt).Port = &facts.Port{Readable: true, HasACS: true}
	}, "port 0000:00:01.0 has ACS, switched off"},
	{"group.shared", Fail, Question{}, func(h *facts.Host) { find(h, diskAt).Group = 2; find(h, portAt).Port = &facts.Port{} }, "only root can read"},
	{"group.shared", Fail, Question{}, func(h *facts.Host) { find(h, diskAt).Group = 2 }, "only split the groups on paper"},
	{"group.shared", Fail, Question{}, func(h *facts.Host) { find(h, diskAt).Group = 2 }, "`divvy vm claim --pci 0000:01:00.0 --form passthrough --also 0000:02:00.0`"},
	{"group.shared", Fail, Question{}, func(h *facts.Host) {
		find(h, diskAt).Group, find(h, diskAt).Class, find(h, diskAt).Attached = 2, 0x0c0330, []string{"Mouse"}
	}, "0000:02:00.0 has Mouse plugged into itmove the card to a slot with a group of its own: of these devices some are in use"},
	{"usb.all", Fail, Question{}, func(h *facts.Host) { find(h, usbAt).Group = 2 }, "usb-host"},
	{"usb.all", Fail, Question{}, func(h *facts.Host) { find(h, usbAt).Group, find(h, usbAt).Attached = 2, []string{"Keyboard"} }, "0000:00:14.0 has Keyboard plugged into it"},
	{"driver.first", Fail, Question{}, func(h *facts.Host) {
		h.Rules = []string{"options vfio-pci ids=10de:2684,10de:22ba"}
		find(h, gpuAt).Driver = "nouveau"
	}, "nouveau took it first"},
	{"driver.first", Fail, Question{}, func(h *facts.Host) {
		h.Rules = []string{"options vfio-pci ids=10de:2684", "softdep nouveau pre: vfio-pci"}
		find(h, gpuAt).Driver = "nouveau"
	}, "says already that vfio-pci comes first (softdep nouveau pre: vfio-pci)"},
	{"driver.first", Fail, Question{}, func(h *facts.Host) {
		h.Parameters, h.Rules = []string{"rd.driver.pre=vfio-pci"}, []string{"options vfio-pci ids=10de:2684"}
		find(h, gpuAt).Driver = "nouveau"
	}, "says already that vfio-pci comes first (rd.driver.pre=vfio-pci)"},
	{"driver.first", Fail, Question{}, func(h *facts.Host) {
		h.Parameters, h.Rules = []string{"rd.driver.pre=nouveau"}, []string{"options vfio-pci ids=10de:2684"}
		find(h, gpuAt).Driver = "nouveau"
	}, "take away what loads nouveau before vfio-pci: rd.driver.pre=nouveau"},
	{"driver.first", Fail, Question{}, func(h *facts.Host) {
		h.Parameters = []string{"vfio-pci.ids=10de:2684"}
		h.Modules["nouveau"] = facts.Module{Loaded: true, Builtin: true}
		find(h, gpuAt).Driver = "nouveau"
	}, "built into the kernel"},
	{"driver.override", Fail, Question{}, func(h *facts.Host) { find(h, gpuAt).Override = "nvidia" }, "driver_override"},
	{"driver.override", Fail, Question{}, func(h *facts.Host) { find(h, audioAt).Override = "snd_hda_intel" }, "driver_override of 0000:01:00.1"},
	{"holder", Fail, Question{}, func(h *facts.Host) {
		find(h, gpuAt).Holders = []facts.Holder{{PID: 7, Name: "nv-hostengine", Node: "nvidia0", Container: "abcdef012345"}}
	}, "process 7 (nv-hostengine) has /dev/nvidia0 open in container abcdef012345"},
	{"holder", Fail, Question{}, func(h *facts.Host) {
		find(h, audioAt).Holders = []facts.Holder{{PID: 8, Name: "wireplumber", Node: "snd/controlC1"}}
	}, "process 8 (wireplumber) has /dev/snd/controlC1 open"},
	{"holder", Fail, Question{Own: Own{}}, func(h *facts.Host) {
		find(h, gpuAt).Holders = []facts.Holder{{PID: 9, Name: "divvy", Node: "nvidia0"}}
	}, "process 9 (divvy)"},
	{"holder", Fail, Question{Own: Own{Agent: true}}, func(h *facts.Host) {
		find(h, gpuAt).Holders = []facts.Holder{{PID: 9, Name: "divvy", Node: "nvidia0"}, {PID: 10, Name: "python3", Node: "nvidia0"}}
	}, "process 10 (python3)"},
	{"holder", Fail, Question{For: QEMU, Own: Own{Agent: true, Processes: []int{8}}}, func(h *facts.Host) {
		find(h, gpuAt).Holders = []facts.Holder{{PID: 9, Name: "divvy-miner", Node: "nvidia0"}}
	}, "process 9 (divvy-miner) has /dev/nvidia0 open"},
	{"shares", Fail, Question{Own: Own{Shares: map[string][]string{"GPU-a": {"a", "b", "c", "d", "e", "f"}, "GPU-b": {"x"}}}}, func(h *facts.Host) { find(h, gpuAt).UUID = "GPU-a" }, "0000:01:00.0 has shares of Divvy's: a, b, c, d, e, 1 more"},
	{"claimed", Fail, Question{Own: Own{Claims: []Claim{{Name: "train", Form: "passthrough", Device: at(gpuAt), Members: []pci.Address{at(gpuAt), at(audioAt)}}}}}, func(h *facts.Host) {
		for _, address := range []string{gpuAt, audioAt} { // whoever has the group open has both
			find(h, address).Holders = []facts.Holder{{PID: 77, Name: "qemu-system-x86", Node: "vfio/2"}}
		}
	}, "claim train has 0000:01:00.0 for a virtual machine (passthrough), and process 77 (qemu-system-x86) has /dev/vfio/2 open"},
	{"drm", Warn, Question{}, func(h *facts.Host) {
		find(h, gpuAt).Driver, h.Modules["nvidia_drm"] = "nvidia", facts.Module{Loaded: true}
	}, "module nvidia_drm is loaded"},
	{"display.boot", Fail, Question{}, func(h *facts.Host) {
		find(h, gpuAt).BootDisplay = true
		h.Framebuffers = []facts.Framebuffer{{Name: "fb0 (EFI VGA)"}}
	}, "fb0 (EFI VGA)"},
	{"display.boot", Fail, Question{}, func(h *facts.Host) {
		h.Framebuffers = []facts.Framebuffer{{Name: "fb0", OnPCI: true, Device: at(gpuAt)}}
	}, "console's framebuffer"},
	{"display.boot", Warn, Question{}, func(h *facts.Host) { find(h, gpuAt).BootDisplay = true }, "firmware draws on"},
	{"vgpu.on", Fail, Question{}, func(h *facts.Host) {
		find(h, gpuAt).VFs = 1
		vf := *find(h, gpuAt)
		vf.Address, vf.Virtual, vf.Parent, vf.VFs = at("0000:01:00.4"), true, at(gpuAt), 0
		vf.VGPU = &facts.VGPU{Interface: "vendor-vfio", Current: "1428"}
		h.Devices = slices.Insert(h.Devices, 4, vf)
	}, "type 1428 on 0000:01:00.4"},
	{"sriov.on", Fail, Question{}, func(h *facts.Host) { find(h, gpuAt).VFs, find(h, gpuAt).VFsTotal = 4, 16 }, "has 4 virtual functions, of 16"},
	{"sriov.on", Fail, Question{}, func(h *facts.Host) { find(h, audioAt).VFs, find(h, audioAt).VFsTotal = 4, 16 }, "0000:01:00.1 has 4 virtual functions, of 16"},
	{"mig.instances", Fail, Question{}, func(h *facts.Host) { find(h, gpuAt).Instances = 2 }, "2 MIG instances"},
	{"bars", Fail, Question{}, func(h *facts.Host) { find(h, gpuAt).BARs[0].Placed = false }, "Above 4G"},
	{"nvswitch", Fail, Question{}, func(h *facts.Host) { addSwitch(h) }, "FABRIC_MODE"},
	{"nvswitch", Unknown, Question{}, func(h *facts.Host) { addSwitch(h); h.FabricMode = "1" }, "partition"},
	{"modules", Fail, Question{}, func(h *facts.Host) { h.Modules = nil }, "no module vfio-pci"},
	{"modules", Unknown, Question{}, func(h *facts.Host) { h.Modules, h.ModulesKnown = nil, false }, "not seen"},
	{"cpu.virtualisation", Warn, Question{}, func(h *facts.Host) { h.KVM, h.CPU.Virtualization = facts.No, facts.No }, "in the firmware"},
	{"cpu.virtualisation", Warn, Question{}, func(h *facts.Host) { h.KVM, h.CPU.Virtualization, h.CPU.Hypervisor = facts.No, facts.No, true }, "nested"},
	{"kvm", Warn, Question{}, func(h *facts.Host) { h.KVM = facts.No }, "no /dev/kvm"},
	{"kvm", Warn, Question{}, func(h *facts.Host) { h.KVM = facts.Unknown }, "closed"},
	{"memory", Fail, Question{Memory: 128 << 30}, func(*facts.Host) {}, "the machine has 64 GiB"},
	{"memlock", Fail, Question{Memory: 16 << 30}, func(h *facts.Host) { h.Locked = 8 << 20 }, "Cannot allocate memory"},
	{"memlock", Warn, Question{}, func(h *facts.Host) { h.Locked = 8 << 20 }, "8 MiB"},
	{"hugepages", Warn, Question{Memory: 16 << 30}, func(h *facts.Host) { h.Memory.Huge = []facts.HugePages{{Size: 1 << 30, Count: 32, Free: 8}} }, "8 of 32 huge pages"},
	{"hugepages", Warn, Question{Memory: 5 << 20}, func(h *facts.Host) { h.Memory.Huge = []facts.HugePages{{Size: 2 << 20, Count: 8, Free: 2}} }, "2 of 8 huge pages"},
	{"bar.window", Warn, Question{}, func(h *facts.Host) { h.CPU.AddressBits = 37 }, "OVMF"},
	{"reset", Warn, Question{}, func(h *facts.Host) { find(h, gpuAt).Resets, find(h, audioAt).Group = nil, 9 }, "no way to reset"},
	{"reset", OK, Question{}, func(h *facts.Host) { find(h, gpuAt).Resets = nil }, "with all functions beside it"},
	{"companion", Warn, Question{}, func(h *facts.Host) { find(h, audioAt).Group, find(h, audioAt).Driver = 9, "snd_hda_intel" }, "give them as well"},
	{"companion", Warn, Question{}, func(h *facts.Host) {
		d := find(h, audioAt)
		d.Group, d.Driver, d.Class, d.Attached = 9, "xhci_hcd", 0x0c0330, []string{"Keyboard"}
	}, "0000:01:00.1 has Keyboard plugged into itleave what is in use with the host"},
	{"companion", Warn, Question{}, func(h *facts.Host) {
		find(h, audioAt).Class, find(h, audioAt).Attached = 0x0c0330, []string{"Keyboard"}
	}, "goes along, and has Keyboard plugged into it"},
	{"secureboot", OK, Question{}, func(h *facts.Host) { h.SecureBoot = facts.Yes }, "signed"},
	{"hidden", OK, Question{}, func(*facts.Host) {}, "465"},
	{"licence", OK, Question{}, func(h *facts.Host) { find(h, gpuAt).VGPU = &facts.VGPU{Interface: "mdev"} }, "cannot be seen from the host"},
	{"unseen", Unknown, Question{Own: Own{Unknown: "its books are root's"}}, func(*facts.Host) {}, "its books are root's"},
	{"unseen", Unknown, Question{}, func(h *facts.Host) { h.Blind = []string{"others are not seen"} }, "others"},
	{"unseen", Unknown, Question{}, func(h *facts.Host) { h.Unread = []string{"proc/1/mountinfo"} }, "/proc/1/mountinfo"},
}

// well are changes to a sound host with which it stays sound, and what it then tells.
var well = []struct {
	id    ID
	ask   Question
	spoil func(h *facts.Host)
	want  string
}{
	{"driver", Question{For: QEMU}, func(h *facts.Host) { find(h, gpuAt).Driver = "" }, "has no driver"},
	{"driver", Question{For: QEMU}, func(*facts.Host) {}, "is on vfio-pci already"},
	{"driver", Question{For: QEMU}, func(h *facts.Host) { find(h, gpuAt).Driver = "nvidia" }, "which lets go of it"},
	{"driver", Question{For: QEMU}, func(h *facts.Host) {
		find(h, gpuAt).Driver, h.Rules = "nvgrace_gpu_vfio_pci", []string{"options vfio-pci ids=10de:2684"}
	}, "keeps it for virtual machines"},
	{"group", Question{For: QEMU}, func(*facts.Host) {}, "group 2 has 0000:01:00.0 (GPU, vfio-pci), 0000:01:00.1 (audio, vfio-pci)"},
	{"holder", Question{For: QEMU}, func(*facts.Host) {}, "nobody has /dev/vfio/2 open"},
	{"holder", Question{For: QEMU, Own: Own{Agent: true, Processes: []int{8, 9}}}, func(h *facts.Host) {
		find(h, gpuAt).Holders = []facts.Holder{{PID: 9, Name: "divvy", Node: "nvidia0"}}
	}, "lets go of it for a claim"},
	{"licence", Question{For: QEMU}, func(h *facts.Host) { find(h, gpuAt).VFsTotal = 16 }, "form vgpu needs NVIDIA's in each of its ways"},
	{"licence", Question{For: QEMU}, func(h *facts.Host) { find(h, gpuAt).Class = 0x030200 }, "form vgpu needs NVIDIA's"},
	{"modules", Question{For: QEMU}, func(*facts.Host) {}, "can be loaded"},
	{"modules", Question{For: QEMU}, func(h *facts.Host) { h.Modules["vfio_pci"] = facts.Module{Loaded: true, Builtin: true} }, "built in"},
	{"memlock", Question{For: QEMU, Memory: 1 << 30}, func(h *facts.Host) { h.Locked = 2 << 30 }, "programs may lock 2 GiB"},
	{"memlock", Question{For: QEMU, Memory: 1 << 30}, func(h *facts.Host) {
		h.Locked, h.Memory.Huge = 2<<30, []facts.HugePages{{Size: 2 << 20, Count: 8, Free: 2}, {Size: 1 << 30, Count: 1, Free: 1}}
	}, "programs may lock 2 GiB"},
	{"iommu", Question{For: ESXi}, func(h *facts.Host) { h.IOMMU.Units = nil; ungroup(h) }, "the firmware has table DMAR"},
	{"companion", Question{For: QEMU}, func(*facts.Host) {}, "go along: 0000:01:00.1"},
}

// What is well is told, and nothing is wrong.
func TestWell(t *testing.T) {
	for _, test := range well {
		h := sound()
		test.spoil(h)
		told := false
		for _, f := range Judge(h, []facts.Device{*find(h, gpuAt)}, test.ask) {
			if f.Status != OK {
				t.Errorf("%s %s: %s: %s", test.id, test.want, f.ID, f.Evidence)
			}
			told = told || f.ID == test.id && strings.Contains(f.Evidence, test.want)
		}
		if !told {
			t.Errorf("%s does not tell %q", test.id, test.want)
		}
	}
}

func ungroup(h *facts.Host) {
	for i := range h.Devices {
		h.Devices[i].Group = facts.NoGroup
	}
}

func addSwitch(h *facts.Host) {
	h.Devices = append(h.Devices, facts.Device{Device: pci.Device{Address: at("0000:05:00.0"), Class: 0x068000, Vendor: facts.NVIDIA}, Group: 7})
}

// Each fault is found, comes first where it is worse than what is well, and nothing else is wrong beside it.
func TestFaults(t *testing.T) {
	seen := map[ID]bool{"gpu.none": true, "driver": true, "group": true} // TestWithoutGPU; what has no fault of its own
	for _, f := range faults {
		t.Run(string(f.id)+" "+f.want, func(t *testing.T) {
			seen[f.id] = true
			h := sound()
			f.spoil(h)
			f.ask.For = QEMU
			found := Judge(h, []facts.Device{*find(h, gpuAt)}, f.ask)
			i := slices.IndexFunc(found, func(x Finding) bool { return x.ID == f.id && x.Status == f.status })
			switch {
			case i < 0:
				t.Fatalf("not found in %+v", found)
			case f.status != OK && i != 0:
				t.Errorf("%s comes before it", found[0].ID)
			case f.status != OK && len(found) > 1 && found[1].Status != OK:
				t.Errorf("%s is named as well: %s", found[1].ID, found[1].Evidence)
			}
			if text := found[i].Evidence + found[i].Remedy; !strings.Contains(text, f.want) {
				t.Errorf("%q does not tell %q", text, f.want)
			}
			if f.status != OK && found[i].Remedy == "" {
				t.Error("no remedy")
			}
		})
	}
	for _, e := range Catalogue {
		if !seen[e.ID] {
			t.Errorf("no test finds %s", e.ID)
		}
	}
}

func TestSoundHost(t *testing.T) {
	for _, platform := range Platforms {
		h := sound()
		for _, f := range Judge(h, []facts.Device{*find(h, gpuAt)}, Question{For: platform, Memory: 16 << 30}) {
			if f.Status != OK {
				t.Errorf("%s: %s: %s", platform, f.ID, f.Evidence)
			}
			if f.ID.rank() < 0 {
				t.Errorf("%s is not in the catalogue", f.ID)
			}
		}
	}
}

func TestWithoutGPU(t *testing.T) {
	h := sound()
	found := Judge(h, nil, Question{For: QEMU})
	if found[0].ID != "gpu.none" || Ready(found) {
		t.Errorf("%+v", found)
	}
	if r := NewReport(h, nil, Question{For: QEMU}, "test"); r.Ready || len(r.Needs) > 0 || r.Devices == nil {
		t.Errorf("%+v", r)
	}
}

// A mounted disk is refused also where the IOMMU is off.
func TestUsedWithoutIOMMU(t *testing.T) {
	h := sound()
	h.IOMMU.Units = nil
	ungroup(h)
	find(h, diskAt).Uses = []facts.Use{{Kind: "disk", Name: "nvme0n1", At: "/"}}
	used := func(address string) bool {
		return slices.ContainsFunc(Judge(h, []facts.Device{*find(h, address)}, Question{For: QEMU}), func(f Finding) bool { return f.ID == "group.used" && f.Status == Fail })
	}
	if !used(diskAt) || used(gpuAt) {
		t.Errorf("the mounted disk: %v, the GPU: %v", used(diskAt), used(gpuAt))
	}
}

// Of many files that may not be read three are named.
func TestManyUnread(t *testing.T) {
	for count, want := range map[int]string{3: "/c", 5: "/c and 2 more"} {
		h := sound()
		h.Unread = []string{"a", "b", "c", "d", "e"}[:count]
		if f := Judge(h, nil, Question{For: QEMU}); !slices.ContainsFunc(f, func(f Finding) bool { return f.ID == "unseen" && strings.HasSuffix(f.Evidence, want) }) {
			t.Errorf("%d files: %+v", count, f)
		}
	}
}

// Without a name the physical functions of GPUs are asked about.
func TestGPUs(t *testing.T) {
	h := sound()
	vf := *find(h, gpuAt)
	vf.Address, vf.Virtual = at("0000:01:00.4"), true
	h.Devices = append(h.Devices, vf)
	if found := GPUs(h); len(found) != 1 || found[0].Address != at(gpuAt) {
		t.Errorf("%+v", found)
	}
}

// Under Xen the kernel sees no IOMMU and binds nothing to vfio-pci; on ESXi there is no Linux.
func TestOtherHypervisors(t *testing.T) {
	h := sound()
	h.Xen, h.IOMMU.Units, h.Modules = true, nil, nil
	ungroup(h)
	found := Judge(h, []facts.Device{*find(h, gpuAt)}, Question{For: Xen})
	if !Ready(found) || found[0].ID != "iommu" || found[0].Status != Unknown {
		t.Errorf("Xen: %+v", found)
	}
	h = sound()
	h.KVM, h.Modules = facts.No, nil
	find(h, gpuAt).Holders = []facts.Holder{{PID: 1}}
	for _, f := range Judge(h, []facts.Device{*find(h, gpuAt)}, Question{For: ESXi}) {
		if f.Status != OK {
			t.Errorf("ESXi: %+v", f)
		}
	}
}

var update = flag.Bool("update", false, "rewrite the table of docs/vm.md")

// The manual has every check.
func TestPage(t *testing.T) {
	docs.Generated(t, "../../../docs/vm.md", "internal/vm/preflight/catalogue.go", Table(), *update)
}
