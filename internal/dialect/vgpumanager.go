package dialect

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

type vgpuManagerOptions struct {
	// MemoryFactor is how many MiB one unit of vgpu-memory is, 1 by default.
	MemoryFactor uint64 `json:"memoryFactor,omitempty"`
}

const (
	managerNumber   = "nvidia.com/vgpu-number"
	managerMemory   = "nvidia.com/vgpu-memory"
	managerCores    = "nvidia.com/vgpu-cores"
	managerPolicy   = "nvidia.com/vgpu-compute-policy"
	managerTopology = "nvidia.com/device-topology-mode"
	managerOversold = "CUDA_MEM_OVERSOLD"
)

// vgpuManager is the form of vgpu-manager: vGPUs on so many different GPUs, each of so much memory and time.
func vgpuManager(given options) (Dialect, error) {
	o := vgpuManagerOptions{MemoryFactor: 1}
	if err := given.decode(&o); err != nil {
		return nil, err
	}
	if err := given.checkFactor(o.MemoryFactor); err != nil {
		return nil, err
	}
	return inContainers{
		name: given.dialect,
		names: Names{
			Resources:  []string{managerNumber, managerMemory, managerCores},
			Schedulers: []string{"vgpu-scheduler"},
		},
		counts: map[string]Measure{managerNumber: countGPUs, managerMemory: countMemory(o.MemoryFactor * mebibyte), managerCores: countCores},
		request: func(pod *corev1.Pod, asked *limits) Request {
			request := o.request(asked)
			managerBehaviour(pod, asked, &request)
			managerPlace(pod, asked, &request)
			return request
		},
	}, nil
}

// request reads how much is asked. A number alone, or with all of the time, is whole GPUs. Memory is all of it where it
// is left out.
func (o vgpuManagerOptions) request(asked *limits) Request {
	units, sized := asked.positive(managerMemory)
	cores, _ := asked.number(managerCores)
	if cores > v1alpha1.MaxCores {
		asked.refuse("%s: %d percent is more than one GPU: give 1 to 100", managerCores, cores)
	}
	request := Request{Count: asked.count(managerNumber), Cores: int(min(cores, v1alpha1.MaxCores)), Unit: unitHint(managerMemory, o.MemoryFactor)}
	if sized {
		request.Memory = unitsOf(asked, managerMemory, units, o.MemoryFactor*mebibyte)
	}
	request.Whole = !sized && (cores == 0 || cores >= v1alpha1.MaxCores)
	return request
}

var managerPolicies = map[string]v1alpha1.Policy{
	"": "", "fixed": v1alpha1.PolicyFixed, "balance": v1alpha1.PolicyBurst, "none": v1alpha1.PolicyWeighted,
}

// managerBehaviour reads how the share behaves. A policy says something of cores only.
func managerBehaviour(pod *corev1.Pod, asked *limits, request *Request) {
	policy, known := managerPolicies[pod.Annotations[managerPolicy]]
	if !known {
		asked.refuse("annotation %s: %q: use fixed, balance or none", managerPolicy, pod.Annotations[managerPolicy])
	}
	if request.Cores > 0 && !request.Whole {
		request.Config.Policy = policy
	}
	for _, variable := range asked.container.Env {
		if variable.Name == managerOversold && !strings.EqualFold(variable.Value, "false") {
			if request.Whole {
				asked.refuse("variable %s is about vGPUs, and the container asks for whole GPUs: name %s, or leave the variable out", managerOversold, managerMemory)
			}
			request.Config.Swap = true
		}
	}
}

// managerModel is true of GPUs whose model contains what stands for %s.
var managerModel = attributeOf(v1alpha1.AttributeModel) + `.lowerAscii().contains(%s)`

// managerPlace reads which GPUs may be used. The modes that are not strict, and the policies for nodes and devices, are
// preferences.
func managerPlace(pod *corev1.Pod, asked *limits, request *Request) {
	notes := make(map[string]string, len(pod.Annotations))
	for key, value := range pod.Annotations {
		if strings.Trim(value, ", ") != "" { // a list of nothing is as good as none
			notes[key] = value
		}
	}
	restrictTo(asked, request, notes, "nvidia.com/include-gpu-type", managerModel, true, modelPattern, strings.ToLower)
	restrictTo(asked, request, notes, "nvidia.com/exclude-gpu-type", managerModel, false, modelPattern, strings.ToLower)
	restrictTo(asked, request, notes, "nvidia.com/include-gpu-uuid", request.uuidIs(), true, uuidPattern, strings.Clone)
	restrictTo(asked, request, notes, "nvidia.com/exclude-gpu-uuid", request.uuidIs(), false, uuidPattern, strings.Clone)
	switch mode := notes[managerTopology]; mode {
	case "", "none", "numa", "link":
	case "numa-strict":
		request.SameNUMA = true
		if request.Count == 1 {
			request.Selectors = append(request.Selectors, fmt.Sprintf("has(%s)", attributeOf(v1alpha1.AttributeNUMANode)))
		}
	default:
		asked.refuse("annotation %s: %q is not offered: use numa, link or numa-strict", managerTopology, mode)
	}
}
