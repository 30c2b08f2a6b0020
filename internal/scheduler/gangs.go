package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// Gangs follows which pods belong together. Anybody may call its methods.
type Gangs struct {
	mutex   sync.Mutex
	members *gang.Members
	pods    map[string]*corev1.Pod // those of gangs, by namespace/name
	// current has the pods of a namespace as the informer knows them; nil trusts whoever names a pod.
	current func(namespace string) corelisters.PodNamespaceLister
	// released are gangs whose waiting members were told that the gang is complete.
	released map[string]bool
	// refused are gangs for which there was no room, until there may be more.
	refused map[string]refused
	// lacks is why gangs cannot be planned, as their members say it or are to.
	lacks map[string]lack
	// ended is why gangs were ended after members were bound, as long as pods of them are there.
	ended     map[string]string
	replacing replacing
	groups    groups
}

func (g *Gangs) init() {
	g.groups.init()
	g.members = gang.NewMembers(&g.groups)
	g.pods, g.released, g.refused, g.lacks = map[string]*corev1.Pod{}, map[string]bool{}, map[string]refused{}, map[string]lack{}
	g.ended, g.replacing = map[string]string{}, replacing{gangs: map[string]bool{}, tried: map[string]int{}}
}

func keyOf(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// Set notes a pod as it is.
func (g *Gangs) Set(pod *corev1.Pod) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.set(pod)
}

func (g *Gangs) set(pod *corev1.Pod) {
	before, _, _ := g.members.Of(keyOf(pod))
	g.members.Set(pod)
	id, in, _ := g.members.Of(keyOf(pod))
	if in {
		g.pods[keyOf(pod)] = pod
	} else {
		delete(g.pods, keyOf(pod))
	}
	if before != id {
		g.prune(before)
		g.touch(before)
	}
	g.touch(id)
}

// Remove notes that a pod has gone.
func (g *Gangs) Remove(pod *corev1.Pod) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	id, _, _ := g.members.Of(keyOf(pod))
	g.members.Remove(pod.Namespace, pod.Name)
	delete(g.pods, keyOf(pod))
	g.prune(id)
	g.touch(id)
}

// prune forgets what was noted of a gang of which no pod is left.
func (g *Gangs) prune(id string) {
	if !g.members.There(id) {
		delete(g.released, id)
		delete(g.refused, id)
		delete(g.lacks, id)
		delete(g.ended, id)
		g.replacing.follow(id, false)
	}
}

// Assume notes the node of a member until its pod tells it, and takes it back with an empty node.
func (g *Gangs) Assume(pod *corev1.Pod, node string) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if node == "" {
		g.members.Forget(keyOf(pod))
	} else {
		g.members.Assume(keyOf(pod), node)
	}
}

// In reports whether a pod is in a gang.
func (g *Gangs) In(pod *corev1.Pod) bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	_, in, _ := g.members.Of(keyOf(pod))
	return in
}

// learn notes a pod that Kubernetes' queue has heard of and Gangs have not, or not any more: the two are told one after the other.
// What the informer has now is noted, under the mutex: if the pod goes later, Remove comes later. The error is [ErrWait].
func (g *Gangs) learn(pod *corev1.Pod) error {
	if known := g.pods[keyOf(pod)]; known != nil && known.UID == pod.UID {
		return nil
	}
	if g.current != nil {
		now, err := g.current(pod.Namespace).Get(pod.Name)
		if err != nil || now.UID != pod.UID {
			return fmt.Errorf("%w: the pod has gone", ErrWait)
		}
		pod = now
	}
	g.set(pod)
	return nil
}

// Hold says why a member is held back, nil for pods of no gang and of gangs that can be planned. The first time that a gang
// can be planned, it returns the other members that wait. The pod may be older than what was told by Set.
func (g *Gangs) Hold(pod *corev1.Pod) (others []*corev1.Pod, err error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if err := g.learn(pod); err != nil {
		return nil, err
	}
	id, in, err := g.members.Of(keyOf(pod))
	if !in {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWait, err)
	}
	state := g.members.State(id)
	if lack := g.lack(id, &state); lack != "" {
		delete(g.released, id)
		return nil, lacking(lack)
	}
	if g.released[id] {
		return nil, nil
	}
	g.released[id] = true
	for _, key := range state.Waiting {
		if other := g.pods[key]; other != nil && other.UID != pod.UID {
			others = append(others, other)
		}
	}
	return others, nil
}

// incomplete has the members told again when the gang can be planned.
func (g *Gangs) incomplete(id string) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	delete(g.released, id)
}

