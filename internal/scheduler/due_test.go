package scheduler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	policylisters "k8s.io/client-go/listers/policy/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// wanting makes a pod that waits, and of which a search found nobody.
func wanting(e *Engine, namespace, name string, again time.Time) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = namespace, name, types.UID(namespace+"/"+name)
	e.queues.set.SetPod(pod)
	e.queues.takings.wants[namespace+"/"+name] = want{again, errors.New("nobody may end")}
	return pod
}

// Many workloads for which nobody may end delay neither another queue's nor each other.
func TestDue(t *testing.T) {
	e := engineOf(t, 1, claimsByName{})
	var specs []queue.Spec
	for _, name := range []string{"a", "b"} {
		specs = append(specs, queue.Spec{Name: name, QueueSpec: v1alpha1.QueueSpec{Namespaces: []string{name}, Resources: []v1alpha1.QueueShare{{Guaranteed: v1alpha1.Written("1")}}}})
	}
	e.queues.set.SetQueues(specs)
	now := time.Date(2026, 5, 4, 8, 0, 0, 0, time.UTC)
	for i := range 40 {
		wanting(e, "a", fmt.Sprintf("%03d", i), now.Add(-time.Minute))
	}
	wanting(e, "b", "z", now)
	e.queues.set.Settle()
	seen := map[string]int{}
	for round := range 14 {
		due := e.Due(now.Add(time.Duration(round) * time.Second))
		if len(due) != mostTries {
			t.Fatalf("%d are due", len(due))
		}
		for _, pod := range due {
			seen[keyOf(pod)]++
			e.queues.takings.wants[keyOf(pod)] = want{now.Add(time.Duration(round+1) * time.Second), errLater}
		}
	}
	if seen["b/z"] != 14 {
		t.Errorf("the only pod of its queue was due %d of 14 times", seen["b/z"])
	}
	if len(seen) != 41 {
		t.Errorf("of 41 pods that are due %d came up", len(seen))
	}
}

// A plan that was given up counts as waiting for the time since it was made: budgets that let a pod end and then do not keep nobody for
// ever. What is noted of a workload ends with it.
func TestGivenUp(t *testing.T) {
	e := engineOf(t, 1, claimsByName{})
	now := time.Date(2026, 5, 4, 8, 0, 0, 0, time.UTC)
	pod := wanting(e, "a", "p", now)
	for i := range 2 {
		plan := &Taking{id: "a/p", made: now.Add(time.Duration(i) * time.Minute)}
		e.queues.takings.all[plan.id] = plan
		e.GiveUp(plan, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "stays"}})
		e.Drain()
		if since := e.queues.takings.since["a/p"]; !since.Equal(now) || len(e.queues.takings.all) != 0 {
			t.Errorf("after %d plans it has waited since %v", i+1, since)
		}
	}
	e.queues.set.RemovePod(pod.UID)
	e.queues.set.Settle()
	if e.Due(now); len(e.queues.takings.since)+len(e.queues.takings.wants) != 0 {
		t.Error("a pod that has gone is kept in mind")
	}
}

// A victim that did not end is left out for a minute, and a budget that was not counted since it changed lets nobody end.
func TestThoseWhoStay(t *testing.T) {
	e := engineOf(t, 1, claimsByName{})
	now := time.Date(2026, 5, 4, 8, 0, 0, 0, time.UTC)
	e.clock = func() time.Time { return now }
	counted := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "one", Generation: 2}}
	counted.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	counted.Status.DisruptionsAllowed, counted.Status.ObservedGeneration = 3, 1
	e.disruptions = budgetsListed{counted}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", UID: "p", Labels: map[string]string{"app": "a"}}}
	may := func() int {
		e.follow()
		var b budgets
		b.read(e)
		return b.left[b.of(pod)[0]]
	}
	if n := may(); n != 0 {
		t.Errorf("a budget that changed lets %d end", n)
	}
	counted.Status.ObservedGeneration = 2
	if n := may(); n != 3 {
		t.Errorf("a budget of 3 lets %d end", n)
	}
	e.GiveUp(&Taking{id: "b/p", made: now}, pod)
	e.Drain()
	if n := may(); n != 0 {
		t.Errorf("a victim that did not end may end %d times", n)
	}
	now = now.Add(stayLimit + time.Second)
	if n := may(); n != 3 || len(e.queues.takings.stay) != 0 {
		t.Errorf("a minute later %d may end, and %d are noted", n, len(e.queues.takings.stay))
	}
}

// budgetsListed are disruption budgets that are there.
type budgetsListed []*policyv1.PodDisruptionBudget

func (b budgetsListed) List(labels.Selector) ([]*policyv1.PodDisruptionBudget, error) { return b, nil }

func (b budgetsListed) PodDisruptionBudgets(string) policylisters.PodDisruptionBudgetNamespaceLister {
	return nil
}

func (b budgetsListed) GetPodPodDisruptionBudgets(*corev1.Pod) ([]*policyv1.PodDisruptionBudget, error) {
	return nil, nil
}

// The API for evictions ends no pod that several budgets protect, whatever they let.
func TestSeveralBudgets(t *testing.T) {
	var all budgetsListed
	for _, name := range []string{"one", "two"} {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{name: "yes"}}
		b.Status.DisruptionsAllowed = 3
		all = append(all, b)
	}
	e := engineOf(t, 1, claimsByName{})
	e.disruptions = all
	var b budgets
	b.read(e)
	for want, of := range map[int]map[string]string{3: {"one": "yes"}, 0: {"one": "yes", "two": "yes"}} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Labels: of}}
		if at := b.of(pod); len(at) != 1 || b.left[at[0]] != want {
			t.Errorf("of pods with labels %v %v of %v end", of, at, b.left)
		}
	}
	if at := b.of(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}}); len(at) != 0 {
		t.Errorf("a pod of no budget has %v", at)
	}
}
