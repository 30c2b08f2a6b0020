package main

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const (
	// agentsLook is the time between two looks of agents at their pods.
	agentsLook = 200 * time.Millisecond
	// publishEvery is the least time between two writes of an agent.
	publishEvery = time.Second
)

// agents are those of all nodes. Each begins to hold what a pod was assigned a while after the pod was bound, and lets go of it
// a while after the pod has gone, as the containers of a pod outlive it that was deleted by force; and it tells so. Only
// its own goroutine and silence use it.
type agents struct {
	*cluster
	rand *rand.Rand

	mutex  sync.Mutex
	silent map[string]bool
	// waited counts how often an agent could not yet give a pod what it was assigned, because another one's container had it.
	waited map[types.UID]bool

	holds map[string]*holding
}

// holding is what one agent holds.
type holding struct {
	pods    map[types.UID]v1alpha1.PodAssignment
	changed bool
	wrote   time.Time
}

func newAgents(c *cluster, r *rand.Rand) *agents {
	return &agents{cluster: c, rand: r, silent: map[string]bool{}, waited: map[types.UID]bool{}, holds: map[string]*holding{}}
}

// run does the agents' work until the context ends.
func (a *agents) run(ctx context.Context) {
	ticker := time.NewTicker(agentsLook)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		pods := a.podsOfNodes()
		var group sync.WaitGroup
		for i := range a.fleet {
			m := &a.fleet[i]
			h := a.holds[m.name]
			if h == nil {
				h = &holding{pods: map[types.UID]v1alpha1.PodAssignment{}, changed: true}
				a.holds[m.name] = h
			}
			if a.isSilent(m.name) {
				continue
			}
			a.follow(m, h, pods[m.name])
			if h.changed && time.Since(h.wrote) >= publishEvery {
				group.Go(func() { h.changed, h.wrote = a.write(ctx, m.name, h) != nil, time.Now() })
			}
		}
		group.Wait()
	}
}

// podsOfNodes are the pods with a node and an assignment that have not ended.
func (a *agents) podsOfNodes() map[string]map[types.UID]*corev1.Pod {
	a.record.mutex.Lock()
	defer a.record.mutex.Unlock()
	all := map[string]map[types.UID]*corev1.Pod{}
	for uid, pod := range a.record.pods {
		if pod.Spec.NodeName == "" || pod.Annotations[v1alpha1.AssignmentAnnotation] == "" || ended(pod) {
			continue
		}
		if all[pod.Spec.NodeName] == nil {
			all[pod.Spec.NodeName] = map[types.UID]*corev1.Pod{}
		}
		all[pod.Spec.NodeName][uid] = pod
	}
	return all
}

// follow has an agent let go of some pods that have gone, and begin to hold some that are there.
func (a *agents) follow(m *machine, h *holding, pods map[types.UID]*corev1.Pod) {
	for uid := range h.pods {
		if pods[uid] == nil && a.rand.IntN(3) == 0 {
			delete(h.pods, uid)
			h.changed = true
		}
	}
	for uid, pod := range pods {
		if _, has := h.pods[uid]; has || a.rand.IntN(3) == 0 {
			continue
		}
		assignment, err := v1alpha1.ParsePodAssignment(pod.Annotations[v1alpha1.AssignmentAnnotation])
		if err != nil {
			continue // the record has told
		}
		if !h.takes(m, assignment) {
			a.mutex.Lock()
			a.waited[uid] = true
			a.mutex.Unlock()
			continue
		}
		h.pods[uid] = assignment
		h.changed = true
	}
}

// takes reports whether an assignment fits beside what is held.
func (h *holding) takes(m *machine, assignment v1alpha1.PodAssignment) bool {
	l := newLedger([]machine{*m})
	for _, held := range h.pods {
		l.count(held, 1)
	}
	l.count(assignment, 1)
	for _, g := range l.gpus {
		if g.exceeded() != nil {
			return false
		}
	}
	return true
}

// write tells what an agent holds. A node that is away keeps it waiting.
func (a *agents) write(ctx context.Context, node string, h *holding) error {
	held := v1alpha1.NodeHeld{GPUs: []v1alpha1.GPUHeld{}, Shares: []v1alpha1.ShareHeld{}}
	for uid, assignment := range h.pods {
		for i := range assignment.Shares {
			s := &assignment.Shares[i]
			share := v1alpha1.ShareHeld{Pod: string(uid), Name: s.Name, Whole: s.Whole}
			for _, g := range s.GPUs {
				if s.Whole {
					g.Memory, g.Cores = a.sizeOf(g.UUID), v1alpha1.MaxCores
				}
				share.GPUs = append(share.GPUs, g)
			}
			held.Shares = append(held.Shares, share)
		}
	}
	text, err := held.Text()
	if err != nil {
		return err
	}
	return a.annotate(ctx, node, v1alpha1.HeldAnnotation, text)
}

func (a *agents) sizeOf(uuid string) uint64 {
	a.record.mutex.Lock()
	defer a.record.mutex.Unlock()
	if g := a.record.ledger.gpus[uuid]; g != nil {
		return g.has
	}
	return 0
}

// annotate writes an annotation of a node.
func (c *cluster) annotate(ctx context.Context, node, name, text string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{name: text}}})
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// silence has some agents stop, or go on with what they held.
func (a *agents) silence(nodes []string, stop bool) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for _, node := range nodes {
		a.silent[node] = stop
	}
}

func (a *agents) isSilent(node string) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.silent[node]
}

// waits is how many pods had to wait for another one's container.
func (a *agents) waits() int {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return len(a.waited)
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
