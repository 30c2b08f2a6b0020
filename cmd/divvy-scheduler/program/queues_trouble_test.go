package program

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler"
)

// full has queue a use all GPUs, of which half are guaranteed to b.
func (q *queued) full(gpus int) {
	q.t.Helper()
	q.queue("a", fmt.Sprintf("{namespaces: [default], grace: 1s, resources: [{guaranteed: %d}]}", gpus/2))
	q.queue("b", fmt.Sprintf("{namespaces: [default], grace: 1s, resources: [{guaranteed: %d}]}", gpus/2))
	for i := range gpus {
		q.create(inQueue(q.t, "a", fmt.Sprint("a-", i), 80))
	}
}

// runs waits until so many pods of a queue run.
func (q *queued) runs(queue string, n int) {
	q.t.Helper()
	q.until(fmt.Sprintf("queue %s runs %d", queue, n), func(ctx context.Context) (bool, string) {
		have := q.running(ctx, queue)
		if have == n {
			return true, ""
		}
		seen := fmt.Sprint(have)
		list, err := q.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for i := range list.Items {
			p := &list.Items[i]
			seen += fmt.Sprintf("\n%s on %q, deleted %v: %v", p.Name, p.Spec.NodeName, p.DeletionTimestamp, p.Status.Conditions)
		}
		return false, seen
	})
}

// A scheduler that dies while victims end leaves a plan that the next one finishes: nobody ends in vain.
func TestTakeBackKilled(t *testing.T) {
	f := withQueues(t, newFleet(t, 2, 4))
	f.run("first", crashing, []string{"DIVVY_CRASH_AFTER=" + scheduler.StepEvicted, "DIVVY_CRASH_MARKS=" + t.TempDir()}, single)
	f.full(8)
	f.bound(8)
	for i := range 4 {
		p := inQueue(t, "b", fmt.Sprint("b-", i), 80)
		p.Annotations[v1alpha1.GangAnnotation], p.Annotations[v1alpha1.GangSizeAnnotation] = "four", "4"
		f.create(p)
	}
	f.dead("first")
	f.run("second", shipped, nil, single)
	f.runs("b", 4)
	if n := f.running(t.Context(), "a"); n != 4 {
		t.Errorf("a keeps %d, and is entitled to 4", n)
	}
	f.check()
}

