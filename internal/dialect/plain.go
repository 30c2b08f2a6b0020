package dialect

import (
	"github.com/divvy-gpu/divvy/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// plain is Divvy's own form: GPUs, and of each of them memory, in bytes or in percent, and a percentage of its time. A
// number of GPUs alone asks for whole ones. A number of pairs stands in its place, and asks for an RDMA card with each.
func plain(given options) (Dialect, error) {
	const gpu, memory, percent, cores, pairs = v1alpha1.ResourceGPU, v1alpha1.ResourceMemory, v1alpha1.ResourceMemoryPercent, v1alpha1.ResourceCores, v1alpha1.ResourcePairs
	if err := given.decode(&struct{}{}); err != nil {
		return nil, err
	}
	return inContainers{
		name:  "plain",
		names: Names{Resources: []string{gpu, memory, percent, cores, pairs}},
		request: func(_ *corev1.Pod, asked *limits) Request {
			amount, sized := asked.memory(memory, percent, 1)
			time, timed := asked.percent(cores)
			request := Request{Memory: amount, Cores: int(time), Whole: !sized && !timed}
			number, paired := asked.positive(pairs)
			if !paired {
				request.Count = asked.count(gpu)
				return request
			}
			if _, counted := asked.number(gpu); counted {
				asked.refuse("%s and %s exclude each other: a pair has a GPU", pairs, gpu)
			}
			request.Count, request.Pairs = int(min(number, MaxGPUs)), v1alpha1.ReachStrict
			return request
		},
	}, nil
}
