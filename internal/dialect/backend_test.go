package dialect

import (
	"errors"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// TestBackendOfAPod looks which class pods' claims get by their annotation.
func TestBackendOfAPod(t *testing.T) {
	for name, c := range map[string]struct {
		backend, dialects string
		limits            []string
		class, refused    string
	}{
		"slice":              {"slice", "plain: {}", []string{"divvy.dev/gpu-memory: 4Gi"}, v1alpha1.ClassShare, ""},
		"timeslice":          {"timeslice", "plain: {}", []string{"divvy.dev/gpu-memory: 4Gi"}, v1alpha1.ClassTimeslice, ""},
		"mps":                {"mps", "plain: {}", []string{"divvy.dev/gpu-memory: 4Gi", "divvy.dev/gpu-cores: 30"}, v1alpha1.ClassMPS, ""},
		"a part of a GPU":    {"mps", "plain: {}", []string{"divvy.dev/gpu-memory-percent: 50"}, v1alpha1.ClassMPS, ""},
		"in another dialect": {"mps", "hami: {}", []string{"nvidia.com/gpumem: 3000", "nvidia.com/gpucores: 30"}, v1alpha1.ClassMPS, ""},
		"cores of time":      {"timeslice", "plain: {}", []string{"divvy.dev/gpu-cores: 30"}, "", "leave out cores, or use backend slice"},
		"giving way":         {"mps", "hami: {}", []string{"nvidia.com/gpumem: 3000", "nvidia.com/priority: 1"}, "", "none gives way"},
		"several daemons":    {"mps", "plain: {}", []string{"divvy.dev/gpu: 2", "divvy.dev/gpu-memory: 4Gi"}, "", "ask for one"},
		"whole":              {"mps", "plain: {}", []string{"divvy.dev/gpu: 1"}, "", "asks for whole GPUs, and annotation divvy.dev/backend is about shares"},
		"mig":                {"mig", "plain: {}", []string{"divvy.dev/gpu-memory: 4Gi", "divvy.dev/gpu-cores: 30"}, v1alpha1.ClassMIG, ""},
		"mig by profile":     {"mig", "nvidia: {}", []string{"nvidia.com/mig-1g.10gb: 1"}, v1alpha1.ClassMIG, ""},
		"a profile by mps":   {"mps", "nvidia: {}", []string{"nvidia.com/mig-1g.10gb: 1"}, "", "asks for a MIG instance, and annotation divvy.dev/backend for backend mps"},
		"mig of a part":      {"mig", "plain: {}", []string{"divvy.dev/gpu-memory-percent: 50"}, "", "names neither a profile nor an amount of memory"},
		"several instances":  {"mig", "plain: {}", []string{"divvy.dev/gpu: 2", "divvy.dev/gpu-memory: 4Gi"}, "", "asks for 2 MIG instances"},
		"unknown":            {"vgpu", "plain: {}", []string{"divvy.dev/gpu-memory: 4Gi"}, "", `backend "vgpu" is not known`},
		"empty":              {"", "plain: {}", []string{"divvy.dev/gpu-memory: 4Gi"}, "", `backend "" is not known`},
	} {
		t.Run(name, func(t *testing.T) {
			pod := limitsOf(t, c.limits...)
			pod.Annotations = map[string]string{v1alpha1.BackendAnnotation: c.backend}
			_, templates, err := translate(newTranslator(t, "{"+c.dialects+"}"), pod, sixteen)
			if c.refused != "" {
				if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%v, want %q", err, c.refused)
				}
				return
			}
			if err != nil || len(templates) != 1 {
				t.Fatalf("%d templates, %v", len(templates), err)
			}
			spec := templates[0].Spec.Spec
			for _, a := range requestsOf(&spec) {
				if a.class != c.class {
					t.Errorf("request %s is of class %s, want %s", a.name, a.class, c.class)
				}
			}
			if len(spec.Devices.Config) > 0 {
				t.Errorf("the class says it all, and the claim has a configuration %s", spec.Devices.Config[0].Opaque.Parameters.Raw)
			}
			if CheckTranslated(&spec) != nil {
				t.Error("a pod cannot carry the template")
			}
		})
	}
}

