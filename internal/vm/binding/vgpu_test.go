package binding_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/vgpu"
)

const uuid = "11111111-2222-3333-4444-000000000001"

// files are what a host driver has in sysfs: numbers that can be written, and mediated devices by their UUIDs.
type files map[string]string

func filesOf(gpu *vgpu.GPU) files {
	f := files{binding.DeviceFolder(gpu.Address) + "/sriov_numvfs": fmt.Sprint(gpu.FunctionsNow), binding.DeviceFolder(gpu.Address) + "/sriov_drivers_autoprobe": gpu.Probed}
	for _, function := range gpu.Functions {
		folder := binding.DeviceFolder(function.Address) + "/nvidia/"
		if function.Interface == vgpu.Vendor {
			f[folder+"current_vgpu_type"] = "0"
			if function.Current != "" {
				f[folder+"current_vgpu_type"] = function.Current
			}
			f[folder+"gpu_instance_id"] = function.Instance
		}
		for _, made := range function.Made {
			f[made.UUID] = made.Type
		}
	}
	return f
}

func (f files) write(t *testing.T, w binding.Write) {
	t.Helper()
	name := path.Base(w.Path)
	switch old, there := f[w.Path]; {
	case name == "create":
		f[w.Value] = path.Base(path.Dir(w.Path))
	case name == "remove":
		delete(f, path.Base(path.Dir(w.Path)))
	case !there, name == "current_vgpu_type" && old != "0" && w.Value != "0", name == "gpu_instance_id" && f[path.Dir(w.Path)+"/current_vgpu_type"] != "0":
		t.Fatalf("%q is written to %s, which has %q", w.Value, w.Path, old)
	default:
		f[w.Path] = w.Value
	}
}

// vgpuLaw makes every prefix of a plan, undoes it in reverse, and compares.
func vgpuLaw(t *testing.T, gpu *vgpu.GPU, plan binding.Plan) {
	t.Helper()
	before := filesOf(gpu)
	for count := range len(plan.Steps) + 1 {
		f := maps.Clone(before)
		for _, s := range plan.Steps[:count] {
			if s.String() == "" || s.Alike != (s.Kind != binding.Mediate) || !s.Kind.Whole() {
				t.Fatalf("%+v", s)
			}
			f.write(t, s.Do)
		}
		for _, s := range slices.Backward(plan.Steps[:count]) {
			f.write(t, s.Undo)
		}
		if !maps.Equal(f, before) {
			t.Fatalf("after %d steps and their undoing there is %v, want %v", count, f, before)
		}
	}
}

// randomVGPUs is a GPU of either interface in any state.
func randomVGPUs(r *rand.Rand) *vgpu.GPU {
	gpu := &vgpu.GPU{Address: pci.Address{Bus: 1}, FunctionsTotal: r.IntN(5)}
	gpu.FunctionsNow = r.IntN(gpu.FunctionsTotal + 1)
	gpu.Probed, gpu.Driver = []string{"1", "0", ""}[r.IntN(3)], []string{"nvidia", "gim", ""}[r.IntN(3)]
	for number := range 1 + r.IntN(4) {
		f := vgpu.Function{Address: pci.Address{Bus: 1, Function: uint8(number)}, Group: r.IntN(3) - 1, Interface: vgpu.Vendor, HasInstance: r.IntN(2) == 0, Instance: "4294967295"}
		prefix := ""
		if r.IntN(2) == 0 {
			f.Interface, prefix = vgpu.Mediated, "nvidia-"
			for i := range r.IntN(3) {
				f.Made = append(f.Made, vgpu.Made{UUID: fmt.Sprintf("11111111-2222-3333-4444-%08d%04d", number, i), Type: "nvidia-471"})
			}
		} else if r.IntN(3) == 0 {
			f.Current = "472"
		}
		for _, id := range []string{"471", "472"} {
			if r.IntN(3) > 0 {
				f.Types = append(f.Types, vgpu.Type{ID: prefix + id, Name: "NVIDIA A100-" + id + "C", Free: r.IntN(3)})
			}
		}
		gpu.Functions = append(gpu.Functions, f)
	}
	return gpu
}

