package pool

import (
	"bytes"
	"errors"
	"flag"
	"math/rand"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/internal/dialect"
)

var update = flag.Bool("update", false, "rewrite golden files")

const node = "node-1"

// slicesOf makes the pool and returns its slices as the cluster stores them.
func slicesOf(t *testing.T, gpus []GPU) []*resourcev1.ResourceSlice {
	t.Helper()
	resources, err := Resources(node, gpus)
	if err != nil {
		t.Fatal(err)
	}
	return stored(t, resources)
}

// Goldens are what the scheduler reads of each machine that can be simulated.
func TestMachines(t *testing.T) {
	for _, name := range []string{"a100-80g", "h100x8", "a800x8", "t4"} {
		t.Run(name, func(t *testing.T) {
			gpus := machine(t, name)
			if name == "a800x8" {
				gpus[2].Fault = &Fault{Reason: "xid-79", Lost: true}
				gpus[5].Fault = &Fault{Reason: "row-remap-pending"}
			}
			resources, err := Resources(node, gpus)
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(resources.Pools)
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, name+".yaml", got)
		})
	}
}

// compareGolden compares a text with a file of testdata, or rewrites that.
func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	golden := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s:\n%s", golden, got)
	}
}

func TestNames(t *testing.T) {
	const uuid = "GPU-8dd5f44a-1b64-4d3a-9a4f-0d4b4a0a3a3e"
	for name, want := range map[string]struct {
		uuid string
		form Form
	}{
		"gpu-8dd5f44a-1b64-4d3a-9a4f-0d4b4a0a3a3e":        {uuid, Whole},
		"gpu-8dd5f44a-1b64-4d3a-9a4f-0d4b4a0a3a3e-shared": {uuid, Shared},
	} {
		if got, form, ok := Parse(name); !ok || got != want.uuid || form != want.form {
			t.Errorf("%s is %s %s %v", name, got, form, ok)
		}
		if got := Name(want.uuid, want.form); got != name {
			t.Errorf("%s %s is named %s", want.uuid, want.form, got)
		}
	}
	for _, name := range []string{"", "gpu-", "gpu--shared", "gpu-1_2", "GPU-8dd5", "mig-1", "gpu-../x", "nic-0"} {
		if uuid, form, ok := Parse(name); ok {
			t.Errorf("%q is %s %s", name, uuid, form)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("gpu-8dd5f44a-1b64-4d3a-9a4f-0d4b4a0a3a3e-shared")
	f.Add("gpu-shared")
	f.Add("gpu-8dd5f44a-1b64-4d3a-9a4f-0d4b4a0a3a3e-mig-1g24gbpme-all-3")
	f.Fuzz(func(t *testing.T, name string) {
		uuid, form, ok := Parse(name)
		if profile, start, instance := ParseInstance(name); instance != (form == MIG) || instance && InstanceName(uuid, profile, start) != name {
			t.Errorf("%q is %s at %d of %s, form %s", name, profile, start, uuid, form)
		}
		if ok && form != MIG && Name(uuid, form) != name {
			t.Errorf("%q is %s %s, which is named %q", name, uuid, form, Name(uuid, form))
		}
	})
}

func TestGPUsThatCannotBePublished(t *testing.T) {
	good := GPU{UUID: uuidOf(1), Memory: 16 << 30}
	for _, spoil := range []func(*GPU){
		func(g *GPU) { g.UUID = "" },
		func(g *GPU) { g.UUID = "GPU-ABCD" }, // its name would stand for another
		func(g *GPU) { g.UUID = "GPU-1-shared" },
		func(g *GPU) { g.UUID = "GPU-" + strings.Repeat("a", 60) },
		func(g *GPU) { g.Memory = 1 << 20 },
		func(g *GPU) { g.Fault = &Fault{Reason: "two words"} },
		func(g *GPU) { g.DefaultCores = -1 },
		func(g *GPU) { g.DefaultCores = 101 },
	} {
		bad := good
		spoil(&bad)
		if _, err := Resources(node, []GPU{good, bad}); !errors.Is(err, ErrGPU) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestSemver(t *testing.T) {
	for version, want := range map[string]string{
		"535.104.05": "535.104.5", "550.54": "550.54.0", "550": "550.0.0", "535.183.06-beta2": "535.183.6", "0.0.0": "0.0.0",
		"560.35.03.01": "560.35.3", "570-open.86": "570.0.0", "": "", "unknown": "", ".5": "", "99999999999999999999.1": "",
		"1..3": "1.0.0",
	} {
		if got := Semver(version); got != want {
			t.Errorf("%q is %q, want %q", version, got, want)
		}
	}
	for version, want := range map[int]string{0: "", 12040: "12.4.0", 13000: "13.0.0", 9020: "9.2.0"} {
		if got := CUDASemver(version); got != want {
			t.Errorf("%d is %q, want %q", version, got, want)
		}
	}
}

// semver is the form that semver.org suggests, without what may follow the numbers.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$`)

func FuzzSemver(f *testing.F) {
	f.Add("535.104.05")
	f.Fuzz(func(t *testing.T, version string) {
		if got := Semver(version); got != "" && !semver.MatchString(got) {
			t.Errorf("%q is %q", version, got)
		}
	})
}

func TestLocations(t *testing.T) {
	for name, want := range map[string][]Location{
		"a800x8": {
			{PCI: "0000:1b:00.0", Root: "pci0000:16", Switch: "0000:17:00.0", NUMANode: 0, Clique: "GPU-a8000000-0000-0000-0000-000000000000"},
			{PCI: "0000:21:00.0", Root: "pci0000:16", Switch: "0000:17:00.0", NUMANode: 0, Clique: "GPU-a8000000-0000-0000-0000-000000000000"},
		},
		"vm": nil,
	} {
		host := recorded(t, name)
		locations := Locations(host)
		if len(locations) != len(host.GPUs) {
			t.Errorf("%s: %d of %d GPUs have a location", name, len(locations), len(host.GPUs))
		}
		for i, location := range want {
			if got := locations[host.GPUs[i].UUID]; got != location {
				t.Errorf("%s: GPU %d is at %+v, want %+v", name, i, got, location)
			}
		}
	}
}

// TestLimits makes pools of every size and checks the bounds of the API, of which the scheduler never hears when they
// are broken: the API server refuses the slice.
func TestLimits(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for count := range 200 {
		gpus := make([]GPU, count)
		for i := range gpus {
			gpus[i] = GPU{
				UUID: uuidOf(i), Index: random.Intn(8), Model: strings.Repeat("é", random.Intn(60)), Architecture: "hopper",
				Memory: 2<<20 + random.Uint64()>>20, DriverVersion: "535.104.05", CUDA: random.Intn(14000),
			}
			if random.Intn(2) == 0 {
				gpus[i].Location = &Location{PCI: "0000:3b:00.0", Root: "pci0000:3a", NUMANode: random.Intn(3) - 1, Clique: strings.Repeat("c", 80)}
			}
			if random.Intn(4) == 0 {
				gpus[i].Fault = &Fault{Reason: "lost", Lost: random.Intn(2) == 0}
			}
			if random.Intn(4) == 0 {
				held := random.Uint64() >> 20 * uint64(random.Intn(2))
				gpus[i].Held = &held
			}
		}
		published := slicesOf(t, gpus)
		devices := 0
		for _, slice := range published {
			checkSlice(t, slice)
			devices += len(slice.Spec.Devices)
		}
		most := resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
		if want := max((count+most-1)/most, 1); devices != count || len(published) != want {
			t.Fatalf("%d GPUs are %d devices in %d slices", count, devices, len(published))
		}
	}
}

func checkSlice(t *testing.T, slice *resourcev1.ResourceSlice) {
	t.Helper()
	spec := &slice.Spec
	most := resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	if len(spec.Devices) > most || len(spec.SharedCounters) > resourcev1.ResourceSliceMaxCounterSets || len(spec.Devices) > 0 && len(spec.SharedCounters) > 0 {
		t.Errorf("%d devices and %d counter sets in one slice", len(spec.Devices), len(spec.SharedCounters))
	}
	for _, set := range spec.SharedCounters {
		checkCounters(t, set.Name, set.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet)
	}
	for _, device := range spec.Devices {
		if faults := validation.IsDNS1123Label(device.Name); len(faults) > 0 {
			t.Errorf("%s: %v", device.Name, faults)
		}
		if _, form, _ := Parse(device.Name); form != MIG && len(device.ConsumesCounters) > 0 {
			t.Errorf("%s takes counters", device.Name)
		}
		for _, c := range device.ConsumesCounters {
			checkCounters(t, c.CounterSet, c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption)
		}
		if n := len(device.Attributes) + len(device.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
			t.Errorf("%s has %d attributes and capacities", device.Name, n)
		}
		for name, attribute := range device.Attributes {
			for _, text := range []*string{attribute.StringValue, attribute.VersionValue} {
				if text != nil && (*text == "" || len(*text) > resourcev1.DeviceAttributeMaxValueLength || !slices.Equal([]rune(*text), []rune(strings.ToValidUTF8(*text, "?")))) {
					t.Errorf("%s: %s is %q", device.Name, name, *text)
				}
			}
			if v := attribute.VersionValue; v != nil && !semver.MatchString(*v) {
				t.Errorf("%s: %s is %q", device.Name, name, *v)
			}
		}
		for name, capacity := range device.Capacity {
			if policy := capacity.RequestPolicy; policy != nil {
				checkPolicy(t, device.Name+" "+string(name), capacity.Value.Value(), policy)
			}
		}
		for _, taint := range device.Taints {
			if faults := append(validation.IsQualifiedName(taint.Key), validation.IsValidLabelValue(taint.Value)...); len(faults) > 0 {
				t.Errorf("%s: %v", device.Name, faults)
			}
		}
	}
}

func checkCounters(t *testing.T, set string, counters map[string]resourcev1.Counter, most int) {
	t.Helper()
	if len(validation.IsDNS1123Label(set)) > 0 || len(counters) == 0 || len(counters) > most {
		t.Errorf("counter set %s has %d counters", set, len(counters))
	}
	for name, c := range counters {
		if len(validation.IsDNS1123Label(name)) > 0 || c.Value.Sign() < 0 {
			t.Errorf("counter %s is %s", name, c.Value.String())
		}
	}
}

// checkPolicy holds a policy against the rules that its type states.
func checkPolicy(t *testing.T, what string, value int64, policy *resourcev1.CapacityRequestPolicy) {
	t.Helper()
	unasked, least, step := policy.Default.Value(), policy.ValidRange.Min.Value(), policy.ValidRange.Step.Value()
	if unasked < least || unasked > value || step <= 0 || unasked%step != 0 || least < 0 || least+step > value {
		t.Errorf("%s: of %d, default %d, at least %d in steps of %d", what, value, unasked, least, step)
	}
	if most := policy.ValidRange.Max; most != nil && (most.Value() < least || most.Value() > value || most.Value() < unasked || (most.Value()-least)%step != 0) {
		t.Errorf("%s: of %d, default %d, at least %d and at most %d in steps of %d", what, value, unasked, least, most.Value(), step)
	}
}

// TestWebhookReadsThePool pins that names and amounts mean the same to those who publish and those who ask.
func TestWebhookReadsThePool(t *testing.T) {
	gpus := []GPU{
		{UUID: uuidOf(0), Memory: 16 << 30}, {UUID: uuidOf(1), Memory: 40<<30 + 4711}, {UUID: uuidOf(2), Memory: 16 << 30},
	}
	var published []resourcev1.ResourceSlice
	for _, slice := range slicesOf(t, gpus) {
		published = append(published, *slice)
	}
	if got := dialect.InventoryOf(published).Sizes; !slices.Equal(got, []uint64{16 << 30, 40 << 30}) {
		t.Errorf("the webhook sees GPUs of %v bytes", got)
	}
}
