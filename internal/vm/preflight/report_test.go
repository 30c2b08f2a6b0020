package preflight

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// A virtual function is given as one, and one with NVIDIA's types as a vGPU where it has one.
func TestFormsOfVirtualFunctions(t *testing.T) {
	for _, test := range []struct {
		vgpu *facts.VGPU
		form string
		is   bool
		why  string
	}{
		{nil, "vf", true, "of 0000:01:00.0"},
		{&facts.VGPU{Interface: "mdev"}, "vgpu", false, "types left: 0"},
		{&facts.VGPU{Interface: "mdev", Types: []facts.VGPUType{{ID: "nvidia-689", Available: 1}, {ID: "nvidia-694"}}}, "vgpu", true, "types left: 1"},
		{&facts.VGPU{Interface: "vendor-vfio"}, "vgpu", false, "no type is set"},
		{&facts.VGPU{Interface: "vendor-vfio", Types: []facts.VGPUType{{ID: "1428", Available: -1}}}, "vgpu", true, "types that can be set: 1"},
		{&facts.VGPU{Interface: "vendor-vfio", Current: "1428"}, "vgpu", true, "type 1428"},
	} {
		h := sound()
		vf := *find(h, gpuAt)
		vf.Address, vf.Virtual, vf.Parent, vf.VGPU = at("0000:01:00.4"), true, at(gpuAt), test.vgpu
		if got := forms(h, vf); len(got) != 1 || got[0].Form != test.form || got[0].Offered != test.is || !strings.Contains(got[0].Why, test.why) {
			t.Errorf("%+v: %+v", test.vgpu, got)
		}
	}
}

// A bridge is never given, whatever it is asked for.
func TestFormsOfBridge(t *testing.T) {
	h := sound()
	bridge := *find(h, gpuAt)
	bridge.Class = 0x060400
	if got := forms(h, bridge); len(got) != 1 || got[0].Form != "passthrough" || got[0].Offered {
		t.Errorf("%+v", got)
	}
}

// The guest's memory in a snippet is what was asked, or an example.
func TestGuestMemory(t *testing.T) {
	for memory, want := range map[int64]string{0: "-m 16G", 3 << 29: "-m 1536M", 4 << 30: "-m 4G"} {
		h := sound()
		needs := NewReport(h, []facts.Device{*find(h, gpuAt)}, Question{For: QEMU, Memory: memory}, "test").Needs
		if text := needs[len(needs)-1].Text; !strings.Contains(text, want+" ") {
			t.Errorf("%d: %s", memory, text)
		}
	}
}

// What a platform needs names the device and its companion, and nothing of others.
func TestNeeds(t *testing.T) {
	for platform, want := range map[Platform][]string{
		QEMU:      {"\nchown USER /dev/vfio/2\n", "-cpu host,host-phys-bits=on,kvm=off,hv-vendor-id=none\n", "host=0000:01:00.0,bus=gpu0,addr=0x0.0x0,multifunction=on", "host=0000:01:00.1,bus=gpu0,addr=0x0.0x1", "X-PciMmio64Mb,string=65536"},
		Libvirt:   {"bus='0x01' slot='0x00' function='0x1'", "<hidden state='on'/>"},
		Proxmox:   {"--hostpci0 0000:01:00,pcie=1"},
		OpenStack: {`"address": "0000:01:00.1"`, `"product_id": "2684", "device_type": "type-PCI"`},
		KubeVirt:  {`"10DE:2684"`},
		Xen:       {"xl pci-assignable-add 0000:01:00.1", "pci = [ '0000:01:00.0', '0000:01:00.1' ]"},
		ESXi:      {`64bitMMIOSizeGB = "64"`, "-d=0000:01:00.0"},
	} {
		h := sound()
		var all strings.Builder
		for _, s := range NewReport(h, []facts.Device{*find(h, gpuAt)}, Question{For: platform}, "test").Needs {
			all.WriteString(s.Title + "\n" + s.Text)
		}
		for _, text := range want {
			if !strings.Contains(all.String(), text) {
				t.Errorf("%s: %q is missing in\n%s", platform, text, all.String())
			}
		}
		if strings.Contains(all.String(), "02:00.0") {
			t.Errorf("%s names the disk", platform)
		}
	}
}
