package dialect

import corev1 "k8s.io/api/core/v1"

// elasticGPU is the form of Elastic GPU: hundredths of a GPU, and memory in MiB. From 100 on it gives whole GPUs. Its
// documentation and its code have two domains; both are read, one in a container.
func elasticGPU(given options) (Dialect, error) {
	domains := []string{"elasticgpu.io/", "elasticgpu.com/"}
	if err := given.decode(&struct{}{}); err != nil {
		return nil, err
	}
	var names Names
	counts := make(map[string]Measure)
	for _, domain := range domains {
		names.Resources = append(names.Resources, domain+"gpu-core", domain+"gpu-memory")
		counts[domain+"gpu-core"], counts[domain+"gpu-memory"] = countCores, countMemory(mebibyte)
	}
	return inContainers{
		name:   "elasticgpu",
		names:  names,
		counts: counts,
		request: func(_ *corev1.Pod, asked *limits) Request {
			var found []Request
			for _, domain := range domains {
				cores, _ := asked.number(domain + "gpu-core")
				megs, _ := asked.number(domain + "gpu-memory")
				switch {
				case cores >= 100:
					found = append(found, hundreds(asked, domain+"gpu-core", cores))
				case megs > 0:
					found = append(found, Request{Count: 1, Cores: int(cores), Memory: unitsOf(asked, domain+"gpu-memory", megs, mebibyte)})
				case cores > 0:
					asked.refuse("%sgpu-core: %d is a part of a GPU, and needs %sgpu-memory", domain, cores, domain)
				}
			}
			if len(found) != 1 {
				asked.refuse("elasticgpu.io and elasticgpu.com exclude each other")
				return Request{}
			}
			return found[0]
		},
	}, nil
}
