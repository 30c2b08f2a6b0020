package preflight

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

const vfAt = "0000:01:00.4"

// withFunction is a sound host whose GPU has a virtual function.
func withFunction(v *facts.VGPU) *facts.Host {
	h := sound()
	find(h, gpuAt).VFs, find(h, gpuAt).VFsTotal = 1, 16
	vf := *find(h, gpuAt)
	vf.Address, vf.Virtual, vf.Parent, vf.VFs, vf.VFsTotal, vf.VGPU, vf.Group = at(vfAt), true, at(gpuAt), 0, 0, v, 8
	h.Devices = slices.Insert(h.Devices, 4, vf)
	return h
}

const uuid = "11111111-2222-3333-4444-000000000001"

// What Divvy made itself is taken away by Divvy's commands, and what others made by theirs. What somebody has is taken by none.
func TestOwn(t *testing.T) {
	typed, mediated := &facts.VGPU{Interface: "vendor-vfio", Current: "1428"}, &facts.VGPU{Interface: "mdev", Mdevs: []string{uuid}}
	desk := Claim{Name: "desk", Form: "vgpu", Device: at(gpuAt), Members: []pci.Address{at(vfAt)}}
	soft := desk
	soft.Mediated = uuid
	cluster, odd := desk, desk
	cluster.Cluster, odd.Name = true, "a; reboot"
	functions := []pci.Address{at(gpuAt)}
	whole := Claim{Name: "amd", Form: "vf", Device: at(vfAt), Members: []pci.Address{at(vfAt)}}
	for name, c := range map[string]struct {
		host          *facts.Host
		own           Own
		asked         string
		id            ID
		tell, command string
	}{
		"functions of Divvy's":         {withFunction(nil), Own{Functions: functions}, gpuAt, "sriov.on", "Divvy enabled them", "divvy vm functions 0000:01:00.0 --count 0"},
		"functions of others":          {withFunction(nil), Own{Functions: []pci.Address{at(diskAt)}}, gpuAt, "sriov.on", "take them away", "echo 0 > /sys/bus/pci/devices/0000:01:00.0/sriov_numvfs"},
		"a claimed function":           {withFunction(nil), Own{Functions: functions, Claims: []Claim{whole}}, gpuAt, "sriov.on", "claim amd has 0000:01:00.4", "divvy vm release amd"},
		"a vGPU by type":               {withFunction(typed), Own{Functions: functions, Claims: []Claim{desk}}, gpuAt, "vgpu.on", "type 1428 on 0000:01:00.4 (claim desk)", "divvy vm release desk"},
		"a vGPU of another function":   {withFunction(typed), Own{Claims: []Claim{{Name: "x", Form: "vgpu", Device: at(gpuAt), Members: []pci.Address{at(diskAt)}}}}, gpuAt, "vgpu.on", "have who made them clear them", "nvidia-smi vgpu -q"},
		"a mediated device":            {withFunction(mediated), Own{Claims: []Claim{soft}}, gpuAt, "vgpu.on", "mediated device " + uuid + " (claim desk)", "divvy vm release desk"},
		"a stranger's mediated device": {withFunction(mediated), Own{Claims: []Claim{desk}}, gpuAt, "vgpu.on", "clear them", "nvidia-smi vgpu -q"},
		"a vGPU of a cluster":          {withFunction(typed), Own{Claims: []Claim{cluster}}, gpuAt, "vgpu.on", "end its pod", "divvy vm ls"},
		"a name that is no word":       {withFunction(typed), Own{Claims: []Claim{odd}}, gpuAt, "vgpu.on", "release it", "divvy vm ls"},
		"a function asked for itself":  {withFunction(nil), Own{Claims: []Claim{whole}}, vfAt, "claimed", "claim amd has 0000:01:00.4 for a virtual machine (vf)", "divvy vm release amd"},
		"its vGPU asked for itself":    {withFunction(typed), Own{Claims: []Claim{desk}}, vfAt, "claimed", "(vgpu)", "divvy vm release desk"},
		"with the default route": {func() *facts.Host {
			h := withFunction(nil)
			find(h, vfAt).Uses = []facts.Use{{Kind: "route", Name: "eth0"}}
			return h
		}(), Own{Functions: functions}, gpuAt, "sriov.on", "0000:01:00.4 is in use (the default route leads through eth0)", "lspci -k -s 0000:01:00.4"},
		"with a process": {func() *facts.Host {
			h := withFunction(nil)
			find(h, vfAt).Holders = []facts.Holder{{PID: 5, Name: "qemu", Node: "vfio/8"}}
			return h
		}(), Own{}, gpuAt, "sriov.on", "process 5 (qemu) has /dev/vfio/8 open", "lspci -k -s 0000:01:00.4"},
	} {
		found := Judge(c.host, []facts.Device{*find(c.host, c.asked)}, Question{For: QEMU, Own: c.own})
		if f := found[0]; f.ID != c.id || f.Status != Fail || f.Command != c.command || !strings.Contains(f.Evidence+f.Remedy, c.tell) {
			t.Errorf("%s: first is %+v, want %s with %q and %q", name, f, c.id, c.tell, c.command)
		}
		if len(found) > 1 && (found[1].Status == Fail || found[1].Status == Warn) {
			t.Errorf("%s: %+v is named as well", name, found[1])
		}
	}
}

// Of a device that a claim has nothing is printed: the claim has said what its virtual machine needs.
func TestNothingForAClaimedDevice(t *testing.T) {
	own := Own{Claims: []Claim{{Name: "train", Form: "passthrough", Device: at(gpuAt), Members: []pci.Address{at(gpuAt)}}}}
	for _, platform := range Platforms {
		h := sound()
		r := NewReport(h, []facts.Device{*find(h, gpuAt)}, Question{For: platform, Own: own}, "test")
		if len(r.Needs) > 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "claim train has") || r.Devices[0].Forms[0].Offered {
			t.Errorf("%s: %+v, %q, %+v", platform, r.Needs, r.Notes, r.Devices[0].Forms)
		}
	}
}

// What a claim refuses is a failure here, with each fault that preflight knows, and a claim refuses what is one here, but for what it
// does not look at: what the guest needs, and what is put right by the claim itself.
func TestAgreesWithClaims(t *testing.T) {
	notOfClaims := []ID{"driver.first", "bars", "nvswitch", "modules", "memory", "memlock", "claimed", "shares"}
	for _, f := range faults {
		h := sound()
		h.Modules["vfio_pci"] = facts.Module{Loaded: true, Available: true}
		f.spoil(h)
		if h.Modules == nil {
			continue // a claim loads no module, and preflight tells of those that cannot be loaded
		}
		found := Judge(h, []facts.Device{*find(h, gpuAt)}, Question{For: QEMU, Memory: f.ask.Memory, Own: f.ask.Own})
		var failures []ID
		for _, one := range found {
			if one.Status == Fail && !slices.Contains(notOfClaims, one.ID) {
				failures = append(failures, one.ID)
			}
		}
		_, err := binding.Passthrough(h, at(gpuAt))
		refusal := new(binding.Refusal)
		if err != nil && !errors.As(err, &refusal) {
			t.Fatal(err)
		}
		if kept := f.id == "claimed" || f.id == "shares"; !kept && (err != nil) != (len(failures) > 0) {
			t.Errorf("%s (%s): a claim says %v, and failures are %v", f.id, f.want, err, failures)
		}
	}
}
