package pool

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// stored gives slices the names and the rest that the helper library gives them.
func stored(t *testing.T, resources resourceslice.DriverResources) []*resourcev1.ResourceSlice {
	t.Helper()
	var all []*resourcev1.ResourceSlice
	for name, pool := range resources.Pools {
		for i, slice := range pool.Slices {
			all = append(all, &resourcev1.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%05x-%s", i, v1alpha1.Driver)},
				Spec: resourcev1.ResourceSliceSpec{
					Driver: v1alpha1.Driver, NodeName: ptr.To(name), Devices: slice.Devices, SharedCounters: slice.SharedCounters,
					Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
				},
			})
		}
	}
	return all
}

// classes are the device classes as they are installed, by name.
type classes map[string]*resourcev1.DeviceClass

func (c classes) Get(name string) (*resourcev1.DeviceClass, error) {
	if class := c[name]; class != nil {
		return class, nil
	}
	return nil, fmt.Errorf("no class %s", name)
}

func (c classes) List() ([]*resourcev1.DeviceClass, error) {
	return slices.Collect(maps.Values(c)), nil
}

// installed reads the classes from what users install.
func installed(t *testing.T) classes {
	t.Helper()
	text, err := os.ReadFile("../../../../deploy/manifests/divvy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := classes{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if !strings.Contains(document, "\nkind: DeviceClass\n") {
			continue
		}
		var class resourcev1.DeviceClass
		if err := yaml.Unmarshal([]byte(document), &class); err != nil {
			t.Fatal(err)
		}
		found[class.Name] = &class
	}
	if found[v1alpha1.ClassShare] == nil || found[v1alpha1.ClassWhole] == nil {
		t.Fatalf("installed are only %v", slices.Collect(maps.Keys(found)))
	}
	return found
}

// scheduler is Kubernetes' own allocator with the features that 1.36 has on, over one node.
type scheduler struct {
	t       *testing.T
	slices  []*resourcev1.ResourceSlice
	classes classes
	held    map[string]resourcev1.AllocationResult
	cache   *cel.Cache
}

func newScheduler(t *testing.T, gpus []GPU) *scheduler {
	return &scheduler{t: t, slices: slicesOf(t, gpus), classes: installed(t), held: map[string]resourcev1.AllocationResult{}, cache: cel.NewCache(10, cel.Features{EnableConsumableCapacity: true})}
}

func (s *scheduler) state() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	for _, allocation := range s.held {
		for _, result := range allocation.Devices.Results {
			if ptr.Deref(result.AdminAccess, false) {
				continue // the scheduler does not count it
			}
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if result.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
			state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
		}
	}
	return state
}

// take allocates a claim and returns the devices, or nil where it does not fit.
func (s *scheduler) take(name string, spec resourcev1.ResourceClaimSpec) []string {
	s.t.Helper()
	features := structured.Features{
		AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true,
	}
	ctx := context.Background()
	allocator, err := structured.NewAllocator(ctx, features, s.state(), s.classes, s.slices, s.cache)
	if err != nil {
		s.t.Fatal(err)
	}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: spec}
	results, err := allocator.Allocate(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, []*resourcev1.ResourceClaim{claim})
	if err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	if len(results) == 0 {
		return nil
	}
	s.held[name] = results[0]
	var devices []string
	for _, result := range results[0].Devices.Results {
		devices = append(devices, result.Device)
	}
	return devices
}

func (s *scheduler) release(name string) { delete(s.held, name) }

// fits takes a claim and fails the test unless it fits just as expected.
func (s *scheduler) fits(name string, want bool, spec resourcev1.ResourceClaimSpec) []string {
	s.t.Helper()
	devices := s.take(name, spec)
	if (devices != nil) != want {
		s.t.Errorf("%s fits: %v, want %v (held: %v)", name, devices != nil, want, len(s.held))
	}
	return devices
}

// asks makes a claim of one request; amounts are pairs of a capacity and a quantity.
func asks(class string, count int64, amounts ...string) resourcev1.ResourceClaimSpec {
	requests := map[resourcev1.QualifiedName]resource.Quantity{}
	for i := 0; i < len(amounts); i += 2 {
		requests[resourcev1.QualifiedName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count}
	if len(requests) > 0 {
		exactly.Capacity = &resourcev1.CapacityRequirements{Requests: requests}
	}
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: exactly}}}}
}

func share(amounts ...string) resourcev1.ResourceClaimSpec {
	return asks(v1alpha1.ClassShare, 1, amounts...)
}

func gpusOf(n int, memory uint64) []GPU {
	gpus := make([]GPU, n)
	for i := range gpus {
		gpus[i] = GPU{UUID: uuidOf(i), Index: i, Memory: memory}
	}
	return gpus
}

func TestMemorySums(t *testing.T) {
	s := newScheduler(t, gpusOf(1, 16<<30))
	s.fits("a", true, share("memory", "4Gi"))
	s.fits("b", true, share("memory", "8Gi"))
	s.fits("c", false, share("memory", "8Gi"))
	s.fits("c", true, share("memory", "4Gi"))
	s.fits("d", false, share("memory", "1Mi"))
	s.release("b")
	s.fits("e", true, share("memory", "8Gi"))
	s.release("a")
	s.release("c")
	s.release("e")
	s.fits("all", true, share())
	s.fits("f", false, share("memory", "1Mi"))
}

