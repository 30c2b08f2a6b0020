package dialect

import (
	"github.com/divvy-gpu/divvy/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

type qgpuOptions struct {
	// Policy is what the nodes were set to: fixed-share, burst-share or best-effort. Left out it is that of Divvy's
	// nodes, which is fixed where nobody says otherwise.
	Policy string `json:"policy,omitempty"`
}

var qgpuPolicies = map[string]v1alpha1.Policy{
	"":            "",
	"fixed-share": v1alpha1.PolicyFixed,
	"burst-share": v1alpha1.PolicyBurst,
	"best-effort": v1alpha1.PolicyWeighted,
}

const (
	qgpuCore   = "tke.cloud.tencent.com/qgpu-core"
	qgpuGreedy = "tke.cloud.tencent.com/qgpu-core-greedy"
	qgpuMemory = "tke.cloud.tencent.com/qgpu-memory"
	qgpuClass  = "tke.cloud.tencent.com/app-class"
)

// qgpu is the form of Tencent's qGPU: percent of one GPU's time in steps of 5, and memory in GiB. Above 100, both are
// totals that are divided among as few GPUs as hold them.
func qgpu(given options) (Dialect, error) {
	var o qgpuOptions
	if err := given.decode(&o); err != nil {
		return nil, err
	}
	policy, ok := qgpuPolicies[o.Policy]
	if !ok {
		return nil, given.fault("policy %q: use fixed-share, burst-share or best-effort", o.Policy)
	}
	return inContainers{
		name:   "qgpu",
		names:  Names{Resources: []string{qgpuCore, qgpuGreedy, qgpuMemory}},
		counts: map[string]Measure{qgpuCore: countCores, qgpuGreedy: countCores, qgpuMemory: countMemory(gibibyte)},
		request: func(pod *corev1.Pod, asked *limits) Request {
			cores, _ := asked.number(qgpuCore)
			greedy, _ := asked.number(qgpuGreedy)
			gigs, _ := asked.number(qgpuMemory)
			switch class := pod.Annotations[qgpuClass]; class {
			case "":
				if greedy > 0 {
					asked.refuse("%s is for pods with the annotation %s: offline", qgpuGreedy, qgpuClass)
				}
				return qgpuPlain(asked, cores, gigs, policy)
			case "online", "offline":
				return qgpuMixed(asked, class, cores, greedy, gigs)
			default:
				asked.refuse("annotation %s: %q: use online or offline", qgpuClass, class)
				return Request{}
			}
		},
	}, nil
}

// qgpuPlain is a pod that is neither online nor offline.
func qgpuPlain(asked *limits, cores, gigs uint64, policy v1alpha1.Policy) Request {
	switch {
	case cores == 0:
		asked.refuse("%s needs %s beside it", qgpuMemory, qgpuCore)
		return Request{}
	case cores >= 100 && gigs == 0:
		return hundreds(asked, qgpuCore, cores)
	case gigs == 0:
		asked.refuse("%s: %d is a part of a GPU, and needs %s", qgpuCore, cores, qgpuMemory)
		return Request{}
	case cores <= 100 && cores%5 != 0:
		asked.refuse("%s: %d: give a multiple of 5", qgpuCore, cores)
	case cores > 200:
		asked.refuse("%s: %d with %s: at most 2 GPUs are shared together", qgpuCore, cores, qgpuMemory)
		return Request{}
	}
	count := (cores + 99) / 100
	request := Request{Count: int(count), Cores: int(cores / count), Memory: unitsOf(asked, qgpuMemory, gigs/count, gibibyte)}
	if gigs < count {
		asked.refuse("%s: %d cannot be divided among %d GPUs", qgpuMemory, gigs, count)
	}
	request.Config.Policy = policy
	return request
}

// qgpuMixed is a pod of a node with online and offline pods. Online pods ask for memory alone. Offline pods take the
// time that is left, up to what they name.
func qgpuMixed(asked *limits, class string, cores, greedy, gigs uint64) Request {
	online := class == "online"
	switch {
	case cores > 0:
		asked.refuse("annotation %s: %s excludes %s", qgpuClass, class, qgpuCore)
	case online && greedy > 0:
		asked.refuse("annotation %s: online excludes %s", qgpuClass, qgpuGreedy)
	case !online && (greedy == 0 || greedy > 100):
		asked.refuse("%s: %d: an offline pod gives 1 to 100", qgpuGreedy, greedy)
	case gigs == 0:
		asked.refuse("annotation %s: %s needs %s", qgpuClass, class, qgpuMemory)
	}
	request := Request{Count: 1, Cores: int(min(greedy, 100)), Memory: unitsOf(asked, qgpuMemory, gigs, gibibyte)}
	request.Config.Class = v1alpha1.Class(class)
	return request
}
