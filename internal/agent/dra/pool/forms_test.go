package pool

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Each of these GPUs has another form; the last one is published under NVIDIA's names as well.
func ofEachForm() []GPU {
	gpus := []GPU{{Form: Timeslice}, {Form: MPS, DefaultCores: 5}, {Form: Shared, DefaultCores: 5}, {NVIDIANames: true}}
	for i := range gpus {
		g := &gpus[i]
		g.UUID, g.Index, g.Memory = fmt.Sprintf("GPU-00000000-0000-4000-8000-00000000000%d", i), i, 16<<30
		g.Model, g.DriverVersion, g.CUDA, g.Architecture, g.Brand, g.Capability = "NVIDIA A100-SXM4-80GB", "535.104.05", 12040, "ampere", "Nvidia", "8.0"
		g.Location = &Location{PCI: "0000:3b:00.0", Root: "pci0000:3a", NUMANode: 1}
	}
	return gpus
}

// nvidiaClass is the device class that the chart makes where it is told to.
func nvidiaClass(t *testing.T) *resourcev1.DeviceClass {
	t.Helper()
	text, err := os.ReadFile("../../../../deploy/chart/templates/classes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`expression: (.*gpu\.nvidia\.com.*)`).FindSubmatch(text)
	if found == nil {
		t.Fatal("the chart has no class for NVIDIA's devices")
	}
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClassNVIDIA}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: string(found[1])}}},
	}}
}

// oneOf asks for one device of a class; amounts are pairs of a capacity and a quantity, selectors CEL.
func oneOf(class string, amounts map[string]string, selectors ...string) resourcev1.ResourceClaimSpec {
	e := &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}
	if len(amounts) > 0 {
		e.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{}}
	}
	for name, amount := range amounts {
		e.Capacity.Requests[resourcev1.QualifiedName(name)] = resource.MustParse(amount)
	}
	for _, s := range selectors {
		e.Selectors = append(e.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: s}})
	}
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: e}}}}
}

// TestFormsAreToldApart allocates with Kubernetes' own allocator: a claim gets a GPU of its class's form and no other.
func TestFormsAreToldApart(t *testing.T) {
	gpus := ofEachForm()
	for name, c := range map[string]struct {
		class   string
		amounts map[string]string
		by      string
		devices []string // that claims get, one after another
	}{
		"slices":               {v1alpha1.ClassShare, map[string]string{"memory": "8Gi"}, "", []string{Name(gpus[2].UUID, Shared), Name(gpus[2].UUID, Shared), Name(gpus[3].UUID, Shared)}},
		"time slices":          {v1alpha1.ClassTimeslice, map[string]string{"memory": "8Gi"}, "", []string{Name(gpus[0].UUID, Timeslice), Name(gpus[0].UUID, Timeslice), ""}},
		"time slices by cores": {v1alpha1.ClassTimeslice, map[string]string{"memory": "8Gi", "cores": "1"}, "", []string{""}},
		"side by side":         {v1alpha1.ClassMPS, map[string]string{"memory": "8Gi", "cores": "70"}, "", []string{Name(gpus[1].UUID, MPS), ""}},
		"no ceiling":           {v1alpha1.ClassMPS, map[string]string{"memory": "8Gi"}, "", []string{Name(gpus[1].UUID, MPS), Name(gpus[1].UUID, MPS), ""}},
		"whole":                {v1alpha1.ClassWhole, nil, "", []string{Name(gpus[0].UUID, Timeslice), Name(gpus[1].UUID, MPS), Name(gpus[2].UUID, Shared), Name(gpus[3].UUID, Shared), ""}},
		"NVIDIA's":             {v1alpha1.ClassNVIDIA, nil, "", []string{Name(gpus[3].UUID, Shared), ""}},
		"NVIDIA's by names": {v1alpha1.ClassNVIDIA, nil, `device.attributes["gpu.nvidia.com"].productName.lowerAscii().matches("^.*a100.*$") && device.attributes["gpu.nvidia.com"].index == 3
			&& device.attributes["gpu.nvidia.com"].architecture == "Ampere" && device.attributes["gpu.nvidia.com"].brand == "Nvidia"
			&& device.attributes["gpu.nvidia.com"].cudaComputeCapability.compareTo(semver("8.0.0")) == 0
			&& device.attributes["gpu.nvidia.com"].driverVersion.isGreaterThan(semver("535.0.0")) && device.attributes["gpu.nvidia.com"].cudaDriverVersion.compareTo(semver("12.4.0")) == 0
			&& device.attributes["gpu.nvidia.com"].uuid == "` + gpus[3].UUID + `" && device.attributes["resource.kubernetes.io"].numaNode == 1
			&& device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("10Gi")) > 0`, []string{Name(gpus[3].UUID, Shared)}},
		"NVIDIA's, too large": {v1alpha1.ClassNVIDIA, nil, `device.capacity["gpu.nvidia.com"].memory.isGreaterThan(quantity("40Gi"))`, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScheduler(t, gpus)
			s.classes[v1alpha1.ClassNVIDIA] = nvidiaClass(t)
			var selectors []string
			if c.by != "" {
				selectors = []string{c.by}
			}
			for i, want := range c.devices {
				got := s.take(fmt.Sprint("claim-", i), oneOf(c.class, c.amounts, selectors...))
				if want == "" && len(got) > 0 || want != "" && !slices.Equal(got, []string{want}) {
					t.Errorf("claim %d got %v, want %q", i, got, want)
				}
			}
		})
	}
}

