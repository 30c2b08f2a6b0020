package extender

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/extender/ledger"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// core is what is known of the cluster. Anybody may call its methods; each of them is short.
type core struct {
	mu     sync.Mutex // guards what follows; nothing else is locked within
	ledger *ledger.Ledger
	// pods are all that there are, by namespace and name.
	pods  map[string]*corev1.Pod
	nodes map[string]bool
	// asked is what pods asked for when nodes were filtered for them.
	asked map[types.UID]request
	// flights are the bindings of pods that were not seen with a node yet.
	flights map[types.UID]*flight
	// refusals are pods that were refused everywhere when they were asked about last.
	refusals refusals
}

// request stands for everything that a pod says of the GPUs that it wants. Of that the API server keeps only the annotation
// [v1alpha1.RequestAnnotation] as it is.
type request [sha256.Size]byte

func requestOf(pod *corev1.Pod) request {
	notes := pod.Annotations
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q", notes[v1alpha1.RequestAnnotation], notes[v1alpha1.ModelsAnnotation], notes[v1alpha1.PreferAnnotation]))
}

// mostAsked bounds asked.
const mostAsked = 1 << 16

// flight is the binding of a pod, from when its place was reserved until the pod is seen with a node.
type flight struct {
	pod        types.UID
	key        string // namespace/name
	node       string
	assignment string
	request    request // what the place was chosen for
	state      state
	// since is when the state began, looked when the pod was read last, and doubted when a write ended that was not answered:
	// whatever is answered to later ones, that one may yet be done.
	since, looked, doubted time.Time
}

// state is how far a binding is.
type state uint8

const (
	// writing: the API server is asked, or the pod is read.
	writing state = iota
	// unanswered: the API server may have done what it was asked, or may yet do it.
	unanswered
	// bound: the API server has said that it is done.
	bound
)

func newCore(l *ledger.Ledger) *core {
	return &core{ledger: l, pods: map[string]*corev1.Pod{}, nodes: map[string]bool{}, asked: map[types.UID]request{}, flights: map[types.UID]*flight{}}
}

// setPod takes in a pod; before is one of the same name that was there.
func (c *core) setPod(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := pod.Namespace + "/" + pod.Name
	if before := c.pods[key]; before != nil && before.UID != pod.UID {
		c.drop(before)
	}
	c.pods[key] = pod
	c.ledger.SetPod(pod.UID, pod)
	if pod.Spec.NodeName != "" || ended(pod) {
		delete(c.asked, pod.UID)
		delete(c.refusals.by, pod.UID)
		c.seen(pod.UID)
	}
}

// seen ends the note of a binding: the ledger knows from the pod what it holds. One that is being written is whoever's who writes.
func (c *core) seen(uid types.UID) {
	if f := c.flights[uid]; f != nil && f.state != writing {
		delete(c.flights, uid)
	}
}

// dropPod takes in that a pod is gone.
func (c *core) dropPod(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pod := c.pods[namespace+"/"+name]; pod != nil {
		c.drop(pod)
	}
}

func (c *core) drop(pod *corev1.Pod) {
	delete(c.pods, pod.Namespace+"/"+pod.Name)
	delete(c.asked, pod.UID)
	delete(c.refusals.by, pod.UID)
	c.ledger.SetPod(pod.UID, nil)
	c.seen(pod.UID)
}

// keepPods drops all pods that a list does not have.
func (c *core) keepPods(list map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, pod := range maps.Clone(c.pods) {
		if !list[key] {
			c.drop(pod)
		}
	}
}

// setNode takes in a node.
func (c *core) setNode(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[node.Name] = true
	c.ledger.SetNode(node.Name, node)
}

// dropNode takes in that a node is gone.
func (c *core) dropNode(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.nodes, name)
	c.ledger.SetNode(name, nil)
}

// keepNodes drops all nodes that a list does not have; nodes have no namespace.
func (c *core) keepNodes(list map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range maps.Clone(c.nodes) {
		if !list["/"+name] {
			delete(c.nodes, name)
			c.ledger.SetNode(name, nil)
		}
	}
}

// pod is the one of that name, nil for none.
func (c *core) pod(namespace, name string) *corev1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[namespace+"/"+name]
}

// advance tells the ledger the time.
func (c *core) advance(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger.Advance(now)
}

func (c *core) fences() []ledger.Fence {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger.Fences()
}

// filter says on which nodes a pod fits.
func (c *core) filter(q question) filtered {
	if why := foreign(q.pod); why != "" {
		return everywhere(q.nodes, why)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := c.answer(q)
	if len(answer.fits) > 0 {
		delete(c.refusals.by, q.pod.UID)
	} else {
		c.refusals.note(q, c.ledger.Changes())
	}
	return answer
}

// answer is filter for a pod that may be placed by slots.
func (c *core) answer(q question) filtered {
	if f := c.flights[q.pod.UID]; f != nil {
		return f.filter(q.nodes)
	}
	verdicts, err := c.ledger.Filter(q.pod, q.nodes)
	if err != nil {
		return everywhere(q.nodes, err.Error())
	}
	if len(c.asked) >= mostAsked {
		clear(c.asked)
	}
	c.asked[q.pod.UID] = requestOf(q.pod)
	answer := filtered{fits: make([]string, 0, len(verdicts))}
	for i, v := range verdicts {
		if v.Kind == ledger.Fits {
			answer.fits = append(answer.fits, q.nodes[i])
		} else {
			answer.refused = append(answer.refused, refused{q.nodes[i], v.Text})
		}
	}
	return answer
}

// filter lets a pod whose binding is under way to its node alone: it may be done already.
func (f *flight) filter(nodes []string) filtered {
	at := slices.Index(nodes, f.node)
	if at < 0 || f.state == writing {
		return everywhere(nodes, fmt.Sprintf("the pod is being bound to %s", f.node))
	}
	answer := everywhere(slices.Delete(slices.Clone(nodes), at, at+1), fmt.Sprintf("the pod may be bound to %s already", f.node))
	answer.fits = []string{f.node}
	return answer
}

// everywhere refuses a pod on all nodes for one reason.
func everywhere(nodes []string, why string) (answer filtered) {
	answer.refused = make([]refused, 0, len(nodes))
	for _, name := range nodes {
		answer.refused = append(answer.refused, refused{name, why})
	}
	return answer
}

// prioritise scores nodes for a pod, with a share or without one.
func (c *core) prioritise(q question) (all []scored, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	scores := make([]int, len(q.nodes))
	switch {
	case c.flights[q.pod.UID] != nil: // there is one node for it
	case q.pod.Annotations[v1alpha1.RequestAnnotation] != "":
		scores, err = c.ledger.Prioritise(q.pod, q.nodes)
	case !demand.Particular(q.pod):
		scores = c.ledger.PrioritisePlain(q.pod, q.nodes)
	}
	if err != nil {
		return nil, err
	}
	all = make([]scored, 0, len(q.nodes))
	for i, name := range q.nodes {
		all = append(all, scored{name, scores[i]})
	}
	return all, nil
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
