package preflight

import (
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// needed are hosts that need the asked device themselves, by the finding that says so.
var needed = []struct {
	name, asked string
	id          ID
	spoil       func(h *facts.Host)
}{
	{"a mounted disk", diskAt, "group.used", func(h *facts.Host) {
		find(h, diskAt).Uses = []facts.Use{{Kind: "disk", Name: "vda", At: "/"}}
	}},
	{"a mounted disk without an IOMMU", diskAt, "group.used", func(h *facts.Host) {
		h.IOMMU.Units = nil
		ungroup(h)
		find(h, diskAt).Uses = []facts.Use{{Kind: "disk", Name: "vda", At: "/"}}
	}},
	{"a mounted disk of domain 0", diskAt, "group.used", func(h *facts.Host) {
		h.Xen, h.IOMMU.Units, h.Modules = true, nil, nil
		ungroup(h)
		find(h, diskAt).Uses = []facts.Use{{Kind: "disk", Name: "vda", At: "/"}}
	}},
	{"the group of the default route", gpuAt, "group.used", func(h *facts.Host) {
		d := find(h, diskAt)
		d.Group, d.Uses = 2, []facts.Use{{Kind: "route", Name: "eth0"}}
	}},
	{"all USB", gpuAt, "usb.all", func(h *facts.Host) { find(h, usbAt).Group = 2 }},
	{"the console", gpuAt, "display.boot", func(h *facts.Host) {
		h.Framebuffers = []facts.Framebuffer{{Name: "fb0", OnPCI: true, Device: at(gpuAt)}}
	}},
	{"beside the console", audioAt, "display.boot", func(h *facts.Host) {
		h.Framebuffers = []facts.Framebuffer{{Name: "fb0", OnPCI: true, Device: at(gpuAt)}}
	}},
}

// Nothing is printed that takes from the host what it needs, for no platform, and a note says why.
func TestWithheld(t *testing.T) {
	for _, test := range needed {
		for _, platform := range Platforms {
			h := sound()
			test.spoil(h)
			if h.Xen && platform != Xen {
				continue
			}
			h.Rules = []string{"options vfio-pci ids=144d:a80a,10de:2684,10de:22ba"}
			find(h, test.asked).Driver = "nouveau"
			r := NewReport(h, []facts.Device{*find(h, test.asked)}, Question{For: platform}, "test")
			if len(r.Needs) != 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], test.asked) || !strings.Contains(r.Notes[0], string(test.id)) {
				t.Errorf("%s, %s: needs %+v, notes %q", test.name, platform, r.Needs, r.Notes)
			}
			for _, f := range r.Findings {
				if f.ID == "drm" && f.Command != "" || strings.Contains(f.Command, "vtconsole/*/bind") || strings.Contains(f.Command, "vfio-pci") && f.ID == "driver.first" {
					t.Errorf("%s, %s: %s has command %s", test.name, platform, f.ID, f.Command)
				}
			}
		}
	}
}

// While the console is on the GPU, no command takes nvidia_drm away, which draws it.
func TestConsoleKeepsItsModule(t *testing.T) {
	for _, console := range []bool{false, true} {
		h := sound()
		find(h, gpuAt).Driver, h.Modules["nvidia_drm"] = "nvidia", facts.Module{Loaded: true}
		if console {
			h.Framebuffers = []facts.Framebuffer{{Name: "fb0", OnPCI: true, Device: at(gpuAt)}}
		}
		found := look{host: h, device: *find(h, gpuAt), ask: Question{For: QEMU}}.drm()
		if len(found) != 1 || (found[0].Command == "") != console {
			t.Errorf("console %v: %+v", console, found)
		}
	}
}

// A function of the card in a group of its own that people use goes with no command, and one that nobody uses does.
func TestCompanionInUse(t *testing.T) {
	for _, platform := range Platforms {
		for _, attached := range [][]string{nil, {"Keyboard"}} {
			h := sound()
			d := find(h, audioAt)
			d.Group, d.Class, d.Driver, d.Attached = 9, 0x0c0330, "xhci_hcd", attached
			find(h, gpuAt).Driver = "nouveau"
			var all strings.Builder
			for _, s := range NewReport(h, []facts.Device{*find(h, gpuAt)}, Question{For: platform}, "test").Needs {
				all.WriteString(s.Text)
			}
			goes := slices.ContainsFunc([]string{audioAt, "function='0x1'", "0000:01:00,"}, func(text string) bool { return strings.Contains(all.String(), text) })
			if goes != (attached == nil) {
				t.Errorf("%s, with %q plugged in: it goes: %v in\n%s", platform, attached, goes, all.String())
			}
		}
	}
}

