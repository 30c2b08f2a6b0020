package dialect

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const (
	kaiFraction  = "gpu-fraction"
	kaiMemory    = "gpu-memory"
	kaiDevices   = "gpu-fraction-num-devices"
	kaiContainer = "gpu-fraction-container-name"
	runaiLimit   = "RUNAI_GPU_MEMORY_LIMIT"
)

// kaiNotOffered are annotations of KAI's later versions, and of builds with HAMi's library, that limit or lend more
// than a part of the memory.
var kaiNotOffered = []string{"gpu-fraction.limit", "gpu-memory.limit", "gpu-fraction-limit", "gpu-memory-limit", "gpu-sm-percentage", "gpu-sm-cores"}

// kaiPerContainer begin the annotations of KAI 0.18 and run:ai 3.0 that ask for each container by its name, and say how
// GPU time is divided.
var kaiPerContainer = []string{"nvidia.com/container.*", "kai.scheduler/container.*"}

// kai is the form of the KAI scheduler and of run:ai, which it is a part of: annotations of the pod that ask for a part
// of a GPU's memory, or for MiB of it, for one container. They do not name GPU time.
type kai struct{}

func newKAI(given options) (Dialect, error) {
	return kai{}, given.decode(&struct{}{})
}

// Name implements [Dialect].
func (kai) Name() string { return "kai" }

// Owns implements [Dialect].
func (kai) Owns() Names {
	return Names{
		Annotations: append([]string{kaiFraction, kaiMemory, kaiDevices, kaiContainer}, kaiPerContainer...),
		Schedulers:  kaiSchedulers,
		QueueLabels: kaiQueues,
	}
}

var (
	kaiSchedulers = []string{"kai-scheduler", "runai-scheduler"}
	// kaiQueues are KAI's label, and the one of its versions before 0.6 and of run:ai.
	kaiQueues = []string{"kai.scheduler/queue", "runai/queue"}
)

// kaiUnending is the least priority of pods that KAI does not end for others, and that never use more than their queue's quota.
const kaiUnending = 100

// quota reads whether KAI may end a pod for others. That is said by a label, or by the priority class: in a label, where it is
// one of those that KAI brings, or in the specification. What KAI assumes of a kind of workload is not known of a pod.
func (kai) quota(pod *corev1.Pod) v1alpha1.Quota {
	switch pod.Labels["kai.scheduler/preemptibility"] {
	case "non-preemptible":
		return v1alpha1.QuotaGuaranteed
	case "preemptible", "semi-preemptible":
		return v1alpha1.QuotaBorrowing
	}
	queued := func(label string) bool { return pod.Labels[label] != "" }
	if !slices.Contains(kaiSchedulers, pod.Spec.SchedulerName) && !slices.ContainsFunc(kaiQueues, queued) {
		return ""
	}
	switch pod.Labels["priorityClassName"] {
	case "build", "inference":
		return v1alpha1.QuotaGuaranteed
	case "":
		if priority := pod.Spec.Priority; pod.Spec.PriorityClassName != "" && priority != nil && *priority >= kaiUnending {
			return v1alpha1.QuotaGuaranteed
		}
	}
	return v1alpha1.QuotaBorrowing
}

// Counts implements [Dialect]: KAI's queues hold annotations, and no quota counts them.
func (kai) Counts() map[string]Measure { return nil }

// Match implements [Dialect].
func (k kai) Match(pod *corev1.Pod) bool {
	return k.Owns().askedByPod(pod)
}

