package demand_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// exactly changes the only request of a claim.
func exactly(spec resourcev1.ResourceClaimSpec, change func(e *resourcev1.ExactDeviceRequest)) resourcev1.ResourceClaimSpec {
	change(spec.Devices.Requests[0].Exactly)
	return spec
}

func selected(spec resourcev1.ResourceClaimSpec, expressions ...string) resourcev1.ResourceClaimSpec {
	return exactly(spec, func(e *resourcev1.ExactDeviceRequest) { e.Selectors = selecting(expressions...) })
}

// joined is one claim with the requests of several.
func joined(specs ...resourcev1.ResourceClaimSpec) (all resourcev1.ResourceClaimSpec) {
	for i, s := range specs {
		r := s.Devices.Requests[0]
		r.Name = fmt.Sprint("gpu-", i)
		all.Devices.Requests = append(all.Devices.Requests, r)
	}
	return all
}

// either is a claim for the first of these that is there.
func either(specs ...resourcev1.ResourceClaimSpec) resourcev1.ResourceClaimSpec {
	r := resourcev1.DeviceRequest{Name: "gpu"}
	for i, s := range specs {
		e := s.Devices.Requests[0].Exactly
		r.FirstAvailable = append(r.FirstAvailable, resourcev1.DeviceSubRequest{
			Name: fmt.Sprint("way-", i), DeviceClassName: e.DeviceClassName, Selectors: e.Selectors, AllocationMode: e.AllocationMode, Count: e.Count, Capacity: e.Capacity,
		})
	}
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{r}}}
}

func matching(spec resourcev1.ResourceClaimSpec, attribute string, requests ...string) resourcev1.ResourceClaimSpec {
	spec.Devices.Constraints = append(spec.Devices.Constraints, resourcev1.DeviceConstraint{Requests: requests, MatchAttribute: ptr.To(resourcev1.FullyQualifiedName(attribute))})
	return spec
}

func distinct(spec resourcev1.ResourceClaimSpec, attribute string, requests ...string) resourcev1.ResourceClaimSpec {
	spec.Devices.Constraints = append(spec.Devices.Constraints, resourcev1.DeviceConstraint{Requests: requests, DistinctAttribute: ptr.To(resourcev1.FullyQualifiedName(attribute))})
	return spec
}

func configured(spec resourcev1.ResourceClaimSpec, driver, text string, requests ...string) resourcev1.ResourceClaimSpec {
	spec.Devices.Config = append(spec.Devices.Config, resourcev1.DeviceClaimConfiguration{Requests: requests, DeviceConfiguration: opaque(driver, text)})
	return spec
}

func opaque(driver, text string) resourcev1.DeviceConfiguration {
	return resourcev1.DeviceConfiguration{Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(text)}}}
}

// ours is a configuration of Divvy's with these fields.
func ours(fields string) string {
	return `{"apiVersion":"divvy.dev/v1alpha1","kind":"ShareConfig"` + fields + `}`
}

func mig(amounts ...string) resourcev1.ResourceClaimSpec {
	return asks(v1alpha1.ClassMIG, 1, amounts...)
}

const profileIs = `device.attributes["divvy.dev"].profile == `

