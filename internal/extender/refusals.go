package extender

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// waiting is a pod that the scheduler was let put nowhere, until it asks again.
type waiting struct {
	pod *corev1.Pod
	// nodes are those on which it was refused, and ends some of those on which the scheduler was not to end others for it.
	nodes, ends []string
	// changes are those of the ledger when the pod fitted nowhere last, and fits tells that it fitted at the last look.
	changes int
	fits    bool
	// next is when the scheduler may be called again for it, and pause how long after that.
	next  time.Time
	pause time.Duration
}

const (
	// mostRefusals bounds the refusals that are kept, and mostKept the names of nodes in them. Pods share lists of these. Where pods
	// that wait have more, all are forgotten, and the scheduler asks about those pods by itself, every five minutes.
	mostRefusals = 1 << 16
	mostKept     = 1 << 20
	// mostEnds bounds what is kept of nodes on which others would have been ended: of more than 100 the scheduler draws some, and so
	// asks about others each time, which no two pods share.
	mostEnds = 128
	// mostLooks bounds how many different questions are answered again in one look, and mostCalls how often the scheduler is called.
	mostLooks = 256
	mostCalls = 32
	// firstCall and lastCall are the least and the longest time between two calls for a pod that nobody asks about.
	firstCall = 2 * time.Second
	lastCall  = 5 * time.Minute
)

// refusals are the pods that were refused everywhere.
type refusals struct {
	by map[types.UID]*waiting
	// lists are the different lists of nodes in them, sorted and by their hashes, and those that no pod has any more until there is no
	// room for others; kept counts the names there.
	lists map[uint64][]string
	kept  int
}

var seed = maphash.MakeSeed()

// note notes a refusal.
func (r *refusals) note(q question, changes int) {
	delete(r.by, q.pod.UID)
	nodes := r.keep(q.nodes)
	r.by[q.pod.UID] = &waiting{pod: trimPod(q.pod), nodes: nodes, changes: changes, pause: firstCall}
}

// noteEnds notes that nobody is to be ended for a pod on some nodes, beside its refusal, if that is noted.
func (r *refusals) noteEnds(q question, changes int) {
	ends := r.keep(q.nodes[:min(len(q.nodes), mostEnds)])
	w := r.by[q.pod.UID]
	if w == nil {
		w = &waiting{pod: trimPod(q.pod), changes: changes, pause: firstCall}
		r.by[q.pod.UID] = w
	}
	w.ends = ends
}

// keep returns the list of some names that all pods share, and makes room for it and for one more pod.
func (r *refusals) keep(all []string) []string {
	names := slices.Sorted(slices.Values(all)) // a scheduler names them in any order
	var h maphash.Hash
	h.SetSeed(seed)
	for _, name := range names {
		_, _ = h.WriteString(name) // it never fails
		_ = h.WriteByte(0)
	}
	id := h.Sum64()
	nodes, more := r.lists[id], 0
	if !slices.Equal(nodes, names) {
		nodes, more = names, len(names)
	}
	if r.kept+more > mostKept {
		r.sweep()
	}
	if r.by == nil || r.kept+more > mostKept || len(r.by) >= mostRefusals {
		r.by, r.lists, r.kept, more = map[types.UID]*waiting{}, map[uint64][]string{}, 0, len(nodes)
	}
	if more > 0 {
		r.lists[id], r.kept = nodes, r.kept+more
	}
	return nodes
}

// sweep drops the lists that no pod has.
func (r *refusals) sweep() {
	used := map[*string]bool{}
	r.kept = 0
	for _, w := range r.by {
		for _, list := range [][]string{w.nodes, w.ends} {
			if first := firstOf(list); first != nil && !used[first] {
				used[first] = true
				r.kept += len(list)
			}
		}
	}
	maps.DeleteFunc(r.lists, func(_ uint64, list []string) bool { return !used[firstOf(list)] })
}

// firstOf tells lists that are kept from each other; nil is that of an empty one.
func firstOf(list []string) *string {
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

// alike is equal for pods that ask for the same on the same nodes.
type alike struct {
	asks           request
	models, prefer string
	nodes, ends    *string
}

// late are pods that were refused, that have fitted at two looks since, and that the scheduler has not asked about meanwhile: it
// asked at the last moment at which it heard of something, and this replica heard of that only later.
func (c *core) late(now time.Time) (all []*corev1.Pod) {
	c.mu.Lock()
	refused := slices.Collect(maps.Values(c.refusals.by))
	c.mu.Unlock()
	known := map[alike]bool{}
	for _, r := range refused {
		if len(known) >= mostLooks || len(all) >= mostCalls {
			break
		}
		if c.isLate(r, known, now) {
			all = append(all, r.pod)
		}
	}
	return all
}

// isLate looks at one; known are the answers of this look.
func (c *core) isLate(r *waiting, known map[alike]bool, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid := r.pod.UID
	if pod := c.pods[r.pod.Namespace+"/"+r.pod.Name]; pod == nil || pod.UID != uid || c.refusals.by[uid] != r || c.flights[uid] != nil {
		return false
	}
	if !r.fits && r.changes == c.ledger.Changes() || len(r.nodes)+len(r.ends) == 0 {
		return false
	}
	id := alike{requestOf(r.pod), r.pod.Annotations[v1alpha1.ModelsAnnotation], r.pod.Annotations[v1alpha1.PreferAnnotation], firstOf(r.nodes), firstOf(r.ends)}
	fits, is := known[id]
	if !is {
		fits = c.ledger.FitsOn(r.pod, r.nodes) || c.ledger.FitsOn(r.pod, r.ends)
		known[id] = fits
	}
	before := r.fits
	if r.fits = fits; !fits {
		r.changes = c.ledger.Changes()
	}
	if !before || !fits || now.Before(r.next) {
		return false
	}
	r.next, r.pause = now.Add(r.pause), min(2*r.pause, lastCall)
	return true
}

// caller has the scheduler ask again. Whatever changes of a pod that waits has it asked about anew, and its status is the least that
// can be changed.
type caller struct {
	core   *core
	client kubernetes.Interface
	now    func() time.Time
	counts *counts
	log    *slog.Logger
}

// look calls for all that are late.
func (c *caller) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, longestRead)
	defer cancel()
	for _, pod := range c.core.late(c.now()) {
		key := pod.Namespace + "/" + pod.Name
		if err := c.call(ctx, pod); err != nil {
			c.log.WarnContext(ctx, "cannot tell the scheduler that a pod fits now", "pod", key, "error", err)
			continue
		}
		c.counts.calls.Inc()
		c.log.InfoContext(ctx, "a pod that was refused fits now, and the scheduler is to ask again", "pod", key)
	}
}

func (c *caller) call(ctx context.Context, pod *corev1.Pod) error {
	now := metav1.NewTime(c.now())
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: v1alpha1.FitsCondition, Status: corev1.ConditionTrue, LastProbeTime: now, LastTransitionTime: now,
			Reason: "GPUsFound", Message: "the pod was refused, and fits on a node since",
		}}},
	})
	if err != nil {
		return fmt.Errorf("write a condition: %w", err)
	}
	if _, err := c.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("write a condition of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