// TestClaimsOfOtherForms looks what is refused in claims for forms other than slices, and in those for NVIDIA's class.
func TestClaimsOfOtherForms(t *testing.T) {
	share := func(class, capacity, config string) string {
		return `requests: [{name: gpu, exactly: {deviceClassName: ` + class + `, capacity: {requests: {` + capacity + `}}}}], config: [` + config + `]`
	}
	ours := func(body string) string {
		return `{requests: [gpu], opaque: {driver: divvy.dev, parameters: ` + configHead + body + `}}}`
	}
	theirs := func(requests, body string) string {
		return `{requests: [` + requests + `], opaque: {driver: gpu.nvidia.com, parameters: {apiVersion: resource.nvidia.com/v1beta1, kind: GpuConfig` + body + `}}}`
	}
	const mps = `, sharing: {strategy: MPS}`
	whole := func(count, config string) string {
		return `requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com, count: ` + count + `}}], config: [` + config + `]`
	}
	for _, c := range []struct {
		devices string
		nvidia  bool
		fault   string
	}{
		{share(v1alpha1.ClassMPS, "memory: 4Gi, cores: 30", ""), false, ""},
		{share(v1alpha1.ClassMPS, "memory: 4Gi", ours(", backend: mps")), false, ""},
		{share(v1alpha1.ClassMPS, "memory: 4Gi", ours(", weight: 3")), false, "not by weights"},
		{share(v1alpha1.ClassMPS, "memory: 4Gi", ours(", backend: slice")), false, "backend slice, but request gpu is of class mps.divvy.dev, which gives backend mps: write class share.divvy.dev"},
		{share(v1alpha1.ClassShare, "memory: 4Gi", ours(", backend: mps")), false, "write class mps.divvy.dev"},
		{share(v1alpha1.ClassTimeslice, "memory: 4Gi", ""), false, ""},
		{share(v1alpha1.ClassTimeslice, "memory: 4Gi, cores: 30", ""), false, "leaves GPU time to the driver"},
		{`requests: [{name: gpu, exactly: {deviceClassName: mps.divvy.dev, count: 2}}]`, false, "2 GPUs with backend mps"},
		{whole("1", theirs("gpu", mps)), true, ""},
		{whole("1", theirs("", mps)), true, ""},
		{whole("1", theirs("gpu", mps)+", "+theirs("gpu", ", sharing: {strategy: TimeSlicing}")), true, ""},
		{whole("2", theirs("gpu", ", sharing: {strategy: TimeSlicing}")), true, ""},
		{whole("2", theirs("gpu", mps)), true, "2 GPUs with strategy MPS"},
		{whole("1", theirs("gpu", ", sharing: {strategy: mps}")), true, `configuration 0: configuration for gpu.nvidia.com: sharing.strategy "mps"`},
		{whole("1", ours(", weight: 3")), true, "is for shares, but request gpu is of class gpu.nvidia.com"},
		{share(v1alpha1.ClassNVIDIA, "memory: 4Gi", ""), true, "must not set amounts"},
		{share(v1alpha1.ClassShare, "memory: 4Gi", theirs("gpu", mps)), true, "is for whole GPUs, but request gpu is of class share.divvy.dev"},
		// Where NVIDIA's driver has the class, nothing of it is looked at.
		{whole("2", theirs("gpu", ", sharing: {strategy: mps}")), false, ""},
		{share(v1alpha1.ClassNVIDIA, "memory: 4Gi", ""), false, ""},
	} {
		var spec resourcev1.ResourceClaimSpec
		if err := yaml.UnmarshalStrict([]byte("devices: {"+c.devices+"}"), &spec); err != nil {
			t.Fatalf("%s: %v", c.devices, err)
		}
		err := Classes{NVIDIA: c.nvidia}.ValidateClaim(&spec)
		switch {
		case c.fault == "" && err != nil:
			t.Errorf("%s: %v", c.devices, err)
		case c.fault != "" && (!errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s: %v, want %q", c.devices, err, c.fault)
		}
	}
}