// Whatever is placed gets the allocation that Kubernetes' own allocator writes, and what is not, Kubernetes does not place.
func TestAllocationsAreThoseOfKubernetes(t *testing.T) {
	both := joined(share("memory", "10Gi"), share("memory", "70Gi"))
	c := every(t)
	pair := joined(mig("memory", "5Gi"), mig("memory", "15Gi"))
	for name, test := range map[string]struct {
		claims []resourcev1.ResourceClaimSpec
		want   string // the devices, each as its form or its profile and its GPU's number; "" for none
	}{
		"no request":                {specs(resourcev1.ResourceClaimSpec{}, share()), "shared"},
		"all of the memory":         {specs(share("cores", "30")), "shared"},
		"an odd amount":             {specs(share("memory", "1500k", "cores", "500m")), "shared"},
		"zero cores":                {specs(selected(share("memory", "1Gi", "cores", "0"), `device.capacity["divvy.dev"].memory.compareTo(quantity("80Gi")) >= 0`)), "shared"},
		"eight GPUs":                {specs(asks(v1alpha1.ClassShare, 8, "memory", "1Gi")), "8 shared"},
		"time slices":               {specs(asks(v1alpha1.ClassTimeslice, 2, "memory", "1Gi")), "2 timeslice"},
		"no cores of time slices":   {specs(asks("any.example.com", 1, "memory", "1Gi", "cores", "90"), asks(v1alpha1.ClassTimeslice, 1, "memory", "1Gi")), ""},
		"side by side":              {specs(asks(v1alpha1.ClassMPS, 1, "memory", "1Gi", "cores", "90")), "mps"},
		"whole by NVIDIA's class":   {specs(asks(v1alpha1.ClassNVIDIA, 4)), "4 shared"},
		"more than there are":       {specs(asks(v1alpha1.ClassNVIDIA, 5)), ""},
		"selected":                  {specs(selected(asks(v1alpha1.ClassWhole, 1), `device.attributes["divvy.dev"].uuid == "GPU-00000103-0000-0000-0000-000000000000"`)), "shared"},
		"a model":                   {specs(selected(share("memory", "1Gi"), `device.attributes["divvy.dev"].model.contains("T4")`)), "shared"},
		"no such model":             {specs(selected(share("memory", "1Gi"), `device.attributes["divvy.dev"].model.contains("H100")`)), ""},
		"a missing attribute":       {specs(selected(share("memory", "1Gi"), `has(device.attributes["divvy.dev"].nothing)`)), ""},
		"two requests":              {specs(both), "2 shared"},
		"together":                  {specs(matching(both, "divvy.dev/uuid")), "2 shared"},
		"apart":                     {specs(distinct(joined(share("memory", "1Gi"), share("memory", "1Gi"), share("memory", "1Gi")), "divvy.dev/uuid")), "3 shared"},
		"nine apart":                {specs(distinct(joined(asks(v1alpha1.ClassShare, 5, "memory", "1Gi"), asks(v1alpha1.ClassShare, 4, "memory", "1Gi")), "divvy.dev/parentUUID")), "elsewhere"},
		"one NUMA node":             {specs(matching(asks(v1alpha1.ClassWhole, 4), "divvy.dev/numaNode")), "4 shared"},
		"five of a NUMA node":       {specs(matching(asks(v1alpha1.ClassWhole, 5), "divvy.dev/numaNode")), ""},
		"one switch":                {specs(matching(asks(v1alpha1.ClassWhole, 2), "divvy.dev/pcieSwitch", "gpu")), "2 shared"},
		"one root":                  {specs(matching(asks(v1alpha1.ClassWhole, 3), "resource.kubernetes.io/pcieRoot")), ""},
		"one clique":                {specs(matching(asks(v1alpha1.ClassWhole, 8), "divvy.dev/nvlinkClique")), "8 shared"},
		"one NUMA node, twice":      {specs(matching(joined(asks(v1alpha1.ClassWhole, 2), asks(v1alpha1.ClassWhole, 2)), "divvy.dev/numaNode")), "4 shared"},
		"too many of a NUMA node":   {specs(matching(joined(asks(v1alpha1.ClassWhole, 2), asks(v1alpha1.ClassWhole, 3)), "divvy.dev/numaNode")), ""},
		"no constraint for one":     {specs(matching(joined(asks(v1alpha1.ClassWhole, 2), asks(v1alpha1.ClassWhole, 3)), "divvy.dev/numaNode", "gpu-0")), "5 shared"},
		"one NUMA node of NVIDIA's": {specs(matching(asks(v1alpha1.ClassNVIDIA, 2), "resource.kubernetes.io/numaNode")), "2 shared"},
		"the first that is there":   {specs(either(asks(v1alpha1.ClassWhole, 9), asks(v1alpha1.ClassWhole, 8), share("memory", "1Gi"))), "8 shared"},
		"either a share or whole":   {specs(either(share("memory", "90Gi"), asks(v1alpha1.ClassMPS, 1, "memory", "1Gi"))), "mps"},
		"a profile":                 {specs(selected(mig(), profileIs+`"2g.20gb"`)), "2g.20gb"},
		"an instance by amounts":    {specs(mig("memory", "15Gi")), "1g.20gb"},
		"one by cores":              {specs(mig("memory", "1Gi", "cores", "50")), "4g.40gb"},
		"too large an instance":     {specs(mig("memory", "90Gi")), ""},
		"NVIDIA's profile":          {specs(selected(asks(v1alpha1.ClassNVIDIAMIG, 1), `device.attributes["gpu.nvidia.com"].profile == "3g.40gb"`)), "3g.40gb"},
		"two instances":             {specs(pair), "1g.10gb 1g.20gb"},
		"two of one GPU":            {specs(matching(pair, "divvy.dev/parentUUID")), "1g.10gb 1g.20gb"},
		"two of two GPUs":           {specs(distinct(pair, "divvy.dev/parentUUID")), "1g.10gb 1g.20gb"},
		"two whole layouts":         {specs(matching(joined(selected(mig(), profileIs+`"7g.80gb"`), mig("memory", "1Gi")), "divvy.dev/parentUUID")), ""},
		"an administrator's class":  {specs(asks("any.example.com", 1, "memory", "1Gi", "cores", "50", "slots", "1")), "mps"},
		"several claims":            {specs(share("memory", "60Gi"), share("memory", "60Gi"), asks(v1alpha1.ClassWhole, 2)), "4 shared"},
		"configured":                {specs(configured(configured(both, v1alpha1.Driver, ours(`,"policy":"weighted"`), "gpu-0"), "gpu.example.com", `{}`)), "2 shared"},
		"configured twice over":     {specs(configured(both, "other.example.com", `{}`, "gpu-0", "gpu-1")), "2 shared"},
		"an alternative configured": {specs(configured(configured(either(share("memory", "90Gi"), share("memory", "1Gi")), v1alpha1.Driver, ours(`,"weight":2`), "gpu/way-0"), v1alpha1.Driver, ours(`,"weight":3`), "gpu/way-1")), "shared"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.want == "elsewhere" {
				if _, err := demand.Of(&corev1.Pod{}, claimsOf(test.claims...), c); !errors.Is(err, demand.ErrElsewhere) {
					t.Errorf("error is %v", err)
				}
				return
			}
			if got := short(c.check(t, &corev1.Pod{}, test.claims...)); got != test.want {
				t.Errorf("devices are %q, want %q", got, test.want)
			}
		})
	}
}