// What a share gets is what the agent reads: amounts are rounded up to the step, and what is not asked has defaults.
func TestConsumed(t *testing.T) {
	s := newScheduler(t, gpusOf(1, 16<<30))
	for i, test := range []struct {
		spec resourcev1.ResourceClaimSpec
		want string
	}{
		{share("memory", "4Gi"), "4Gi 0 1"},
		{share("memory", "1500k", "cores", "30"), "2Mi 30 1"},
		{share("memory", "1", "cores", "0", "slots", "8"), "1Mi 0 8"},
		{share(), "16Gi 0 1"},
	} {
		name := fmt.Sprint(i)
		s.fits(name, true, test.spec)
		consumed := s.held[name].Devices.Results[0].ConsumedCapacity
		memory, cores, slots := consumed[v1alpha1.CapacityMemory], consumed[v1alpha1.CapacityCores], consumed[v1alpha1.CapacitySlots]
		if got := fmt.Sprint(memory.String(), " ", cores.String(), " ", slots.String()); got != test.want {
			t.Errorf("%d: consumed %s, want %s", i, got, test.want)
		}
		s.release(name)
	}
	s.fits("more", false, share("memory", "17Gi"))
	s.fits("much", false, share("memory", "1Gi", "cores", "101"))
}

func TestCoresSum(t *testing.T) {
	s := newScheduler(t, gpusOf(1, 16<<30))
	s.fits("a", true, share("memory", "1Gi", "cores", "60"))
	s.fits("b", false, share("memory", "1Gi", "cores", "41"))
	s.fits("b", true, share("memory", "1Gi", "cores", "40"))
	s.fits("c", false, share("memory", "1Gi", "cores", "1"))
	s.fits("weighted", true, share("memory", "1Gi"))
}

func TestSlots(t *testing.T) {
	s := newScheduler(t, gpusOf(1, 16<<30))
	s.fits("lonely", true, share("memory", "1Mi", "slots", fmt.Sprint(v1alpha1.SlotsPerGPU-3)))
	for i := range 3 {
		s.fits(fmt.Sprint(i), true, share("memory", "1Mi"))
	}
	s.fits("one more", false, share("memory", "1Mi"))
	s.release("1")
	s.fits("one more", true, share("memory", "1Mi"))
}

// A whole GPU and shares of it are never given out together, whichever came first.
func TestWholeAndShared(t *testing.T) {
	s := newScheduler(t, gpusOf(2, 16<<30))
	first := s.fits("a", true, share("memory", "4Gi"))
	second := s.fits("whole", true, asks(v1alpha1.ClassWhole, 1))
	if !slices.Equal(first, []string{Name(uuidOf(0), Shared)}) || !slices.Equal(second, []string{Name(uuidOf(1), Shared)}) {
		t.Errorf("the share is on %v, the whole GPU is %v", first, second)
	}
	s.fits("another", false, asks(v1alpha1.ClassWhole, 1))
	s.fits("large", false, share("memory", "13Gi"))
	s.fits("b", true, share("memory", "12Gi"))
	s.release("whole")
	s.fits("large", true, share("memory", "13Gi"))
	s.fits("another", false, asks(v1alpha1.ClassWhole, 1))
	s.release("a")
	s.fits("another", false, asks(v1alpha1.ClassWhole, 1)) // b is still there
	s.release("b")
	s.fits("another", true, asks(v1alpha1.ClassWhole, 1))
	s.fits("c", false, share("memory", "4Gi"))
	consumed := s.held["another"].Devices.Results[0].ConsumedCapacity[v1alpha1.CapacityMemory]
	if consumed.String() != "16Gi" {
		t.Errorf("a whole GPU of 16Gi takes %s", consumed.String())
	}
}

// Mode All means to Kubernetes' allocator all GPUs of a node of which nobody has anything, and at least one.
func TestAllOfANode(t *testing.T) {
	all := asks(v1alpha1.ClassWhole, 0)
	all.Devices.Requests[0].Exactly.AllocationMode = resourcev1.DeviceAllocationModeAll
	s := newScheduler(t, gpusOf(3, 16<<30))
	s.fits("share", true, share("memory", "1Gi"))
	if got := s.fits("all", true, all); len(got) != 2 {
		t.Errorf("all are %v", got)
	}
	s.fits("none is left", false, all)
	s.fits("large", false, share("memory", "16Gi"))
	s.release("all")
	s.release("share")
	if got := s.fits("all", true, all); len(got) != 3 {
		t.Errorf("all are %v", got)
	}
	s.fits("share", false, share("memory", "1Mi"))
}

func TestCountIsDifferentGPUs(t *testing.T) {
	for _, class := range []string{v1alpha1.ClassShare, v1alpha1.ClassWhole} {
		s := newScheduler(t, gpusOf(3, 16<<30))
		got := s.fits("pair", true, asks(class, 2))
		if len(got) != 2 || got[0] == got[1] {
			t.Errorf("%s: a pair is %v", class, got)
		}
		s.fits("pair again", false, asks(class, 2))
		s.fits("one", true, asks(class, 1))
	}
}

