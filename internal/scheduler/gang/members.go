package gang

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Members follows which pods are in which gang. Only one goroutine at a time may use it.
type Members struct {
	groups PodGroups
	pods   map[string]*member
	gangs  map[string]map[string]*member // by namespace/name of the gang, and by key of the pod
	// states are those of gangs of which nothing has changed since they were asked for.
	states map[string]State
}

// member is a pod that names a gang.
type member struct {
	key  string
	uid  types.UID
	made int64 // seconds
	gang Gang
	// in tells that its gang is one, and err why it cannot be known.
	in  bool
	err error
	// node is empty for a pod that waits; ended tells of one that has ended well.
	node    string
	assumed bool
	ended   bool
	pod     *corev1.Pod
}

// NewMembers makes a registry without pods.
func NewMembers(groups PodGroups) *Members {
	return &Members{groups: groups, pods: map[string]*member{}, gangs: map[string]map[string]*member{}, states: map[string]State{}}
}

// Set notes a pod as it is. What a pod says of its gang counts until it has a node.
func (m *Members) Set(pod *corev1.Pod) {
	key := pod.Namespace + "/" + pod.Name
	old := m.pods[key]
	if old != nil && old.uid != pod.UID {
		m.Remove(pod.Namespace, pod.Name)
		old = nil
	}
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed {
		m.Remove(pod.Namespace, pod.Name)
		return
	}
	if old != nil && old.node != "" && !old.assumed {
		if ended := pod.Status.Phase == corev1.PodSucceeded; ended != old.ended {
			old.ended = ended
			delete(m.states, old.gang.String())
		}
		return
	}
	next := &member{
		key: key, uid: pod.UID, made: pod.CreationTimestamp.Unix(), pod: named(pod),
		node: pod.Spec.NodeName, ended: pod.Status.Phase == corev1.PodSucceeded,
	}
	if old != nil && old.assumed && next.node == "" {
		next.node, next.assumed = old.node, true
	}
	next.gang, next.in, next.err = Of(next.pod, m.groups)
	if old != nil && old.same(next) {
		old.pod, old.assumed = next.pod, next.assumed
		return
	}
	m.Remove(pod.Namespace, pod.Name)
	m.add(next)
}

// same reports whether a pod says what it said before.
func (p *member) same(q *member) bool {
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	return p.made == q.made && p.node == q.node && p.ended == q.ended && p.in == q.in && text(p.err) == text(q.err) && reflect.DeepEqual(p.gang, q.gang)
}

// add puts a pod into the gang that it names, if any.
func (m *Members) add(p *member) {
	if p.gang.Name == "" && p.err == nil {
		return
	}
	m.pods[p.key] = p
	if p.gang.Name == "" {
		return
	}
	id := p.gang.String()
	if m.gangs[id] == nil {
		m.gangs[id] = map[string]*member{}
	}
	m.gangs[id][p.key] = p
	delete(m.states, id)
}

// named is what a pod says of its gang, without the rest of it.
func named(pod *corev1.Pod) *corev1.Pod {
	slim := &corev1.Pod{}
	slim.Namespace, slim.Name, slim.Labels, slim.Annotations = pod.Namespace, pod.Name, pod.Labels, pod.Annotations
	slim.Spec.SchedulingGroup = pod.Spec.SchedulingGroup
	return slim
}

// Remove notes that a pod has gone.
func (m *Members) Remove(namespace, name string) {
	key := namespace + "/" + name
	p := m.pods[key]
	if p == nil {
		return
	}
	delete(m.pods, key)
	id := p.gang.String()
	delete(m.states, id)
	if delete(m.gangs[id], key); len(m.gangs[id]) == 0 {
		delete(m.gangs, id)
	}
}

// Assume notes that a pod was given a node, until Set tells so or Forget takes it back.
func (m *Members) Assume(key, node string) {
	if p := m.pods[key]; p != nil && p.node == "" {
		p.node, p.assumed = node, true
		delete(m.states, p.gang.String())
	}
}

// Forget takes Assume back.
func (m *Members) Forget(key string) {
	if p := m.pods[key]; p != nil && p.assumed {
		p.node, p.assumed = "", false
		delete(m.states, p.gang.String())
	}
}

// Changed notes that a PodGroup has come, changed or gone. It returns the keys of the pods that name it and wait. Pods with
// nodes stay in a gang whose object has gone.
func (m *Members) Changed(form Form, namespace, name string) (waiting []string) {
	id := (&Gang{Namespace: namespace, Name: form.String() + "/" + name}).String()
	delete(m.states, id)
	for _, p := range m.sorted(id) {
		if g, in, err := Of(p.pod, m.groups); p.node == "" || err == nil && in {
			p.gang, p.in, p.err = g, in, err
		}
		if p.node == "" {
			waiting = append(waiting, p.key)
		}
	}
	return waiting
}

