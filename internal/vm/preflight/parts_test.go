package preflight

import (
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// A GPU of which vGPUs can be made, and a function of its, have for each platform what gives one, or the word that there is nothing.
func TestParts(t *testing.T) {
	types := []facts.VGPUType{{ID: "nvidia-471", Available: 1}}
	vendor, mediated := &facts.VGPU{Interface: "vendor-vfio", Types: types}, &facts.VGPU{Interface: "mdev", Types: types}
	claim := "divvy vm claim --pci 0000:01:00.0 --form vgpu:TYPE --user USER"
	for platform, want := range map[Platform]map[*facts.VGPU]string{
		QEMU:      {mediated: "vfio-pci,sysfsdev=/sys/bus/mdev/devices/UUID,bus=gpu0", vendor: "vfio-pci,sysfsdev=/sys/bus/pci/devices/0000:01:00.4,bus=gpu0"},
		Libvirt:   {mediated: "<address uuid='UUID'/>", vendor: "managed='no'"},
		Proxmox:   {mediated: "--hostpci0 0000:01:00.4,mdev=TYPE", vendor: "--hostpci0 0000:01:00.4,mdev=TYPE"},
		OpenStack: {mediated: "enabled_mdev_types = TYPE\n\n[mdev_TYPE]\ndevice_addresses = 0000:01:00.4\n", vendor: `device_spec = {"address": "0000:01:00.4", "managed": "no"}`},
		KubeVirt:  {mediated: "deviceClassName: vgpu.divvy.dev", vendor: `vgpu: {gpus: ["0000:01:00.0"], type: TYPE}`},
		Xen:       {mediated: "XenServer", vendor: "XenServer"},
		ESXi:      {mediated: "shared PCI device", vendor: "shared PCI device"},
	} {
		for v, text := range want {
			for _, asked := range []string{gpuAt, vfAt} {
				h := withFunction(v)
				find(h, vfAt).Driver = "nvidia"
				r := NewReport(h, []facts.Device{*find(h, asked)}, Question{For: platform}, "test")
				said := strings.Join(r.Notes, "\n")
				for _, s := range r.Needs {
					said += s.Title + "\n" + s.Text
				}
				for _, one := range []string{text, map[bool]string{true: claim}[platform == QEMU || platform == Libvirt]} {
					if !strings.Contains(said, one) {
						t.Errorf("%s, %s by %s: there is no %q in\n%s", platform, asked, v.Interface, one, said)
					}
				}
				for _, never := range []string{"unbind", "driver_override", "managed='yes'", "pci-assignable-add", "pcipassthru", "pcie=1", v1alpha1.ClassPassthrough} {
					if strings.Contains(said, never) {
						t.Errorf("%s, %s by %s: %q is in\n%s", platform, asked, v.Interface, never, said)
					}
				}
			}
		}
	}
}

// A vGPU of a GPU that is a claim's or has shares is offered by nothing.
func TestNoParts(t *testing.T) {
	typed := &facts.VGPU{Interface: "vendor-vfio", Types: []facts.VGPUType{{ID: "1428", Available: -1}}}
	for id, own := range map[ID]Own{
		"claimed": {Claims: []Claim{{Name: "train", Form: "passthrough", Device: at(gpuAt)}}},
		"shares":  {Shares: map[string][]string{"GPU-a": {"a"}}},
	} {
		for _, asked := range []string{gpuAt, vfAt} {
			h := withFunction(typed)
			find(h, gpuAt).UUID = "GPU-a"
			r := NewReport(h, []facts.Device{*find(h, asked)}, Question{For: QEMU, Own: own}, "test")
			if len(r.Needs) > 0 || !slices.ContainsFunc(r.Devices[0].Forms, func(f Form) bool { return f.Form == "vgpu" && !f.Offered && strings.HasPrefix(f.Why, string(id)) }) {
				t.Errorf("%s, %s: %+v, %+v", id, asked, r.Needs, r.Devices[0].Forms)
			}
		}
	}
}