// ID names a pod's gang, "" for a pod of no gang.
func (g *Gangs) ID(pod *corev1.Pod) string {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	id, _, _ := g.members.Of(keyOf(pod))
	return id
}

// Waiting are the members of a pod's gang that wait.
func (g *Gangs) Waiting(pod *corev1.Pod) []*corev1.Pod {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	id, _, _ := g.members.Of(keyOf(pod))
	return g.podsOf(g.members.State(id).Waiting)
}

// state is what there is of a pod's gang. A pod of which it is not known which gang it is in, or that is more than its gang
// has, is a reason to wait.
func (g *Gangs) state(pod *corev1.Pod) (id string, s gang.State) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	id, in, err := g.members.Of(keyOf(pod))
	s = g.members.State(id)
	s.Reason = g.lack(id, &s)
	switch {
	case err != nil:
		s.Reason = err.Error()
	case !in:
		s.Reason = "its gang has gone"
	case s.Reason == "" && slices.Contains(s.Extra, keyOf(pod)):
		s.Reason = fmt.Sprintf("gang %s has all its members without this pod", id)
	}
	return id, s
}

// pair are the pods of the members that wait, and of those that have nodes.
func (g *Gangs) pair(s *gang.State) (waiting, bound []*corev1.Pod) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.podsOf(s.Waiting), g.podsOf(s.Bound)
}

// Team is members of a gang that are placed together. Their places are noted in the ledger.
type Team struct {
	ID    string
	Units []*Unit
	*Barrier
	ending
}

// NewTeam makes a team of units, of which so many must be bound.
func NewTeam(id string, units []*Unit, need int) *Team {
	t := &Team{ID: id, Units: units, Barrier: newBarrier(len(units)), ending: ending{need: need}}
	for _, u := range units {
		u.Team = t
	}
	return t
}

// PlanGang places all members of a pod's gang that wait, where Kubernetes' filters let them. The
// error is [ErrRoom], [ErrQuota], [ErrWait] or demand's, and nothing is noted then. A gang for which there is no room while
// members of it have devices gives a [KeepingError].
func (e *Engine) PlanGang(pod *corev1.Pod, trials Trials) (*Team, error) {
	id, state := e.Gangs.state(pod)
	if state.Reason != "" {
		e.Gangs.incomplete(id)
		return nil, lacking(state.Reason)
	}
	if _, ready := e.Taking(pod); ready {
		e.Gangs.forgetRefusal(id)
	}
	if err := e.Gangs.refusal(id, refused{freed: e.freed.Load(), waiting: len(state.Waiting), gang: state.Gang}); err != nil {
		return nil, err
	}
	waiting, bound := e.Gangs.pair(&state)
	units, members, err := e.members(waiting, bound, trials)
	if err != nil {
		return nil, err
	}
	placements, err := e.placeGang(pod, &state, units, members, trials)
	if errors.Is(err, ErrRoom) || errors.Is(err, ErrQuota) {
		if keeping := keepers(units); len(keeping) > 0 {
			return nil, &KeepingError{keeping, err}
		}
		e.Gangs.refuse(id, refused{freed: e.seen.Load(), waiting: len(state.Waiting), gang: state.Gang, err: err})
	}
	if err != nil {
		return nil, err
	}
	var team []*Unit
	for _, placement := range placements {
		u := units[placement.Member.Key]
		u.Place = placement.Assignment
		if u.Allocations, err = u.Demand.Allocations(u.Place, e.ledger); err == nil {
			err = e.Reserve(u)
		}
		if err != nil {
			e.Drop(team)
			return nil, err
		}
		team = append(team, u)
	}
	for key, u := range units { // those that a scheduler before this one has given their devices
		if node := u.Demand.Node(); node != "" && len(u.Demand.Claims()) == 0 {
			team = append(team, units[key])
		}
	}
	return NewTeam(id, team, state.Gang.Minimum-len(bound)), nil
}

