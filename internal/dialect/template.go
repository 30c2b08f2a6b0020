package dialect

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	requestName   = "gpu"
	templateStart = "divvy-"
)

// sameNUMA is the attribute that GPUs on one NUMA node have in common.
const sameNUMA = resourcev1.FullyQualifiedName(v1alpha1.Driver + "/" + v1alpha1.AttributeNUMANode)

// makeTemplates makes the templates of the claims, each once, and notes their names in the claims. A template's name
// is a hash of what it holds: pods that ask the same use one template, and another content is another name.
func makeTemplates(pod *corev1.Pod, claims []claim, inventory Inventory) ([]resourcev1.ResourceClaimTemplate, error) {
	var templates []resourcev1.ResourceClaimTemplate
	made := make(map[string]bool)
	for i := range claims {
		spec, err := claimSpec(claims[i].request, inventory, claims[i].request.Container.of(pod).Name)
		if err != nil {
			return nil, err
		}
		name, err := TemplateName(&spec)
		if err != nil {
			return nil, err
		}
		claims[i].template = name
		if made[name] {
			continue
		}
		made[name] = true
		templates = append(templates, templateOf(pod.Namespace, name, spec))
	}
	return templates, nil
}

// TemplateName is the name of the template that holds this.
func TemplateName(spec *resourcev1.ResourceClaimSpec) (string, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("write the claim template: %w", err)
	}
	sum := sha256.Sum256(text)
	return templateStart + hex.EncodeToString(sum[:20]), nil
}

// Genuine reports whether a template holds what its name says, that is, whether it is one that a translation made.
func Genuine(template *resourcev1.ResourceClaimTemplate) bool {
	name, err := TemplateName(&template.Spec.Spec)
	return err == nil && template.Name == name && len(template.Spec.Labels) == 0 && len(template.Spec.Annotations) == 0
}

func claimSpec(r Request, inventory Inventory, container string) (resourcev1.ResourceClaimSpec, error) {
	var spec resourcev1.ResourceClaimSpec
	names := []string{requestName}
	if r.Pairs == "" {
		request, err := gpuRequest(r, inventory, container)
		if err != nil {
			return spec, err
		}
		spec.Devices.Requests = []resourcev1.DeviceRequest{request}
	} else {
		one := r
		one.Count = 1
		request, err := gpuRequest(one, inventory, container)
		if err != nil {
			return spec, err
		}
		spec.Devices = pairUp(r, request)
		names = Pairs{Count: r.Count}.names()
	}
	if r.SameNUMA && r.Count > 1 && r.Pairs == "" {
		same := sameNUMA
		spec.Devices.Constraints = []resourcev1.DeviceConstraint{{Requests: names, MatchAttribute: &same}}
	}
	if r.Config.Backend == v1alpha1.BackendRemote && r.Count > 1 {
		same := sameHost
		spec.Devices.Constraints = []resourcev1.DeviceConstraint{{Requests: names, MatchAttribute: &same}}
	}
	if config := r.claimConfig(); !r.Whole && config != (v1alpha1.ShareConfig{}) {
		text, err := v1alpha1.EncodeShareConfig(config)
		if err != nil {
			return spec, err
		}
		spec.Devices.Config = configuration(text, names)
	}
	return spec, nil
}

// gpuRequest is what a request asks of GPUs.
func gpuRequest(r Request, inventory Inventory, container string) (resourcev1.DeviceRequest, error) {
	request := resourcev1.DeviceRequest{Name: requestName}
	_, isPart := r.Memory.Part()
	var err error
	switch {
	case r.Whole:
		request.Exactly = &resourcev1.ExactDeviceRequest{
			DeviceClassName: v1alpha1.ClassWhole, AllocationMode: resourcev1.DeviceAllocationModeExactCount,
			Count: int64(r.Count), Selectors: selectors(r.Selectors),
		}
	case r.instance():
		request.Exactly = &resourcev1.ExactDeviceRequest{
			DeviceClassName: v1alpha1.ClassMIG, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
			Selectors: selectors(slices.Concat(r.profileSelector(), r.Selectors)), Capacity: instanceCapacity(r),
		}
	case isPart:
		request.FirstAvailable, err = perSize(r, inventory, container)
	default:
		request.Exactly = &resourcev1.ExactDeviceRequest{
			DeviceClassName: v1alpha1.ClassOf(r.Config.Backend), AllocationMode: resourcev1.DeviceAllocationModeExactCount,
			Count: int64(r.Count), Selectors: selectors(r.Selectors), Capacity: capacity(r, r.Memory.InBytes()),
		}
	}
	return request, err
}

// configuration says how the shares of these requests of a claim behave.
func configuration(text []byte, requests []string) []resourcev1.DeviceClaimConfiguration {
	return []resourcev1.DeviceClaimConfiguration{{
		Requests: requests,
		DeviceConfiguration: resourcev1.DeviceConfiguration{Opaque: &resourcev1.OpaqueDeviceConfiguration{
			Driver: v1alpha1.Driver, Parameters: runtime.RawExtension{Raw: text},
		}},
	}}
}

// capacity returns what one share takes. Memory 0 means all of the GPU's memory.
func capacity(r Request, memory uint64) *resourcev1.CapacityRequirements {
	requests := map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacitySlots: *resource.NewQuantity(1, resource.DecimalSI)}
	if r.Config.Swap {
		requests[v1alpha1.CapacitySwapMemory] = *resource.NewQuantity(int64(memory), resource.BinarySI)
		memory = r.kept()
	}
	if memory > 0 {
		requests[v1alpha1.CapacityMemory] = *resource.NewQuantity(int64(memory), resource.BinarySI)
	}
	if r.Cores > 0 {
		requests[v1alpha1.CapacityCores] = *resource.NewQuantity(int64(r.Cores), resource.DecimalSI)
	}
	return &resourcev1.CapacityRequirements{Requests: requests}
}

// instanceCapacity returns the least that an instance has, nil where its profile says it.
func instanceCapacity(r Request) *resourcev1.CapacityRequirements {
	least := capacity(r, r.Memory.InBytes())
	delete(least.Requests, v1alpha1.CapacitySlots) // nobody shares an instance
	if len(least.Requests) == 0 {
		return nil
	}
	return least
}

func selectors(expressions []string) []resourcev1.DeviceSelector {
	var all []resourcev1.DeviceSelector
	for _, expression := range expressions {
		all = append(all, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: expression}})
	}
	return all
}
