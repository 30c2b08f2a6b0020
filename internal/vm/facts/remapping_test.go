package facts

import (
	"slices"
	"testing"
)

// Vfio refuses devices where interrupts are not remapped, unless it was told not to: by its parameter, or by what that will be.
func TestUnremapped(t *testing.T) {
	const parameter, loaded = "sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "sys/module/vfio_iommu_type1/taint"
	without := map[string]string{"sys/class/iommu/dmar0": "", "proc/interrupts": "  1: 0 PCI-MSI 1\n"}
	for name, c := range map[string]struct {
		more map[string]string
		want bool
	}{
		"not remapped":            {nil, true},
		"remapped":                {map[string]string{"proc/interrupts": "  1: 0 IR-PCI-MSI 1\n"}, false},
		"not told":                {map[string]string{"proc/interrupts": "-"}, false},
		"no IOMMU":                {map[string]string{"sys/class/iommu/dmar0": "-", "sys/firmware/acpi/tables/DMAR": ""}, false},
		"AMD's":                   {map[string]string{"sys/class/iommu/dmar0": "-", "sys/class/iommu/ivhd0": ""}, true},
		"Arm's":                   {map[string]string{"sys/class/iommu/dmar0": "-", "sys/class/iommu/smmu3.0x1": "", "sys/firmware/acpi/tables/IORT": ""}, false},
		"allowed":                 {map[string]string{parameter: "Y\n"}, false},
		"forbidden":               {map[string]string{parameter: "N\n", "proc/cmdline": "vfio_iommu_type1.allow_unsafe_interrupts=1\n"}, true},
		"allowed once loaded":     {map[string]string{"proc/cmdline": "vfio_iommu_type1.allow_unsafe_interrupts=1\n"}, false},
		"allowed by modprobe.d":   {map[string]string{"etc/modprobe.d/v.conf": "options vfio-iommu-type1 allow_unsafe_interrupts=1\n"}, false},
		"forbidden by modprobe.d": {map[string]string{"etc/modprobe.d/v.conf": "options vfio_iommu_type1 allow_unsafe_interrupts=0\n"}, true},
		"loaded without":          {map[string]string{loaded: "\n", "etc/modprobe.d/v.conf": "options vfio_iommu_type1 allow_unsafe_interrupts=1\n"}, true},
	} {
		more := map[string]string{}
		for _, files := range []map[string]string{without, c.more} {
			for at, content := range files {
				more[at] = content
			}
		}
		if got := read(t, more).Unremapped(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := ReadIOMMU(tree(more)).Unremapped(); got != c.want {
			t.Errorf("%s, of the IOMMU alone: %v, want %v", name, got, c.want)
		}
	}
}

// Which module comes first is said by softdeps and by the command line.
func TestBefore(t *testing.T) {
	h := read(t, map[string]string{
		"proc/cmdline":          "rd.driver.pre=vfio,vfio-pci rd.driver.pre=nouveau\n",
		"etc/modprobe.d/a.conf": "softdep nvidia  pre: vfio-pci post: nvidia_drm\nsoftdep nvidia_drm post: vfio-pci\n#softdep nouveau pre: vfio-pci\n",
	})
	for _, c := range []struct {
		first, second string
		want          []string
	}{
		{"vfio-pci", "nvidia", []string{"softdep nvidia pre: vfio-pci post: nvidia_drm", "rd.driver.pre=vfio,vfio-pci"}},
		{"vfio_pci", "nvidia-drm", []string{"rd.driver.pre=vfio,vfio-pci"}},
		{"nouveau", "vfio-pci", []string{"rd.driver.pre=nouveau"}},
		{"nvidia_drm", "nvidia", nil},
	} {
		if got := h.Before(c.first, c.second); !slices.Equal(got, c.want) {
			t.Errorf("%s before %s: %q, want %q", c.first, c.second, got, c.want)
		}
	}
}

// What is plugged into a USB controller is told by its name, or by its numbers; hubs, and parts of a device, are not.
func TestAttached(t *testing.T) {
	const bus, below = "sys/bus/usb/devices/", "devices/pci0000:00/0000:00:02.0/0000:02:00.0/usb1"
	files := map[string]string{}
	for name, at := range map[string]string{"usb1": "", "1-0:1.0": "/1-0:1.0", "1-1": "/1-1", "1-1.2": "/1-1/1-1.2", "1-2": "/1-2"} {
		files[bus+name] = "->../../../" + below + at
	}
	for name, content := range map[string]string{
		"product": "Root hub\n", "1-0:1.0/product": "A part\n", "1-1/bDeviceClass": "09\n", "1-1/product": "Hub\n", "1-1/1-1.2/bDeviceClass": "00\n",
		"1-1/1-1.2/product": "Keyboard\n", "1-2/idVendor": "046d\n", "1-2/idProduct": "c31c\n",
	} {
		files["sys/"+below+"/"+name] = content
	}
	h := read(t, files)
	if got := device(t, h, "0000:02:00.0").Attached; !slices.Equal(got, []string{"Keyboard", "046d:c31c"}) {
		t.Errorf("attached are %q", got)
	}
	if got := device(t, h, "0000:01:00.0").Attached; len(got) > 0 {
		t.Errorf("to the GPU %q", got)
	}
	if kept, wanted := Keep(bus+"1-2/product", "Ada's telephone\n"); wanted {
		t.Errorf("a recording keeps %q", kept)
	}
}
