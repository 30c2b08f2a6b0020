package dialect

import (
	"github.com/divvy-gpu/divvy/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// plain is Divvy's own form: GPUs, and of each of them memory, in bytes or in percent, and a percentage of its time. A
// number of GPUs alone asks for whole ones.
func plain(given options) (Dialect, error) {
	const gpu, memory, percent, cores = v1alpha1.ResourceGPU, v1alpha1.ResourceMemory, v1alpha1.ResourceMemoryPercent, v1alpha1.ResourceCores
	if err := given.decode(&struct{}{}); err != nil {
		return nil, err
	}
	return inContainers{
		name:  "plain",
		names: Names{Resources: []string{gpu, memory, percent, cores}},
		request: func(_ *corev1.Pod, asked *limits) Request {
			amount, sized := asked.memory(memory, percent, 1)
			time, timed := asked.percent(cores)
			return Request{Count: asked.count(gpu), Memory: amount, Cores: int(time), Whole: !sized && !timed}
		},
	}, nil
}
