package faults

import (
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
	begin func(*run)
	over  func(*run) bool
	end   func(*run)
}

// faults are all of them.
var faults = append([]fault{
	{name: "scheduler killed", begin: func(r *run) { r.Process(r.leading()).Kill() }},
	{name: "lease stolen", begin: (*run).steal},
	{name: "leader stopped until another leads", begin: func(r *run) { r.freeze(r.leading()) }, over: (*run).taken, end: func(r *run) { r.thaw() }},
	{name: "leader stopped for a moment", begin: func(r *run) { r.freeze(r.leading()) }, over: lasts(1500 * time.Millisecond), end: func(r *run) { r.thaw() }},
	{name: "API server restarted", begin: func(r *run) { r.must(r.Restart(r.t.Context(), plane.APIServer)) }},
	{name: "node lost", begin: (*run).loseNode, over: lasts(2 * time.Second), end: (*run).nodeBack},
	{name: "GPU lost", begin: (*run).loseGPU, over: lasts(2 * time.Second), end: (*run).gpuBack},
	{name: "pods deleted while binding", begin: (*run).deleteAtOnce},
}, append(crashes(), troubled()...)...)

// crashes have the schedulers kill themselves after a step.
func crashes() (all []fault) {
	for _, step := range []string{scheduler.StepMade, scheduler.StepAllocated, scheduler.StepBound} {
		all = append(all, fault{name: "scheduler ends after " + step, begin: func(r *run) {
			for _, name := range replicas {
				r.Process(name).Kill()
			}
			r.crash = step
		}})
	}
	return all
}

// troubled are the troubles on the way to the API server.
func troubled() (all []fault) {
	for _, t := range troubles {
		all = append(all, fault{
			name: "API server " + string(t), begin: func(r *run) { r.front.set(t) }, over: lasts(2 * time.Second), end: func(r *run) { r.front.set(calm) },
		})
	}
	return all
}

// lasts ends a fault after a time between a tenth and all of this.
func lasts(most time.Duration) func(*run) bool {
	return func(r *run) bool { return time.Since(r.began) > most/10+time.Duration(r.rand.Int64N(int64(most))) }
}

// leading is the scheduler that leads, or any.
func (r *run) leading() string {
	if name := r.leader(); name != "" {
		return name
	}
	return replicas[r.rand.IntN(len(replicas))]
}

// taken reports whether another one leads than the one that is stopped, and has bound pods.
func (r *run) taken() bool { return r.leader() != "" && len(r.bound)-r.last >= gap }

// steal gives the lease to somebody who is not there.
func (r *run) steal() {
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

func (r *run) loseNode() {
	r.lostNode = r.rand.IntN(r.nodes)
	r.must(r.withdraw(r.lostNode))
}

// nodeBack ends the pods of the node that was lost, and brings it back. In half of the cases the node is back first.
func (r *run) nodeBack() {
	name, first := nodeName(r.lostNode), r.rand.IntN(2) == 0
	back := func() {
		r.must(r.addNode(r.lostNode))
		r.must(r.publish(r.lostNode, nil))
	}
	if first {
		back()
	}
	r.look()
	var names []string
	var members []corev1.Pod
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
		r.must(r.replace(&members[i]))
	}
	if !first {
		back()
	}
	r.lostNode = -1
}

func (r *run) loseGPU() {
	r.lostNode = r.rand.IntN(r.nodes)
	lost := r.rand.IntN(r.gpus)
	r.must(r.publish(r.lostNode, &lost))
}

func (r *run) gpuBack() {
	r.must(r.publish(r.lostNode, nil))
	r.lostNode = -1
}

// deleteAtOnce makes pods and deletes them while they are placed.
func (r *run) deleteAtOnce() {
	var names []string
	for range 12 {
		b := r.load.next()
		r.must(r.make(b))
		for _, p := range b.pods {
			names = append(names, p.Name)
		}
	}
	r.rand.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	gangs := map[string]bool{}
	r.look()
	for i := range r.pods {
		if g := r.pods[i].Labels[gangLabel]; g != "" {
			gangs[r.pods[i].Name] = true
		}
	}
	var alone []string
	for _, name := range names {
		if !gangs[name] {
			alone = append(alone, name)
		}
	}
	r.must(r.remove(alone))
}
