package preflight

import (
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// For KubeVirt claims come first. A list of permitted devices is for older versions alone, and every snippet of that way says so.
func TestKubeVirtByClaims(t *testing.T) {
	h := withFunction(&facts.VGPU{Interface: "vendor-vfio", Types: []facts.VGPUType{{ID: "nvidia-471", Available: -1}}})
	plain := *find(h, vfAt)
	plain.Address, plain.VGPU = at("0000:01:00.5"), nil
	h.Devices = slices.Insert(h.Devices, 5, plain)
	for asked, want := range map[string][]string{
		gpuAt:          {`passthrough: ["0000:01:00.0"]`, "deviceClassName: passthrough.divvy.dev", "          gpus:\n"},
		vfAt:           {`vgpu: {gpus: ["0000:01:00.0"], type: TYPE}`, "deviceClassName: vgpu.divvy.dev", "          gpus:\n"},
		"0000:01:00.5": {`vf: {gpus: ["0000:01:00.0"]}`, "deviceClassName: vf.divvy.dev", "          gpus:\n"},
		diskAt:         {`passthrough: ["0000:02:00.0"]`, "deviceClassName: passthrough.divvy.dev", "          hostDevices:\n"},
	} {
		h := h
		if asked == gpuAt { // with functions the whole GPU goes to nobody
			h = sound()
			find(h, gpuAt).Driver = "nvidia"
		}
		needs := NewReport(h, []facts.Device{*find(h, asked)}, Question{For: KubeVirt, Memory: 4 << 30}, "test").Needs
		if len(needs) < 4 && (asked != vfAt || len(needs) != 2) {
			t.Fatalf("%s: %+v", asked, needs)
		}
		first := needs[0].Text + needs[1].Text
		for _, text := range append(want, "claimName: devices, requestName: device0", "guest: 4Gi") {
			if strings.Count(first, text) != 1 {
				t.Errorf("%s: %q is not there once in\n%s", asked, text, first)
			}
		}
		if _, err := agentconfig.Parse("agent.yaml", []byte("apiVersion: divvy.dev/v1alpha1\nkind: AgentConfig\n"+strings.ReplaceAll(needs[0].Text, "TYPE", "nvidia-471")), nil); err != nil {
			t.Errorf("%s: %v in\n%s", asked, err, needs[0].Text)
		}
		for i, s := range needs {
			permits := strings.Contains(s.Text, "permittedHostDevices") || strings.Contains(s.Text, "deviceName") || strings.Contains(s.Text, "driver_override")
			older := strings.HasPrefix(s.Title, "Only for KubeVirt before 1.9, instead of that: ")
			if permits != older || older != (i >= 2) {
				t.Errorf("%s: snippet %d is called %q:\n%s", asked, i, s.Title, s.Text)
			}
		}
	}
}

// QEMU and libvirt are told of a claim before anything else, with the form that the device has.
func TestClaimIsNamedFirst(t *testing.T) {
	h := withFunction(&facts.VGPU{Interface: "vendor-vfio", Types: []facts.VGPUType{{ID: "nvidia-471", Available: -1}}})
	plain := *find(h, vfAt)
	plain.Address, plain.VGPU = at("0000:01:00.5"), nil
	h.Devices = slices.Insert(h.Devices, 5, plain)
	for asked, want := range map[string]string{
		diskAt: "--pci 0000:02:00.0 --form passthrough", vfAt: "--pci 0000:01:00.0 --form vgpu:TYPE", "0000:01:00.5": "--pci 0000:01:00.5 --form vf",
	} {
		for platform, last := range map[Platform]string{QEMU: " --memory 4Gi\n", Libvirt: " --memory 4Gi --for libvirt\n"} {
			needs := NewReport(h, []facts.Device{*find(h, asked)}, Question{For: platform, Memory: 4 << 30}, "test").Needs
			if got := needs[0]; !strings.HasPrefix(got.Title, "By Divvy") || got.Text != "divvy vm claim "+want+" --user USER"+last {
				t.Errorf("%s, %s: %+v", asked, platform, got)
			}
			for _, s := range needs[1:] {
				if strings.Contains(s.Text, "driver_override") && !strings.HasPrefix(s.Title, "Without Divvy's agent") {
					t.Errorf("%s, %s: %+v", asked, platform, s)
				}
			}
		}
	}
}