// One withheld device leaves what another one needs, and a function of its card that the host uses in a group of its own stays.
func TestWithheldBeside(t *testing.T) {
	for _, platform := range Platforms {
		h := sound()
		find(h, diskAt).Uses = []facts.Use{{Kind: "disk", Name: "vda", At: "/"}}
		audio := find(h, audioAt)
		audio.Group, audio.Uses = 9, []facts.Use{{Kind: "route", Name: "eth0"}}
		r := NewReport(h, []facts.Device{*find(h, diskAt), *find(h, gpuAt)}, Question{For: platform}, "test")
		var all strings.Builder
		for _, s := range r.Needs {
			all.WriteString(s.Text)
		}
		if len(r.Notes) != 1 || len(r.Needs) == 0 {
			t.Errorf("%s: needs %+v, notes %q", platform, r.Needs, r.Notes)
		}
		for _, never := range []string{diskAt, audioAt, "bus='0x02'", "function='0x1'", "0000:01:00,", "A80A"} {
			if strings.Contains(all.String(), never) {
				t.Errorf("%s has %q in\n%s", platform, never, all.String())
			}
		}
	}
	if h := sound(); !slices.Equal(NewReport(h, []facts.Device{*find(h, gpuAt)}, Question{For: QEMU}, "test").Notes, []string{}) {
		t.Error("a sound host has notes")
	}
}

// A device that the host needs, or that is in no group, is offered as a whole by no word, and the reason is the finding's.
func TestBarred(t *testing.T) {
	disk := func(h *facts.Host) { find(h, gpuAt).Uses = []facts.Use{{Kind: "disk", Name: "vda", At: "/"}} }
	for name, test := range map[string]struct {
		platform Platform
		spoil    func(h *facts.Host)
		offered  bool
		why      string
	}{
		"sound":            {QEMU, func(*facts.Host) {}, true, "the whole card"},
		"used":             {QEMU, disk, false, "vda is mounted at /"},
		"no group":         {QEMU, func(h *facts.Host) { ungroup(h) }, false, "in no IOMMU group"},
		"no IOMMU":         {Libvirt, func(h *facts.Host) { h.IOMMU.Units, h.IOMMU.Tables = nil, nil; ungroup(h) }, false, "no table DMAR"},
		"used, no IOMMU":   {Libvirt, func(h *facts.Host) { h.IOMMU.Units = nil; ungroup(h); disk(h) }, false, "vda is mounted at /"},
		"a group of Xen's": {Xen, func(h *facts.Host) { h.Xen, h.IOMMU.Units = true, nil; ungroup(h) }, true, "the whole card"},
		"ESXi":             {ESXi, func(h *facts.Host) { h.IOMMU.Units = nil; ungroup(h) }, true, "the whole card"},
	} {
		h := sound()
		test.spoil(h)
		got := NewReport(h, []facts.Device{*find(h, gpuAt)}, Question{For: test.platform}, "test").Devices[0].Forms
		if f := got[0]; f.Form != "passthrough" || f.Offered != test.offered || !strings.Contains(f.Why, test.why) {
			t.Errorf("%s: %+v", name, got)
		}
		vf := *find(h, gpuAt)
		vf.Address, vf.Virtual, vf.Parent = at("0000:01:00.4"), true, at(gpuAt)
		h.Devices = append(h.Devices, vf)
		got = NewReport(h, []facts.Device{vf}, Question{For: test.platform}, "test").Devices[0].Forms
		if f := got[0]; f.Form != "vf" || f.Offered != test.offered || !test.offered && !strings.Contains(f.Why, test.why) {
			t.Errorf("a virtual function, %s: %+v", name, got)
		}
	}
}
