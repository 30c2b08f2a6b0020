package dialect

import corev1 "k8s.io/api/core/v1"

// kueue is not a way to ask for GPUs: Kueue admits workloads that ask in any dialect. Turned on, it has pods keep the queue that
// they name there.
type kueue struct{}

func newKueue(given options) (Dialect, error) {
	return kueue{}, given.decode(&struct{}{})
}

// Name implements [Dialect].
func (kueue) Name() string { return "kueue" }

// Owns implements [Dialect]. A pod names a queue of its namespace. Of what Kueue has admitted, it adds that one's name and the one of
// the queue with the quota.
func (kueue) Owns() Names {
	return Names{QueueLabels: []string{"kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/local-queue-name", "kueue.x-k8s.io/cluster-queue-name"}}
}

// Counts implements [Dialect].
func (kueue) Counts() map[string]Measure { return nil }

// Match implements [Dialect].
func (kueue) Match(*corev1.Pod) bool { return false }

// Translate implements [Dialect].
func (kueue) Translate(*corev1.Pod) ([]Request, error) { return nil, nil }
