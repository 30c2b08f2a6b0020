package preflight_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/preflight"
	"github.com/divvy-gpu/divvy/internal/vm/vmtest"
)

// leaving are words of each platform by which a device leaves its driver.
var leaving = []string{"unbind", "--form passthrough", "--form vf", "managed='yes'", "hostpci0 0000:3d:00,", "device_spec", "passthrough:", "pciHostDevices", "pci-assignable-add", "pcipassthru"}

func said(r preflight.Report) string {
	var all strings.Builder
	for _, s := range r.Needs {
		all.WriteString(s.Title + "\n" + s.Text)
	}
	return all.String()
}

// A GPU that somebody uses, or that no virtual machine could have, is taken from its driver by nothing that is printed. Its line and a note name the finding.
func TestBusyStays(t *testing.T) {
	gpu := "0000:3d:00.0"
	type test struct {
		model, asked string
		id           preflight.ID
		own          preflight.Own
		spoil        func(d *facts.Device)
	}
	for name, c := range map[string]test{
		"held": {"held", gpu, "holder", preflight.Own{}, nil}, "divided": {"vgpu", gpu, "vgpu.on", preflight.Own{}, nil}, "switched": {"nvswitch", gpu, "nvswitch", preflight.Own{}, nil},
		"no IOMMU":       {"firmware-off", gpu, "iommu.firmware", preflight.Own{}, nil},
		"overridden":     {"a100", gpu, "driver.override", preflight.Own{}, func(d *facts.Device) { d.Override = "other" }},
		"with functions": {"a100", gpu, "sriov.on", preflight.Own{}, func(d *facts.Device) { d.VFs = 4 }},
		"with instances": {"a100", gpu, "mig.instances", preflight.Own{}, func(d *facts.Device) { d.Instances = 1 }},
		"with shares":    {"a100", gpu, "shares", preflight.Own{Shares: map[string][]string{"GPU-00000000-a100-4000-8000-000000000000": {"train"}}}, nil},
		"shared group":   {"a100", gpu, "group.shared", preflight.Own{}, func(d *facts.Device) { d.Group = 10 }},
	} {
		for _, platform := range preflight.Platforms {
			host := vmtest.Model(t, "../../..", c.model)
			at := slices.IndexFunc(host.Devices, func(d facts.Device) bool { return d.Address.String() == c.asked })
			if c.spoil != nil {
				c.spoil(&host.Devices[at])
			}
			if c.id == "group.shared" { // another GPU beside it
				host.Devices[slices.IndexFunc(host.Devices, func(d facts.Device) bool { return d.Address.String() == "0000:3e:00.0" })].Group = 10
			}
			r := preflight.NewReport(host, []facts.Device{host.Devices[at]}, preflight.Question{For: platform, Own: c.own}, "test")
			if !slices.ContainsFunc(r.Findings, func(f preflight.Finding) bool { return f.ID == c.id && f.Status == preflight.Fail }) {
				if platform == preflight.QEMU {
					t.Errorf("%s: no finding %s", name, c.id)
				}
				continue // not of this platform
			}
			for _, word := range leaving {
				if text := said(r); strings.Contains(text, word) {
					t.Errorf("%s, %s: %q is printed:\n%s", name, platform, word, text)
				}
			}
			if f := r.Devices[0].Forms[0]; f.Form != "passthrough" || f.Offered || !strings.HasPrefix(f.Why, string(c.id)+": ") {
				t.Errorf("%s, %s: %+v", name, platform, f)
			}
			if len(r.Notes) == 0 || !strings.Contains(r.Notes[0], "because of "+string(c.id)) {
				t.Errorf("%s, %s: notes %q", name, platform, r.Notes)
			}
		}
	}
}

// A virtual function with somebody's mediated device is refused, as a claim refuses it, and none whose driver makes vGPUs of it leaves that.
func TestMediatedFunction(t *testing.T) {
	for _, made := range []bool{true, false} {
		for _, platform := range preflight.Platforms {
			host := vmtest.Model(t, "../../..", "vgpu")
			d := &host.Devices[slices.IndexFunc(host.Devices, func(d facts.Device) bool { return d.Virtual })]
			if !made {
				d.VGPU.Mdevs = nil
			}
			r := preflight.NewReport(host, []facts.Device{*d}, preflight.Question{For: platform}, "test")
			if on := r.Findings[0].ID == "vgpu.on" && r.Findings[0].Status == preflight.Fail; on != made || r.Ready == made {
				t.Errorf("made %v, %s: ready %v, %+v", made, platform, r.Ready, r.Findings[0])
			}
			for _, word := range leaving {
				if text := said(r); strings.Contains(text, word) {
					t.Errorf("made %v, %s: %q is printed:\n%s", made, platform, word, text)
				}
			}
			for _, f := range r.Findings {
				if f.ID == "driver" && strings.Contains(f.Evidence, "lets go") {
					t.Errorf("%s: %s", platform, f.Evidence)
				}
			}
			if f := r.Devices[0].Forms[0]; f.Form != "vgpu" || len(r.Notes) == 0 {
				t.Errorf("%s: %+v, notes %q", platform, f, r.Notes)
			}
		}
	}
}
