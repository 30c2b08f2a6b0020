package pool

import (
	"errors"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/pci"
)

func address(text string) pci.Address {
	a, err := pci.ParseAddress(text)
	if err != nil {
		panic(err)
	}
	return a
}

// physical is a GPU for passthrough.
func physical(at string, group int) Function {
	return Function{
		FunctionID: FunctionID{Form: Passthrough, Address: address(at)}, Vendor: 0x10de, Product: 0x2331, Model: "NVIDIA H100 PCIe",
		Group: group, Location: &Location{Root: "pci0000:3a", Switch: "0000:3a:01.0", NUMANode: 0},
	}
}

// mediated is one of the mediated devices that a function could have.
func mediated(at string, number int) Function {
	return Function{
		FunctionID: FunctionID{Form: VGPU, Address: address(at), Type: "471", Mediated: true, Number: number},
		Vendor:     0x10de, Product: 0x2235, TypeName: "NVIDIA A40-8Q", Group: NoGroup,
	}
}

func TestFunctionNames(t *testing.T) {
	for name, want := range map[string]FunctionID{
		"passthrough-0000-3b-00-0":  {Form: Passthrough, Address: address("0000:3b:00.0")},
		"passthrough-10000-e1-1f-7": {Form: Passthrough, Address: address("10000:e1:1f.7")},
		"vf-0000-3b-00-4":           {Form: VF, Address: address("0000:3b:00.4")},
		"vgpu-0000-3b-00-4-471":     {Form: VGPU, Address: address("0000:3b:00.4"), Type: "471"},
		"vgpu-0000-3b-00-0-471-12":  {Form: VGPU, Address: address("0000:3b:00.0"), Type: "471", Mediated: true, Number: 12},
	} {
		got, ok := ParseFunction(name)
		if !ok || got != want || want.Name() != name {
			t.Errorf("%s is %+v, %v, and %+v is %s", name, got, ok, want, want.Name())
		}
	}
	for _, name := range []string{
		"", "vf", "vgpu-0000-3b-00-4", "vf-0000-3b-00-4-471", "passthrough-0000-3b-00-0-1-2", "vgpu-0000-3b-00-0-471-1024", "vgpu-0000-3b-00-0-471-01",
		"vf-3b-00-4", "vf-00000-3b-00-4", "vf-0000-3b-20-4", "vf-0000-3B-00-4", "nic-0000-3b-00-4", "gpu-8dd5f44a-1b64-4d3a-9a4f-0d4b4a0a3a3e-shared",
	} {
		if id, ok := ParseFunction(name); ok {
			t.Errorf("%q is %+v", name, id)
		}
	}
}

func FuzzParseFunction(f *testing.F) {
	f.Add("passthrough-0000-3b-00-0")
	f.Add("vgpu-0000-3b-00-0-471-12")
	f.Add("vf-10000-e1-00-4")
	f.Fuzz(func(t *testing.T, name string) {
		id, ok := ParseFunction(name)
		if ok && (id.Name() != name || len(validation.IsDNS1123Label(name)) > 0) {
			t.Errorf("%q is %+v, which is named %q", name, id, id.Name())
		}
		if _, _, gpu := Parse(name); gpu && ok {
			t.Errorf("%q is a GPU's as well", name)
		}
	})
}

// functionsOf has a scheduler over a node with one GPU for shares and devices for virtual machines.
func functionsOf(t *testing.T, functions ...Function) *scheduler {
	t.Helper()
	more, err := Functions(functions)
	if err != nil {
		t.Fatal(err)
	}
	resources, err := Resources(node, gpusOf(1, 16<<30), more...)
	if err != nil {
		t.Fatal(err)
	}
	s := newScheduler(t, nil)
	s.slices = stored(t, resources)
	return s
}