// Over random GPUs the law holds for whatever is planned, and nothing is planned on a function that has nothing left, that
// somebody has, or that has a type.
func TestRandomVGPUs(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 4)) //nolint:gosec // the same GPUs each time
	planned := 0
	for range 3000 {
		gpu := randomVGPUs(r)
		w := binding.Wanted{UUID: uuid, Not: []pci.Address{{Bus: 1, Function: uint8(r.IntN(4))}}}
		if choices := gpu.Choices(); len(choices) > 0 {
			w.Type = choices[r.IntN(len(choices))]
		}
		if instance := r.IntN(4); instance < 2 {
			w.Instance = &instance
		}
		if plan, err := binding.EnableFunctions(gpu, r.IntN(6)); err == nil {
			vgpuLaw(t, gpu, plan)
			if gpu.FunctionsNow > 0 {
				t.Fatalf("functions are enabled from %d", gpu.FunctionsNow)
			}
		}
		plan, err := binding.MakeVGPU(gpu, w)
		var refusal *binding.Refusal
		if err != nil {
			if !errors.As(err, &refusal) {
				t.Fatalf("%v is no refusal", err)
			}
			continue
		}
		planned++
		vgpuLaw(t, gpu, plan)
		f := gpu.Functions[slices.IndexFunc(gpu.Functions, func(f vgpu.Function) bool { return f.Address == plan.Device })]
		at := slices.IndexFunc(f.Types, func(k vgpu.Type) bool { return k.ID == w.Type.ID })
		told := at >= 0 && f.Types[at].Free > 0 || w.Instance != nil && f.HasInstance
		if !told || f.Current != "" || slices.Contains(w.Not, f.Address) || f.Interface != w.Type.Interface {
			t.Fatalf("%+v is planned on %+v", w, f)
		}
		if given := slices.Contains(plan.Members, f.Address); given != (f.Interface == vgpu.Vendor) {
			t.Fatalf("the members are %v", plan.Members)
		}
	}
	if planned < 300 {
		t.Errorf("only %d GPUs of 3000 had a plan", planned)
	}
}

func TestVGPURefusals(t *testing.T) {
	gpu := &vgpu.GPU{Address: pci.Address{Bus: 1}, FunctionsTotal: 4, Functions: []vgpu.Function{{
		Address: pci.Address{Bus: 1}, Interface: vgpu.Mediated, Made: []vgpu.Made{{UUID: uuid, Type: "nvidia-471"}},
		Types: []vgpu.Type{{ID: "nvidia-471", Name: "A\nB", Free: 2}, {ID: "nvidia-472"}},
	}}}
	small, large := gpu.Choices()[0], gpu.Choices()[1]
	for name, c := range map[string]struct {
		w    binding.Wanted
		why  error
		text string
	}{
		"a UUID in use":   {binding.Wanted{Type: small, UUID: uuid}, binding.ErrUUIDTaken, uuid + " on 0000:01:00.0"},
		"no UUID":         {binding.Wanted{Type: small, UUID: "../../x"}, binding.ErrUUID, `"../../x"`},
		"nothing left":    {binding.Wanted{Type: large, UUID: strings.Replace(uuid, "1", "2", 1)}, binding.ErrFull, `there are nvidia-471 ("A\nB", 2 left)`},
		"somebody has it": {binding.Wanted{Type: small, UUID: strings.Replace(uuid, "1", "2", 1), Not: []pci.Address{{Bus: 1}}}, binding.ErrFull, "nvidia-471"},
	} {
		if _, err := binding.MakeVGPU(gpu, c.w); !errors.Is(err, c.why) || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %v with %s", name, err, c.why, c.text)
		}
	}
}