// ChangedForm is Changed for all PodGroups of a form.
func (m *Members) ChangedForm(form Form) (waiting []string) {
	for id := range m.gangs {
		namespace, rest, _ := strings.Cut(id, "/")
		if name, ok := strings.CutPrefix(rest, form.String()+"/"); ok {
			waiting = append(waiting, m.Changed(form, namespace, name)...)
		}
	}
	return waiting
}

// Of is the name of the gang that a pod is in, and false for a pod in none. The error is [ErrGang].
func (m *Members) Of(key string) (id string, ok bool, err error) {
	p := m.pods[key]
	if p == nil || !p.in && p.err == nil {
		return "", false, nil
	}
	return p.gang.String(), true, p.err
}

// There reports whether a pod that is there names a gang.
func (m *Members) There(id string) bool { return len(m.gangs[id]) > 0 }

// State is what there is of a gang.
type State struct {
	// Gang is what is still to be placed: members that have ended well are not counted in its Size and Minimum.
	Gang Gang
	// Waiting are the keys of the pods to place, the oldest first. Bound have nodes. Extra wait, and are more than the gang
	// has members.
	Waiting, Bound, Extra []string
	// Begun tells that members have places or have ended well: those that wait stand in for lost ones, or are more than
	// the minimum. Such gangs go first.
	Begun bool
	// Reason says in one line why the gang cannot be planned, or is empty.
	Reason string
}

// State is that of a gang by the name that [Members.Of] returned. The caller must not change its slices.
func (m *Members) State(id string) State {
	s, known := m.states[id]
	if !known {
		if s = m.state(id); m.There(id) {
			m.states[id] = s
		}
	}
	return s
}

func (m *Members) state(id string) State {
	var s State
	var first *member
	ended, all := 0, m.sorted(id)
	for _, p := range all {
		switch {
		case p.err != nil || !p.in:
			continue
		case first == nil:
			first, s.Gang = p, p.gang
		case s.Reason == "":
			s.Reason = first.disagrees(p)
		}
		switch {
		case p.ended:
			ended++
		case p.node != "":
			s.Bound = append(s.Bound, p.key)
		default:
			s.Waiting = append(s.Waiting, p.key)
		}
	}
	if first == nil {
		return s
	}
	there := ended + len(s.Bound) + len(s.Waiting)
	if s.Reason == "" && there < s.Gang.Minimum {
		s.Reason = fmt.Sprintf("gang %s waits for members: %d of %d are there", id, there, s.Gang.Minimum)
		if p := faulty(all); p != nil {
			s.Reason += fmt.Sprintf("; pod %s: %v", p.key, p.err)
		}
	}
	if s.Gang.Size > 0 {
		if members := max(0, s.Gang.Size-ended-len(s.Bound)); len(s.Waiting) > members {
			s.Waiting, s.Extra = s.Waiting[:members:members], s.Waiting[members:]
		}
		s.Gang.Size = max(0, s.Gang.Size-ended)
	}
	s.Gang.Minimum = max(0, s.Gang.Minimum-ended)
	s.Begun = ended+len(s.Bound) > 0
	return s
}

// faulty is the first pod whose gang cannot be known.
func faulty(all []*member) *member {
	if i := slices.IndexFunc(all, func(p *member) bool { return p.err != nil }); i >= 0 {
		return all[i]
	}
	return nil
}

// sorted are the pods that name a gang, the oldest first.
func (m *Members) sorted(id string) []*member {
	all := make([]*member, 0, len(m.gangs[id]))
	for _, p := range m.gangs[id] {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *member) int { return cmp.Or(cmp.Compare(a.made, b.made), cmp.Compare(a.key, b.key)) })
	return all
}

// disagrees says in what two members differ about their gang, or is empty.
func (p *member) disagrees(q *member) string {
	a, b := &p.gang, &q.gang
	differ := func(what string, x, y any) string {
		return fmt.Sprintf("the members of gang %s disagree about its %s: %s says %v, %s says %v", a, what, p.key, x, q.key, y)
	}
	switch {
	case a.Size != b.Size:
		return differ("size", a.Size, b.Size)
	case a.Minimum != b.Minimum:
		return differ("minimum", a.Minimum, b.Minimum)
	case a.ShareGPUs != b.ShareGPUs:
		return differ("sharing of GPUs", a.ShareGPUs, b.ShareGPUs)
	case !slices.Equal(a.Topology, b.Topology):
		return differ("topology", text(a.Topology), text(b.Topology))
	}
	return ""
}
