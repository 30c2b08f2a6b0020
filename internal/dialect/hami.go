package dialect

import (
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

type hamiOptions struct {
	// DefaultMemory is what a GPU named without memory means, in units of gpumem; 0 is all of its memory.
	DefaultMemory uint64 `json:"defaultMemory,omitempty"`
	// MemoryFactor is how many MiB one unit of gpumem is, 1 by default.
	MemoryFactor uint64 `json:"memoryFactor,omitempty"`
	// CorePolicy is fixed, or burst: idle time beyond gpucores may be used. Left out it is the node's, which is fixed
	// where nobody says otherwise.
	CorePolicy v1alpha1.Policy `json:"corePolicy,omitempty"`
	// DeviceMemoryScaling is what that system's device plugin multiplies the memory of GPUs by, 1 by default. Above 1 shares swap.
	DeviceMemoryScaling float64 `json:"deviceMemoryScaling,omitempty"`
}

const (
	hamiGPU      = "nvidia.com/gpu"
	hamiMemory   = "nvidia.com/gpumem"
	hamiPercent  = "nvidia.com/gpumem-percentage"
	hamiCores    = "nvidia.com/gpucores"
	hamiPriority = "nvidia.com/priority"
	hamiMode     = "nvidia.com/vgpu-mode"
	hamiPolicy   = "GPU_CORE_UTILIZATION_POLICY"
)

// hami is the form of HAMi.
func hami(given options) (Dialect, error) {
	return vgpu(given, hamiOptions{MemoryFactor: 1}, true)
}

// paradigm is the form of 4paradigm's scheduler, HAMi's ancestor: the same names, 5000 MiB where nothing is said, and
// a number of GPUs alone does not ask for whole ones.
func paradigm(given options) (Dialect, error) {
	return vgpu(given, hamiOptions{DefaultMemory: 5000, MemoryFactor: 1}, false)
}

func vgpu(given options, o hamiOptions, exclusive bool) (Dialect, error) {
	if err := given.decode(&o); err != nil {
		return nil, err
	}
	if err := given.checkFactor(o.MemoryFactor); err != nil {
		return nil, err
	}
	if o.DefaultMemory >= 1<<30 {
		return nil, given.fault("defaultMemory %d is more than any GPU has", o.DefaultMemory)
	}
	if o.CorePolicy != "" && o.CorePolicy != v1alpha1.PolicyFixed && o.CorePolicy != v1alpha1.PolicyBurst {
		return nil, given.fault("corePolicy %q: use fixed or burst", o.CorePolicy)
	}
	if scaling := o.DeviceMemoryScaling; scaling != 0 && !(scaling >= 1 && scaling <= mostScaling) {
		return nil, given.fault("deviceMemoryScaling %g: give 1, or up to %d where GPUs are to have more memory than they have", scaling, mostScaling)
	}
	return inContainers{
		name: given.dialect,
		names: Names{
			Resources:  []string{hamiGPU, hamiMemory, hamiPercent, hamiCores, hamiPriority, migNames},
			Schedulers: []string{"hami-scheduler", "4pd-scheduler"},
		},
		counts: map[string]Measure{
			hamiGPU: countGPUs, hamiMemory: countMemory(o.MemoryFactor * mebibyte), hamiPercent: countPercent, hamiCores: countCores,
		},
		request: func(pod *corev1.Pod, asked *limits) Request {
			request := o.kind(pod, asked, exclusive)
			o.behave(asked, &request)
			request.Config.Swap = o.DeviceMemoryScaling > 1 && !request.Whole && !request.instance()
			restrict(pod, asked, &request)
			return request
		},
	}, nil
}

// mostScaling is more than any host has of the memory of its GPUs.
const mostScaling = 100

// kind reads what is asked: a MIG instance by its profile or by its memory, or shares or whole GPUs.
func (o hamiOptions) kind(pod *corev1.Pod, asked *limits, exclusive bool) Request {
	request, given := migDevice(asked, hamiGPU, hamiMemory, hamiPercent, hamiCores)
	mig := migMode(pod, asked, hamiMode)
	switch {
	case given:
	case mig:
		request = byMemory(asked, o.request(asked, false), hamiMode+" mig")
	default:
		request = o.request(asked, exclusive)
		request.exclusive()
	}
	return request
}

// request reads how much is asked. Who asks for 100 cores gets a GPU that nobody else is on, and nobody joins it; so
// does, in HAMi, who names GPUs without cores and without memory, or with 100 percent of it.
func (o hamiOptions) request(asked *limits, exclusive bool) Request {
	request := Request{Count: asked.count(hamiGPU)}
	memory, sized := asked.memory(hamiMemory, hamiPercent, o.MemoryFactor*mebibyte)
	cores, timed := asked.number(hamiCores)
	if request.Memory = memory; !sized && o.DefaultMemory > 0 {
		request.Memory = v1alpha1.Bytes(o.DefaultMemory * o.MemoryFactor * mebibyte)
	}
	if cores > v1alpha1.MaxCores {
		asked.refuse("%s: %d percent is more than one GPU: give 1 to 100", hamiCores, cores)
	}
	_, counted := asked.number(hamiGPU)
	if exclusive && counted && !timed && memory.IsAll() {
		cores = v1alpha1.MaxCores
	}
	request.Cores = int(min(cores, v1alpha1.MaxCores))
	request.Unit = unitHint(hamiMemory, o.MemoryFactor)
	return request
}

// behave reads how the share behaves: low priority gives way, and cores are then a cap.
func (o hamiOptions) behave(asked *limits, request *Request) {
	priority, given := asked.number(hamiPriority)
	switch {
	case priority > 1:
		asked.refuse("%s: %d: 0 is high and 1 is low", hamiPriority, priority)
	case given && priority == 1 && request.Whole:
		asked.refuse("%s: 1 gives way to others, and a whole GPU has no others", hamiPriority)
	case given && priority == 1:
		request.Config.Class = v1alpha1.ClassOffline
	case request.Cores > 0 && !request.Whole && !request.instance():
		request.Config.Policy = o.CorePolicy
		o.policyOf(asked, request)
	}
}

// hamiPolicies are what HAMi's library makes of its variable: cores are a cap, or lent while nobody else is there, or
// none.
var hamiPolicies = map[string]v1alpha1.Policy{"force": v1alpha1.PolicyFixed, "default": v1alpha1.PolicyBurst, "disable": v1alpha1.PolicyWeighted}

// policyOf reads the variable of the container that stands before the cluster's policy for cores.
func (o hamiOptions) policyOf(asked *limits, request *Request) {
	for _, variable := range asked.container.Env {
		if variable.Name != hamiPolicy {
			continue
		}
		policy, known := hamiPolicies[variable.Value]
		if !known {
			asked.refuse("variable %s: %q: write default, force or disable", hamiPolicy, variable.Value)
		}
		request.Config.Policy = policy
	}
}

// hamiModel is true of GPUs whose model, as HAMi writes it, contains what stands for %s.
var hamiModel = `("NVIDIA-" + ` + attributeOf(v1alpha1.AttributeModel) + `).lowerAscii().contains(%s)`

// restrict reads which GPUs may be used.
func restrict(pod *corev1.Pod, asked *limits, request *Request) {
	notes := pod.Annotations
	for _, policy := range strings.Split(notes["hami.io/gpu-scheduler-policy"], ",") {
		if strings.TrimSpace(policy) == "mutex" {
			asked.refuse("annotation hami.io/gpu-scheduler-policy: mutex is not offered: ask for a whole GPU")
		}
	}
	restrictTo(asked, request, notes, "nvidia.com/use-gputype", hamiModel, true, modelPattern, strings.ToLower)
	restrictTo(asked, request, notes, "nvidia.com/nouse-gputype", hamiModel, false, modelPattern, strings.ToLower)
	restrictTo(asked, request, notes, "nvidia.com/use-gpuuuid", request.uuidIs(), true, uuidPattern, strings.Clone)
	restrictTo(asked, request, notes, "nvidia.com/nouse-gpuuuid", request.uuidIs(), false, uuidPattern, strings.Clone)
	switch notes["nvidia.com/numa-bind"] {
	case "", "false":
	case "true":
		request.SameNUMA = true
	default:
		asked.refuse("annotation nvidia.com/numa-bind: %q: use true or false", notes["nvidia.com/numa-bind"])
	}
}
