package dialect

import (
	"strconv"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

type gpushareOptions struct {
	// MemoryUnit is what the device plugin was started with: GiB, which is the default, or MiB.
	MemoryUnit string `json:"memoryUnit,omitempty"`
	// Backend is timeslice for nodes that cGPU's policy 5 was set for: the driver divides time.
	Backend v1alpha1.Backend `json:"backend,omitempty"`
}

var gpushareUnits = map[string]uint64{"": gibibyte, "GiB": gibibyte, "MiB": mebibyte}

const (
	gpushareMemory = "aliyun.com/gpu-mem"
	gpushareCores  = "aliyun.com/gpu-core.percentage"
	gpushareCount  = "aliyun.com/gpu-count"
	cgpuWeight     = "ALIYUN_COM_GPU_SCHD_WEIGHT"
)

// gpushare is the form of Alibaba's GPU sharing, with cGPU's weights. Memory is a total, which the pod's label
// aliyun.com/gpu-count divides among so many GPUs.
func gpushare(given options) (Dialect, error) {
	o, err := gpushareOptionsOf(given)
	if err != nil {
		return nil, err
	}
	unit := gpushareUnits[o.MemoryUnit]
	return inContainers{
		name:   "gpushare",
		names:  Names{Resources: []string{gpushareMemory, gpushareCores, gpushareCount}},
		counts: map[string]Measure{gpushareMemory: countMemory(unit), gpushareCores: countCores, gpushareCount: countGPUs},
		request: func(pod *corev1.Pod, asked *limits) Request {
			memory, sized := asked.positive(gpushareMemory)
			cores, timed := asked.percent(gpushareCores)
			if n, _ := asked.number(gpushareCount); n > 0 {
				asked.refuse("%s is a label of the pod, not a limit", gpushareCount)
			}
			if !sized {
				asked.refuse("%s is missing", gpushareMemory)
			}
			count := gpushareGPUs(pod, asked)
			switch {
			case memory%count != 0:
				asked.refuse("%s: %d is not divisible by the %d GPUs of the label %s", gpushareMemory, memory, count, gpushareCount)
			case timed && count > 1:
				asked.refuse("%s and several GPUs exclude each other", gpushareCores)
			case cores%5 != 0:
				asked.refuse("%s: %d: give a multiple of 5", gpushareCores, cores)
			}
			request := Request{Count: int(count), Cores: int(cores), Memory: unitsOf(asked, gpushareMemory, memory/count, unit)}
			if unit == gibibyte {
				request.Unit = "if " + gpushareMemory + " is in MiB on this cluster, set memoryUnit: MiB for the dialect gpushare"
			}
			weigh(asked, &request)
			if o.Backend == v1alpha1.BackendTimeslice {
				leaveTime(asked, &request)
			}
			return request
		},
	}, nil
}

func gpushareOptionsOf(given options) (o gpushareOptions, err error) {
	if err := given.decode(&o); err != nil {
		return o, err
	}
	if _, ok := gpushareUnits[o.MemoryUnit]; !ok {
		return o, given.fault("memoryUnit %q: use GiB or MiB", o.MemoryUnit)
	}
	switch {
	case o.Backend != "" && o.Backend != v1alpha1.BackendSlice && o.Backend != v1alpha1.BackendTimeslice:
		return o, given.fault("backend %q: use slice or timeslice", o.Backend)
	case o.Backend == v1alpha1.BackendTimeslice && given.mode == ModeSlots:
		return o, given.fault("backend timeslice needs mode claims: leave it out")
	}
	return o, nil
}

// gpushareGPUs returns the number of GPUs among which the pod's label divides what each container asks for, 1 or more.
func gpushareGPUs(pod *corev1.Pod, asked *limits) uint64 {
	text, ok := pod.Labels[gpushareCount]
	if !ok {
		return 1
	}
	count, err := strconv.ParseUint(text, 10, 8)
	if err != nil || count < 1 || count > MaxGPUs {
		asked.refuse("label %s: %q: give 1 to %d", gpushareCount, text, MaxGPUs)
		return 1
	}
	return count
}

// weigh reads cGPU's weight, which is an environment variable of the container. It has an effect above 1.
func weigh(asked *limits, request *Request) {
	for _, variable := range asked.container.Env {
		if variable.Name != cgpuWeight {
			continue
		}
		weight, err := strconv.Atoi(variable.Value)
		switch {
		case variable.ValueFrom != nil || err != nil || weight < 1 || weight > v1alpha1.MaxWeight:
			asked.refuse("variable %s: %q: write 1 to %d", cgpuWeight, variable.Value, v1alpha1.MaxWeight)
		case weight > 1 && request.Cores > 0:
			asked.refuse("variable %s and %s are two policies: use one", cgpuWeight, gpushareCores)
		default:
			request.Config.Weight = weight // of several variables of one name the last counts
		}
	}
}

// leaveTime leaves GPU time to the driver, whose time slices know no percentages and no weights.
func leaveTime(asked *limits, request *Request) {
	switch {
	case request.Cores > 0:
		asked.refuse("%s: the driver divides time on this cluster's GPUs, which keeps no percentage: leave it out", gpushareCores)
	case request.Config.Weight > 1:
		asked.refuse("variable %s: the driver divides time on this cluster's GPUs, which knows no weights: leave it out", cgpuWeight)
	}
	request.Config = v1alpha1.ShareConfig{Backend: v1alpha1.BackendTimeslice}
}