// TestNVIDIAsNamesKeepSharesApart has two shares on a device that has NVIDIA's capacity as well: neither takes of it.
func TestNVIDIAsNamesKeepSharesApart(t *testing.T) {
	s := newScheduler(t, ofEachForm()[3:])
	for i := range 2 {
		if got := s.take(fmt.Sprint("share-", i), oneOf(v1alpha1.ClassShare, map[string]string{"memory": "8Gi"})); len(got) != 1 {
			t.Errorf("share %d got %v", i, got)
		}
	}
}

// TestChangingFormKeepsAway looks that a GPU which is to get another form is offered to nobody.
func TestChangingFormKeepsAway(t *testing.T) {
	gpu := ofEachForm()[2]
	gpu.Changing = MPS
	if got := newScheduler(t, []GPU{gpu}).take("share", oneOf(v1alpha1.ClassShare, map[string]string{"memory": "8Gi"})); len(got) > 0 {
		t.Errorf("allocated %v", got)
	}
}

func TestSlotsOfMPS(t *testing.T) {
	for cuda, want := range map[int]int64{12040: 48, 13000: 48, 13010: 60} {
		gpu := ofEachForm()[1]
		gpu.CUDA = cuda
		device := gpu.device()
		slots := device.Capacity[v1alpha1.CapacitySlots]
		if got := slots.Value.Value(); got != want {
			t.Errorf("CUDA %d: %d shares, want %d", cuda, got, want)
		}
	}
}

func TestReplicas(t *testing.T) {
	gpu := ofEachForm()[0]
	gpu.Replicas = 2
	s := newScheduler(t, []GPU{gpu})
	for i, want := range []int{1, 1, 0} {
		if got := s.take(fmt.Sprint("share-", i), oneOf(v1alpha1.ClassTimeslice, map[string]string{"memory": "1Gi"})); len(got) != want {
			t.Errorf("share %d got %v", i, got)
		}
	}
}

func TestInvalidForms(t *testing.T) {
	for _, change := range []func(*GPU){func(g *GPU) { g.Form = Whole }, func(g *GPU) { g.Form = "vgpu" }, func(g *GPU) { g.Changing = Whole }} {
		gpu := ofEachForm()[0]
		change(&gpu)
		if _, err := Resources(node, []GPU{gpu}); err == nil {
			t.Errorf("form %q, changing to %q, was published", gpu.Form, gpu.Changing)
		}
	}
}

// The API refuses a device with a capacity whose step is larger than the amount, and so the whole slice: a GPU whose time
// the driver divides has no cores.
func TestStepsFitTheirAmounts(t *testing.T) {
	resources, err := Resources("n1", ofEachForm())
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for _, slice := range resources.Pools["n1"].Slices {
		for i := range slice.Devices {
			for name, c := range slice.Devices[i].Capacity {
				if c.RequestPolicy == nil || c.RequestPolicy.ValidRange == nil || c.RequestPolicy.ValidRange.Step == nil {
					continue
				}
				if steps++; c.RequestPolicy.ValidRange.Step.Cmp(c.Value) > 0 {
					t.Errorf("%s has %s of %s, in steps of %s", slice.Devices[i].Name, c.Value.String(), name, c.RequestPolicy.ValidRange.Step.String())
				}
			}
		}
	}
	if steps == 0 {
		t.Error("nothing has steps")
	}
}
