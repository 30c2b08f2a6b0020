package scheduler

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// Cluster answers what the ledger does not know of nodes.
type Cluster interface {
	// Among are the nodes on which a pod may be, nil is all.
	Among(pod *corev1.Pod) []string
	// Lets says whether a pod may be on a node now.
	Lets(pod *corev1.Pod, node string) bool
	// Label is the value of a node's label, and false where it has none.
	Label(node, label string) (string, bool)
}

// Together finds places for the units of a gang that have none, for all of its minimum or for none. Units with a node, and
// those whose claims have all their devices, stay where they are and count. left are units above the minimum for which
// there is no room. The error is [ErrRoom] or demand's, and no unit has a place then.
func (e *Engine) Together(g gang.Gang, units []*Unit, c Cluster) (left []*Unit, err error) {
	inv := e.ledger.Inventory()
	t := &together{engine: e, cluster: c, inv: inv, sets: map[string]*alloc.NodeSet{}, by: map[string]*Unit{}}
	members := make([]gang.Member, 0, len(units))
	for _, u := range units {
		m := t.member(u)
		t.by[m.Key] = u
		members = append(members, m)
	}
	plan, refusal := gang.Place(inv, g, members, t)
	if refusal != nil {
		return nil, fmt.Errorf("%w: gang %s: %w", ErrRoom, &g, refusal)
	}
	for _, p := range plan.Placements {
		u := t.by[p.Member.Key]
		u.Place = p.Assignment
		if u.Allocations, err = u.Demand.Allocations(p.Assignment, e.ledger); err != nil {
			for _, p := range plan.Placements {
				t.by[p.Member.Key].clear()
			}
			return nil, fmt.Errorf("member %s: %w", p.Member.Key, err)
		}
	}
	for _, m := range plan.Left {
		left = append(left, t.by[m.Key])
	}
	return left, nil
}

// ReserveAll notes the places of units in the ledger, or of none of them. The error is ledger.ErrTaken.
func (e *Engine) ReserveAll(units []*Unit) error {
	for i, u := range units {
		if err := e.Reserve(u); err != nil {
			for _, before := range units[:i] {
				e.unreserve(before)
			}
			return err
		}
	}
	return nil
}

// clear forgets the place of a unit.
func (u *Unit) clear() { u.Place, u.Allocations = alloc.Assignment{}, nil }

// together is what a plan for a gang needs of the cluster. It is gang.Nodes.
type together struct {
	engine  *Engine
	cluster Cluster
	inv     *alloc.Inventory
	// sets are the sets of nodes by their names, so that members that may be on the same share one.
	sets map[string]*alloc.NodeSet
	by   map[string]*Unit
}

// Label implements gang.Nodes.
func (t *together) Label(position int, label string) (string, bool) {
	n := t.inv.Node(position)
	return t.cluster.Label(n.Name, label)
}

func (t *together) member(u *Unit) gang.Member {
	m := gang.Member{Key: u.Pod.Namespace + "/" + u.Pod.Name, Pod: *u.Demand.Pod()}
	if place, stays := t.stays(u); stays {
		m.Placed = &place
		return m
	}
	m.Among = t.among(u)
	m.Lets = func(node int) bool { return t.cluster.Lets(u.Pod, t.inv.Node(node).Name) }
	return m
}

// stays is the place of a unit that has one: its node, and what its claims have there.
func (t *together) stays(u *Unit) (a alloc.Assignment, stays bool) {
	a = alloc.Assignment{Name: u.Pod.Spec.NodeName, Node: -1}
	if a.Name == "" && len(u.Existing) > 0 && len(u.Demand.Claims()) == 0 {
		a.Name = u.Demand.Node()
	}
	if a.Name == "" {
		return a, false
	}
	for _, claim := range u.Existing {
		one := demand.Claim{UID: claim.UID, Namespace: claim.Namespace, Name: claim.Name, Spec: &claim.Spec, Allocation: claim.Status.Allocation}
		if given, ok := demand.Adopt(&one, t.engine.ledger); ok && given.Name == a.Name {
			a.Shares = append(a.Shares, given.Shares...)
		}
	}
	return a, true
}

// among is the set of nodes on which a unit may be; nil is all.
func (t *together) among(u *Unit) *alloc.NodeSet {
	names := t.cluster.Among(u.Pod)
	if node := u.Demand.Node(); node != "" {
		names = []string{node}
	}
	if names == nil {
		return nil
	}
	key := strings.Join(names, " ")
	if t.sets[key] == nil {
		t.sets[key] = t.engine.positions(t.inv, names)
	}
	return t.sets[key]
}
