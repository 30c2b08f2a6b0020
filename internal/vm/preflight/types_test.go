package preflight

import (
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// The types of a GPU are those of its functions together, by either interface, and no more of one are left than the GPU can have.
func TestTypes(t *testing.T) {
	h := sound()
	gpu := find(h, gpuAt)
	function := func(address string, v *facts.VGPU) facts.Device {
		d := *gpu
		d.Address, d.Virtual, d.Parent, d.VGPU = at(address), true, gpu.Address, v
		return d
	}
	if got := typesOf(h, *gpu); got == nil || len(got) > 0 {
		t.Errorf("of a GPU without vGPUs: %#v, want an empty list", got)
	}
	mdev := func(small, large int) *facts.VGPU {
		return &facts.VGPU{Interface: "mdev", Types: []facts.VGPUType{{ID: "nvidia-689", Name: "A100D-4C", Available: small, Most: 20}, {ID: "nvidia-694", Name: "A100D-40C", Available: large, Most: 2}}}
	}
	h.Devices = append(h.Devices, function("0000:01:00.4", mdev(1, 1)), function("0000:01:00.5", mdev(1, 1)), function("0000:01:00.6", mdev(0, 1)))
	want := []VGPUType{{ID: "nvidia-689", Name: "A100D-4C", Interface: "mdev", Functions: 2, Free: 2, Most: 20}, {ID: "nvidia-694", Name: "A100D-40C", Interface: "mdev", Functions: 3, Free: 2, Most: 2}}
	if got := typesOf(h, *gpu); !slices.Equal(got, want) {
		t.Errorf("by mdev: %+v, want %+v", got, want)
	}
	if got := typesOf(h, h.Devices[len(h.Devices)-1]); len(got) != 2 || got[0].Free != 0 || got[1].Functions != 1 {
		t.Errorf("of one function: %+v", got)
	}
	h.Devices[len(h.Devices)-1].VGPU.Types[1].Made = 1 // two functions still say that they can have one
	if got := typesOf(h, *gpu); len(got) != 2 || got[1].Free != 1 {
		t.Errorf("with one of two made: %+v", got)
	}
	vendor := func(types ...string) *facts.VGPU {
		v := &facts.VGPU{Interface: "vendor-vfio"}
		for _, id := range types {
			v.Types = append(v.Types, facts.VGPUType{ID: id, Name: "H200X-" + id, Available: -1})
		}
		return v
	}
	h.Devices = append(h.Devices[:len(h.Devices)-3], function("0000:01:00.4", vendor("1428", "1430")), function("0000:01:00.5", vendor("1428")))
	want = []VGPUType{{ID: "1428", Name: "H200X-1428", Interface: "vendor-vfio", Functions: 2, Free: 2}, {ID: "1430", Name: "H200X-1430", Interface: "vendor-vfio", Functions: 1, Free: 1}}
	report := NewReport(h, []facts.Device{*gpu}, Question{For: QEMU}, "test")
	if got := report.Devices[0].Types; !slices.Equal(got, want) {
		t.Errorf("by vendor-vfio: %+v, want %+v", got, want)
	}
}
