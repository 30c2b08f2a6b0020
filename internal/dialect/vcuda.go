package dialect

import (
	"strconv"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// vcuda is the form of Tencent's GPU manager: hundredths of a GPU, and memory in units of 256 MiB. From 100 on it
// gives whole GPUs, whatever memory is asked with them.
func vcuda(given options) (Dialect, error) {
	const core, memory, limit = "tencent.com/vcuda-core", "tencent.com/vcuda-memory", "tencent.com/vcuda-core-limit"
	if err := given.decode(&struct{}{}); err != nil {
		return nil, err
	}
	return inContainers{
		name:   "vcuda",
		names:  Names{Resources: []string{core, memory}},
		counts: map[string]Measure{core: countCores, memory: countMemory(256 * mebibyte)},
		request: func(pod *corev1.Pod, asked *limits) Request {
			cores, _ := asked.number(core)
			units, _ := asked.number(memory)
			switch {
			case cores >= 100:
				return hundreds(asked, core, cores)
			case cores == 0 || units == 0:
				asked.refuse("a part of a GPU needs both %s and %s", core, memory)
				return Request{}
			}
			request := Request{Count: 1, Cores: int(cores), Memory: unitsOf(asked, memory, units, 256*mebibyte)}
			burstTo(asked, pod.Annotations, limit, &request)
			return request
		},
	}, nil
}

// hundreds are whole GPUs, 100 of a resource each.
func hundreds(asked *limits, name string, n uint64) Request {
	if n%100 != 0 {
		asked.refuse("%s: %d is more than one GPU and no multiple of 100", name, n)
	}
	if n/100 > MaxGPUs {
		asked.refuse("%s: %d GPUs are more than the %d that one container can have", name, n/100, MaxGPUs)
	}
	return Request{Count: int(min(n/100, MaxGPUs)), Whole: true}
}

// burstTo reads the annotation that lets a share use idle time up to a limit.
func burstTo(asked *limits, notes map[string]string, name string, request *Request) {
	text, ok := notes[name]
	if !ok {
		return
	}
	most, err := strconv.Atoi(text)
	switch {
	case err != nil || most > v1alpha1.MaxCores:
		asked.refuse("annotation %s: %q: give %d to %d", name, text, request.Cores, v1alpha1.MaxCores)
	case most < request.Cores:
		asked.refuse("annotation %s: %d is below the %d that are asked", name, most, request.Cores)
	case most > request.Cores:
		request.Config.Policy = v1alpha1.PolicyBurst
		request.Config.MaxCores = most
	}
}