// Kubernetes' allocator gives each device to one claim, and a class only what is of its form.
func TestFunctionsAreExclusive(t *testing.T) {
	virtual := Function{FunctionID: FunctionID{Form: VF, Address: address("0000:c1:00.4")}, Parent: address("0000:c1:00.0"), Vendor: 0x1002, Product: 0x74b5, Group: 71}
	s := functionsOf(t, physical("0000:3b:00.0", 12), virtual, mediated("0000:5e:00.0", 0), mediated("0000:5e:00.0", 1))
	for _, c := range []struct {
		name, class string
		want        string
	}{
		{"p1", v1alpha1.ClassPassthrough, "passthrough-0000-3b-00-0"}, {"p2", v1alpha1.ClassPassthrough, ""},
		{"f1", v1alpha1.ClassVF, "vf-0000-c1-00-4"}, {"f2", v1alpha1.ClassVF, ""},
		{"v1", v1alpha1.ClassVGPU, "vgpu-0000-5e-00-0-471-0"}, {"v2", v1alpha1.ClassVGPU, "vgpu-0000-5e-00-0-471-1"}, {"v3", v1alpha1.ClassVGPU, ""},
		{"whole", v1alpha1.ClassWhole, Name(uuidOf(0), Shared)}, {"mig", v1alpha1.ClassMIG, ""},
	} {
		got := s.fits(c.name, c.want != "", asks(c.class, 1))
		if c.want != "" && !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s got %v, want %s", c.name, got, c.want)
		}
	}
}

// Two GPUs of one IOMMU group are never given to two claims, because they reach each other's memory.
func TestGroupIsGivenAsAWhole(t *testing.T) {
	s := functionsOf(t, physical("0000:3b:00.0", 12), physical("0000:3c:00.0", 12), physical("0000:86:00.0", 30))
	s.fits("first", true, asks(v1alpha1.ClassPassthrough, 1))
	if got := s.fits("second", true, asks(v1alpha1.ClassPassthrough, 1)); !slices.Contains(got, "passthrough-0000-3b-00-0") && !slices.Contains(got, "passthrough-0000-86-00-0") {
		t.Errorf("the second claim got %v", got)
	}
	s.fits("third", false, asks(v1alpha1.ClassPassthrough, 1))
	s.release("first")
	s.fits("fourth", true, asks(v1alpha1.ClassPassthrough, 1))
	s.fits("fifth", false, asks(v1alpha1.ClassPassthrough, 1))
}

