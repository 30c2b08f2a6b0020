package faults

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// fault is one that begins and ends. Without over it ends at the next look; without end nothing is to be repaired.
type fault struct {
	name  string
	begin func(*run, *track)
	over  func(*run, *track) bool
	end   func(*run, *track)
}

// faultLimit bounds a fault that nobody ends.
const faultLimit = 20 * time.Second

// track is a sequence of faults, one after the other. All have their turn before the first comes again.
type track struct {
	*rand.Rand
	faults []fault
	// gap is how many pods are bound between the end of one fault and the beginning of the next.
	gap   int
	queue []fault
	now   *fault
	// began and ended are when the fault began, and at how many bound pods the last one ended.
	began time.Time
	ended int
	// amount is what the fault drew at its beginning.
	amount int
	// met counts the requests in trouble until then, name is the scheduler that the fault befell, holder who had the lease then.
	met          int
	name, holder string
}

// tracks are the schedulers' faults, and those of what they stand on. Both go on side by side. In a whole run binding without
// faults takes about a third of the time.
func tracks(wanted int, source func(stream uint64) *rand.Rand) []*track {
	gaps := [2]int{8, 8}
	if wanted > 1000 {
		gaps = [2]int{60, 40}
	}
	return []*track{
		{Rand: source(3), faults: ofSchedulers(), gap: gaps[0]},
		{Rand: source(4), faults: append(ofCluster(), troubled()...), gap: gaps[1]},
	}
}

// step ends the fault that there is once it is over, and begins the next.
func (t *track) step(r *run) {
	r.t.Helper()
	switch {
	case t.now != nil && (t.now.over == nil || t.now.over(r, t) || time.Since(t.began) > faultLimit):
		t.finish(r)
	case t.now == nil && r.bound-t.ended >= t.gap:
		if len(t.queue) == 0 {
			t.queue = slices.Clone(t.faults)
			t.Shuffle(len(t.queue), func(i, k int) { t.queue[i], t.queue[k] = t.queue[k], t.queue[i] })
		}
		t.now, t.began, t.queue, t.amount = &t.queue[0], time.Now(), t.queue[1:], t.Int()
		r.met[t.now.name]++
		r.t.Logf("%d bound; %s", r.bound, t.now.name)
		t.now.begin(r, t)
	}
}

// finish ends the fault that there is.
func (t *track) finish(r *run) {
	r.t.Helper()
	if t.now != nil && t.now.end != nil {
		t.now.end(r, t)
	}
	t.now, t.ended = nil, r.bound
}

// ofSchedulers are the faults of schedulers.
func ofSchedulers() []fault {
	thaw := func(r *run, _ *track) { r.thaw() }
	all := []fault{
		{name: "scheduler killed", begin: func(r *run, t *track) { r.Process(r.leading(t)).Kill() }},
		{name: "scheduler told to end", begin: (*run).tell, over: (*run).dead, end: (*run).kill},
		{name: "lease stolen", begin: (*run).steal},
		{name: "leader stopped until another binds", begin: (*run).freezeLeader, over: (*run).taken, end: thaw},
		{name: "leader stopped for a moment", begin: (*run).freezeLeader, over: lasts(1500 * time.Millisecond), end: thaw},
	}
	for _, step := range []string{scheduler.StepMade, scheduler.StepAllocated, scheduler.StepBound} {
		all = append(all, fault{name: "leader ends after " + step, begin: func(r *run, t *track) { r.crash(t, step) }, over: (*run).dead, end: (*run).kill})
	}
	return all
}

// ofCluster are the faults of nodes, pods and the API server.
func ofCluster() []fault {
	return []fault{
		{name: "API server restarted", begin: func(r *run, _ *track) { r.must(r.Restart(r.t.Context(), plane.APIServer)) }},
		{name: "node lost", begin: (*run).loseNode, over: lasts(2 * time.Second), end: (*run).nodeBack},
		{name: "GPU lost", begin: (*run).loseGPU, over: lasts(2 * time.Second), end: (*run).gpuBack},
		{name: "pods deleted while binding", begin: (*run).deleteAtOnce},
	}
}

// enough is how many requests meet a trouble, at most.
const enough = 100

// troubled are the troubles on the way to the API server.
func troubled() (all []fault) {
	over := lasts(2 * time.Second)
	for _, kind := range plane.Troubles {
		all = append(all, fault{
			name: "API server " + string(kind), begin: func(r *run, t *track) {
				t.met = r.front.Met()
				r.front.Set(kind)
			},
			over: func(r *run, t *track) bool { return r.front.Met()-t.met >= enough || over(r, t) },
			end:  func(r *run, _ *track) { r.front.Set(plane.Calm) },
		})
	}
	return all
}

