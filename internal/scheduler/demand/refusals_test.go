package demand_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// A claim that nothing can satisfy is refused in one line that names it, the request, and what is wrong.
func TestInvalidDemands(t *testing.T) {
	c := every(t)
	for text, spec := range map[string]resourcev1.ResourceClaimSpec{
		"memory 0: ":                    share("memory", "0"),
		"memory -1Gi: ":                 share("memory", "-1Gi"),
		"memory 1e30: ":                 share("memory", "1e30"),
		"cores 101: ":                   share("cores", "101"),
		"cores -1: ":                    share("cores", "-1"),
		"slots 2: ":                     share("slots", "2"),
		`no "disk"`:                     share("disk", "1"),
		"leave out the amounts":         asks(v1alpha1.ClassWhole, 1, "memory", "1Gi"),
		"17 GPUs":                       asks(v1alpha1.ClassWhole, 17),
		"leaves GPU time to the driver": asks(v1alpha1.ClassTimeslice, 1, "cores", "1"),
		"2 GPUs with backend mps":       asks(v1alpha1.ClassMPS, 2),
		"write class mps.divvy.dev":     configured(share(), v1alpha1.Driver, ours(`,"backend":"mps"`)),
		`unknown field "color"`:         configured(share(), v1alpha1.Driver, ours(`,"color":"red"`)),
		"contradict":                    configured(configured(share(), v1alpha1.Driver, ours(`,"weight":2`)), v1alpha1.Driver, ours(`,"weight":3`), "gpu"),
		"gpu-models":                    configured(share(), v1alpha1.Driver, ours(`,"gpuModels":"T4,,"`)),
		"2 MIG instances":               asks(v1alpha1.ClassMIG, 2),
		`no "slots"`:                    mig("slots", "1"),
		"cores 0: ":                     mig("cores", "0"),
		"leave out the backend":         configured(mig(), v1alpha1.Driver, ours(`,"backend":"slice"`)),
		"sharing.strategy":              configured(asks(v1alpha1.ClassNVIDIA, 1), "gpu.nvidia.com", `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"GpuConfig","sharing":{"strategy":"Both"}}`),
		"2 GPUs with strategy MPS":      configured(asks(v1alpha1.ClassNVIDIA, 2), "gpu.nvidia.com", `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"GpuConfig","sharing":{"strategy":"MPS"}}`),
		"needs policy":                  configured(share(), v1alpha1.Driver, ours(`,"weight":5,"policy":"fixed"`)),
	} {
		_, err := demand.Of(&corev1.Pod{}, claimsOf(spec), c)
		if !errors.Is(err, demand.ErrDemand) || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), "claim claim-0, request gpu: ") || strings.ContainsRune(err.Error(), '\n') {
			t.Errorf("%s: %v", text, err)
		}
	}
	annotated := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.PreferAnnotation: "A100,A100"}}}
	if _, err := demand.Of(annotated, claimsOf(share()), c); !errors.Is(err, demand.ErrDemand) || !strings.Contains(err.Error(), v1alpha1.PreferAnnotation) {
		t.Errorf("an annotation: %v", err)
	}
	if _, err := demand.Of(&corev1.Pod{}, []demand.Claim{{Name: "empty"}}, c); !errors.Is(err, demand.ErrDemand) {
		t.Errorf("a claim of which nothing is known: %v", err)
	}
	var many []resourcev1.ResourceClaimSpec
	for range 33 {
		many = append(many, share("memory", "1Mi"))
	}
	if _, err := demand.Of(&corev1.Pod{}, claimsOf(many...), c); !errors.Is(err, demand.ErrDemand) {
		t.Errorf("33 claims: %v", err)
	}
	delete(c.classes, v1alpha1.ClassWhole)
	if _, err := demand.Of(&corev1.Pod{}, claimsOf(asks(v1alpha1.ClassWhole, 1)), c); !errors.Is(err, demand.ErrDemand) || !strings.Contains(err.Error(), "no device class gpu.divvy.dev") {
		t.Errorf("a class that is not there: %v", err)
	}
}

// What the allocator does not know goes elsewhere, and what of it can be expressed is told.
func TestElsewhere(t *testing.T) {
	c := every(t)
	c.classes["nic.example.com"] = madeClass("nic.example.com", `device.driver == "nic.example.com"`)
	c.classes["anything.example.com"] = madeClass("anything.example.com")
	nic := asks("nic.example.com", 1)
	for text, spec := range map[string]resourcev1.ResourceClaimSpec{
		"no device class": asks("none.example.com", 1),
		"not of Divvy's":  nic,
		"devices alone":   asks("anything.example.com", 1),
		"admin access":    exactly(asks(v1alpha1.ClassWhole, 1), func(e *resourcev1.ExactDeviceRequest) { e.AdminAccess = ptr.To(true) }),
		"All devices":     exactly(asks(v1alpha1.ClassWhole, 0), func(e *resourcev1.ExactDeviceRequest) { e.AllocationMode = resourcev1.DeviceAllocationModeAll }),
		"tolerates taints": exactly(share(), func(e *resourcev1.ExactDeviceRequest) {
			e.Tolerations = []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}}
		}),
		"single MIG instances":           selected(mig(), `device.attributes["divvy.dev"].uuid == "MIG-1"`),
		"by divvy.dev/model":             matching(asks(v1alpha1.ClassWhole, 2), "divvy.dev/model"),
		"by divvy.dev/index":             distinct(asks(v1alpha1.ClassWhole, 2), "divvy.dev/index"),
		"compared: divvy.dev/pcieSwitch": matching(joined(mig(), mig()), "divvy.dev/pcieSwitch"),
		"compared: gpu.nvidia.com/uuid":  distinct(joined(share(), share()), "gpu.nvidia.com/uuid"),
		"constraint 0":                   {Devices: resourcev1.DeviceClaim{Requests: share().Devices.Requests, Constraints: []resourcev1.DeviceConstraint{{}}}},
		"some alternatives":              matching(resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: append(either(share(), asks(v1alpha1.ClassWhole, 1)).Devices.Requests, joined(share()).Devices.Requests...)}}, "divvy.dev/numaNode", "gpu/way-0", "gpu-0"),
	} {
		d, err := demand.Of(&corev1.Pod{}, claimsOf(spec, share("memory", "1Gi")), c)
		if !errors.Is(err, demand.ErrElsewhere) || errors.Is(err, demand.ErrDemand) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
		if claims := d.Pod().Claims; len(claims) == 0 || claims[len(claims)-1][0].Memory != v1alpha1.Bytes(1<<30) {
			t.Errorf("%s: the demand is %+v", text, claims)
		}
		if _, err := d.Allocations(alloc.Assignment{}, c); !errors.Is(err, demand.ErrPlace) {
			t.Errorf("%s: allocations are refused with %v", text, err)
		}
	}
}

