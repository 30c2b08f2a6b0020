package dialect

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// upstream are the fields of NVIDIA's opaque configurations for GPUs, of all kinds: kubernetes-sigs/dra-driver-nvidia-gpu,
// api/nvidia.com/resource/v1beta1, commit 95932046. For each there are documents that work, with what they ask, and
// documents that are refused, with the reason.
var upstream = []struct {
	field   string
	works   map[string]GPUConfig // by what stands in the document after its kind
	refused map[string]string
}{
	{"GpuConfig.sharing", map[string]GPUConfig{``: {}, `"sharing": null`: {}}, map[string]string{
		`"sharing": {}`: `sharing.strategy "": use TimeSlicing or MPS`, `"sharing": []`: "cannot unmarshal", `"Sharing": {"strategy": "MPS"}`: `unknown field "Sharing"`,
		`"sharing": {"strategy": "MPS"}, "sharing": {"strategy": "MPS"}`: "duplicate field", `"replicas": 3`: `unknown field "replicas"`,
	}},
	{"GpuConfig.sharing.strategy", map[string]GPUConfig{
		`"sharing": {"strategy": "TimeSlicing"}`: {Backend: v1alpha1.BackendTimeslice}, `"sharing": {"strategy": "MPS"}`: {Backend: v1alpha1.BackendMPS},
	}, map[string]string{`"sharing": {"strategy": "Time-Slicing"}`: `strategy "Time-Slicing": use`, `"sharing": {"strategy": 1}`: "cannot unmarshal"}},
	{"GpuConfig.sharing.timeSlicingConfig", map[string]GPUConfig{
		`"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {}}`: {Backend: v1alpha1.BackendTimeslice},
	}, map[string]string{`"sharing": {"strategy": "MPS", "timeSlicingConfig": {}}`: "timeSlicingConfig is for strategy TimeSlicing"}},
	{"GpuConfig.sharing.timeSlicingConfig.interval", map[string]GPUConfig{
		interval("Default"): {Backend: v1alpha1.BackendTimeslice}, interval("Short"): {Backend: v1alpha1.BackendTimeslice, Interval: "short"},
		interval("Medium"): {Backend: v1alpha1.BackendTimeslice, Interval: "medium"}, interval("Long"): {Backend: v1alpha1.BackendTimeslice, Interval: "long"},
	}, map[string]string{interval("long"): `interval "long": use Default, Short, Medium or Long`, interval(""): `interval ""`}},
	{"GpuConfig.sharing.mpsConfig", map[string]GPUConfig{mpsWith(``): {Backend: v1alpha1.BackendMPS}}, map[string]string{
		`"sharing": {"strategy": "TimeSlicing", "mpsConfig": {}}`: "mpsConfig is for strategy MPS", mpsWith(`"threads": 3`): `unknown field "sharing.mpsConfig.threads"`,
	}},
	{"GpuConfig.sharing.mpsConfig.defaultActiveThreadPercentage", map[string]GPUConfig{
		mpsWith(`"defaultActiveThreadPercentage": 50`): {Backend: v1alpha1.BackendMPS, Threads: 50}, mpsWith(`"defaultActiveThreadPercentage": 1`): {Backend: v1alpha1.BackendMPS, Threads: 1},
		mpsWith(`"defaultActiveThreadPercentage": 100`): {Backend: v1alpha1.BackendMPS, Threads: 100},
	}, map[string]string{
		mpsWith(`"defaultActiveThreadPercentage": 0`): "give 1 to 100", mpsWith(`"defaultActiveThreadPercentage": 101`): "give 1 to 100",
		mpsWith(`"defaultActiveThreadPercentage": -1`): "give 1 to 100", mpsWith(`"defaultActiveThreadPercentage": "50"`): "cannot unmarshal",
	}},
	{"GpuConfig.sharing.mpsConfig.defaultPinnedDeviceMemoryLimit", map[string]GPUConfig{
		mpsWith(`"defaultPinnedDeviceMemoryLimit": "10Gi"`): {Backend: v1alpha1.BackendMPS, Memory: 10 << 30}, mpsWith(`"defaultPinnedDeviceMemoryLimit": "1500Ki"`): {Backend: v1alpha1.BackendMPS, Memory: 1 << 20},
	}, map[string]string{
		mpsWith(`"defaultPinnedDeviceMemoryLimit": "0"`): "give at least 1Mi", mpsWith(`"defaultPinnedDeviceMemoryLimit": "-1Gi"`): "give at least 1Mi",
		mpsWith(`"defaultPinnedDeviceMemoryLimit": "1e30"`): "no more than a GPU can have", mpsWith(`"defaultPinnedDeviceMemoryLimit": "much"`): "quantities must match",
	}},
	{"GpuConfig.sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit", map[string]GPUConfig{
		mpsWith(`"defaultPerDevicePinnedMemoryLimit": {"0": "8Gi", "GPU-a": "4Gi"}`): {Backend: v1alpha1.BackendMPS, MemoryOf: map[string]uint64{"0": 8 << 30, "GPU-a": 4 << 30}},
	}, map[string]string{
		mpsWith(`"defaultPerDevicePinnedMemoryLimit": {"-1": "8Gi"}`): "name a GPU by its UUID", mpsWith(`"defaultPerDevicePinnedMemoryLimit": {"00": "8Gi"}`): "name a GPU by its UUID",
		mpsWith(`"defaultPerDevicePinnedMemoryLimit": {"0": "1Ki"}`): "Limit.0 1Ki: give at least 1Mi",
	}},
	{"GpuConfig.sharing.mpsConfig.multiUser", map[string]GPUConfig{mpsWith(`"multiUser": false`): {Backend: v1alpha1.BackendMPS}}, map[string]string{
		mpsWith(`"multiUser": true`): "for the node's administrator to say",
	}},
	{"MigDeviceConfig", nil, map[string]string{`kind MigDeviceConfig "sharing": {"strategy": "MPS"}`: "it is for MIG devices"}},
	{"VfioDeviceConfig", nil, map[string]string{`kind VfioDeviceConfig "iommu": {"backendPolicy": "LegacyOnly"}`: "virtual machines get GPUs by claims of class passthrough.divvy.dev"}},
	{"ComputeDomainChannelConfig", nil, map[string]string{`kind ComputeDomainChannelConfig "domainID": "a"`: "compute domains are not offered"}},
	{"ComputeDomainDaemonConfig", nil, map[string]string{`kind ComputeDomainDaemonConfig "domainID": "a"`: "compute domains are not offered"}},
}

