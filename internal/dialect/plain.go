package dialect

import (
	"github.com/divvy-gpu/divvy/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// plain is Divvy's own form: GPUs, and of each of them memory in bytes and a percentage of its time. A number of GPUs
// alone asks for whole ones.
func plain(given options) (Dialect, error) {
	const gpu, memory, cores = v1alpha1.ResourceGPU, v1alpha1.ResourceMemory, v1alpha1.ResourceCores
	if err := given.decode(&struct{}{}); err != nil {
		return nil, err
	}
	return inContainers{
		name:  "plain",
		names: Names{Resources: []string{gpu, memory, cores}},
		request: func(_ *corev1.Pod, asked *limits) Request {
			bytes, sized := asked.positive(memory)
			percent, timed := asked.percent(cores)
			request := Request{Count: asked.count(gpu), Cores: int(percent), Whole: !sized && !timed}
			if sized {
				request.Memory = v1alpha1.Bytes(bytes)
			}
			return request
		},
	}, nil
}