// A claim chooses a type of vGPU by its attributes.
func TestVGPUTypeIsSelected(t *testing.T) {
	other := mediated("0000:5e:00.0", 0)
	other.Type, other.TypeName = "474", "NVIDIA A40-24Q"
	s := functionsOf(t, mediated("0000:3b:00.0", 0), other)
	claim := asks(v1alpha1.ClassVGPU, 1)
	claim.Devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.attributes["divvy.dev"].vgpuType == "474"`}}}
	if got := s.fits("large", true, claim); !slices.Equal(got, []string{other.Name()}) {
		t.Errorf("it got %v", got)
	}
	s.fits("larger", false, claim)
}

// The example for a virtual machine with a GPU and a card has both below one switch, whichever of two GPUs and cards that takes.
func TestGPUAndCardOfAMachine(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/examples/kubevirt/gpu-and-card.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var template resourcev1.ResourceClaimTemplate
	first, _, _ := strings.Cut(string(text), "\n---\n")
	if err := yaml.UnmarshalStrict([]byte(first), &template); err != nil {
		t.Fatal(err)
	}
	for i := range template.Spec.Spec.Devices.Requests { // as the API server writes what is left out
		template.Spec.Spec.Devices.Requests[i].Exactly.AllocationMode, template.Spec.Spec.Devices.Requests[i].Exactly.Count = resourcev1.DeviceAllocationModeExactCount, 1
	}
	card := func(at, parent, below string) Function {
		return Function{
			FunctionID: FunctionID{Form: VF, Address: address(at)}, Parent: address(parent), Vendor: 0x15b3, Product: 0x101e, Group: 50,
			Location: &Location{Root: "pci0000:3a", Switch: below},
		}
	}
	near, far := physical("0000:3b:00.0", 12), physical("0000:5e:00.0", 13)
	far.Location = &Location{Root: "pci0000:3a", Switch: "0000:5d:01.0"}
	for below, gpu := range map[string]string{near.Location.Switch: near.Name(), far.Location.Switch: far.Name(), "0000:99:01.0": ""} {
		s := functionsOf(t, near, far, card("0000:c1:00.4", "0000:c1:00.0", below))
		if got := s.fits(below, gpu != "", template.Spec.Spec); gpu != "" && !slices.Equal(got, []string{gpu, "vf-0000-c1-00-4"}) {
			t.Errorf("with a card below %s it gets %v", below, got)
		}
	}
}

// Taints keep claims away from what cannot be given away now.
func TestStuckFunctionIsNotGiven(t *testing.T) {
	stuck := physical("0000:3b:00.0", 12)
	stuck.Fault = &Fault{Reason: "stuck"}
	functionsOf(t, stuck).fits("one", false, asks(v1alpha1.ClassPassthrough, 1))
}

// Drawn devices keep within the API's limits, and each is published once.
func TestFunctionsKeepTheLimits(t *testing.T) {
	for seed := range int64(200) {
		draw := rand.New(rand.NewSource(seed))
		var functions []Function
		want := map[string]bool{}
		for i := range draw.Intn(150) {
			f := physical(fmt.Sprintf("0000:%02x:00.0", i), draw.Intn(60))
			if draw.Intn(3) == 0 {
				f = mediated(fmt.Sprintf("0000:%02x:00.0", i), draw.Intn(100))
			}
			functions, want[f.Name()] = append(functions, f), true
		}
		all, err := Functions(functions)
		if err != nil {
			t.Fatal(err)
		}
		sets := map[string]bool{}
		for _, s := range all {
			if len(s.Devices) > resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures || len(s.SharedCounters) > resourcev1.ResourceSliceMaxCounterSets || len(s.Devices) > 0 && len(s.SharedCounters) > 0 {
				t.Fatalf("seed %d: a slice of %d devices and %d counter sets", seed, len(s.Devices), len(s.SharedCounters))
			}
			for _, set := range s.SharedCounters {
				sets[set.Name] = true
			}
		}
		for _, s := range all {
			for _, d := range s.Devices {
				if !want[d.Name] {
					t.Errorf("seed %d: %s is published twice or is not there", seed, d.Name)
				}
				delete(want, d.Name)
				for _, c := range d.ConsumesCounters {
					if !sets[c.CounterSet] {
						t.Errorf("seed %d: %s takes of %s, which is not there", seed, d.Name, c.CounterSet)
					}
				}
			}
		}
		if len(want) > 0 {
			t.Errorf("seed %d: %v are not published", seed, want)
		}
	}
}

// The golden is what the scheduler reads of a device of each kind.
func TestFunctionAttributes(t *testing.T) {
	typed := Function{
		FunctionID: FunctionID{Form: VGPU, Address: address("0000:3b:00.4"), Type: "471"}, Parent: address("0000:3b:00.0"),
		Vendor: 0x10de, Product: 0x2331, TypeName: "NVIDIA H100-10C", Group: 80, Location: &Location{NUMANode: -1},
	}
	all, err := Functions([]Function{physical("0000:86:00.0", 12), typed, mediated("0000:5e:00.0", 3)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "functions.yaml", got)
}

func TestFunctionsThatCannotBePublished(t *testing.T) {
	for _, spoil := range []func(*Function){
		func(f *Function) { f.Form = Shared },
		func(f *Function) { f.Type = "471" },
		func(f *Function) { f.Form, f.Type = VGPU, "A40-8Q" },
		func(f *Function) { f.Form, f.Type, f.Mediated, f.Number = VGPU, "471", true, maxNumber+1 },
		func(f *Function) { f.Fault = &Fault{Reason: "two words"} },
	} {
		f := physical("0000:3b:00.0", 1)
		spoil(&f)
		if _, err := Functions([]Function{f}); !errors.Is(err, ErrGPU) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	long := physical("0000:3b:00.0", 1)
	long.Model = strings.Repeat("é", 80)
	if _, err := Functions([]Function{long}); err != nil {
		t.Error(err)
	}
}