// Extended resources of device classes are told, but are for Kubernetes' own plugin.
func TestExtendedResources(t *testing.T) {
	c := every(t)
	for name, want := range map[corev1.ResourceName]int{"nvidia.com/gpu": 3, "deviceclass.resource.kubernetes.io/gpu.divvy.dev": 3, "example.com/disk": 0, "cpu": 0} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{name: resource.MustParse("3")}}}}}}
		d, err := demand.Of(pod, nil, c)
		if errors.Is(err, demand.ErrElsewhere) != (want > 0) || err != nil && want == 0 {
			t.Errorf("%s: %v", name, err)
		}
		if got := len(d.Pod().Claims); (got > 0) != (want > 0) || got > 0 && (d.Pod().Claims[0][0].Count != want || !d.Pod().Claims[0][0].Whole) {
			t.Errorf("%s: the demand is %+v", name, d.Pod())
		}
	}
}

// A claim that is allocated says where the pod must be, and asks for nothing.
func TestAllocatedClaims(t *testing.T) {
	c := every(t)
	on := func(spec resourcev1.ResourceClaimSpec, name string) demand.Claim {
		return demand.Claim{Namespace: "default", Name: "on-" + name, Spec: &spec, Allocation: &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}}}}}
	}
	d, err := demand.Of(&corev1.Pod{}, append(claimsOf(share("memory", "1Gi")), on(asks("nic.example.com", 1), "node-3")), c)
	if err != nil || d.Node() != "node-3" || len(d.Pod().Claims) != 1 || len(d.Claims()) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	d, err = demand.Of(&corev1.Pod{}, []demand.Claim{on(share(), "node-3"), on(share(), "node-3")}, c)
	if err != nil || d.Node() != "node-3" || len(d.Pod().Claims) != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err = demand.Of(&corev1.Pod{}, []demand.Claim{on(share(), "node-3"), on(share(), "node-1")}, c); !errors.Is(err, demand.ErrDemand) || !strings.Contains(err.Error(), "node-1") {
		t.Errorf("on two nodes: %v", err)
	}
	anywhere := on(share(), "node-3")
	anywhere.Allocation = &resourcev1.AllocationResult{}
	if d, err = demand.Of(&corev1.Pod{}, []demand.Claim{anywhere}, c); err != nil || d.Node() != "" {
		t.Errorf("%+v, %v", d, err)
	}
	// A claim that several of the pod's entries name is asked for once.
	if d, err = demand.Of(&corev1.Pod{}, append(claimsOf(share()), claimsOf(share())...), c); err != nil || len(d.Pod().Claims) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}

// The host's part is what Kubernetes counts of a pod.
func TestHost(t *testing.T) {
	of := func(cpu, memory string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}}
	}
	always := corev1.ContainerRestartPolicyAlways
	for name, test := range map[string]struct {
		spec   corev1.PodSpec
		cpu    int64
		memory uint64
	}{
		"nothing":       {corev1.PodSpec{Containers: []corev1.Container{{}}}, 0, 0},
		"containers":    {corev1.PodSpec{Containers: []corev1.Container{{Resources: of("1500m", "1Gi")}, {Resources: of("1", "2Gi")}}}, 2500, 3 << 30},
		"a first step":  {corev1.PodSpec{InitContainers: []corev1.Container{{Resources: of("4", "1Gi")}}, Containers: []corev1.Container{{Resources: of("1", "2Gi")}}}, 4000, 2 << 30},
		"a sidecar":     {corev1.PodSpec{InitContainers: []corev1.Container{{RestartPolicy: &always, Resources: of("4", "1Gi")}}, Containers: []corev1.Container{{Resources: of("1", "2Gi")}}}, 5000, 3 << 30},
		"overhead":      {corev1.PodSpec{Containers: []corev1.Container{{Resources: of("1", "2Gi")}}, Overhead: of("250m", "64Mi").Requests}, 1250, 2<<30 + 64<<20},
		"the whole pod": {corev1.PodSpec{Containers: []corev1.Container{{Resources: of("1", "2Gi")}}, Resources: ptr.To(of("3", "4Gi"))}, 3000, 4 << 30},
	} {
		d, err := demand.Of(&corev1.Pod{Spec: test.spec}, nil, every(t))
		if err != nil || d.Pod().CPU != test.cpu || d.Pod().HostMemory != test.memory {
			t.Errorf("%s: %+v, %v", name, d.Pod(), err)
		}
	}
}
