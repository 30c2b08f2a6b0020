package program

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// movable is a pod of queue a with half a GPU that may move, and that its owner makes again.
func movable(t *testing.T, name string, gang bool) *corev1.Pod {
	t.Helper()
	p := inQueue(t, "a", name, 40)
	p.Labels[v1alpha1.MovableLabel] = "true"
	is := true
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "a", UID: "5f4c1b1a-0000-4000-8000-000000000001", Controller: &is}}
	if gang {
		p.Annotations[v1alpha1.GangAnnotation], p.Annotations[v1alpha1.GangSizeAnnotation] = "pair", "2"
		p.Annotations[v1alpha1.GangShareGPUsAnnotation] = "true"
	}
	return p
}

// again makes movable pods anew that are being deleted, as their owner does, once it is let.
func (q *queued) again(ctx context.Context, gang bool) (let func()) {
	q.t.Helper()
	watch, err := q.client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{LabelSelector: v1alpha1.MovableLabel})
	if err != nil {
		q.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(ctx)
	begin, done := make(chan struct{}), make(chan struct{})
	q.t.Cleanup(func() {
		stop()
		watch.Stop()
		<-done
	})
	go func() {
		defer close(done)
		select {
		case <-begin:
		case <-ctx.Done():
			return
		}
		made := map[string]bool{}
		for event := range watch.ResultChan() {
			if p, ok := event.Object.(*corev1.Pod); ok && p.DeletionTimestamp != nil && !made[p.Name] {
				made[p.Name] = true
				_, _ = q.client.CoreV1().Pods(namespace).Create(ctx, movable(q.t, p.Name+"-again", gang), metav1.CreateOptions{})
			}
		}
	}()
	return func() { close(begin) }
}

// Of two GPUs each is half used, and a pod that is guaranteed one waits. Once pods may move, as many do as must, and all run.
func TestMove(t *testing.T) {
	for want, gang := range map[int]bool{1: false, 2: true} {
		t.Run(fmt.Sprintf("gang=%v", gang), func(t *testing.T) {
			f := withQueues(t, newFleet(t, 2, 1))
			f.queue("a", "{namespaces: [default], grace: 1s, resources: [{guaranteed: 1, limit: 2}]}")
			f.queue("b", "{namespaces: [default], resources: [{guaranteed: 1}]}")
			first := f.run("first", shipped, nil, single)
			for _, step := range []string{"whole 80", "left 40", "full 40", "-whole", "right 40", "-full"} { // so that each GPU has room for one half
				f.step(step)
			}
			f.create(movable(t, "a-0", gang))
			f.create(movable(t, "a-1", gang))
			f.runs("a", 4)
			f.step("-left")
			f.step("-right")
			f.runs("a", 2)
			p := inQueue(t, "b", "b-0", 80)
			p.Labels[v1alpha1.QuotaLabel] = string(v1alpha1.QuotaGuaranteed)
			f.create(p)
			f.waiting(1)
			first.Kill()
			f.dead("first")
			if moved := f.moved(t.Context()); len(moved) > 0 {
				t.Errorf("though nobody may, there move %v", moved)
			}
			let := f.again(t.Context(), gang)
			f.run("second", shipped, nil, single, "--consolidate")
			f.runs("b", 1)
			thief := inQueue(t, "a", "thief", 40)
			thief.Labels[v1alpha1.QuotaLabel] = string(v1alpha1.QuotaOpportunistic) // no queue keeps it from what is free
			f.create(thief)
			f.waiting(1)
			let()
			f.runs("a", 2)
			f.waiting(1)
			f.check()
			f.until(fmt.Sprintf("%d are told that they move", want), func(ctx context.Context) (bool, string) {
				moved := f.moved(ctx)
				return len(moved) == want, fmt.Sprint(moved)
			})
			for name, note := range f.moved(t.Context()) {
				p, err := f.client.CoreV1().Pods(namespace).Get(t.Context(), name+"-again", metav1.GetOptions{})
				if text := "so that pod default/b-0 of queue b has room: a place is kept for it on node " + p.Spec.NodeName; err != nil || !strings.Contains(note, text) {
					t.Errorf("%s was told %q, and not %s (%v)", name, note, text, err)
				}
			}
		})
	}
}

// step makes a pod of queue a with so many GiB and waits until it runs, or ends one and waits until its claim has nothing.
func (q *queued) step(step string) {
	q.t.Helper()
	before := q.running(q.t.Context(), "a")
	if name, ends := strings.CutPrefix(step, "-"); ends {
		if err := q.client.CoreV1().Pods(namespace).Delete(q.t.Context(), name, metav1.DeleteOptions{}); err != nil {
			q.t.Fatal(err)
		}
		q.runs("a", before-1)
		q.until("its claim has nothing", func(ctx context.Context) (bool, string) {
			list, err := q.client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err.Error()
			}
			have := 0
			for i := range list.Items {
				if list.Items[i].Status.Allocation != nil {
					have++
				}
			}
			return have == before-1, fmt.Sprint(have)
		})
		return
	}
	var name string
	var gibibytes int
	if _, err := fmt.Sscan(step, &name, &gibibytes); err != nil {
		q.t.Fatal(err)
	}
	q.create(inQueue(q.t, "a", name, gibibytes))
	q.runs("a", before+1)
}

// moved is what pods that move were told, by their names.
func (q *queued) moved(ctx context.Context) map[string]string {
	q.t.Helper()
	notes := map[string]string{}
	events, err := q.client.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reasonMoved})
	if err != nil {
		q.t.Fatal(err)
	}
	for i := range events.Items {
		notes[events.Items[i].Regarding.Name] = events.Items[i].Note
	}
	return notes
}