// Translate implements [Dialect].
func (kai) Translate(pod *corev1.Pod) ([]Request, error) {
	notes := pod.Annotations
	fraction, hasFraction := notes[kaiFraction]
	memory, hasMemory := notes[kaiMemory]
	if err := kaiOffered(notes); err != nil {
		return nil, err
	}
	if hasFraction == hasMemory {
		return nil, refuse("annotations %s and %s: give one of them", kaiFraction, kaiMemory)
	}
	for _, ref := range containersOf(pod) {
		if (Names{Resources: []string{"nvidia.com/*"}}).askedBy(ref.of(pod)) {
			return nil, refuse("container %q asks for GPUs by a limit, and the pod's annotations ask for a part of one: use one", ref.of(pod).Name)
		}
	}
	request := Request{Count: 1}
	var err error
	if hasFraction {
		request.Memory, err = kaiPart(fraction)
	} else {
		request.Memory, err = kaiAmount(memory)
	}
	if err != nil {
		return nil, err
	}
	if text, ok := notes[kaiDevices]; ok {
		n, err := strconv.ParseUint(text, 10, 8)
		if err != nil || n < 1 || n > MaxGPUs {
			return nil, refuse("annotation %s: %q: give 1 to %d", kaiDevices, text, MaxGPUs)
		}
		request.Count = int(n)
	}
	if request.Container, err = kaiTarget(pod); err != nil {
		return nil, err
	}
	return []Request{request}, kaiLimit(request.Container.of(pod), request.Memory)
}

// kaiOffered refuses annotations that say more than a part of the memory.
func kaiOffered(notes map[string]string) error {
	if notes["mps"] == "true" {
		return refuse("annotation mps is not offered: shares are enforced by Divvy's library")
	}
	for _, name := range kaiNotOffered {
		if _, ok := notes[name]; ok {
			return refuse("annotation %s is not offered: ask for gpu-memory and gpu-cores in the plain form", name)
		}
	}
	for _, name := range sortedKeys(notes) {
		if isOne(name, kaiPerContainer) {
			return refuse("annotation %s is not offered: ask by %s or %s alone, or in the plain form", name, kaiFraction, kaiMemory)
		}
	}
	return nil
}

// kaiLimit refuses run:ai's variable that lets a container take more memory than it asks for, for as long as nobody
// else wants it: memory that was given cannot be taken back.
func kaiLimit(container *corev1.Container, asked v1alpha1.Memory) error {
	for _, variable := range container.Env {
		if variable.Name != runaiLimit {
			continue
		}
		var limit v1alpha1.Memory
		if _, isPart := asked.Part(); isPart {
			limit, _ = kaiPart(variable.Value)
		} else if quantity, err := resource.ParseQuantity(variable.Value); err == nil {
			if bytes, ok := WholeNumber(quantity); ok && bytes > 0 {
				limit = v1alpha1.Bytes(uint64(bytes))
			}
		}
		if limit != asked {
			return refuse("container %q: variable %s: %q is not what the pod asks for, and memory beyond that is not lent: leave the variable out, or ask for what it says",
				container.Name, runaiLimit, variable.Value)
		}
	}
	return nil
}

// kaiTarget is the container that the annotation names, or the first.
func kaiTarget(pod *corev1.Pod) (ContainerRef, error) {
	name, ok := pod.Annotations[kaiContainer]
	if !ok && len(pod.Spec.Containers) > 0 {
		return ContainerRef{}, nil
	}
	all := containersOf(pod)
	i := slices.IndexFunc(all, func(p ContainerRef) bool { return p.of(pod).Name == name })
	if i < 0 {
		return ContainerRef{}, refuse("annotation %s: no container is named %q", kaiContainer, name)
	}
	return all[i], nil
}

func kaiAmount(text string) (v1alpha1.Memory, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 {
		return v1alpha1.Memory{}, refuse("annotation %s: %q: give a whole number of MiB", kaiMemory, text)
	}
	return v1alpha1.Bytes(n * mebibyte), nil
}

// kaiDigits is how many digits of a fraction are read: a millionth of any GPU is less than a block.
const kaiDigits = 6

// kaiPart reads a decimal fraction between 0 and 1. It drops digits beyond [kaiDigits].
func kaiPart(text string) (v1alpha1.Memory, error) {
	bad := refuse("annotation %s: %q: give a decimal fraction between 0 and 1, such as 0.5", kaiFraction, text)
	whole, digits, _ := strings.Cut(text, ".")
	if strings.Trim(whole, "0") != "" || digits == "" || len(text) > 32 || strings.Trim(digits, "0123456789") != "" {
		return v1alpha1.Memory{}, bad
	}
	digits = (digits + strings.Repeat("0", kaiDigits))[:kaiDigits]
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 {
		return v1alpha1.Memory{}, bad
	}
	return v1alpha1.PartOf(n, 1_000_000), nil
}