// lasts ends a fault after a time between a tenth and all of this.
func lasts(most time.Duration) func(*run, *track) bool {
	return func(_ *run, t *track) bool { return time.Since(t.began) > most/10+time.Duration(t.amount)%(most*9/10) }
}

// leading is the scheduler that leads, or any.
func (r *run) leading(t *track) string {
	if name := r.leader(); name != "" {
		return name
	}
	return replicas[t.amount%len(replicas)]
}

// freezeLeader stops the leader in the middle of what it does.
func (r *run) freezeLeader(t *track) {
	t.holder = r.holder()
	r.freeze(r.leading(t))
}

// afterwards is how many pods are bound after another scheduler has taken the lease.
const afterwards = 12

// taken reports whether another one leads than when the fault began, and has bound pods.
func (r *run) taken(t *track) bool {
	if r.holder() == t.holder {
		t.ended = r.bound
	}
	return r.bound-t.ended >= afterwards
}

// holder is who has the lease.
func (r *run) holder() string {
	lease, err := r.client.CoordinationV1().Leases(namespace).Get(r.t.Context(), v1alpha1.SchedulerName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	r.must(err)
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// tell has the leader end. It gives the lease up, so that another one leads at once.
func (r *run) tell(t *track) {
	t.name = r.leading(t)
	_ = r.Process(t.name).Signal(syscall.SIGTERM) // it may be dead
}

// dead reports whether the scheduler that the fault befell has ended.
func (r *run) dead(t *track) bool { return r.Process(t.name).Alive() != nil }

// kill ends the scheduler that the fault befell, if it has not ended by itself.
func (r *run) kill(t *track) { r.Process(t.name).Kill() }

// crash has the other scheduler kill itself after a step, once it leads in the place of one that ends.
func (r *run) crash(t *track, step string) {
	leader := r.leading(t)
	t.name = replicas[0]
	if leader == t.name {
		t.name = replicas[1]
	}
	r.crashing(t.name, step)
	_ = r.Process(leader).Signal(syscall.SIGTERM) // it may be dead
}

// steal gives the lease to somebody who is not there.
func (r *run) steal(*track) {
	leases := r.client.CoordinationV1().Leases(namespace)
	for {
		lease, err := leases.Get(r.t.Context(), v1alpha1.SchedulerName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return
		}
		r.must(err)
		thief := "thief"
		lease.Spec.HolderIdentity = &thief
		if _, err = leases.Update(r.t.Context(), lease, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			r.must(err)
			return
		}
	}
}

func (r *run) loseNode(t *track) {
	r.lostNode = t.amount % r.nodes
	r.must(r.withdraw(r.lostNode))
}

// nodeBack ends the pods of the node that was lost, and brings it back. In half of the cases the node is back first.
func (r *run) nodeBack(t *track) {
	name, first := nodeName(r.lostNode), t.amount/r.nodes%2 == 0
	back := func() {
		r.must(r.addNode(r.lostNode))
		r.must(r.publish(r.lostNode, nil))
	}
	if first {
		back()
	}
	r.look()
	var names []string
	var members []*corev1.Pod
	for i := range r.pods {
		if r.pods[i].Spec.NodeName != name {
			continue
		}
		names = append(names, r.pods[i].Name)
		if r.pods[i].Labels[gangLabel] != "" {
			members = append(members, r.pods[i])
		}
	}
	r.must(r.remove(names))
	for i := range members {
		r.must(r.replace(members[i]))
	}
	if !first {
		back()
	}
	r.lostNode = -1
}

func (r *run) loseGPU(t *track) {
	r.lostNode = t.amount % r.nodes
	lost := t.amount / r.nodes % r.gpus
	r.must(r.publish(r.lostNode, &lost))
}

func (r *run) gpuBack(*track) {
	r.must(r.publish(r.lostNode, nil))
	r.lostNode = -1
}

// deleteAtOnce makes pods and deletes them while they are placed.
func (r *run) deleteAtOnce(t *track) {
	var names []string
	for range 12 {
		b := r.load.next()
		r.must(r.make(b))
		for _, p := range b.pods {
			if p.Labels[gangLabel] == "" {
				names = append(names, p.Name)
			}
		}
	}
	t.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	r.must(r.remove(names))
}