func interval(word string) string {
	return `"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "` + word + `"}}`
}

func mpsWith(fields string) string {
	return `"sharing": {"strategy": "MPS", "mpsConfig": {` + fields + `}}`
}

// documentOf writes a document of which only the fields are given, and the kind if it is another than GpuConfig.
func documentOf(fields string) []byte {
	kind := "GpuConfig"
	if rest, ok := strings.CutPrefix(fields, "kind "); ok {
		kind, fields, _ = strings.Cut(rest, " ")
	}
	head := `{"apiVersion": "resource.nvidia.com/v1beta1", "kind": "` + kind + `"`
	if fields != "" {
		head += ", "
	}
	return []byte(head + fields + "}")
}

func TestEveryFieldOfNVIDIAsConfigurations(t *testing.T) {
	for _, f := range upstream {
		t.Run(f.field, func(t *testing.T) {
			for fields, want := range f.works {
				if got, err := DecodeGPUConfig(documentOf(fields)); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %+v, %v, want %+v", fields, got, err, want)
				}
			}
			for fields, want := range f.refused {
				if _, err := DecodeGPUConfig(documentOf(fields)); !errors.Is(err, ErrGPUConfig) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", fields, err, want)
				}
			}
			if len(f.works)+len(f.refused) == 0 {
				t.Error("not tried")
			}
		})
	}
}

