package pool

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"math/rand"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// modelOf reads the profiles of a recorded GPU.
func modelOf(t testing.TB, name string) *layouts.Model {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../../testdata/mig", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	profiles, err := layouts.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	m, err := layouts.NewModel(profiles)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var slicesIn = regexp.MustCompile(`\.(\d+)gb`)

// placeOf describes an instance: its memory is what the profile's name says, and its processors follow from its slices.
func placeOf(m *layouts.Model, p layouts.Placement) Instance {
	profile := m.Profiles()[p.Profile]
	var gigabytes uint64
	fmt.Sscan(slicesIn.FindStringSubmatch(profile.Name)[1], &gigabytes)
	return Instance{
		Profile: profile.Name, Start: p.Start, Size: profile.Size, Takes: profile.Takes,
		Memory: gigabytes << 30, Multiprocessors: 14 * int(profile.Takes[layouts.ComputeSlices]),
	}
}

// dividable has GPUs whose layout may change, in the model's order.
func dividable(m *layouts.Model, n int) []GPU {
	gpus := gpusOf(n, 79<<30)
	for i := range gpus {
		gpus[i].Form = MIG
		gpus[i].Division = &Division{Dynamic: true, Multiprocessors: 98}
		for rank, p := range m.Placements() {
			one := placeOf(m, p)
			one.Rank = rank
			gpus[i].Division.Instances = append(gpus[i].Division.Instances, one)
		}
	}
	return gpus
}

// divided is a GPU with these instances, such as 1g.10gb@3.
func divided(t *testing.T, m *layouts.Model, index int, instances ...string) GPU {
	t.Helper()
	gpu := gpusOf(index+1, 79<<30)[index]
	gpu.Form, gpu.Division = MIG, &Division{Multiprocessors: 98}
	for i, text := range instances {
		name, at, _ := strings.Cut(text, "@")
		start := 0
		fmt.Sscan(at, &start)
		if m.Placed(m.Profile(name), start) == 0 {
			t.Fatalf("no placement %s", text)
		}
		one := placeOf(m, layouts.Placement{Profile: m.Profile(name), Start: start})
		one.UUID = fmt.Sprintf("MIG-%08x-2222-4333-8444-%012x", index, i)
		gpu.Division.Instances = append(gpu.Division.Instances, one)
	}
	return gpu
}

// profiled asks for an instance with a profile.
func profiled(profile string) resourcev1.ResourceClaimSpec {
	return oneOf(v1alpha1.ClassMIG, nil, fmt.Sprintf("device.attributes[%q].profile == %q", v1alpha1.Driver, profile))
}

func TestInstanceNames(t *testing.T) {
	for profile, want := range map[string]string{
		"1g.10gb": "1g10gb", "1g.10gb+me": "1g10gbpme", "7g.141gb": "7g141gb", "1g.24gb-me": "1g24gbmme", "1g.24gb+me.all": "1g24gbpme-all", "4g.96gb+gfx": "4g96gbpgfx",
	} {
		name := InstanceName(uuidOf(7), profile, 4)
		if want := strings.ToLower(uuidOf(7)) + "-mig-" + want + "-4"; name != want {
			t.Errorf("%s is named %s, want %s", profile, name, want)
		}
		if uuid, form, ok := Parse(name); !ok || uuid != uuidOf(7) || form != MIG {
			t.Errorf("%s is of %s, form %s", name, uuid, form)
		}
		if got, start, ok := ParseInstance(name); !ok || got != profile || start != 4 {
			t.Errorf("%s is %s at %d", name, got, start)
		}
	}
	for _, end := range []string{"-mig-1g10gb", "-mig-1g10gb-04", "-mig-1g10gb-32", "-mig-0g10gb-1", "-mig-1g10gbx-1", "-mig--1", "-shared"} {
		if profile, start, ok := ParseInstance(strings.ToLower(uuidOf(7)) + end); ok {
			t.Errorf("%s is %s at %d", end, profile, start)
		}
	}
}

// Instances of fixed layouts take no counters, one claim each. Who asks for amounts gets the smallest that has them,
// wherever it is, and no class of GPUs or shares gets any.
func TestFixedLayouts(t *testing.T) {
	m := modelOf(t, "a100-80gb")
	gpus := append(gpusOf(1, 79<<30), divided(t, m, 1, "3g.40gb@4", "2g.20gb@0"), divided(t, m, 2, "1g.10gb@0", "1g.10gb@1"))
	s := newScheduler(t, gpus)
	for _, slice := range s.slices {
		checkSlice(t, slice)
		if len(slice.Spec.SharedCounters) > 0 {
			t.Errorf("slice %s has counters", slice.Name)
		}
	}
	s.fits("whole", true, asks(v1alpha1.ClassWhole, 1))
	s.fits("no other whole", false, asks(v1alpha1.ClassWhole, 1))
	s.fits("no share", false, share("memory", "1Gi"))
	byMemory := s.fits("8Gi", true, asks(v1alpha1.ClassMIG, 1, "memory", "8Gi"))
	byCores := s.fits("20 cores", true, asks(v1alpha1.ClassMIG, 1, "cores", "20"))
	first := s.fits("any", true, asks(v1alpha1.ClassMIG, 1))
	for got, want := range map[string]string{
		byMemory[0]: InstanceName(uuidOf(2), "1g.10gb", 0), byCores[0]: InstanceName(uuidOf(1), "2g.20gb", 0), first[0]: InstanceName(uuidOf(2), "1g.10gb", 1),
	} {
		if got != want {
			t.Errorf("%s was given, want %s", got, want)
		}
	}
	s.fits("larger", false, asks(v1alpha1.ClassMIG, 1, "memory", "41Gi"))
	s.fits("none small is left", false, profiled("1g.10gb"))
	s.fits("3g", true, profiled("3g.40gb"))
	s.fits("none is left", false, asks(v1alpha1.ClassMIG, 1))
	s.release("8Gi")
	s.fits("1g", true, profiled("1g.10gb"))
}

// Whatever claims come and go on GPUs whose layout may change, the allocator gives together what can be there together,
// and refuses nothing that can.
func TestCountersAllowEveryLayout(t *testing.T) {
	for _, name := range []string{"a100-80gb", "h200", "b200", "a30"} {
		t.Run(name, func(t *testing.T) {
			m := modelOf(t, name)
			const count = 3
			s := newScheduler(t, dividable(m, count))
			for _, slice := range s.slices {
				checkSlice(t, slice)
			}
			random := rand.New(rand.NewSource(1))
			var held [count]layouts.Layout
			has := map[string]int{} // the GPU of each claim
			for step := range 150 {
				if claims := slices.Sorted(maps.Keys(has)); len(claims) > 0 && random.Intn(3) == 0 {
					claim := claims[random.Intn(len(claims))]
					profile, start, _ := ParseInstance(s.held[claim].Devices.Results[0].Device)
					held[has[claim]] &^= m.Placed(m.Profile(profile), start)
					s.release(claim)
					delete(has, claim)
					continue
				}
				profile := random.Intn(len(m.Profiles()))
				fits := slices.ContainsFunc(held[:], func(l layouts.Layout) bool { return m.Fits(l, 0, profile) })
				claim := fmt.Sprint(step)
				got := s.fits(claim, fits, profiled(m.Profiles()[profile].Name))
				if len(got) != 1 {
					continue
				}
				uuid, _, _ := Parse(got[0])
				_, start, _ := ParseInstance(got[0])
				at := slices.IndexFunc(gpusOf(count, 0), func(g GPU) bool { return g.UUID == uuid })
				if held[at] |= m.Placed(profile, start); !m.Valid(held[at]) {
					t.Fatalf("%s was given beside layout %b", got[0], held[at])
				}
				has[claim] = at
			}
		})
	}
}

// What belongs to instances of which the scheduler does not know is left to them.
func TestInstancesOfOthers(t *testing.T) {
	m := modelOf(t, "a100-80gb")
	gpus := dividable(m, 1)
	other := m.Placed(m.Profile("1g.10gb+me"), 6) | m.Placed(m.Profile("3g.40gb"), 0)
	d := gpus[0].Division
	d.Taken = m.Slices(other)
	for rest := other; rest != 0; rest &= rest - 1 {
		for c, n := range m.Profiles()[m.Placements()[bits.TrailingZeros64(uint64(rest))].Profile].Takes {
			d.Used[c] += n
		}
	}
	s := newScheduler(t, gpus)
	s.fits("3g", false, profiled("3g.40gb"))
	s.fits("7g", false, profiled("7g.80gb"))
	s.fits("me", false, profiled("1g.10gb+me"))
	for i, want := range []bool{true, true, false} { // at 4 and 5: slice 7 is no place of 1g
		s.fits(fmt.Sprint("1g-", i), want, profiled("1g.10gb"))
	}
}

// The scheduler takes the instance of the best rank, and a new order is a change of the slice that has the devices alone.
func TestRanks(t *testing.T) {
	m := modelOf(t, "a100-80gb")
	gpus := dividable(m, 2)
	before := slicesOf(t, gpus)
	for i := range gpus[1].Division.Instances {
		one := &gpus[1].Division.Instances[i]
		if one.Profile == "1g.10gb" && one.Start == 5 {
			one.Rank = -1
		}
	}
	s := newScheduler(t, gpus)
	if got := s.fits("1g", true, profiled("1g.10gb")); got[0] != InstanceName(uuidOf(1), "1g.10gb", 5) {
		t.Errorf("the first is %v", got)
	}
	if len(before) != 2 || len(s.slices) != 2 || len(s.slices[0].Spec.SharedCounters) != 2 {
		t.Fatalf("two GPUs have %d and %d slices", len(before), len(s.slices))
	}
	for i := range before {
		had, has := namesOf(before[i]), namesOf(s.slices[i])
		if slices.Equal(had, has) != (i == 0) {
			t.Errorf("slice %d is %v", i, has)
		}
		slices.Sort(had)
		slices.Sort(has)
		if !slices.Equal(had, has) {
			t.Errorf("slice %d had %v and has %v", i, had, has)
		}
	}
}

func namesOf(slice *resourcev1.ResourceSlice) (names []string) {
	for i := range slice.Spec.Devices {
		names = append(names, slice.Spec.Devices[i].Name)
	}
	return names
}

// Eight GPUs of everything that a node can have keep the API's limits.
func TestLimitsWithInstances(t *testing.T) {
	h200 := modelOf(t, "h200")
	gpus := dividable(h200, 9)
	for i := range gpus {
		gpus[i].Location = &Location{PCI: "0000:3b:00.0", Root: "pci0000:3a", Switch: "0000:3a:00.0", Clique: "c", NUMANode: 1}
		gpus[i].Model, gpus[i].Architecture, gpus[i].Brand, gpus[i].Capability = "NVIDIA H200", "hopper", "Nvidia", "9.0"
		gpus[i].DriverVersion, gpus[i].CUDA, gpus[i].NVIDIANames = "570.86.15", 12080, true
		gpus[i].Fault, gpus[i].Changing = &Fault{Reason: "lost", Lost: true}, Shared
	}
	fixed := divided(t, h200, 9, "1g.18gb@0")
	copied := gpus[0]
	copied.UUID, copied.Index, copied.Division = fixed.UUID, fixed.Index, fixed.Division
	published := slicesOf(t, append(gpus, copied))
	if len(published) != 2+1+5 { // counters of nine GPUs, the fixed instance, and two GPUs in each of the others
		t.Errorf("%d slices", len(published))
	}
	for _, slice := range published {
		checkSlice(t, slice)
	}
	copied.Division.Instances[0].Profile = "1g"
	if _, err := Resources(node, []GPU{copied}); !errors.Is(err, ErrGPU) {
		t.Errorf("a profile without memory: %v", err)
	}
}

// nvidiaMIGClass is the device class that the chart makes where it is told to.
func nvidiaMIGClass(t *testing.T) *resourcev1.DeviceClass {
	t.Helper()
	text, err := os.ReadFile("../../../../deploy/chart/templates/classes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`expression: (.*type == "mig")`).FindSubmatch(text)
	if found == nil {
		t.Fatal("the chart has no class for NVIDIA's MIG devices")
	}
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClassNVIDIAMIG}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: string(found[1])}}},
	}}
}