// A victim that does not end is not waited for longer than it may take: another one ends. Budgets of pods are respected.
func TestVictimStays(t *testing.T) {
	f := withQueues(t, newFleet(t, 1, 2))
	f.queue("a", "{namespaces: [default], grace: 1s, resources: [{guaranteed: 1}]}")
	f.queue("b", "{namespaces: [default], grace: 1s, resources: [{guaranteed: 1}]}")
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	old := inQueue(t, "a", "old", 80)
	old.Spec.PriorityClassName = "system-node-critical" // so that it is the last victim
	f.create(old)
	f.bound(1)
	stays := inQueue(t, "a", "stays", 80)
	stays.Finalizers = []string{"example.com/stays"}
	f.create(stays)
	f.bound(2)
	says := f.hear("b-0")
	f.create(inQueue(t, "b", "b-0", 80))
	says("waits for 1 pod of queue a to end")
	f.runs("b", 1)
	if n := f.running(t.Context(), "a"); n != 0 {
		t.Errorf("beside one that does not end, %d pods of a run", n)
	}
	free := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := f.client.CoreV1().Pods(namespace).Patch(t.Context(), "stays", types.MergePatchType, free, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	f.check()
}

// A victim that the API server does not let end is left out of the next plan: nobody else ends in vain, and another one ends instead.
func TestVictimIsRefused(t *testing.T) {
	f := withQueues(t, newFleet(t, 1, 4))
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	f.full(4)
	f.queue("a", "{namespaces: [default], grace: 1m, resources: [{guaranteed: 2}]}") // so that no budget is outwaited
	f.bound(4)
	f.refuse("stays", "pods/eviction", admissionv1.Create, "object.metadata.name in ['a-0', 'a-1', 'a-2']")
	f.refusing("an eviction", func(ctx context.Context) error {
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a-1"}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}}
		return f.client.PolicyV1().Evictions(namespace).Evict(ctx, eviction)
	})
	f.create(inQueue(t, "b", "b-0", 80))
	f.runs("b", 1)
	if n := f.running(t.Context(), "a"); n != 3 {
		t.Errorf("%d of three pods are left that do not end", n)
	}
	f.check()
}

// Queues that contradict each other, are deleted while they are used or change while something is taken back stop nobody else.
func TestQueueTroubles(t *testing.T) {
	f := withQueues(t, newFleet(t, 1, 4))
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	f.queue("a", "{namespaces: [default], resources: [{guaranteed: 2}]}")
	f.queue("round", "{parent: trip, resources: [{guaranteed: 1}]}")
	f.queue("trip", "{parent: round}")
	f.queue("new", "{namespaces: [other], resources: [{model: B200, guaranteed: 1}]}")
	for name, want := range map[string]string{"round": "Cycle", "trip": "Cycle", "new": "NoGPUs"} {
		f.until("queue "+name+" says "+want, func(ctx context.Context) (bool, string) {
			s := f.standing(ctx, name).Status
			return len(s.Conditions) > 0 && s.Conditions[0].Type == want, fmt.Sprintf("%+v", s)
		})
	}
	f.create(inQueue(t, "a", "a-0", 80))
	f.bound(1)
	f.create(inQueue(t, "round", "lost", 80))
	f.says("lost", "queue round is not for pods of namespace default")
	f.create(inQueue(t, "a", "large", 200)) // which never runs, and says when the scheduler has heard of its queue's end
	if err := f.objects.Resource(scheduler.QueuesResource).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.says("large", "there is no queue a")
	if err := f.client.CoreV1().Pods(namespace).Delete(t.Context(), "large", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.create(inQueue(t, "a", "a-1", 80))
	f.says("a-1", "there is no queue a")
	if n := f.running(t.Context(), "a"); n != 1 {
		t.Errorf("%d pods run on in a queue that was deleted, not 1", n)
	}
	f.queue("a", "{namespaces: [default], resources: [{guaranteed: 2}]}")
	f.runs("a", 2)
	bad := inQueue(t, "a", "bad", 80)
	bad.Labels[v1alpha1.QuotaLabel] = "everything"
	f.create(bad)
	f.says("bad", "choose guaranteed, borrowing or opportunistic")
	f.check()
}

// A pod that a disruption budget protects does not end for others, until its queue has been waited for ten times its grace: no budget
// keeps for ever what was lent.
func TestBudget(t *testing.T) {
	f := withQueues(t, newFleet(t, 1, 2))
	f.full(2)
	f.queue("a", "{namespaces: [default], grace: 3s, resources: [{guaranteed: 1}]}") // time to look before the budget is outwaited
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	f.bound(2)
	f.budget("all-of-a", map[string]string{v1alpha1.QueueLabel: "a"})
	f.create(inQueue(t, "b", "b-0", 80))
	for _, reason := range f.waiting(1) {
		if !strings.Contains(reason, "no room") {
			t.Errorf("it waits because %q", reason)
		}
	}
	if n := f.running(t.Context(), "a"); n != 2 {
		t.Errorf("%d of 2 pods are left that a budget protects", n)
	}
	f.runs("b", 1)
	f.reclaimed(1, "budgets long enough")
	f.check()
}

// reclaimed waits until so many victims were told that they end, each with a text: an event is written a moment after what it tells of.
func (q *queued) reclaimed(n int, text string) {
	q.t.Helper()
	q.until(fmt.Sprintf("%d victims are told %q", n, text), func(ctx context.Context) (bool, string) {
		events, err := q.client.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reasonReclaimed})
		if err != nil {
			return false, err.Error()
		}
		told := 0
		for i := range events.Items {
			if strings.Contains(events.Items[i].Note, text) {
				told++
			}
		}
		return told == n && len(events.Items) == n, fmt.Sprintf("%+v", events.Items)
	})
}

// budget makes one that lets no pod end. No controller runs that would count its pods.
func (q *queued) budget(name string, labels map[string]string) {
	q.t.Helper()
	one := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	if _, err := q.client.PolicyV1().PodDisruptionBudgets(namespace).Create(q.t.Context(), one, metav1.CreateOptions{}); err != nil {
		q.t.Fatal(err)
	}
}