func specs(all ...resourcev1.ResourceClaimSpec) []resourcev1.ResourceClaimSpec { return all }

// short lists forms and profiles, with their number where there are several of one.
func short(devices []string) string {
	var all []string
	for i := 0; i < len(devices); {
		n := 1
		for i+n < len(devices) && kindOf(devices[i+n]) == kindOf(devices[i]) {
			n++
		}
		if n > 1 {
			all = append(all, fmt.Sprint(n, " ", kindOf(devices[i])))
		} else {
			all = append(all, kindOf(devices[i]))
		}
		i += n
	}
	return strings.Join(all, " ")
}

// The classes' configurations come first, once for each class.
func TestConfigurationsOfClasses(t *testing.T) {
	c := every(t)
	c.classes[v1alpha1.ClassShare].Spec.Config = []resourcev1.DeviceClassConfiguration{
		{DeviceConfiguration: opaque(v1alpha1.Driver, ours(`,"gpuModels":"T4, A100"`))}, {DeviceConfiguration: opaque("other.example.com", `{}`)},
	}
	both := joined(share("memory", "10Gi"), asks(v1alpha1.ClassWhole, 1), share("memory", "70Gi"))
	if got := short(c.check(t, &corev1.Pod{}, both, configured(share("memory", "1Gi"), v1alpha1.Driver, ours("")))); got != "4 shared" {
		t.Errorf("devices are %s", got)
	}
}

// Models and preferences come from the claim's configuration, then from the pod's annotations.
func TestModelsAndPreferences(t *testing.T) {
	c := every(t)
	for name, test := range map[string]struct {
		models, prefer, config string
		gpu                    string
	}{
		"models of the pod":           {"T4", "", "", "GPU-000007"},
		"models of the claim":         {"A100", "", `,"gpuModels":"T4"`, "GPU-000007"},
		"a preference of the pod":     {"", "T4", "", "GPU-000007"},
		"a preference of the claim":   {"", "A100", `,"gpuPrefer":"T4"`, "GPU-000007"},
		"no model that is there":      {"H100", "", "", ""},
		"both, where one is excluded": {"A100", "T4", "", "GPU-00000"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.ModelsAnnotation: test.models, v1alpha1.PreferAnnotation: test.prefer}}}
			spec := share("memory", "1Gi")
			if test.config != "" {
				spec = configured(spec, v1alpha1.Driver, ours(test.config))
			}
			d, err := demand.Of(pod, claimsOf(spec), c)
			if err != nil {
				t.Fatal(err)
			}
			a, ok := c.place(t, &d)
			if ok != (test.gpu != "") || ok && !strings.HasPrefix(a.Shares[0].UUID, test.gpu) {
				t.Errorf("it gets %+v", a.Shares)
			}
		})
	}
}