// NVIDIA's example asks for four instances of one GPU (kubernetes-sigs/dra-driver-nvidia-gpu,
// demo/specs/quickstart/v1/gpu-test4.yaml), its tests for amounts (tests/bats/specs/gpu-simple-mig.yaml).
func TestNVIDIAsClaims(t *testing.T) {
	m := modelOf(t, "a100-80gb")
	balanced := []string{"1g.10gb@0", "1g.10gb@1", "2g.20gb@2", "3g.40gb@4"}
	together := resourcev1.ResourceClaimSpec{}
	for i, profile := range []string{"1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"} {
		one := oneOf(v1alpha1.ClassNVIDIAMIG, nil, "device.attributes['gpu.nvidia.com'].profile == '"+profile+"'").Devices.Requests[0]
		one.Name = fmt.Sprint("mig-", i)
		together.Devices.Requests = append(together.Devices.Requests, one)
	}
	together.Devices.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: ptr.To(resourcev1.FullyQualifiedName("gpu.nvidia.com/parentUUID"))}}
	for name, gpus := range map[string][]GPU{
		"fixed":   {divided(t, m, 0, "1g.10gb@0", "2g.20gb@2", "3g.40gb@4"), divided(t, m, 1, balanced...)},
		"dynamic": dividable(m, 1),
	} {
		t.Run(name, func(t *testing.T) {
			for i := range gpus {
				gpus[i].NVIDIANames = true
			}
			s := newScheduler(t, gpus)
			s.classes[v1alpha1.ClassNVIDIA], s.classes[v1alpha1.ClassNVIDIAMIG] = nvidiaClass(t), nvidiaMIGClass(t)
			s.fits("a GPU", false, asks(v1alpha1.ClassNVIDIA, 1))
			got := s.fits("four", true, together)
			for _, device := range got {
				if uuid, _, _ := Parse(device); uuid != gpus[len(gpus)-1].UUID {
					t.Errorf("four are %v", got)
				}
			}
			s.fits("four more", false, together)
			s.release("four")
			s.fits("amounts", true, oneOf(v1alpha1.ClassNVIDIAMIG, nil,
				`device.capacity['gpu.nvidia.com'].multiprocessors.isGreaterThan(quantity("30")) && device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity("10Gi"))`))
			if profile, _, _ := ParseInstance(s.held["amounts"].Devices.Results[0].Device); profile != "3g.40gb" {
				t.Errorf("42 processors are those of 3g, and not of %s", profile)
			}
		})
	}
}