// Two requests of one claim may share a GPU, unless the claim forbids it.
func TestRequestsOfOneClaim(t *testing.T) {
	both := share("memory", "4Gi")
	second := *both.Devices.Requests[0].DeepCopy()
	second.Name = "second"
	both.Devices.Requests = append(both.Devices.Requests, second)
	s := newScheduler(t, gpusOf(1, 16<<30))
	if got := s.fits("both", true, both); len(got) != 2 || got[0] != got[1] {
		t.Errorf("two requests got %v", got)
	}
	s.release("both")
	both.Devices.Constraints = []resourcev1.DeviceConstraint{{DistinctAttribute: ptr.To(resourcev1.FullyQualifiedName("divvy.dev/uuid"))}}
	s.fits("apart", false, both)
	s = newScheduler(t, gpusOf(2, 16<<30))
	if got := s.fits("apart", true, both); len(got) != 2 || got[0] == got[1] {
		t.Errorf("two requests apart got %v", got)
	}
}

func TestUnhealthyGPUs(t *testing.T) {
	gpus := gpusOf(3, 16<<30)
	gpus[0].Fault = &Fault{Reason: "lost", Lost: true}
	gpus[2].Fault = &Fault{Reason: "ecc"}
	s := newScheduler(t, gpus)
	if got := s.fits("a", true, share("memory", "1Gi")); !slices.Equal(got, []string{Name(uuidOf(1), Shared)}) {
		t.Errorf("a share is on %v", got)
	}
	s.fits("whole", false, asks(v1alpha1.ClassWhole, 1))
	gpus[0].Fault = nil
	s.slices = slicesOf(t, gpus)
	if got := s.fits("whole", true, asks(v1alpha1.ClassWhole, 1)); !slices.Equal(got, []string{Name(uuidOf(0), Shared)}) {
		t.Errorf("a whole GPU is %v", got)
	}
}

// GPUs that lie together are found by the attributes that say where they lie.
func TestConstraints(t *testing.T) {
	for attribute, want := range map[resourcev1.FullyQualifiedName]int{"divvy.dev/numaNode": 4, "divvy.dev/pcieSwitch": 2, "resource.kubernetes.io/pcieRoot": 2, "divvy.dev/nvlinkClique": 8} {
		for count := range 8 {
			together := asks(v1alpha1.ClassWhole, int64(count+1))
			together.Devices.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: ptr.To(attribute)}}
			newScheduler(t, machine(t, "a800x8")).fits(fmt.Sprintf("%d GPUs of one %s", count+1, attribute), count+1 <= want, together)
		}
	}
	selected := share("memory", "1Gi")
	for expression, want := range map[string]bool{
		`device.attributes["divvy.dev"].driverVersion.isGreaterThan(semver("535.0.0"))`:   true,
		`device.attributes["divvy.dev"].cudaVersion.compareTo(semver("13.0.0")) >= 0`:     false,
		`device.attributes["divvy.dev"].architecture == "ampere"`:                         true,
		`device.attributes["divvy.dev"].model.contains("A800")`:                           true,
		`device.attributes["divvy.dev"].index == 7 && device.allowMultipleAllocations`:    true,
		`device.capacity["divvy.dev"].memory.isGreaterThan(quantity("80Gi"))`:             false,
		`device.attributes["resource.kubernetes.io"].pciBusID.startsWith("0000:0e:00.0")`: true,
	} {
		selected.Devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
		newScheduler(t, machine(t, "a800x8")).fits(expression, want, selected)
	}
}

// TestWebhookTemplates allocates every template of the translation's goldens on a node.
func TestWebhookTemplates(t *testing.T) {
	goldens, err := filepath.Glob("../../../dialect/testdata/*.want.yaml")
	if err != nil || len(goldens) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, golden := range goldens {
		text, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		var want struct {
			Templates []resourcev1.ResourceClaimTemplate `json:"templates"`
		}
		if err := yaml.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		if len(want.Templates) == 0 && !strings.Contains(filepath.Base(golden), "slots") {
			t.Errorf("%s has no templates", golden)
		}
		gpus := gpusOf(8, 16<<30)
		for i := range gpus {
			gpus[i].Model, gpus[i].Architecture = "NVIDIA A100-SXM4-40GB", "ampere"
			gpus[i].Location = &Location{PCI: fmt.Sprintf("0000:%02x:00.0", i), Root: fmt.Sprintf("pci0000:%02x", i/2), NUMANode: i / 4}
			if i >= 4 {
				gpus[i].Memory = 40 << 30
			}
		}
		for _, template := range want.Templates {
			s := newScheduler(t, gpus).withCards(cardsBeside(gpus)...)
			got := s.fits(golden+" "+template.Name, true, template.Spec.Spec)
			for _, device := range got {
				if _, _, ok := Parse(device); !ok && !strings.HasPrefix(device, "nic-") {
					t.Errorf("%s got %s", golden, device)
				}
			}
		}
	}
}
