package dialect

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

type volcanoOptions struct {
	// MemoryFactor is how many MiB one unit of memory is, 1 by default.
	MemoryFactor uint64 `json:"memoryFactor,omitempty"`
}

const (
	volcanoNumber  = "volcano.sh/vgpu-number"
	volcanoMemory  = "volcano.sh/vgpu-memory"
	volcanoPercent = "volcano.sh/vgpu-memory-percentage"
	volcanoCores   = "volcano.sh/vgpu-cores"
	volcanoShared  = "volcano.sh/gpu-memory"
	volcanoWhole   = "volcano.sh/gpu-number"
	volcanoMode    = "volcano.sh/vgpu-mode"
)

// volcano is the form of Volcano's two GPU plugins: vGPUs, each of so much memory and time, and the older ones, which
// share a GPU by memory alone or give whole GPUs.
func volcano(given options) (Dialect, error) {
	o := volcanoOptions{MemoryFactor: 1}
	if err := given.decode(&o); err != nil {
		return nil, err
	}
	if err := given.checkFactor(o.MemoryFactor); err != nil {
		return nil, err
	}
	return inContainers{
		name: "volcano",
		names: Names{
			Resources:  []string{volcanoNumber, volcanoMemory, volcanoPercent, volcanoCores, volcanoShared, volcanoWhole},
			Schedulers: []string{"volcano"},
			// The first is the user's, the other one that of Volcano's jobs.
			QueueAnnotations: []string{"scheduling.volcano.sh/queue-name", "volcano.sh/queue-name"},
			QueueLabels:      []string{"volcano.sh/queue-name"},
		},
		counts: map[string]Measure{
			volcanoNumber: countGPUs, volcanoMemory: countMemory(o.MemoryFactor * mebibyte), volcanoPercent: countPercent, volcanoCores: countCores,
			volcanoShared: countMemory(o.MemoryFactor * mebibyte), volcanoWhole: countPortions,
		},
		request: func(pod *corev1.Pod, asked *limits) Request {
			shared, _ := asked.number(volcanoShared)
			whole, _ := asked.number(volcanoWhole)
			virtual := Names{Resources: []string{"volcano.sh/vgpu-*"}}.askedBy(asked.container)
			switch {
			case shared > 0 && whole > 0, virtual && shared+whole > 0:
				asked.refuse("%s, %s and volcano.sh/vgpu-* exclude each other", volcanoShared, volcanoWhole)
				return Request{}
			case whole > 0:
				return Request{Count: asked.count(volcanoWhole), Whole: true}
			case shared > 0:
				return Request{Count: 1, Memory: unitsOf(asked, volcanoShared, shared, o.MemoryFactor*mebibyte), Unit: unitHint(volcanoShared, o.MemoryFactor)}
			}
			request := o.virtual(asked)
			if migMode(pod, asked, volcanoMode) {
				request = byMemory(asked, request, volcanoMode+" mig")
			} else {
				request.exclusive()
			}
			restrictVolcano(pod, asked, &request)
			return request
		},
	}, nil
}

// virtual reads vGPUs. Without a number, memory alone asks for one, and without memory a vGPU has all of it. Who asks
// for 100 cores gets a GPU that nobody else is on.
func (o volcanoOptions) virtual(asked *limits) Request {
	memory, _ := asked.memory(volcanoMemory, volcanoPercent, o.MemoryFactor*mebibyte)
	_, inUnits := asked.number(volcanoMemory)
	cores, _ := asked.number(volcanoCores)
	if _, counted := asked.number(volcanoNumber); !counted && !inUnits {
		asked.refuse("%s is missing", volcanoNumber)
	}
	if cores > 100 {
		asked.refuse("%s: %d percent is more than one GPU: give 1 to 100", volcanoCores, cores)
	}
	request := Request{Count: asked.count(volcanoNumber), Memory: memory, Cores: int(min(cores, 100)), Unit: unitHint(volcanoMemory, o.MemoryFactor)}
	return request
}

func restrictVolcano(pod *corev1.Pod, asked *limits, request *Request) {
	notes := pod.Annotations
	if policy := notes["volcano.sh/vgpu-podgroup-policy"]; policy != "" {
		asked.refuse("annotation volcano.sh/vgpu-podgroup-policy: %q is not offered", policy)
	}
	restrictTo(asked, request, notes, "volcano.sh/vgpu-use-gpuuuid", request.uuidIs(), true, uuidPattern, strings.Clone)
	restrictTo(asked, request, notes, "volcano.sh/vgpu-nouse-gpuuuid", request.uuidIs(), false, uuidPattern, strings.Clone)
}
