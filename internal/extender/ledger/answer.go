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

// Prioritise scores these nodes for a pod, in their order, from 0 to [MostScore]. The node that the policy wants most alone
// has [MostScore], and no node has more than one that it wants more. The error is [ErrPod].
func (l *Ledger) Prioritise(pod *corev1.Pod, nodes []string) ([]int, error) {
	q, err := l.ask(pod)
	if err != nil {
		return nil, err
	}
	l.flush()
	q.update()
	type placed struct {
		of   int
		bare bool
		key  uint64
	}
	var order []placed
	for i, name := range nodes {
		at, known := l.inv.Position(name)
		if !known {
			continue
		}
		if r := q.at(at); r != nil {
			key, _ := r.Key(at)
			order = append(order, placed{i, r == q.bare, key})
		}
	}
	slices.SortFunc(order, func(a, b placed) int {
		if a.bare != b.bare {
			return cmp.Compare(toInt(a.bare), toInt(b.bare))
		}
		return cmp.Compare(a.key, b.key)
	})
	scores := make([]int, len(nodes))
	for rank, p := range order {
		scores[p.of] = score(rank, len(order))
	}
	if f := l.flights[pod.UID]; f != nil {
		clear(scores)
		if i := slices.Index(nodes, f.node); i >= 0 {
			scores[i] = MostScore
		}
	}
	return scores, nil
}

// score is that of the place of a rank among so many.
func score(rank, of int) int {
	if rank == 0 {
		return MostScore
	}
	return (MostScore - 1) * (of - rank) / max(of-1, 1)
}

func toInt(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
