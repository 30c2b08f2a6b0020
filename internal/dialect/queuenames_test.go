package dialect

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// TestQueuesOfOtherSystems translates pods that name queues in several systems' words.
func TestQueuesOfOtherSystems(t *testing.T) {
	const dialects = "{plain: {}, kai: {}, volcano: {}, koordinator: {}, kueue: {}}"
	type texts = map[string]string
	for _, c := range []struct {
		name, namespace   string
		tree              *queue.Tree
		scheduler         string
		labels, notes     texts
		queue, quota      string
		refused, warnings string
	}{
		{name: "nothing", tree: departments(false)},
		{name: "KAI's", tree: departments(false), labels: texts{"kai.scheduler/queue": "vision"}, queue: "vision"},
		{name: "run:ai's", tree: departments(false), labels: texts{"runai/queue": "vision"}, queue: "vision"},
		{name: "Volcano's", tree: departments(false), notes: texts{"scheduling.volcano.sh/queue-name": "vision"}, queue: "vision"},
		{name: "Volcano's jobs'", tree: departments(false), labels: texts{"volcano.sh/queue-name": "vision"}, queue: "vision"},
		{name: "Kueue's", tree: departments(false), labels: texts{"kueue.x-k8s.io/queue-name": "vision"}, queue: "vision"},
		{name: "Koordinator's", tree: departments(false), labels: texts{"quota.scheduling.koordinator.sh/name": "vision"}, queue: "vision"},
		{name: "the first that is there", tree: departments(false), labels: texts{"kai.scheduler/queue": "default-queue", "kueue.x-k8s.io/cluster-queue-name": "vision"}, queue: "vision"},
		{name: "Divvy's own", tree: departments(false), labels: texts{"kai.scheduler/queue": "speech", v1alpha1.QueueLabel: "vision"}, queue: "vision"},
		{name: "Divvy's own quota", tree: departments(false), labels: texts{"quota.scheduling.koordinator.sh/preemptible": "false", v1alpha1.QuotaLabel: "opportunistic"}, quota: "opportunistic"},
		{name: "another department's", tree: departments(false), labels: texts{"kai.scheduler/queue": "speech"},
			refused: "label kai.scheduler/queue: queue speech is for pods of namespace talk, and this one is of space, whose queue is vision: leave it out"},
		{name: "another department's, by an annotation", tree: departments(false), notes: texts{"scheduling.volcano.sh/queue-name": "speech"}, refused: "annotation scheduling.volcano.sh/queue-name: queue speech is"},
		{name: "one that is not there", tree: departments(false), labels: texts{"kai.scheduler/queue": "default-queue"}, warnings: "label kai.scheduler/queue: there is no queue default-queue: the pod is in queue vision"},
		{name: "one that is not there, outside", namespace: "out", tree: departments(false), labels: texts{"kai.scheduler/queue": "default-queue"}, warnings: "the pod is in no queue"},
		{name: "no name", tree: departments(false), notes: texts{"scheduling.volcano.sh/queue-name": "space/vision\n"}},
		{name: "nobody serves queues", labels: texts{"kai.scheduler/queue": "speech", "quota.scheduling.koordinator.sh/preemptible": "false"}},
		{name: "guaranteed", tree: departments(false), labels: texts{"quota.scheduling.koordinator.sh/preemptible": "false"}, quota: "guaranteed"},
		{name: "guaranteed outside", namespace: "out", tree: departments(false), labels: texts{"quota.scheduling.koordinator.sh/preemptible": "false"}},
		{name: "KAI's label without its scheduler", tree: departments(false), labels: texts{"kai.scheduler/preemptibility": "non-preemptible"}, quota: "guaranteed"},
		{name: "KAI's class without its scheduler", tree: departments(false), labels: texts{"priorityClassName": "build"}},
		{name: "KAI's class", tree: departments(false), scheduler: "kai-scheduler", labels: texts{"priorityClassName": "inference"}, quota: "guaranteed"},
		{name: "KAI's class that gives way", tree: departments(false), scheduler: "kai-scheduler", labels: texts{"priorityClassName": "build-preemptible"}},
		{name: "partly", tree: departments(false), scheduler: "kai-scheduler", labels: texts{"kai.scheduler/preemptibility": "semi-preemptible", "priorityClassName": "build"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			translator := newScheduled(t, dialects)
			pod := limitsOf(t, "divvy.dev/gpu-memory: 1Gi")
			pod.Namespace, pod.Labels, pod.Annotations, pod.Spec.SchedulerName = c.namespace, c.labels, c.notes, c.scheduler
			if c.namespace == "" {
				pod.Namespace = "space"
			}
			inventory := numbered(sixteen)
			inventory.Queues = c.tree
			made, err := translator.Translate(pod, inventory)
			if refusedFor(t, "translate", err, c.refused); err != nil {
				return
			}
			patched := apply(t, pod, made.Patch)
			if got := patched.Labels[v1alpha1.QueueLabel]; got != c.queue {
				t.Errorf("queue %q, want %q", got, c.queue)
			}
			if got := patched.Labels[v1alpha1.QuotaLabel]; got != c.quota {
				t.Errorf("quota %q, want %q", got, c.quota)
			}
			for name, value := range c.labels {
				if patched.Labels[name] != value {
					t.Errorf("label %s is %q", name, patched.Labels[name])
				}
			}
			if got := strings.Join(made.Warnings, "\n"); !strings.Contains(got, c.warnings) || c.warnings == "" && got != "" {
				t.Errorf("warnings %q, want %q", got, c.warnings)
			}
			if _, err := CheckQueue(patched, c.tree); err != nil {
				t.Errorf("the patched pod: %v", err)
			}
		})
	}
}

// A pod that another scheduler places keeps its words and gets no queue.
func TestQueuesOfOtherSchedulers(t *testing.T) {
	pod := limitsOf(t, "divvy.dev/gpu-memory: 1Gi")
	pod.Namespace, pod.Labels, pod.Spec.SchedulerName = "space", map[string]string{"kai.scheduler/queue": "vision"}, "theirs"
	inventory := numbered(sixteen)
	inventory.Queues = departments(false)
	made, err := newScheduled(t, "{plain: {}, kai: {}}").Translate(pod, inventory)
	if err != nil || slices.ContainsFunc(made.Patch, func(o Operation) bool { return strings.HasPrefix(o.Path, "/metadata/labels") }) {
		t.Errorf("%+v, %v", made.Patch, err)
	}
}

// TestPriorityOfKAI reads priorities that KAI's pods have.
func TestPriorityOfKAI(t *testing.T) {
	for priority, want := range map[int32]v1alpha1.Quota{0: v1alpha1.QuotaBorrowing, 99: v1alpha1.QuotaBorrowing, 100: v1alpha1.QuotaGuaranteed} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{SchedulerName: "kai-scheduler", PriorityClassName: "theirs", Priority: &priority}}
		if got := (kai{}).quota(pod); got != want {
			t.Errorf("priority %d: %q, want %q", priority, got, want)
		}
		pod.Spec.PriorityClassName = ""
		if got := (kai{}).quota(pod); got != v1alpha1.QuotaBorrowing {
			t.Errorf("priority %d of no class: %q", priority, got)
		}
	}
}
