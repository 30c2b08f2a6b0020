package ledger

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Kind says what of a node's answer can be done about.
type Kind uint8

// The kinds, the nearest to a place last.
const (
	// Unknown is a node that the ledger does not know, or that says nothing of GPUs.
	Unknown Kind = iota
	// Unreadable is a node whose annotations cannot be read: its agent is of another version.
	Unreadable
	// Never is a node on which the pod would not fit if it had no other pods.
	Never
	// Sick is a node whose GPUs that could serve are not healthy.
	Sick
	// Fenced is a node with GPUs that contradictions keep from serving.
	Fenced
	// Full is a node on which the pod fits when others have ended.
	Full
	// Fits is a node on which it fits.
	Fits
)

// Verdict is what is said of a node.
type Verdict struct {
	Kind Kind
	// Text says why the pod does not fit there; it is empty where it does.
	Text string
}

// Filter says of each of these nodes whether a pod fits there, in their order. It does not say no because processors or
// memory of the host are too few: the scheduler counts these. A pod for which something is reserved fits on that node
// alone. The error is [ErrPod].
func (l *Ledger) Filter(pod *corev1.Pod, nodes []string) ([]Verdict, error) {
	q, err := l.ask(pod)
	if err != nil {
		return nil, err
	}
	l.flush()
	q.update()
	all := make([]Verdict, len(nodes))
	reserved := l.flights[pod.UID]
	for i, name := range nodes {
		if reserved != nil {
			all[i] = reserved.verdict(name)
		} else {
			all[i] = l.verdict(q, name)
		}
	}
	return all, nil
}

// Changes counts what may have changed answers so far.
func (l *Ledger) Changes() int { return l.changes }

// FitsOn reports whether a pod fits on one of some nodes, as [Ledger.Filter] says it.
func (l *Ledger) FitsOn(pod *corev1.Pod, nodes []string) bool {
	fits, err := l.fitting(pod)
	return err == nil && slices.ContainsFunc(nodes, fits)
}

// Fitting are those of some nodes on which a pod fits, as [Ledger.Filter] says it, in their order. The error is [ErrPod].
func (l *Ledger) Fitting(pod *corev1.Pod, nodes []string) (some []string, err error) {
	fits, err := l.fitting(pod)
	if err != nil {
		return nil, err
	}
	for _, name := range nodes {
		if fits(name) {
			some = append(some, name)
		}
	}
	return some, nil
}

// fitting tells of each node whether a pod fits there, until the ledger changes.
func (l *Ledger) fitting(pod *corev1.Pod) (func(node string) bool, error) {
	q, err := l.ask(pod)
	if err != nil {
		return nil, err
	}
	l.flush()
	q.update()
	reserved := l.flights[pod.UID]
	return func(name string) bool {
		at, known := l.inv.Position(name)
		return known && q.at(at) != nil && (reserved == nil || reserved.node == name)
	}, nil
}

func (l *Ledger) verdict(q *asked, name string) Verdict {
	at, known := l.inv.Position(name)
	if known && q.at(at) != nil {
		return Verdict{Kind: Fits}
	}
	n := l.nodes[name]
	switch {
	case n == nil || !n.view.there:
		return Verdict{Unknown, "the node is not known yet"}
	case n.fault != "":
		return Verdict{Unreadable, "what the node's agent says cannot be read: " + oneLine(n.fault)}
	case n.view.gpus == "":
		return Verdict{Unknown, "no agent of Divvy says which GPUs the node has"}
	case !known:
		return Verdict{Unknown, "there are more nodes than the allocator takes"}
	}
	cause := q.cause(at)
	return Verdict{kindOf(cause), cause.String()}
}

// kindOf says what can be done about a cause.
func kindOf(cause alloc.Cause) Kind {
	switch {
	case cause <= alloc.CauseHost:
		return Never
	case cause == alloc.CauseFault:
		return Sick
	case cause == alloc.CauseFence:
		return Fenced
	}
	return Full
}

// MostScore is the best score.
const MostScore = 10

// placed is a node on which a pod fits, and how much the policy wants it: one of a lesser key, and those with GPUs alone
// after all others.
type placed struct {
	of   int
	bare bool
	key  uint64
}

func (p placed) compare(other placed) int {
	return cmp.Or(cmp.Compare(toInt(p.bare), toInt(other.bare)), cmp.Compare(p.key, other.key), cmp.Compare(p.of, other.of))
}

// Prioritise scores these nodes for a pod, in their order, from 0 to [MostScore]. The nodes that the policy wants most have one
// less each, from [MostScore] on, and all others 0: to read a score of every node would take the scheduler a good part of
// its time for a pod. The error is [ErrPod].
func (l *Ledger) Prioritise(pod *corev1.Pod, nodes []string) ([]int, error) {
	q, err := l.ask(pod)
	if err != nil {
		return nil, err
	}
	l.flush()
	q.update()
	scores := l.rank(nodes, func(at int) (key uint64, bare, fits bool) {
		r := q.at(at)
		if r == nil {
			return 0, false, false
		}
		key, fits = r.Key(at)
		return key, r == q.bare, fits
	})
	if f := l.flights[pod.UID]; f != nil {
		clear(scores)
		if i := slices.Index(nodes, f.node); i >= 0 {
			scores[i] = MostScore
		}
	}
	return scores, nil
}

// rank scores nodes by the keys that rate tells of their positions in the inventory, see [Ledger.Prioritise].
func (l *Ledger) rank(nodes []string, rate func(at int) (key uint64, bare, fits bool)) []int {
	best := make([]placed, 0, MostScore+1)
	for i, name := range nodes {
		at, known := l.inv.Position(name)
		if !known {
			continue
		}
		key, bare, fits := rate(at)
		if !fits {
			continue
		}
		p := placed{i, bare, key}
		if len(best) == MostScore && p.compare(best[MostScore-1]) > 0 {
			continue
		}
		rank, _ := slices.BinarySearchFunc(best, p, placed.compare)
		best = slices.Insert(best, rank, p)
		best = best[:min(len(best), MostScore)]
	}
	scores := make([]int, len(nodes))
	for rank, p := range best {
		scores[p.of] = MostScore - rank
	}
	return scores
}

func toInt(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
