package dialect

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Each field of NVIDIA's MigDeviceConfig (kubernetes-sigs/dra-driver-nvidia-gpu, api/nvidia.com/resource/v1beta1) works or
// is refused.
func TestMIGConfig(t *testing.T) {
	for fields, want := range map[string]string{
		"": "", `"sharing": null`: "", `"sharing": {"strategy": "TimeSlicing"}`: "",
		`"sharing": {"strategy": "TimeSlicing", "mpsConfig": {}}`:                            "mpsConfig is for strategy MPS",
		`"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Short"}}`: `unknown field "sharing.timeSlicingConfig"`,
		`"sharing": {"strategy": "MPS"}`:                                                     "sharing.strategy MPS: a claim's processes share a MIG device by the driver's time slices",
		`"sharing": {"strategy": "Exclusive"}`:                                               `sharing.strategy "Exclusive": use TimeSlicing`,
		`"sharing": {}`:                                                                      `sharing.strategy "": use TimeSlicing`,
		`"Sharing": {}`:                                                                      `unknown field "Sharing"`,
		`"sharing": {"strategy": "TimeSlicing"}, "sharing": {}`:                              `duplicate field "sharing"`,
	} {
		document := documentOf(strings.TrimSpace("kind MigDeviceConfig " + fields))
		got, err := DecodeMIGConfig(document)
		if want == "" && (err != nil || !reflect.DeepEqual(got, GPUConfig{})) || want != "" && (!errors.Is(err, ErrGPUConfig) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %+v, %v, want %q", fields, got, err, want)
		}
		if !IsMIGConfig(document) {
			t.Errorf("%s is no configuration of MIG devices", fields)
		}
	}
	for _, other := range [][]byte{documentOf(""), []byte(`{"kind": "MigDeviceConfig", "apiVersion": "resource.nvidia.com/v2"}`), []byte("[]")} {
		if _, err := DecodeMIGConfig(other); !errors.Is(err, ErrGPUConfig) {
			t.Errorf("%s: %v", other, err)
		}
	}
}

// Configurations for NVIDIA's driver are for devices of their kind. One that names no request is for all of its kind.
func TestClaimsWithMIGConfigs(t *testing.T) {
	config := func(kind, requests string) string {
		return `{` + requests + `opaque: {driver: gpu.nvidia.com, parameters: {apiVersion: resource.nvidia.com/v1beta1, kind: ` + kind + `, sharing: {strategy: TimeSlicing}}}}`
	}
	both := `requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}, {name: mig, exactly: {deviceClassName: mig.nvidia.com}}]`
	for devices, want := range map[string]string{
		both + `, config: [` + config("MigDeviceConfig", "requests: [mig], ") + `, ` + config("GpuConfig", "requests: [gpu], ") + `]`: "",
		both + `, config: [` + config("MigDeviceConfig", "") + `]`:                                                                    "",
		both + `, config: [` + config("GpuConfig", "") + `]`:                                                                          "",
		both + `, config: [` + config("MigDeviceConfig", "requests: [gpu], ") + `]`:                                                   "configuration 0 is for MIG devices, but request gpu is of class gpu.nvidia.com",
		both + `, config: [` + config("GpuConfig", "requests: [mig], ") + `]`:                                                         "configuration 0 is for whole GPUs, but request mig is of class mig.nvidia.com",
	} {
		var spec resourcev1.ResourceClaimSpec
		if err := yaml.UnmarshalStrict([]byte("devices: {"+devices+"}"), &spec); err != nil {
			t.Fatal(err)
		}
		err := Classes{NVIDIA: true}.ValidateClaim(&spec)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", devices, err, want)
		}
	}
	if !(Classes{NVIDIA: true}).Ours(v1alpha1.ClassNVIDIAMIG) || (Classes{}).Ours(v1alpha1.ClassNVIDIAMIG) {
		t.Error("mig.nvidia.com is Divvy's where NVIDIA's classes are, and nowhere else")
	}
}

// An instance counts with its own memory, and makes no size of GPUs known.
func TestUseOfInstances(t *testing.T) {
	const name = "gpu-00000000-2222-4333-8444-555555555555-mig-1g10gb-0"
	var slice resourcev1.ResourceSlice
	text := `{spec: {driver: divvy.dev, pool: {name: n1}, devices: [{name: ` + name + `, capacity: {memory: {value: 10Gi}}}]}}`
	if err := yaml.UnmarshalStrict([]byte(text), &slice); err != nil {
		t.Fatal(err)
	}
	sizes := SizesOf([]resourcev1.ResourceSlice{slice})
	var spec resourcev1.ResourceClaimSpec
	if err := yaml.UnmarshalStrict([]byte(`devices: {requests: [{name: one, exactly: {deviceClassName: mig.divvy.dev, count: 1, allocationMode: ExactCount}}]}`), &spec); err != nil {
		t.Fatal(err)
	}
	if got := UseOf(&spec, nil, sizes); got != (Use{GPUs: 1, Instances: 1}) {
		t.Errorf("a claim that waits takes %+v", got)
	}
	allocation := &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "one", Driver: v1alpha1.Driver, Pool: "n1", Device: name},
	}}}
	if got := UseOf(&spec, allocation, sizes); got != (Use{GPUs: 1, Memory: 10 << 30, Instances: 1}) {
		t.Errorf("a claim that has one takes %+v", got)
	}
	if sizes.largest() != 0 {
		t.Errorf("a GPU of %d bytes is known", sizes.largest())
	}
}
