package dialect

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const koordScheduler = "koord-scheduler"

// koordinator is the form of Koordinator's device scheduling: percent of a GPU's time, and its memory in bytes or in
// percent. Values beyond 100 are of several GPUs. Its first versions had the domain kubernetes.io; both are read, one in
// a container.
func koordinator(given options) (Dialect, error) {
	if err := given.decode(&struct{}{}); err != nil {
		return nil, err
	}
	old, current := koordOf("kubernetes.io/"), koordOf("koordinator.sh/")
	counts := current.counts()
	maps.Copy(counts, old.counts())
	return inContainers{
		name: given.dialect,
		names: Names{
			Resources: slices.Concat(current.all(), old.all()), Schedulers: []string{koordScheduler},
			QueueLabels: []string{"quota.scheduling.koordinator.sh/name"},
		},
		stands: koordQuota,
		counts: counts,
		request: func(_ *corev1.Pod, asked *limits) Request {
			switch {
			case !(Names{Resources: old.all()}).askedBy(asked.container):
				return current.request(asked)
			case (Names{Resources: current.all()}).askedBy(asked.container):
				asked.refuse("%s and %s exclude each other", old.gpu, current.gpu)
			}
			return old.request(asked)
		},
	}, nil
}

// koordNames are the names of a domain. The manual says gpu-shared for gpu.shared.
type koordNames struct{ gpu, shared, sharedToo, cores, memory, ratio string }

func koordOf(domain string) koordNames {
	return koordNames{domain + "gpu", domain + "gpu.shared", domain + "gpu-shared", domain + "gpu-core", domain + "gpu-memory", domain + "gpu-memory-ratio"}
}

func (k koordNames) all() []string {
	return []string{k.gpu, k.shared, k.sharedToo, k.cores, k.memory, k.ratio}
}

func (k koordNames) counts() map[string]Measure {
	return map[string]Measure{
		k.gpu: countHundredths, k.shared: countGPUs, k.sharedToo: countGPUs, k.cores: countCores, k.memory: countMemory(1), k.ratio: countPercent,
	}
}

// request reads totals and divides them among the GPUs.
func (k koordNames) request(asked *limits) Request {
	both, combined := asked.positive(k.gpu)
	cores, timed := asked.positive(k.cores)
	ratio, divided := asked.positive(k.ratio)
	bytes, sized := asked.positive(k.memory)
	shared, counted := asked.positive(k.shared)
	if sharedToo, given := asked.positive(k.sharedToo); given {
		if counted {
			asked.refuse("%s and %s exclude each other", k.shared, k.sharedToo)
		}
		shared, counted = sharedToo, true
	}
	switch {
	case combined && (timed || divided || sized || counted):
		asked.refuse("%s stands for time and memory, and excludes %s, %s, %s and %s", k.gpu, k.cores, k.ratio, k.memory, k.shared)
	case combined:
		cores, ratio = both, both
	case divided == sized:
		asked.refuse("give one of %s and %s", k.memory, k.ratio)
	}
	count := k.count(asked, shared, cores, ratio)
	if bytes /= count; sized && bytes < mebibyte {
		asked.refuse("%s: %d bytes of each GPU are less than 1Mi", k.memory, bytes)
	}
	request := Request{Count: int(count), Cores: int(cores / count)}
	if sized {
		request.Memory = v1alpha1.Bytes(max(bytes/mebibyte, 1) * mebibyte)
	} else {
		request.Memory = v1alpha1.PartOf(max(ratio/count, 1), 100)
	}
	request.Whole = !sized && ratio/count >= 100 && cores/count >= 100
	return request
}

// count returns among how many GPUs the totals are divided: as many as gpu.shared says, or as the hundreds need.
func (k koordNames) count(asked *limits, shared, cores, ratio uint64) uint64 {
	count := shared
	if count == 0 {
		count = max((max(cores, ratio)+99)/100, 1)
	}
	if count > MaxGPUs {
		asked.refuse("%d GPUs are more than the %d that one container can have", count, MaxGPUs)
		return 1
	}
	for _, total := range []struct {
		name string
		n    uint64
	}{{k.cores, cores}, {k.ratio, ratio}} {
		switch {
		case shared == 0 && total.n > 100 && total.n%100 != 0:
			asked.refuse("%s: %d is more than one GPU and no multiple of 100", total.name, total.n)
		case total.n%count != 0:
			asked.refuse("%s: %d is not divisible by %d GPUs", total.name, total.n, count)
		case total.n/count > 100:
			asked.refuse("%s: %d is more than %d GPUs have", total.name, total.n, count)
		}
	}
	return count
}

// koordQuota reads whether Koordinator may end a pod for others. One that it may not end is held to its quota's minimum there.
func koordQuota(pod *corev1.Pod) v1alpha1.Quota {
	switch pod.Labels["quota.scheduling.koordinator.sh/preemptible"] {
	case "false":
		return v1alpha1.QuotaGuaranteed
	case "true":
		return v1alpha1.QuotaBorrowing
	}
	return ""
}

// koordHints are annotations by which Koordinator's scheduler allocates devices together, or in given groups.
var koordHints = []string{
	"scheduling.koordinator.sh/device-joint-allocate", "scheduling.koordinator.sh/gpu-partition-spec", "scheduling.koordinator.sh/device-allocate-hint",
}

const koordNUMA = "scheduling.koordinator.sh/numa-topology-spec"

// checkKoordinator refuses what only Koordinator's scheduler can give beside a GPU: nobody else looks at its hints.
func checkKoordinator(pod *corev1.Pod) error {
	for _, name := range koordHints {
		if _, ok := pod.Annotations[name]; ok {
			return refuse("annotation %s is not offered: only Koordinator's scheduler allocates so, and it knows none of Divvy's GPUs", name)
		}
	}
	if text, ok := pod.Annotations[koordNUMA]; ok {
		var spec struct {
			Policy string `json:"numaTopologyPolicy"`
		}
		if err := json.Unmarshal([]byte(text), &spec); err != nil || !slices.Contains([]string{"", "None", "BestEffort"}, spec.Policy) {
			return refuse("annotation %s is not offered: only Koordinator's scheduler aligns processors and GPUs", koordNUMA)
		}
	}
	for _, ref := range containersOf(pod) {
		if others := (Names{Resources: []string{"koordinator.sh/rdma", "koordinator.sh/fpga"}}); others.askedBy(ref.of(pod)) {
			return refuse("container %q asks for koordinator.sh/rdma or koordinator.sh/fpga, which only Koordinator's scheduler gives, beside a GPU of Divvy: put one of them into another pod",
				ref.of(pod).Name)
		}
	}
	return nil
}
