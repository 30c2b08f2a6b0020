package ledger

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// mostAmounts bounds what is remembered of pods without shares.
const mostAmounts = 64

// amounts are what a pod without a share asks of the host.
type amounts struct {
	cpu    int64
	memory uint64
}

// PrioritisePlain scores these nodes for a pod that asks for no share, in their order, from 0 to [MostScore]. Nodes that have no
// GPUs all have [MostScore], and then the others 0. Where there are none, nodes are scored as for a pod with a share: the policy
// wants those where the pod takes least from pods that want GPUs. Nothing of the pod is remembered.
func (l *Ledger) PrioritisePlain(pod *corev1.Pod, nodes []string) []int {
	l.flush()
	scores, some := make([]int, len(nodes)), false
	for i, name := range nodes {
		if n := l.nodes[name]; n != nil && n.view.there && n.view.gpus == "" {
			scores[i], some = MostScore, true
		}
	}
	if some {
		return scores
	}
	ratings := l.ratingsOf(pod)
	if ratings == nil {
		return scores
	}
	ratings.Update()
	return l.rank(nodes, func(at int) (key uint64, bare, fits bool) {
		key, fits = ratings.Key(at)
		return key, false, fits
	})
}

// ratingsOf rates nodes for a pod without a share, nil for one that asks what no pod can have.
func (l *Ledger) ratingsOf(pod *corev1.Pod) *alloc.Ratings {
	cpu, memory := demand.Host(pod)
	asks := amounts{bounded(cpu), min(memory, mostAmount)}
	if r := l.plain[asks]; r != nil {
		return r
	}
	r, err := l.inv.Ratings(&alloc.Pod{CPU: asks.cpu, HostMemory: asks.memory})
	if err != nil {
		return nil
	}
	if len(l.plain) >= mostAmounts {
		clear(l.plain)
	}
	l.plain[asks] = r
	return r
}