// placeGang finds places for the members of a gang that wait: those that are kept for it, else as many as its queue lets start and as
// fit. The error is [ErrRoom], [ErrQuota] or [ErrWait].
func (e *Engine) placeGang(pod *corev1.Pod, state *gang.State, units map[string]*Unit, members []gang.Member, trials Trials) ([]gang.Placement, error) {
	if err := e.stayAll(units, trials); err != nil {
		return nil, err
	}
	if t, ready := e.Taking(pod); ready {
		e.use(t)
		if t.stillOf(units) {
			for i := range t.placements {
				units[t.placements[i].Member.Key].taking = t
			}
			return t.placements, nil
		}
	}
	g := state.Gang
	if e.Queues() {
		var err error
		if members, err = e.within(&g, units, members); err != nil {
			return nil, err
		}
	}
	plan, refusal := gang.Place(e.ledger.Inventory(), g, members, nodeLabels{e})
	if refusal != nil {
		return nil, unplaced(refusal, trials)
	}
	places := make([]alloc.Assignment, len(plan.Placements))
	for i := range plan.Placements {
		places[i] = plan.Placements[i].Assignment
	}
	if refusal := e.queues.set.Check(e.queues.set.ID(pod.UID), e.charges(places)); refusal != nil {
		return nil, quotaError(refusal)
	}
	return plan.Placements, nil
}

// within leaves of the members that wait as many as the gang's queue lets start, at least its minimum.
func (e *Engine) within(g *gang.Gang, units map[string]*Unit, members []gang.Member) ([]gang.Member, error) {
	var all []*Unit
	for i := range members {
		if u := units[members[i].Key]; members[i].Placed == nil && u != nil {
			all = append(all, u)
		}
	}
	if err := e.Quota(all...); err == nil || !errors.Is(err, ErrQuota) {
		return members, err
	}
	need := min(max(0, g.Minimum-(len(members)-len(all))), len(all))
	if err := e.Quota(all[:need]...); err != nil || need == len(all) {
		return nil, cmp.Or(err, e.Quota(all...))
	}
	left := slices.DeleteFunc(slices.Clone(members), func(m gang.Member) bool {
		return m.Placed == nil && slices.IndexFunc(all[:need], func(u *Unit) bool { return keyOf(u.Pod) == m.Key }) < 0
	})
	g.Size = len(left)
	return left, nil
}

// members are the members of a gang as the planner wants them.
func (e *Engine) members(waiting, bound []*corev1.Pod, trials Trials) (map[string]*Unit, []gang.Member, error) {
	units := map[string]*Unit{}
	var all []gang.Member
	inv := e.ledger.Inventory()
	for i, pod := range append(append([]*corev1.Pod(nil), waiting...), bound...) {
		u, err := e.Read(pod)
		if errors.Is(err, demand.ErrElsewhere) {
			return nil, nil, fmt.Errorf("%w: pod %s of the gang asks for what Divvy does not place", ErrWait, pod.Name)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("pod %s of the gang: %w", pod.Name, err)
		}
		m := gang.Member{Key: keyOf(pod), Pod: *u.Demand.Pod()}
		if trials != nil {
			m.Alike, m.Beside = trials.Alike(pod), func(node int, others []gang.Neighbour) bool {
				return trials.Beside(pod, inv.Node(node).Name, neighbours{e, units, others}.count(node), neighbours{e, units, others}.all)
			}
		}
		if only := u.Demand.Node(); trials != nil || only != "" {
			m.Lets = func(node int) bool {
				name := inv.Node(node).Name // a claim of it may be allocated, and another not yet
				return (only == "" || only == name) && (trials == nil || trials.Lets(pod, name))
			}
		}
		if i >= len(waiting) || u.Demand.Node() != "" && len(u.Demand.Claims()) == 0 {
			placed := e.held(u)
			m.Placed = &placed
		}
		if i < len(waiting) {
			units[m.Key] = u
		}
		all = append(all, m)
	}
	return units, all, nil
}

// held is what a member's claims have.
func (e *Engine) held(u *Unit) alloc.Assignment {
	held := alloc.Assignment{Node: -1, Name: u.Pod.Spec.NodeName}
	for _, claim := range u.Existing {
		one := demand.Claim{UID: claim.UID, Namespace: claim.Namespace, Name: claim.Name, Spec: &claim.Spec, Allocation: claim.Status.Allocation}
		if a, ok := demand.Adopt(&one, e.ledger); ok {
			held.Name, held.Shares = a.Name, append(held.Shares, a.Shares...)
		}
	}
	return held
}

// Drop takes back what is noted for units that were not handed out.
func (e *Engine) Drop(units []*Unit) {
	for _, u := range units {
		e.unreserve(u)
		e.retake(u)
	}
}

// nodeLabels are those of the inventory's nodes.
type nodeLabels struct{ *Engine }

// Label implements gang.Nodes.
func (l nodeLabels) Label(position int, label string) (string, bool) {
	value, ok := l.labels[l.ledger.Inventory().Node(position).Name][label]
	return value, ok
}
