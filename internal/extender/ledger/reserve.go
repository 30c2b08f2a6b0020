package ledger

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// flight is what is reserved for a pod that was not seen with a node yet.
type flight struct {
	Reservation
	node    string
	answer  v1alpha1.PodAssignment
	request string
	shares  []share
	// counted is what the inventory counts for it; cpu and memory count in its node.
	counted alloc.Assignment
	cpu     int64
	memory  uint64
}

// Reservation is what was reserved for a pod that was not seen with a node yet.
type Reservation struct {
	Pod             types.UID
	Namespace, Name string
	Node            string
	// Bound tells that the API server has taken the pod's binding.
	Bound bool
	// Since is the time of the last [Ledger.Advance] before it was reserved.
	Since time.Time
}

// Reserve takes for a pod what the policy chooses of a node, until [Ledger.Undo] or until the pod is seen with a node. The
// same again gets the same answer. The error is [ErrPod] or [ErrTaken], and nothing is taken then.
func (l *Ledger) Reserve(pod *corev1.Pod, node string) (v1alpha1.PodAssignment, error) {
	none := v1alpha1.PodAssignment{}
	q, err := l.ask(pod)
	if err != nil {
		return none, err
	}
	v := viewOfPod(pod)
	if p := l.pods[pod.UID]; v.node != "" || p != nil && p.view.node != "" {
		return none, fmt.Errorf("%w: the pod is on a node already", ErrTaken)
	}
	if f := l.flights[pod.UID]; f != nil {
		if f.node == node && f.request == v.request {
			return f.answer, nil
		}
		return none, fmt.Errorf("%w: the pod is being bound to node %s, and what it asked then", ErrTaken, f.node)
	}
	l.flush()
	q.update()
	at, known := l.inv.Position(node)
	var ratings *alloc.Ratings
	if known {
		ratings = q.at(at)
	}
	if ratings == nil {
		return none, fmt.Errorf("%w: node %s: %s", ErrTaken, node, l.verdict(q, node).Text)
	}
	chosen, _ := ratings.Assignment(at)
	chosen.CPU, chosen.Memory = 0, 0 // which count in the node
	if err := l.inv.Reserve(chosen); err != nil {
		return none, fmt.Errorf("%w: %w", ErrTaken, err)
	}
	f := &flight{
		Reservation: Reservation{Pod: pod.UID, Namespace: v.namespace, Name: v.name, Node: node, Since: l.now},
		node:        node, request: v.request, answer: q.answer(pod.UID, &chosen), counted: chosen, cpu: v.cpu, memory: v.memory,
	}
	f.shares = assigned(&f.answer)
	l.take(f)
	return f.answer, nil
}

// take counts what a flight has of its node beside GPUs.
func (l *Ledger) take(f *flight) {
	l.flights[f.Pod] = f
	n := l.node(f.node)
	n.cpu += f.cpu
	n.memory += f.memory
	l.touch(f.node, hostIsStale)
}

// answer is the annotation for what was chosen.
func (q *asked) answer(uid types.UID, chosen *alloc.Assignment) v1alpha1.PodAssignment {
	answer := v1alpha1.PodAssignment{Version: 1, Pod: string(uid)}
	for i := range q.request.Shares {
		s := &q.request.Shares[i]
		one := v1alpha1.ShareAssigned{Name: s.Name, Containers: s.Containers, Whole: s.Whole, Config: s.Config}
		for _, given := range chosen.Shares {
			if given.Claim == i {
				one.GPUs = append(one.GPUs, v1alpha1.GPUAssigned{UUID: given.UUID, Memory: given.Limit, Cores: s.Cores})
			}
		}
		answer.Shares = append(answer.Shares, one)
	}
	return answer
}

// Undo takes back what was reserved for a pod, as if it had never been. It reports whether something was.
func (l *Ledger) Undo(uid types.UID) bool {
	f := l.flights[uid]
	if f == nil {
		return false
	}
	delete(l.flights, uid)
	l.inv.Unreserve(f.counted)
	n := l.node(f.node)
	n.cpu -= f.cpu
	n.memory -= f.memory
	l.touch(f.node, hostIsStale)
	return true
}

// Bound notes that the API server has taken the pod's binding. It reports false where nothing is reserved for the pod, as
// when it has been seen with its node already.
func (l *Ledger) Bound(uid types.UID) bool {
	f := l.flights[uid]
	if f == nil {
		return false
	}
	f.Bound = true
	return true
}

// Reservations are all that there are, by UID.
func (l *Ledger) Reservations() (all []Reservation) {
	for _, uid := range slices.Sorted(maps.Keys(l.flights)) {
		all = append(all, l.flights[uid].Reservation)
	}
	return all
}

// verdict is what is said of a node for a pod for which a place is reserved.
func (f *flight) verdict(name string) Verdict {
	if f.node == name {
		return Verdict{Kind: Fits}
	}
	return Verdict{Full, "the pod is being bound to another node"}
}