// TestNVIDIAsFieldsAreTold compares the fields with those of the types that are decoded, and with the manual's table.
func TestNVIDIAsFieldsAreTold(t *testing.T) {
	var known []string
	fieldsOf(reflect.TypeFor[gpuConfig](), "GpuConfig", &known)
	manual, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range upstream {
		short := strings.TrimPrefix(f.field, "GpuConfig.")
		if !strings.Contains(string(manual), "`"+short+"`") {
			t.Errorf("docs/kubernetes.md does not say what becomes of %s", short)
		}
		known = slices.DeleteFunc(known, func(name string) bool { return name == f.field })
	}
	if len(known) > 0 {
		t.Errorf("decoded, and no field of NVIDIA's: %v", known)
	}
}

// fieldsOf lists the fields of a document's type, without its version and kind.
func fieldsOf(of reflect.Type, path string, into *[]string) {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || of.PkgPath() != reflect.TypeFor[gpuConfig]().PkgPath() {
		return
	}
	for i := range of.NumField() {
		name := of.Field(i).Tag.Get("json")
		if name == "apiVersion" || name == "kind" {
			continue
		}
		*into = append(*into, path+"."+name)
		fieldsOf(of.Field(i).Type, path+"."+name, into)
	}
}

func TestOtherDocumentsForNVIDIA(t *testing.T) {
	for text, want := range map[string]string{
		``: "unexpected end", `[]`: "cannot unmarshal", `{}`: `it is "" ""`,
		`{"apiVersion": "gpu.resource.nvidia.com/v1alpha1", "kind": "GpuConfig"}`:  "write resource.nvidia.com/v1beta1 GpuConfig",
		`{"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GPUConfig"}`:       "write resource.nvidia.com/v1beta1 GpuConfig",
		`{"apiVersion": "divvy.dev/v1alpha1", "kind": "ShareConfig", "weight": 3}`: "write resource.nvidia.com/v1beta1 GpuConfig",
	} {
		if _, err := DecodeGPUConfig([]byte(text)); !errors.Is(err, ErrGPUConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestLimitsOfSingleGPUs(t *testing.T) {
	c, err := DecodeGPUConfig(documentOf(mpsWith(`"defaultPinnedDeviceMemoryLimit": "3Gi", "defaultPerDevicePinnedMemoryLimit": {"1": "2Gi", "GPU-c": "1Gi"}`)))
	if err != nil {
		t.Fatal(err)
	}
	for place, want := range []uint64{3 << 30, 2 << 30, 1 << 30} {
		if got := c.LimitOf([]string{"GPU-a", "GPU-b", "GPU-c"}[place], place); got != want {
			t.Errorf("GPU %d: %d, want %d", place, got, want)
		}
	}
	if err := c.Unknown([]string{"GPU-a", "GPU-b", "GPU-c"}); err != nil {
		t.Error(err)
	}
	if err := c.Unknown([]string{"GPU-c"}); !errors.Is(err, ErrGPUConfig) || !strings.Contains(err.Error(), "names GPU 1") {
		t.Errorf("a limit of the second of one GPU: %v", err)
	}
}

func FuzzDecodeGPUConfig(f *testing.F) {
	for _, u := range upstream {
		for fields := range u.works {
			f.Add(documentOf(fields))
		}
		for fields := range u.refused {
			f.Add(documentOf(fields))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := DecodeGPUConfig(text)
		if err != nil && !errors.Is(err, ErrGPUConfig) {
			t.Fatalf("%s: %v", text, err)
		}
		if err == nil && (c.Threads < 0 || c.Threads > v1alpha1.MaxCores || c.Memory%mebibyte != 0 || c.Backend == v1alpha1.BackendSlice) {
			t.Fatalf("%s: %+v", text, c)
		}
	})
}
